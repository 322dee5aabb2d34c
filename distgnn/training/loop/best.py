"""The best epoch so far."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Best:
    """The best validation metric so far; the lower validation loss decides between equals.

    Attributes:
        epoch: Number of the epoch; None before the first evaluation.
        metric: Validation metric, larger is better: a metric to minimize has its sign changed.
        loss: Validation loss.
    """

    epoch: int | None = None
    metric: float = float("-inf")
    loss: float = float("inf")

    def improves(self, metric: float, loss: float) -> bool:
        """Return whether an epoch with this metric and loss would be better."""
        return (metric, -loss) > (self.metric, -self.loss)
