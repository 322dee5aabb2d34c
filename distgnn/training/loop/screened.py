"""Evaluation that costs little: a look over coded rows decides which epochs deserve an exact one.

    look at the scores over coded rows         a fraction of the bytes
    metric + margin < best exact metric?       this epoch cannot be the best: done
    evaluate exactly                           this alone may set the best epoch

Where no look is off by more than the margin, the best epoch and all that is reported are those of a
run that evaluates every epoch exactly.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Protocol

from distgnn.datasets.errors import InputError
from distgnn.training.config.evaluation import DEFAULT_MARGIN

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from distgnn.graph.local_graph import LocalGraph
    from distgnn.training.config.evaluation import Screening
    from distgnn.training.config.settings import TrainConfig
    from distgnn.training.data.inputs import Inputs
    from distgnn.training.data.link_inputs import LinkInputs
    from distgnn.training.loop.best import Best
    from distgnn.training.tasks.measures import Metric
    from distgnn.training.tasks.objective import Evaluation

SCREENED = "screened_val_metric"
"""Name of the validation metric over coded rows in metrics.jsonl."""


class Screen(Protocol):
    """Decides which epochs are evaluated exactly."""

    def passes(self, best: Best, *, is_last: bool) -> bool:
        """Return whether an epoch is to be evaluated exactly; collective.

        Args:
            best: Best epoch before this one.
            is_last: Whether the run ends with this epoch.
        """

    def take_values(self) -> dict[str, Any]:
        """Return what the record of this epoch says about the look; the next call forgets it."""

    def take_bytes(self) -> int:
        """Return the payload bytes that looks sent from this rank since the last call."""


class NoScreen:
    """Every epoch is evaluated exactly."""

    def passes(self, best: Best, *, is_last: bool) -> bool:
        """Pass every epoch."""
        del best, is_last
        return True

    def take_values(self) -> dict[str, Any]:
        """Return nothing."""
        return {}

    def take_bytes(self) -> int:
        """Return 0."""
        return 0


class CodedScreen:
    """Looks at an epoch over coded rows, and passes those that may be the best.

    The first epoch and the last pass unseen: they are evaluated exactly in any case.

    Args:
        graph: Graph whose exchange codes its rows.
        evaluate: Scores all splits on a graph.
        measure: Metric that chooses the best epoch.
        screening: Rule.
    """

    def __init__(
        self,
        graph: LocalGraph,
        evaluate: Callable[[LocalGraph], Evaluation],
        measure: Metric,
        screening: Screening,
    ) -> None:
        self._graph = graph
        self._evaluate = evaluate
        self._measure = measure
        self._margin = margin_of(screening)
        self._seen: float | None = None

    def passes(self, best: Best, *, is_last: bool) -> bool:
        """Look, unless the epoch is evaluated in any case; see `Screen`."""
        if is_last or best.epoch is None:
            return True
        found = self._evaluate(self._graph)
        self._seen = metric = found.metric["val"]
        # Weights that are not finite are for the exact evaluation to refuse.
        if metric is None or not math.isfinite(found.val_loss):
            return True
        merit = -metric if self._measure.is_lower_better else metric
        return merit + self._margin >= best.metric

    def take_values(self) -> dict[str, Any]:
        """Return the metric over coded rows; None where there was no look."""
        seen, self._seen = self._seen, None
        return {SCREENED: seen}

    def take_bytes(self) -> int:
        """Return the payload bytes of the rows that looks sent; see `Screen`."""
        return self._graph.exchange.take_bytes()


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
    screening: Screening | None,
) -> Screen:
    """Build what decides which epochs are evaluated exactly.

    Args:
        graph: Graph whose exchange codes its rows; None where nothing travels, or exactly.
        evaluate: Scores all splits on a graph.
        measure: Metric that chooses the best epoch.
        screening: Rule; None without.
    """
    if screening is None or graph is None:
        return NoScreen()
    return CodedScreen(graph, evaluate, measure, screening)


def margin_of(screening: Screening) -> float:
    """Return the margin of a rule."""
    return DEFAULT_MARGIN if screening.margin is None else screening.margin


def screen_figures(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what summary.json says about looks.

    Args:
        records: Lines of metrics.jsonl.

    Returns:
        Values by name; none where no epoch was looked at.
    """
    seen = [record for record in records if record.get(SCREENED) is not None]
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
