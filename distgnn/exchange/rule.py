"""The rule of a delay, apart from how it is carried out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from distgnn.exchange.route import binned_rows, num_rows

if TYPE_CHECKING:
    from distgnn.exchange.route import Route


@dataclass(frozen=True)
class DelayCache:
    """Treatment of rows that arrive, in one direction of the pass.

    Attributes:
        is_cached: Whether a row keeps its last value between its turns; the paper's rule is that
            it contributes only in the epoch in which it arrives.
        smoothing: In [0, 1). Share of a row's average that stays when a new value arrives; the
            average is corrected for its start, so that the first value counts in full.
    """

    is_cached: bool = True
    smoothing: float = 0.0


@dataclass(frozen=True, kw_only=True)
class DelayRule:
    """When rows travel and when they are used.

    In epoch e the rows of bin e mod num_bins are sent; they are used from epoch e + delay on.
    Before that come synchronous epochs, in which all rows travel and are used at once.

    Attributes:
        num_bins: Parts into which the rows of each channel are divided; at least 1.
        delay: Epochs between sending and first use; at least 0.
        warm_up_epochs: Synchronous epochs at the start.
        forward: Treatment of features and partial sums.
        backward: Treatment of gradients.
    """

    num_bins: int = 1
    delay: int = 0
    warm_up_epochs: int = 0
    forward: DelayCache = field(default_factory=DelayCache)
    backward: DelayCache = field(default_factory=DelayCache)

    @property
    def is_synchronous(self) -> bool:
        """Whether every row is used in the epoch in which it was made."""
        return self.num_bins == 1 and self.delay == 0

    def num_sent(self, route: Route, epoch: int) -> int:
        """Count the rows that a rank sends along a route in an epoch.

        Args:
            route: One half of an exchange.
            epoch: From 0.
        """
        if epoch < self.warm_up_epochs:
            return route.num_out
        sent = binned_rows(route.outgoing, epoch % self.num_bins, self.num_bins)
        return sum(num_rows(rows) for _, rows in sent)

    def sent_fraction(self, num_epochs: int) -> float:
        """Return the share of a synchronous run's rows that a run sends.

        Args:
            num_epochs: Epochs of the run, at least 1.
        """
        synchronous = min(self.warm_up_epochs, num_epochs)
        return (synchronous + (num_epochs - synchronous) / self.num_bins) / num_epochs
