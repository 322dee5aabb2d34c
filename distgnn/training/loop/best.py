"""Which epoch is the best so far."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Best:
    """The best validation metric so far; the lower validation loss decides between equals.

    Attributes:
        epoch: Its number; None before the first.
        metric: The larger, the better: a metric that should be small has its sign changed.
        loss: Of validation.
    """

    epoch: int | None = None
    metric: float = float("-inf")
    loss: float = float("inf")

    def improves(self, metric: float, loss: float) -> bool:
        """Whether an epoch with these would be better."""
        return (metric, -loss) > (self.metric, -self.loss)
