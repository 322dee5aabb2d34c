"""Settings of how gradients become steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from distgnn.optim.schedules import GRAMMAR, is_schedule
from distgnn.settings.fields import NOT_NEGATIVE, POSITIVE, SHARE, Bound, at_least, flag
from distgnn.settings.names import OptimizerName

DecayOf = Literal["all", "first"]

BALANCED = "balanced"
"""Value of --class-weights that counts the training vertices."""


def parse_class_weights(text: str) -> list[float]:
    """Read the numbers of --class-weights; none where they are counted, or not asked for.

    Args:
        text: Value of the flag.

    Raises:
        ValueError: If it is none.
    """
    weights = [float(word) for word in text.split(",")] if text not in ("", BALANCED) else []
    if not all(0 < weight < float("inf") for weight in weights):
        raise ValueError(f"'{text}' has a number that is not positive and finite")
    return weights


def _are_class_weights(text: str) -> bool:
    try:
        parse_class_weights(text)
    except ValueError:
        return False
    return True


_CLASS_WEIGHTS = Bound(
    f"{BALANCED}, or positive numbers with commas between them", _are_class_weights
)
_SCHEDULE = Bound(f"{GRAMMAR}, with FLOOR and FACTOR below 1", is_schedule)


@dataclass(frozen=True, kw_only=True)
class OptimizationSettings:
    """Rule by which gradients become steps."""

    GROUP: ClassVar[str] = "optimization"

    optimizer: OptimizerName = flag(
        "adam",
        "adam, adamw, sgd, kfac, or lbfgs, which searches along a line in each epoch (default: "
        "%(default)s)",
        is_predicted=True,
        is_common=True,
    )
    kfac: str = flag(
        "",
        "how kfac preconditions: factors are read every factors=5 and inverted every inverses=5 "
        "epochs, both in each of the first=10; damping=0.001, clip=0.01, decay=0, "
        "workers=all|half|one|SHARE of the ranks, widest=1024 columns of a factor that is no "
        "diagonal (default: these values)",
        metavar="NAME=X,...",
        is_predicted=True,
    )
    lr: float = flag(
        None,
        "rate of a step (default: 0.1 of kfac, 1 of lbfgs, else 0.01)",
        POSITIVE,
        metavar="R",
        varies=True,
        is_common=True,
    )
    lr_schedule: str = flag(
        "constant",
        "rate of each epoch: constant; cosine falls to FLOOR * lr (default 0) over --epochs; step "
        "multiplies it by FACTOR (default 0.1) after every so many epochs; plateau does so after "
        "more than PATIENCE (default 10) epochs without a better validation metric (default: "
        "%(default)s)",
        _SCHEDULE,
        metavar="NAME[:N[:X]]",
    )
    lr_warm_up: int = flag(
        0,
        "epochs in which the rate grows to --lr, before the schedule begins (default: none)",
        at_least(0),
        metavar="EPOCHS",
    )
    weight_decay: float = flag(
        5e-4,
        "factor of the squared weights in the loss, of adamw apart from it (default: %(default)s)",
        NOT_NEGATIVE,
        metavar="W",
        is_common=True,
    )
    decay_of: DecayOf = flag("all", "weights that decay: all, or first layer's (default: all)")
    label_smoothing: float = flag(
        0.0,
        "of single-label: share of a vertex's target that is spread over all classes "
        "(default: none)",
        SHARE,
        metavar="X",
    )
    class_weights: str = flag(
        "",
        "weight of each class in the loss of single-label, of a yes in that of multi-label: "
        "balanced, from the counts of training vertices, W0,W1,..., or a file of numbers "
        "(default: 1 each)",
        _CLASS_WEIGHTS,
        metavar="balanced|W0,W1,...|FILE",
    )
    clip_grad_norm: float = flag(
        0.0,
        "shorten the gradient of all weights together to a norm of X where it is longer "
        "(default: never)",
        NOT_NEGATIVE,
        metavar="X",
    )
    ema: float = flag(
        0.0,
        "evaluate and keep a moving average of the weights, of which a share D stays in each "
        "step; 0.99 averages about 100 epochs (default: none)",
        SHARE,
        metavar="D",
    )

    @property
    def is_second_order(self) -> bool:
        """Whether steps differ in what they do, as curvature decides: no step is replayed."""
        return self.optimizer in ("kfac", "lbfgs")
