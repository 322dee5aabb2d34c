"""All settings of a run, and what they stand for."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from distgnn.exchange.codec import HaloCodecs
from distgnn.exchange.rule import HaloRule, delayed
from distgnn.kernels.tensors import DTYPES
from distgnn.nn.config import ModelConfig
from distgnn.training.config.channels import ChannelSettings
from distgnn.training.config.codecs import parse_halo, parse_weights
from distgnn.training.config.data import DataSettings
from distgnn.training.config.delays import DelaySettings
from distgnn.training.config.evaluation import Screening, parse_evaluation
from distgnn.training.config.loop import LoopSettings, MachineSettings, SavingSettings
from distgnn.training.config.optimization import OptimizationSettings
from distgnn.training.config.presets import PRESETS
from distgnn.training.config.strategy import Strategy, parse
from distgnn.weights.rule import SUM, WeightRule


@dataclass(frozen=True, kw_only=True)
class RunSettings(
    MachineSettings,
    SavingSettings,
    LoopSettings,
    ChannelSettings,
    DelaySettings,
    OptimizationSettings,
    DataSettings,
):
    """Settings of a run, each by its owner; not checked.

    Attributes:
        model: Shape of the model.
    """

    model: ModelConfig = field(default_factory=ModelConfig)

    @cached_property
    def strategy(self) -> Strategy:
        """Strategy of the algorithm, with the settings that replace parts of it."""
        kind, number = parse(self.algorithm)
        gradient_cache = self.delay_cache if self.gradient_cache is None else self.gradient_cache
        gradient_smoothing = self.gradient_smoothing
        if gradient_smoothing is None:
            gradient_smoothing = self.smoothing if gradient_cache else 0.0
        rule = delayed(
            num_bins=max(number, 1) if self.bins is None else self.bins,
            delay=number if self.delay is None else self.delay,
            warm_up_epochs=self.warm_up_epochs,
            forward=(self.delay_cache, self.smoothing),
            backward=(gradient_cache, gradient_smoothing),
        )
        return kind(rule)

    @cached_property
    def given_halo(self) -> HaloRule:
        """Rule of --halo, or of --preset."""
        if self.halo is not None:
            return parse_halo(self.halo)
        return HaloRule() if self.preset is None else parse_halo(PRESETS[self.preset].halo)

    @property
    def halo_rule(self) -> HaloRule:
        """Rule of the rows that travel: the given one, else that of the algorithm."""
        return self.strategy.rule if self.given_halo == HaloRule() else self.given_halo

    @property
    def halo_codecs(self) -> HaloCodecs:
        """Codecs of the rows that travel, by direction."""
        return self.halo_rule.codecs

    @cached_property
    def weight_rule(self) -> WeightRule:
        """Rule of the weights that ranks tell each other, and when."""
        if self.weights is not None:
            return parse_weights(self.weights)
        return SUM if self.preset is None else parse_weights(PRESETS[self.preset].weights)

    @property
    def chooses_codes(self) -> bool:
        """Whether codes of rows or of gradients are chosen while the run trains."""
        return self.given_halo.auto is not None or self.weight_rule.is_chosen

    @property
    def may_start_on_parts(self) -> bool:
        """Whether the first epochs train on each part alone, or may by a choice of the run."""
        auto = self.given_halo.auto
        if self.quiet_epochs or auto is None or not auto.may_start:
            return self.starts_on_parts
        has_edges_alone = not (self.model.kind.is_typed or self.labels_as_input)
        return has_edges_alone and self.task != "link" and not self.is_second_order

    @property
    def is_isolated(self) -> bool:
        """Whether nothing travels (0c)."""
        return self.strategy.is_isolated

    @cached_property
    def screening(self) -> Screening | None:
        """Rule of evaluations over coded rows; None where every evaluation is exact."""
        return parse_evaluation(self.evaluation)

    @property
    def feature_bytes(self) -> int:
        """Bytes of a value of dense features."""
        return DTYPES[self.features_dtype].itemsize
