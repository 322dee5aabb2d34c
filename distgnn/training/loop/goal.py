"""The validation metric that a run is to reach, and its price in epochs, seconds and bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from distgnn.datasets.errors import InputError
from distgnn.machine.units import human_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from distgnn.training.config.settings import TrainConfig
    from distgnn.training.data.inputs import Inputs
    from distgnn.training.data.link_inputs import LinkInputs
    from distgnn.training.tasks.measures import Metric

FIGURES = ("epochs_to_goal", "time_to_goal_s", "training_to_goal_s", "sent_to_goal_bytes")
"""Names of the figures of summary.json that say when the goal was reached."""
_SENT = ("halo_bytes_sent", "eval_halo_bytes_sent", "weight_bytes_sent")


@dataclass(frozen=True)
class Goal:
    """Validation metric that a run is to reach; a function of its records alone.

    So a run that is resumed finds the same epoch as one that never stopped.

    Attributes:
        value: Value of the metric.
        measure: Metric of the run.
    """

    value: float
    measure: Metric

    def is_reached(self, record: Mapping[str, Any]) -> bool:
        """Return whether an epoch was evaluated and is as good as the goal.

        Args:
            record: Line of metrics.jsonl.
        """
        metric = record["val_metric"]
        if metric is None:
            return False
        return bool(metric <= self.value if self.measure.is_lower_better else metric >= self.value)

    def never_reached(self) -> InputError:
        """Return the error of a run whose validation metric is not defined."""
        return InputError(
            f"--goal {self.value:g} is compared with the validation {self.measure.name}, which is "
            "not defined for the labels there: an area needs both a yes and a no; use another "
            "--metric or split, or leave --goal out"
        )

    def figures(self, records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return what summary.json says about the goal.

        Seconds are those of the slowest rank. Bytes are those of all ranks: rows of training, rows
        of evaluation, and gradients, without what is sent once before the first epoch.

        Args:
            records: Lines of metrics.jsonl, in order.

        Returns:
            Values by name; None where the goal was not reached.
        """
        found = next((n for n, record in enumerate(records) if self.is_reached(record)), None)
        spent = None if found is None else records[: found + 1]
        return {
            "goal": self.value,
            "epochs_to_goal": spent and spent[-1]["epoch"] + 1,
            "time_to_goal_s": spent and sum(r["epoch_s"] + r["eval_s"] for r in spent),
            "training_to_goal_s": spent and sum(r["epoch_s"] for r in spent),
            "sent_to_goal_bytes": spent and sum(r[name] for r in spent for name in _SENT),
        }

    def __str__(self) -> str:
        """Say which metric is to be how large."""
        side = "at most" if self.measure.is_lower_better else "at least"
        return f"validation {self.measure.name} {side} {self.value:g}"


def goal_of(config: TrainConfig, inputs: Inputs | LinkInputs) -> Goal | None:
    """Return the goal of a run; None where it has none.

    Args:
        config: Settings of the run.
        inputs: Inputs of the run.

    Raises:
        InputError: If there is nothing to compare it with.
    """
    if config.goal is None:
        return None
    if not inputs.counts["val"]:
        raise InputError(
            f"--goal {config.goal:g} is compared with the validation metric, but the split has no "
            "validation vertices; leave it out"
        )
    return Goal(config.goal, inputs.measure)


def describe_goal(summary: Mapping[str, Any]) -> str:
    """Say whether a run reached its goal, and what that took.

    Args:
        summary: Summary of a run with a goal.

    Returns:
        Words without a full stop.
    """
    if summary["epochs_to_goal"] is None:
        best = summary["val_metric"]
        seen = "" if best is None else f"; the best epoch has {best:.4f}"
        return f"{summary['goal']:g} was not reached in {summary['num_epochs']} epochs{seen}"
    return (
        f"{summary['goal']:g} reached after {summary['epochs_to_goal']} epochs, "
        f"{summary['time_to_goal_s']:.2f} s ({summary['training_to_goal_s']:.2f} s without "
        f"evaluation) and {human_bytes(summary['sent_to_goal_bytes'])} sent"
    )
