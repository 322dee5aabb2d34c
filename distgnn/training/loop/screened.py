"""Evaluation that costs little: looks over coded rows decide which epochs deserve an exact one.

    look at the scores over coded rows                       a fraction of the bytes
    metric + margin < the best that is certain?              never the best: done
    else hold the weights                                    until they matter
    later: drop what is no longer near the best, and evaluate the rest exactly

It is certain that the best epoch is as good as the best exact metric, and as any look less the
margin. A metric that rises drops most of what is held before it is evaluated. Exact evaluations
alone set the best epoch. Where no look is off by more than the margin, it is that of a run that
evaluates every epoch exactly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from distgnn.datasets.errors import InputError
from distgnn.optim.schedules import parse_schedule
from distgnn.training.config.evaluation import DEFAULT_MARGIN

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import Tensor, nn

    from distgnn.graph.local_graph import LocalGraph
    from distgnn.training.config.evaluation import Screening
    from distgnn.training.config.settings import TrainConfig
    from distgnn.training.data.inputs import Inputs
    from distgnn.training.data.link_inputs import LinkInputs
    from distgnn.training.loop.best import Best
    from distgnn.training.tasks.measures import Metric
    from distgnn.training.tasks.objective import Evaluation

    Confirm = Callable[[int], Mapping[str, Any]]

SCREENED = "screened_val_metric"
"""Name of the validation metric over coded rows in metrics.jsonl."""
CONFIRMED = "confirmed"
"""Name of the exact metrics of earlier epochs in metrics.jsonl."""
# Weights that are held take at most so much memory, and are at most those of so many epochs.
_HELD_BYTES = 64 * 2**20
_NUM_HELD = 16


@dataclass
class Held:
    """Weights of an epoch that may be the best.

    Attributes:
        epoch: Number of the epoch.
        merit: Validation metric over coded rows, larger is better.
        state: Weights and buffers by name.
    """

    epoch: int
    merit: float
    state: dict[str, Tensor]


class Screen(Protocol):
    """Decides which epochs are evaluated exactly, and when.

    Attributes:
        held: Epochs that may be the best and are still to be evaluated exactly.
    """

    held: list[Held]

    def passes(self, best: Best, epoch: int, *, is_last: bool) -> bool:
        """Return whether an epoch is to be evaluated exactly at once; collective.

        Args:
            best: Best epoch before this one.
            epoch: Number of the epoch.
            is_last: Whether the run ends with this epoch.
        """

    def is_due(self, best: Best, epoch: int, *, is_last: bool) -> bool:
        """Return whether `settle` is to be called now.

        Args:
            best: Best exact epoch so far.
            epoch: Number of the latest epoch.
            is_last: Whether the run ends with this epoch.
        """

    def settle(self, confirm: Confirm, best: Callable[[], Best]) -> None:
        """Evaluate one held epoch exactly, and hold those that may still be the best; collective.

        Args:
            confirm: Evaluates the weights that the model has now exactly, as those of an epoch.
            best: Returns the best exact epoch so far.
        """

    def take_values(self) -> dict[str, Any]:
        """Return what the record of this epoch says about looks; the next call forgets it."""

    def take_bytes(self) -> int:
        """Return the payload bytes that looks sent from this rank since the last call."""

    def working_bytes(self) -> int:
        """Return the bytes of the weights that are held at most, and of those put aside."""


class NoScreen:
    """Every epoch is evaluated exactly, at once."""

    def __init__(self) -> None:
        self.held: list[Held] = []

    def passes(self, best: Best, epoch: int, *, is_last: bool) -> bool:
        """Pass every epoch."""
        del best, epoch, is_last
        return True

    def is_due(self, best: Best, epoch: int, *, is_last: bool) -> bool:
        """Return False."""
        del best, epoch, is_last
        return False

    def settle(self, confirm: Confirm, best: Callable[[], Best]) -> None:
        """Do nothing."""

    def take_values(self) -> dict[str, Any]:
        """Return nothing."""
        return {}

    def take_bytes(self) -> int:
        """Return 0."""
        return 0

    def working_bytes(self) -> int:
        """Return 0."""
        return 0


class CodedScreen:
    """Looks at an epoch over coded rows, and holds the weights of those that may be the best.

    The first epoch and the last are evaluated exactly in any case; the last is looked at, too, to
    learn how far looks are off. An epoch that seems to reach the goal is evaluated at once, as its
    seconds and bytes are those until then. What is held is evaluated at the end, when there is no
    room for more, and before the run's patience might end it.

    Args:
        graph: Graph whose exchange codes its rows; None where nothing travels.
        evaluate: Scores all splits on a graph.
        measure: Metric that chooses the best epoch.
        model: Model whose weights are held.
        config: Settings of the run.

    Attributes:
        held: See `Screen`; in the order of the epochs.
    """

    def __init__(
        self,
        graph: LocalGraph | None,
        evaluate: Callable[[LocalGraph], Evaluation],
        measure: Metric,
        model: nn.Module,
        config: TrainConfig,
    ) -> None:
        assert config.screening is not None, "evaluations are screened"
        self._graph = graph
        self._evaluate = evaluate
        self._sign = -1 if measure.is_lower_better else 1
        self._model = model
        self._margin = margin_of(config.screening)
        self._patience = config.patience
        self._goal = None if config.goal is None else self._sign * config.goal
        self._capacity = _capacity(model, config)
        self.held: list[Held] = []
        self._seen: float | None = None
        self._confirmed: list[dict[str, Any]] = []

    def passes(self, best: Best, epoch: int, *, is_last: bool) -> bool:
        """Look, unless the epoch is evaluated in any case, and hold it; see `Screen`."""
        if self._graph is None or best.epoch is None:
            return True
        found = self._evaluate(self._graph)
        self._seen = metric = found.metric["val"]
        # Weights that are not finite are for the exact evaluation to refuse.
        if is_last or metric is None or not math.isfinite(found.val_loss):
            return True
        merit = self._sign * metric
        most = merit + self._margin
        if most < self._certain(best):
            return False
        if not self._capacity or (self._goal is not None and best.metric < self._goal <= most):
            return True
        state = {name: value.clone() for name, value in self._model.state_dict().items()}
        self.held.append(Held(epoch, merit, state))
        self._drop(best)
        return False

    def _certain(self, best: Best) -> float:
        """Return a metric that the best epoch has at least."""
        return max([best.metric, *(held.merit - self._margin for held in self.held)])

    def _drop(self, best: Best) -> None:
        """Hold no epoch that is certainly not the best."""
        least = self._certain(best) - self._margin
        self.held = [held for held in self.held if held.merit >= least]

    def is_due(self, best: Best, epoch: int, *, is_last: bool) -> bool:
        """Return whether to wait would lose an epoch, or end the run late; see `Screen`."""
        if not self.held:
            return False
        if self._graph is None or is_last or len(self.held) >= self._capacity:
            return True
        first = self.held[0].epoch
        if best.epoch is not None and best.metric >= self._certain(best):
            first = min(first, best.epoch)
        return bool(self._patience) and epoch - first >= self._patience

    def settle(self, confirm: Confirm, best: Callable[[], Best]) -> None:
        """Evaluate the most promising epoch, which may spare others; see `Screen`."""
        first = max(self.held, key=lambda held: held.merit)
        self.held = [held for held in self.held if held is not first]
        now = {name: value.clone() for name, value in self._model.state_dict().items()}
        self._model.load_state_dict(first.state)
        self._confirmed.append({"epoch": first.epoch, **confirm(first.epoch)})
        self._model.load_state_dict(now)
        self._drop(best())

    def take_values(self) -> dict[str, Any]:
        """Return the metric over coded rows, None without a look, and what was settled."""
        values = {SCREENED: self._seen, CONFIRMED: self._confirmed}
        self._seen, self._confirmed = None, []
        return values

    def take_bytes(self) -> int:
        """Return the payload bytes of the rows that looks sent; see `Screen`."""
        return 0 if self._graph is None else self._graph.exchange.take_bytes()

    def working_bytes(self) -> int:
        """Return the bytes of as many epochs as may be held, and of one more; see `Screen`."""
        if self._graph is None or not self._capacity:
            return 0
        return (self._capacity + 1) * _state_bytes(self._model)


def _capacity(model: nn.Module, config: TrainConfig) -> int:
    """Return how many epochs may be held; 0 where each is to be evaluated at once."""
    if parse_schedule(config.lr_schedule).needs_validation:
        # The rate of the next epoch depends on whether this one is the best.
        return 0
    return min(_NUM_HELD, _HELD_BYTES // max(_state_bytes(model), 1))


def _state_bytes(model: nn.Module) -> int:
    """Return the bytes of the weights and buffers of a model."""
    return sum(value.nbytes for value in model.state_dict().values())


def pack_held(screen: Screen) -> tuple[list[tuple[int, float]], dict[str, Tensor]]:
    """Return what is held, for a checkpoint: epochs with their merits, and tensors by name."""
    tensors = {
        f"held.{held.epoch}.{name}": value
        for held in screen.held
        for name, value in held.state.items()
    }
    return [(held.epoch, held.merit) for held in screen.held], tensors


def unpack_held(about: Sequence[tuple[int, float]], state: Mapping[str, Tensor]) -> list[Held]:
    """Return what `pack_held` took.

    Args:
        about: Epochs with their merits.
        state: Tensors by name, perhaps with others.
    """
    return [
        Held(
            epoch,
            merit,
            {
                name.removeprefix(prefix): value
                for name, value in state.items()
                if name.startswith(prefix)
            },
        )
        for epoch, merit in about
        for prefix in (f"held.{epoch}.",)
    ]


def check_screening(config: TrainConfig, inputs: Inputs | LinkInputs) -> None:
    """Refuse looks where there is nothing to look at.

    Args:
        config: Settings of the run.
        inputs: Inputs of the run.

    Raises:
        InputError: If the split has no validation vertices.
    """
    if config.screening is not None and not inputs.counts["val"]:
        raise InputError(
            f"--evaluation {config.evaluation} looks for the best validation metric, but the split "
            "has no validation vertices; use --evaluation exact"
        )


def build_screen(
    graph: LocalGraph | None,
    evaluate: Callable[[LocalGraph], Evaluation],
    measure: Metric,
    model: nn.Module,
    config: TrainConfig,
) -> Screen:
    """Build what decides which epochs are evaluated exactly.

    Args:
        graph: Graph whose exchange codes its rows; None where nothing travels, or exactly.
        evaluate: Scores all splits on a graph.
        measure: Metric that chooses the best epoch.
        model: Model whose weights are held.
        config: Settings of the run.
    """
    if config.screening is None:
        return NoScreen()
    return CodedScreen(graph, evaluate, measure, model, config)


def margin_of(screening: Screening) -> float:
    """Return the margin of a rule."""
    return DEFAULT_MARGIN if screening.margin is None else screening.margin


def with_confirmed(records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Give each record the exact metrics that a later epoch found for it.

    Args:
        records: Lines of metrics.jsonl.

    Returns:
        Records, of which those that were never evaluated exactly have no metrics.
    """
    later = {found["epoch"]: found for record in records for found in record.get(CONFIRMED, ())}
    return [{**record, **later.get(record["epoch"], {})} for record in records]


