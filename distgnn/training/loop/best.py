"""The best epoch so far, and how long a run waits for a better one."""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any

from distgnn.datasets.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from distgnn.training.config.settings import TrainConfig


@dataclass
class Best:
    """The best validation metric so far; the lower validation loss decides between equals.

    Attributes:
        epoch: Number of the epoch; None before the first evaluation.
        metric: Validation metric, larger is better: a metric to minimize has its sign changed. With
            --select-by loss, and where the metric is not defined, it is the validation loss with
            its sign changed.
        loss: Validation loss.
    """

    epoch: int | None = None
    metric: float = float("-inf")
    loss: float = float("inf")

    def improves(self, metric: float, loss: float, epoch: int) -> bool:
        """Return whether an epoch with this metric and loss is better; the earlier of equals is."""
        own = math.inf if self.epoch is None else self.epoch
        return (metric, -loss, -epoch) > (self.metric, -self.loss, -own)


class Patience:
    """Epochs that a run waits for a better validation metric, or for a lower validation loss.

    Args:
        config: Settings of the run.
        counts: Number of vertices or links by name of the split, over all ranks.

    Raises:
        InputError: If it waits for a loss that is not measured, or the run selects by such a loss.
    """

    def __init__(self, config: TrainConfig, counts: Mapping[str, int]) -> None:
        self._num_epochs = config.patience
        self._reads_loss = config.stop_on == "loss"
        self._keeps_by_loss = config.select_by == "loss"
        self._lowest_loss = float("inf")
        self._lowest_at: int | None = None
        self._best = Best()
        if config.select_by == "loss" and not counts["val"]:
            raise InputError(
                "--select-by loss keeps the weights of the lowest validation loss, but the split "
                "has no validation vertices; leave it out"
            )
        if self._reads_loss and not counts["val"]:
            raise InputError(
                "--stop-on loss waits for a lower validation loss, but the split has no validation "
                "vertices; leave it out"
            )

    @property
    def best_at(self) -> int | None:
        """Number of the epoch with the best validation metric, be its weights kept or not."""
        return self._best.epoch

    def watch(self, epoch: int, merit: float, val_loss: float) -> None:
        """Take note of an evaluation.

        Args:
            epoch: Number of the evaluated epoch.
            merit: Validation metric, as `Best` has it without --select-by loss.
            val_loss: Mean validation loss, finite.
        """
        if self._best.improves(merit, val_loss, epoch):
            self._best = Best(epoch, merit, val_loss)
        if val_loss < self._lowest_loss:
            self._lowest_loss, self._lowest_at = val_loss, epoch

    def is_out(self, epoch: int, *, since: int = 0) -> bool:
        """Return whether the run has waited for long enough.

        Args:
            epoch: Number of the latest epoch.
            since: First epoch that counts as one of waiting.
        """
        best_at = self._lowest_at if self._reads_loss else self.best_at
        if not self._num_epochs or best_at is None:
            return False
        return epoch - max(best_at, since - 1) >= self._num_epochs

    def state(self) -> dict[str, Any]:
        """Return what the next epochs depend on, as JSON values."""
        lowest = {"lowest_loss": self._lowest_loss, "lowest_at": self._lowest_at}
        return {**lowest, "best": astuple(self._best)}

    def load_state(self, state: Mapping[str, Any], best: Best) -> None:
        """Restore what `state` returned.

        Args:
            state: Values of a checkpoint; one of an older version has no best metric.
            best: Epoch whose weights are kept, which stands for it then; but its own is of losses
                with --select-by loss.
        """
        self._lowest_loss, self._lowest_at = state["lowest_loss"], state["lowest_at"]
        before = Best() if self._keeps_by_loss else best
        self._best = Best(*state["best"]) if "best" in state else before
