"""Checked settings of a run: everything that decides what it does."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from distgnn.nn.config import KINDS, ModelConfig
from distgnn.settings.fields import (
    check_types,
    check_values,
    differences,
    picked,
    settings_of,
)
from distgnn.settings.kfac import parse as parse_kfac
from distgnn.training.config.codecs import halo_text, weights_text
from distgnn.training.config.compatibility import check_together
from distgnn.training.config.presets import PRESETS
from distgnn.training.config.run import RunSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from distgnn.settings.names import OptimizerName


_LR = 0.01
_LR_OF: Mapping[OptimizerName, float] = {"kfac": 0.1, "lbfgs": 1.0}


@dataclass(frozen=True, kw_only=True)
class TrainConfig(RunSettings):
    """A training run, apart from the graph it runs on.

    What the algorithm and the preset decide is replaced by its value, so that a run remembers it.

    Raises:
        InputError: If a value is not allowed, or two do not go together; it names the flag.
    """

    def __post_init__(self) -> None:
        """Check all values, and replace those that the algorithm and the preset decide."""
        self._take_preset()
        check_values(self.model, but=("model",) if self.model.own else ())
        given: float | None = self.lr
        if given is None:
            object.__setattr__(self, "lr", _LR_OF.get(self.optimizer, _LR))
        check_values(self)
        object.__setattr__(self, "kfac", str(parse_kfac(self.kfac)))
        rule = self.strategy.rule
        for name, value in (
            ("bins", rule.num_bins),
            ("delay", rule.delay),
            ("gradient_cache", rule.backward.is_cached),
            ("gradient_smoothing", rule.backward.smoothing),
            ("halo", halo_text(self.given_halo)),
            ("weights", weights_text(self.weight_rule)),
            ("evaluation", "exact" if self.screening is None else self.screening.text),
        ):
            object.__setattr__(self, name, value)
        check_together(self)

    def _take_preset(self) -> None:
        """Take what the preset says for settings that were not given; others are refused later."""
        preset = PRESETS.get(self.preset or "")
        said = {} if preset is None else preset.settings
        for setting in settings_of(RunSettings):
            is_open = setting.about is not None and setting.about.usual is not None
            if is_open and getattr(self, setting.name) is None:
                object.__setattr__(self, setting.name, said.get(setting.name, setting.default))

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> TrainConfig:
        """Build the configuration from flat values, as a command line has them.

        Args:
            values: Settings of the run and of its model by name, perhaps with others, which are
                ignored. Those that are missing or None are as by default, of the model as its
                paper has it.

        Returns:
            The configuration.

        Raises:
            InputError: If a value is not allowed.
        """
        model = picked(values, ModelConfig)
        kind = KINDS.get(model.get("model", ModelConfig.model))
        if kind is not None:  # else it is refused with all other values
            if kind.drops_input:
                model.setdefault("input_dropout", model.get("dropout", ModelConfig.dropout))
            model = {**kind.defaults, **model}
        return cls(model=ModelConfig(**model), **picked(values, cls))

    def to_json(self) -> dict[str, Any]:
        """Turn into plain JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> TrainConfig:
        """Read what `to_json` wrote.

        Args:
            values: Parsed JSON.

        Returns:
            The configuration.

        Raises:
            InputError: If a field is missing, unknown, or has a value that is not allowed.
        """
        check_types(cls, values, besides=("model",))
        check_types(ModelConfig, values["model"])
        return cls(**{**values, "model": ModelConfig(**values["model"])})

    def differences(self, other: TrainConfig) -> list[str]:
        """List the settings in which a run that is resumed differs from the one that was begun.

        Args:
            other: The configuration to compare with.

        Returns:
            One phrase a setting; settings that may change are left out.
        """
        return [*differences(self, other), *differences(self.model, other.model)]