def screen_figures(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what summary.json says about looks.

    Args:
        records: Lines of metrics.jsonl.

    Returns:
        Values by name; none where no epoch was looked at.
    """
    seen = [record for record in with_confirmed(records) if record.get(SCREENED) is not None]
    if not seen:
        return {}
    errors = [abs(r[SCREENED] - r["val_metric"]) for r in seen if r["val_metric"] is not None]
    return {
        "num_screened": len(seen),
        "num_confirmed": len(errors),
        "screening_error": max(errors, default=None),
    }


def describe_screening(summary: Mapping[str, Any]) -> str:
    """Say how many looks a run took, and how far they were off.

    Args:
        summary: Summary of a run with looks.

    Returns:
        Words without a full stop.
    """
    error = summary["screening_error"]
    off = "" if error is None else f", at most {error:.4f} off"
    return (
        f"{summary['num_screened']} epochs screened, {summary['num_confirmed']} of them then "
        f"evaluated exactly{off}"
    )


def warning_of(screening: Screening | None, summary: Mapping[str, Any]) -> str | None:
    """Return a warning where a look was off by more than the margin; else None.

    Args:
        screening: Rule of the run.
        summary: Summary of the run.
    """
    error = summary.get("screening_error")
    if screening is None or error is None or error <= margin_of(screening):
        return None
    return (
        f"screened evaluation was off by {error:.4f}, more than its margin {margin_of(screening):g}"
        ": all metrics are exact, but an epoch that was not evaluated may be better; use a larger "
        "margin or more bits"
    )
