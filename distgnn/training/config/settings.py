"""Everything that decides what a training run does."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal, get_args

from distgnn.datasets.errors import InputError
from distgnn.exchange.rule import DelayCache, DelayRule
from distgnn.kernels.tensors import DTYPES, DtypeName
from distgnn.nn.config import (
    KINDS,
    OWN,
    ActivationName,
    EdgeFeatures,
    JumpingName,
    ModelConfig,
    NormName,
    models_with,
)
from distgnn.nn.decoders import DecoderName
from distgnn.nn.gcn import Degrees
from distgnn.nn.relational import RelationNorm
from distgnn.nn.sage import Aggregator
from distgnn.optim.optimizers import OptimizerName
from distgnn.training.config.delays import check_delays
from distgnn.training.data.info import TASK_NAMES
from distgnn.training.tasks.tasks import METRIC_NAMES

if TYPE_CHECKING:
    from collections.abc import Mapping

FeaturesOn = Literal["auto", "device", "host"]
DecayOf = Literal["all", "first"]
FeatureNorm = Literal["none", "row", "standard"]

_ALGORITHM = re.compile(r"0c|cd-[0-9]{1,9}")
_SEED_LIMIT = 2**63


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """A training run, apart from the graph it runs on."""

    model: ModelConfig = field(default_factory=ModelConfig)
    """What is trained."""
    task: str = "auto"
    """What the labels are for; auto asks them."""
    metric: str = "auto"
    """What is measured, and chooses the best epoch; auto: the data set's own, else the task's."""
    decoder: DecoderName = "dot"
    """How the rows of two vertices become the score of a link between them."""
    epochs: int = 200
    """Full-batch steps, at most."""
    optimizer: OptimizerName = "adam"
    """How gradients become steps; sgd has momentum 0.9."""
    lr: float = 0.01
    """Length of a step."""
    weight_decay: float = 5e-4
    """L2 penalty on all weights (adamw: decoupled)."""
    decay_of: DecayOf = "all"
    """Whether the penalty is on all weights, or on those of the first layer alone."""
    feature_norm: FeatureNorm = "none"
    """row: each vertex's features sum to 1; standard: each column has mean 0 and variance 1."""
    features_dtype: DtypeName = "fp32"
    """Type that dense features, and what is made of them once, are stored as."""
    features_on: FeaturesOn = "auto"
    """Where features are while a CUDA device computes; host: in pinned memory, from where they are
    streamed; auto: on the device if all fits there."""
    labels_as_input: float = 0.0
    """Share of the training vertices that give their labels as input, drawn in each epoch, while
    the others are the loss; 0: none. In evaluation all give theirs."""
    seed: int = 0
    """Of initial weights and dropout."""
    eval_every: int = 1
    """Epochs between evaluations."""
    patience: int = 0
    """Stop after so many epochs without a better validation metric; 0 never stops early."""
    split_index: int = 0
    """Row of the masks."""
    algorithm: str = "cd-0"
    """cd-0: synchronous; cd-R: R bins, delay R; 0c: nothing travels."""
    bins: int | None = None
    """Share of the rows that travels in an epoch is 1 / bins; None: as the algorithm says."""
    delay: int | None = None
    """Epochs between sending a row and using it; None: as the algorithm says."""
    delay_cache: bool = True
    """Whether a delayed row keeps its last value between its turns (the paper's rule: no)."""
    gradient_cache: bool | None = None
    """The same for gradients that travel back; None: as delay_cache."""
    smoothing: float = 0.0
    """Share of the average of a delayed row's values that stays when a new one arrives."""
    gradient_smoothing: float | None = None
    """The same for gradients that travel back; None: as smoothing where there is a cache."""
    warm_up_epochs: int = 0
    """Synchronous epochs before delays begin."""
    reweight_loss: bool = False
    """Weigh each vertex's loss by its local over its global in-degree (0c)."""
    checkpoint_every: int = 10
    """Epochs between checkpoints; 0 writes none before the end."""
    static_input: bool = True
    """Whether input that is not dropped out is aggregated once instead of in every epoch."""
    receptive_field: bool = True
    """Whether layers run on the rows that the loss reads instead of on all."""
    overlap: bool = True
    """Whether rows of cd-0 travel while edges are walked; off to measure what that hides."""
    replay: bool = True
    """Whether one rank on a CUDA device replays its step as a CUDA graph where this pays."""
    recompute: bool = False
    """Whether backward computes hidden layers again instead of keeping what they are made of."""

    def __post_init__(self) -> None:
        """Check every value, naming the flag to change."""
        model = self.model
        if not model.own:
            _choice("--model", model.model, tuple(KINDS))
        _choice("--aggregator", model.aggregator, get_args(Aggregator))
        _choice("--relation-norm", model.relation_norm, get_args(RelationNorm))
        _choice("--norm", model.norm, get_args(NormName))
        _choice("--jumping", model.jumping, get_args(JumpingName))
        _choice("--activation", model.activation, get_args(ActivationName))
        _choice("--edge-features", model.edge_features, get_args(EdgeFeatures))
        _choice("--degrees", model.degrees, get_args(Degrees))
        _choice("--task", self.task, ("auto", *TASK_NAMES))
        _choice("--metric", self.metric, ("auto", *METRIC_NAMES))
        _choice("--decoder", self.decoder, get_args(DecoderName))
        _choice("--decay-of", self.decay_of, get_args(DecayOf))
        _choice("--optimizer", self.optimizer, get_args(OptimizerName))
        _choice("--feature-norm", self.feature_norm, get_args(FeatureNorm))
        _choice("--features-dtype", self.features_dtype, get_args(DtypeName))
        _choice("--features-on", self.features_on, get_args(FeaturesOn))
        _choice("--activations-dtype", model.activations_dtype, get_args(DtypeName))
        _at_least("--heads", model.heads, 1)
        _at_least("--last-heads", model.last_heads, 0)
        _at_least("--bases", model.bases, 0)
        _at_least("--hidden", model.hidden, 1)
        _at_least("--layers", model.layers, 1)
        _at_least("--hops", model.hops, 1)
        _at_least("--epochs", self.epochs, 1)
        _at_least("--seed", self.seed, 0)
        _at_least("--eval-every", self.eval_every, 1)
        _at_least("--patience", self.patience, 0)
        _at_least("--split-index", self.split_index, 0)
        _at_least("--checkpoint-every", self.checkpoint_every, 0)
        if self.seed >= _SEED_LIMIT:
            raise InputError(f"--seed must be below 2**63, got {self.seed}")
        if not 0 <= self.weight_decay < float("inf"):
            raise InputError(
                f"--weight-decay must be at least 0 and finite, got {self.weight_decay}"
            )
        for flag, value in (
            ("--dropout", model.dropout),
            ("--input-dropout", model.input_dropout),
            ("--attention-dropout", model.attention_dropout),
        ):
            if not 0 <= value < 1:
                raise InputError(f"{flag} must be at least 0 and below 1, got {value}")
        if not 0 < model.alpha <= 1:
            raise InputError(f"--alpha must be above 0 and at most 1, got {model.alpha}")
        if not abs(model.eps) < float("inf"):
            raise InputError(f"--eps must be finite, got {model.eps}")
        if not 0 < self.lr < float("inf"):
            raise InputError(f"--lr must be positive and finite, got {self.lr}")
        for name in sorted(set().union(*(kind.options for kind in KINDS.values()))):
            _has_effect(model, name)
        if model.jumping != "none" and not model.kind.has_hidden_sums:
            raise InputError(
                f"--jumping {model.jumping} leaves out the last layer, but --model {model.model} "
                "reads neighbours in no other; drop it or use --model gcn or sgc"
            )
        if model.last_heads and model.jumping != "none":
            raise InputError(
                f"--last-heads {model.last_heads} has no effect with --jumping {model.jumping}, "
                "whose linear layer gives the classes; drop one of the two"
            )
        if model.residual_map and not model.residual:
            raise InputError("--residual-map has no effect without --residual; add it or drop both")
        self._check_own()
        self._check_label_input()
        self._check_algorithm()
        self._resolve_delays()
        check_delays(self)

    def _check_own(self) -> None:
        """Refuse what has no effect on a module that the user wrote."""
        model = self.model
        if not model.own:
            return
        plain = ModelConfig(model=OWN, own=model.own, edge_features=model.edge_features)
        for item in fields(ModelConfig):
            value = getattr(model, item.name)
            if value != getattr(plain, item.name):
                raise InputError(
                    f"--{item.name.replace('_', '-')} {value} has no effect on a model of your "
                    "own; set it in the module itself"
                )
        for given, is_given in (
            ("--decay-of first", self.decay_of == "first"),
            ("--recompute", self.recompute),
            (f"--decoder {self.decoder}", self.decoder != "dot"),
            ("--task link", self.task == "link"),
        ):
            if is_given:
                raise InputError(
                    f"{given} needs to know the layers, so it has no effect on a model of your "
                    "own; leave it out"
                )

    def _check_label_input(self) -> None:
        share = self.labels_as_input
        if not 0 <= share < 1:
            raise InputError(f"--labels-as-input must be at least 0 and below 1, got {share}")
        if share and self.model.kind.is_typed:
            raise InputError(
                f"--labels-as-input {share} does not go with --model {self.model.model}; drop one "
                "of the two"
            )

    def _check_algorithm(self) -> None:
        if _ALGORITHM.fullmatch(self.algorithm) is None:
            raise InputError(
                f"--algorithm must be 0c, cd-0 or cd-R with R the delay in epochs, "
                f"got '{self.algorithm}'"
            )
        if self.recompute and self.model.norm == "batch":
            raise InputError(
                "--recompute would count the statistics of --norm batch twice; "
                "use --norm layer or none"
            )
        if self.reweight_loss and not self.is_isolated:
            raise InputError(
                "--reweight-loss has an effect with --algorithm 0c only; drop one of the two"
            )

    def _resolve_delays(self) -> None:
        """Replace what the algorithm decides by its value, so that a run remembers it."""
        r = self.algorithm_delay
        gradient_cache = self.delay_cache if self.gradient_cache is None else self.gradient_cache
        for name, value in (
            ("bins", max(r, 1)),
            ("delay", r),
            ("gradient_cache", gradient_cache),
            ("gradient_smoothing", self.smoothing if gradient_cache else 0.0),
        ):
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)

    @property
    def is_isolated(self) -> bool:
        """Whether nothing travels (0c)."""
        return self.algorithm == "0c"

    @property
    def algorithm_delay(self) -> int:
        """R of cd-R, which bins and delay are unless they are set apart; 0 of 0c."""
        return 0 if self.is_isolated else int(self.algorithm.removeprefix("cd-"))

    @property
    def feature_bytes(self) -> int:
        """Of a value of dense features."""
        return DTYPES[self.features_dtype].itemsize

    @property
    def delays(self) -> DelayRule:
        """When rows travel and when they are used."""
        assert self.bins is not None, "every configuration is resolved"
        assert self.delay is not None, "every configuration is resolved"
        return DelayRule(
            num_bins=self.bins,
            delay=self.delay,
            warm_up_epochs=self.warm_up_epochs,
            forward=DelayCache(self.delay_cache, self.smoothing),
            backward=DelayCache(bool(self.gradient_cache), self.gradient_smoothing or 0.0),
        )

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
        _same_fields(cls, values)
        _same_fields(ModelConfig, values["model"])
        model = ModelConfig(**values["model"])
        _same_types(cls(), {**values, "model": model})
        _same_types(ModelConfig(), values["model"])
        return cls(**{**values, "model": model})

    def differences(self, other: TrainConfig) -> list[str]:
        """List the settings in which a run that is resumed differs from the one that was begun.

        How long it runs and how often it looks may change; all that changes its steps may not.

        Args:
            other: The configuration to compare with.

        Returns:
            One phrase per setting.
        """
        free = (
            *("epochs", "patience", "checkpoint_every", "recompute", "overlap", "replay"),
            "features_on",
        )
        mine, theirs = _flat(self.to_json()), _flat(other.to_json())
        return [
            f"{name} (begun with {mine[name]}, now {theirs[name]})"
            for name in mine
            if name not in free and mine[name] != theirs[name]
        ]


