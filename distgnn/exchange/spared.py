"""Rows that stay at home because the receiver's value will do, and epochs without any."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch import Tensor


Vote = Literal["any", "half", "mean"] | float


@dataclass(frozen=True)
class Spared:
    """Rows of a turn that do not travel, by how far the receiver's value is from them.

    A message begins with a bit for each row of its turn; rows whose bit is set follow.

    Attributes:
        threshold: A row travels if it is further from the receiver's value than this share of that
            value, both as Euclidean norms. None if rows are ranked instead.
        decays: Whether the threshold falls with the root of the number of the epoch.
        best_of: Number of rows for one peer of which the one that changed most travels; 1 where
            a threshold decides.
        limit: Budget of bytes that the threshold moves to keep, as a share of those of all rows; 0
            where it is fixed. See `Governor`.

    References:
        Hsieh et al., "Gaia: Geo-Distributed Machine Learning Approaching LAN Speeds", NSDI 2017.
        Zhang et al., "CDFGNN", arXiv:2408.00232, for rows of vertices.
    """

    threshold: float | None = None
    decays: bool = False
    best_of: int = 1
    limit: float = 0.0

    @property
    def is_counted(self) -> bool:
        """Whether the number of rows that travel does not depend on their values."""
        return self.threshold is None and not self.limit

    @property
    def share(self) -> Fraction:
        """Share of the rows of turns that travels, on average and at most."""
        return Fraction(self.limit) if self.limit else Fraction(1, self.best_of)

    def most_rows(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how many rows of messages travel at most; exactly, where they are counted.

        Args:
            counts: Rows of each message's turn, of any shape.
        """
        if self.limit:
            most: NDArray[np.int64] = np.ceil(2 * self.limit * counts).astype(np.int64)
            return np.asarray(np.minimum(counts, most))
        return -(-counts // self.best_of)

    def choose(
        self,
        now: Tensor,
        known: Tensor,
        lanes: Sequence[tuple[int, int, int]],
        epoch: int,
        *,
        exact_columns: int = 0,
    ) -> Tensor:
        """Choose the rows that travel, where no budget does.

        Args:
            now: (num_sent, width). Rows of a turn.
            known: (num_sent, width). Values that the receivers have.
            lanes: (peer, start, stop) of the rows for each peer.
            epoch: Epochs since rows may be spared, from 0.
            exact_columns: Number of trailing columns of another kind, such as logarithms of the
                sums of a softmax beside gradients: each kind has to be near by itself.

        Returns:
            (num_sent,) bool, on the processor. A row that is not finite travels.
        """
        if self.threshold == 0:
            return (now != known).any(dim=1).cpu()
        if self.threshold is not None:
            share = self.threshold / math.sqrt(epoch + 1) if self.decays else self.threshold
            return (shares_of_change(now, known, exact_columns) > share).cpu()
        wide = torch.promote_types(now.dtype, torch.float32)
        change = (now.to(wide) - known.to(wide)).square().sum(dim=1).cpu()
        chosen = torch.zeros(len(now), dtype=torch.bool)
        for _, start, stop in lanes:
            count = -(-(stop - start) // self.best_of)
            order = change[start:stop].sort(descending=True, stable=True).indices
            chosen[start + order[:count]] = True
        return chosen


def shares_of_change(now: Tensor, known: Tensor, exact_columns: int) -> Tensor:
    """Compare rows with those that are known.

    Args:
        now: (num, width).
        known: (num, width).
        exact_columns: Number of trailing columns of another kind, which count by themselves.

    Returns:
        (num,) norm of the change over that of the known row, of the kind that changed more. It is 0
        where nothing did, and inf where a row was zero or is not finite.
    """
    wide = torch.promote_types(now.dtype, torch.float32)
    width = now.shape[1] - exact_columns
    shares = []
    for columns in (slice(width), slice(width, None))[: 1 + (exact_columns > 0)]:
        before = known[:, columns].to(wide)
        change = (now[:, columns].to(wide) - before).square().sum(dim=1)
        share = (change / before.square().sum(dim=1)).sqrt()
        shares.append(share.masked_fill(change == 0, 0).nan_to_num(math.inf, math.inf))
    return torch.stack(shares).amax(dim=0)


@dataclass(frozen=True)
class Gate:
    """Epochs in which rows travel, by a vote of all ranks.

    Each rank measures how far its rows are from those that were sent last, as a share of these. The
    votes of an epoch decide the next one, so that nobody waits for them.

    Attributes:
        threshold: Least change that is a yes, if it is fixed.
        vote: Whether one rank suffices, more than half of them do, the mean of the changes decides,
            or at least a share of the ranks, in (0, 1], is needed.
        most: Largest age of a row, in epochs; 0 for any.
        quantile: Share of the changes of the last epochs that the threshold is above; 0 where it is
            fixed.

    References:
        Tyagi and Swany, "SelSync", CLUSTER 2023, arXiv:2307.07950, for gradients.
        Peng et al., "SANCUS", VLDB 2022, for rows of vertices.
    """

    threshold: float
    vote: Vote = "any"
    most: int = 0
    quantile: float = 0.0

    def threshold_after(self, past: Sequence[Sequence[float]]) -> float:
        """Return the threshold of an epoch.

        Args:
            past: Changes of each rank in the epochs before, for a threshold that is a quantile.
        """
        if not self.quantile:
            return self.threshold
        if not past:
            return 0.0
        values = [sum(changes) / len(changes) for changes in past] if self.vote == "mean" else past
        return float(np.quantile(values, self.quantile))

    def is_open(self, changes: Sequence[float], age: int, threshold: float) -> bool:
        """Say whether rows travel; the same on every rank.

        Args:
            changes: Change of each rank.
            age: Epochs that the rows of the receivers would have without.
            threshold: See `threshold_after`.
        """
        if self.most and age > self.most:
            return True
        # A change that is not a number is a yes.
        if self.vote == "mean":
            return not sum(changes) / len(changes) <= threshold
        num_yes = sum(not change <= threshold for change in changes)
        if isinstance(self.vote, float):
            # A third of three ranks is one, whatever a third is rounded to.
            return num_yes >= self.vote * len(changes) - 1e-9
        return num_yes > 0 if self.vote == "any" else 2 * num_yes > len(changes)

    @property
    def arguments(self) -> str:
        """Canonical words of the threshold and of the vote."""
        level = f"q{100 * self.quantile:.0f}" if self.quantile else f"{self.threshold:.12g}"
        vote = f"{self.vote:.12g}" if isinstance(self.vote, float) else self.vote
        return level if vote == "any" else f"{level},vote={vote}"
