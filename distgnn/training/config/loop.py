"""Settings of how long a run trains, how it saves work, and where it keeps its data."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar, Literal

from distgnn.settings.fields import FINITE, Bound, at_least, flag

StopOn = Literal["metric", "loss"]
_START = re.compile(r"graph|mlp\(([1-9][0-9]{0,8})\)")
Verify = Literal["none", "rows"]
FeaturesOn = Literal["auto", "device", "host"]
LogName = Literal["none", "tensorboard", "mlflow", "wandb"]

_BELOW_SEEDS = Bound("below 2**63", lambda value: value < 2**63, most=2**63 - 1)


@dataclass(frozen=True, kw_only=True)
class LoopSettings:
    """Length of a run, and how often it evaluates."""

    GROUP: ClassVar[str] = "length of the run"

    epochs: int = flag(
        200,
        "full-batch steps (default: %(default)s)",
        at_least(1),
        metavar="E",
        is_free=True,
        is_common=True,
    )
    start: str = flag(
        "graph",
        "graph, or mlp(N): the first N epochs train the same weights on each vertex alone, without "
        "its neighbours; they send no rows and are not evaluated (default: %(default)s)",
        Bound(
            "graph, or mlp(N) with N at least 1", lambda value: _START.fullmatch(value) is not None
        ),
        metavar="graph|mlp(N)",
        is_predicted=True,
    )
    seed: int = flag(
        0,
        "of weights, masks and draws (default: %(default)s)",
        at_least(0),
        _BELOW_SEEDS,
        metavar="S",
        is_common=True,
    )
    eval_every: int = flag(
        1,
        "epochs from evaluation to evaluation (default: %(default)s)",
        at_least(1),
        metavar="N",
        is_common=True,
    )
    evaluation: str = flag(
        "exact",
        "exact; or screened(CODEC, margin=X): rows are sent in a code (default: int8), and only "
        "where the validation metric is within X (default: 0.002) of the best so far once more "
        "exactly; the best epoch and its metrics are exact (default: %(default)s)",
        metavar="exact|screened[(...)]",
        is_predicted=True,
    )
    patience: int = flag(
        0,
        "stop after N epochs without a better validation metric (default: never)",
        at_least(0),
        metavar="N",
        is_free=True,
        is_common=True,
    )
    stop_on: StopOn = flag(
        "metric",
        "what --patience waits for: a better validation metric, or a lower validation loss; "
        "--select-by chooses the weights (default: %(default)s)",
        metavar="metric|loss",
        is_free=True,
    )
    select_by: StopOn = flag(
        "metric",
        "what chooses the epoch whose weights are kept: the best validation metric, or the lowest "
        "validation loss (default: %(default)s)",
        metavar="metric|loss",
    )
    goal: float | None = flag(
        None,
        "validation metric, as 0.81 of accuracy, to which the epochs, seconds and bytes are "
        "recorded; training continues after it (default: none)",
        FINITE,
        metavar="X",
        is_free=True,
        is_optional=True,
    )

    @property
    def num_start_epochs(self) -> int:
        """Number of first epochs that train on each vertex alone."""
        found = _START.fullmatch(self.start)
        return int(found[1] or 0) if found else 0


@dataclass(frozen=True, kw_only=True)
class SavingSettings:
    """Exact savings: work that an epoch leaves out, or does again to save memory."""

    GROUP: ClassVar[str] = "exact savings"

    static_input: bool = flag(
        True,
        "aggregate input that is not dropped out once, not in every epoch (default: on)",
        is_predicted=True,
    )
    receptive_field: bool = flag(
        True,
        "run layers on the rows that the loss reads, not on all (default: on)",
        is_predicted=True,
    )
    recompute: bool = flag(
        False,
        "save memory: backward computes hidden layers again (same results)",
        is_free=True,
        is_predicted=True,
    )


@dataclass(frozen=True, kw_only=True)
class MachineSettings:
    """Place of features, replay on a device, checks of messages, and checkpoints."""

    GROUP: ClassVar[str] = "machine and files"

    features_on: FeaturesOn = flag(
        "auto",
        "where dense features are with --device cuda; host: in pinned host memory, streamed "
        "whenever they are multiplied (default: auto, on the device if all fits there)",
        metavar="auto|device|host",
        is_free=True,
    )
    replay: bool = flag(
        True,
        "one rank on a CUDA device: replay steps and evaluations as CUDA graphs where telling "
        "the device what to do takes most of their time (default: on)",
        is_free=True,
    )
    verify: Verify = flag(
        "none",
        "rows: a checksum travels behind each message of rows, and a bit that flipped on the way "
        "ends the run with the pair of ranks and the epoch; --resume continues "
        "(default: %(default)s)",
        metavar="none|rows",
        is_free=True,
    )
    checkpoint_every: int = flag(
        10,
        "epochs from checkpoint to checkpoint; 0: none before the end (default: %(default)s)",
        at_least(0),
        metavar="N",
        is_free=True,
        is_common=True,
    )
    log_every: int = flag(
        0,
        "epochs from line to line where progress is written to a file; 0: about 20 lines a run "
        "(default: %(default)s)",
        at_least(0),
        metavar="N",
        is_free=True,
    )
    log: LogName = flag(
        "none",
        "write the numbers of each epoch for tensorboard, mlflow or wandb, too, into a folder of "
        "that name in RUN; needs the package (default: none)",
        metavar="tensorboard|mlflow|wandb",
        is_free=True,
    )