def _flat(values: dict[str, Any]) -> dict[str, Any]:
    model = values.pop("model")
    return {**values, **model}


def _same_fields(owner: type, values: Any) -> None:
    expected = {item.name for item in fields(owner)}
    if not isinstance(values, dict) or set(values) != expected:
        got = sorted(values) if isinstance(values, dict) else values
        raise InputError(
            f"the run's configuration must have the fields {sorted(expected)}, got {got}; "
            "it was written by another version or altered: train again"
        )


def _same_types(default: object, values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        expected = type(getattr(default, name))
        # Where a fraction is expected, JSON may hold a whole number; true is no number.
        if type(value) is not expected and not (expected is float and type(value) is int):
            raise InputError(
                f"the run's configuration holds {value!r} for {name}, which must be of type "
                f"{expected.__name__}; it was altered: train again"
            )


def _choice(flag: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InputError(f"{flag} must be one of {', '.join(allowed)}, got '{value}'")


def _has_effect(model: ModelConfig, name: str) -> None:
    value, owners = getattr(model, name), models_with(name)
    if value != getattr(ModelConfig, name) and name not in model.kind.options:
        flag = "--" + name.replace("_", "-")
        given = flag if value is True else f"{flag} {value}"
        raise InputError(
            f"{given} has no effect on --model {model.model}; "
            f"drop it or use --model {' or '.join(owners)}"
        )


def _at_least(flag: str, value: float, least: float) -> None:
    if not value >= least:
        raise InputError(f"{flag} must be at least {least}, got {value}")
