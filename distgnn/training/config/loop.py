"""Settings of how long a run trains, how it saves work, and where it keeps its data."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar, Literal

from distgnn.settings.fields import FINITE, Bound, at_least, flag

StopOn = Literal["metric", "loss"]
_START = re.compile(r"(mlp|parts)\((?:([0-9]{1,9}):)?([1-9][0-9]{0,8})\)")
Verify = Literal["none", "rows"]
FeaturesOn = Literal["auto", "device", "host"]
LogName = Literal["none", "tensorboard", "mlflow", "wandb"]

_BELOW_SEEDS = Bound("below 2**63", lambda value: value < 2**63, most=2**63 - 1)


def _quiet(start: str) -> range:
    """Return the epochs of a start; none where the words are those of no start."""
    found = _START.fullmatch(start)
    if found is None or (found[2] is not None and found[1] == "mlp"):
        return range(0)
    return range(int(found[2] or 0), int(found[3]))


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
        "what the first N epochs train on, which send no rows: mlp(N) each vertex alone, without "
        "evaluations; parts(N) each part alone, or parts(A:N) those from epoch A on; graph: all "
        "epochs train on it (default: %(default)s)",
        Bound(
            "graph, mlp(N), parts(N) or parts(A:N) with N at least 1 and A below N",
            lambda value: value == "graph" or bool(_quiet(value)),
        ),
        metavar="graph|mlp(N)|parts(N)",
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
    def quiet_epochs(self) -> range:
        """Epochs of the start, which train on each vertex or part alone and send no rows."""
        return _quiet(self.start)

    @property
    def starts_on_parts(self) -> bool:
        """Whether these train on each part alone."""
        return self.start.startswith("parts")

    @property
    def restarts_at(self) -> int:
        """Epoch in which the optimizer begins again; 0 for none."""
        return 0 if self.starts_on_parts else self.quiet_epochs.stop


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
