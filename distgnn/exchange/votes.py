"""Figures that all ranks share when an epoch ends, and what follows from them for the next one."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Protocol

import torch

from distgnn.exchange.spared import shares_of_change

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from distgnn.exchange.spared import Gate

# Epochs whose changes a threshold that is a quantile is one of.
_WINDOW = 20
_FIRST_THRESHOLD = 0.05
_THRESHOLDS = (1e-4, 1e4)
_MOST_RATIO = 4.0


class Voter(Protocol):
    """Decides by figures of all ranks, alike on all of them."""

    def take_own(self) -> list[float]:
        """Return the figures of this rank in this epoch, and forget them."""

    def hear(self, table: Tensor, epoch: int, *, is_whole: bool) -> None:
        """Decide about the next epoch.

        Args:
            table: (num_ranks, num_figures) float64.
            epoch: Epoch that ends.
            is_whole: Whether all rows travelled as they are in it.
        """

    def state(self) -> list[float]:
        """Return what a run that is resumed needs."""

    def load_state(self, state: Sequence[float]) -> None:
        """Restore what `state` returned."""


class Ballot:
    """Counts votes of all ranks, and remembers changes of which a threshold is a quantile.

    Args:
        gate: Threshold, and who has to be above it.
        num_ranks: Number of ranks.
    """

    def __init__(self, gate: Gate, num_ranks: int) -> None:
        self._gate, self._num_ranks = gate, num_ranks
        self._past: list[list[float]] = []

    def is_carried(self, changes: list[float], age: int = 0) -> bool:
        """Say whether all ranks act, by the change of each; the same on every rank.

        Args:
            changes: Change of each rank.
            age: See `Gate.is_open`.
        """
        answer = self._gate.is_open(changes, age, self._gate.threshold_after(self._past))
        if self._gate.quantile and any(changes) and all(map(math.isfinite, changes)):
            self._past = [*self._past, changes][-_WINDOW:]
        return answer

    def state(self) -> list[float]:
        """Return what a run that is resumed needs."""
        return [change for changes in self._past for change in changes]

    def load_state(self, state: Sequence[float]) -> None:
        """Restore what `state` returned."""
        past, size = list(state), self._num_ranks
        self._past = [past[start : start + size] for start in range(0, len(past), size)]


class Gatekeeper:
    """Opens and shuts the epochs of one direction, by a vote; see `Gate`.

    Args:
        gate: When epochs are open.
        num_ranks: Number of ranks.

    Attributes:
        is_open: Whether rows travel in this epoch.
    """

    def __init__(self, gate: Gate, num_ranks: int) -> None:
        self._ballot = Ballot(gate, num_ranks)
        self.is_open = True
        self._opened_at = 0
        self._change = self._of_rows = 0.0

    def note(self, change: float, of_rows: float) -> None:
        """Add what a message measured.

        Args:
            change: Squared change of some rows.
            of_rows: Squared values of these rows when they were sent last.
        """
        self._change += change
        self._of_rows += of_rows

    def take_own(self) -> list[float]:
        """Return the change as a share of the rows; see `Voter`."""
        change, of_rows = self._change, self._of_rows
        self._change = self._of_rows = 0.0
        return [math.sqrt(change / of_rows) if of_rows else change]

    def hear(self, table: Tensor, epoch: int, *, is_whole: bool) -> None:
        """Count the votes; see `Voter`."""
        if self.is_open or is_whole:
            self._opened_at = epoch
        self.is_open = self._ballot.is_carried(table[:, 0].tolist(), epoch + 1 - self._opened_at)

    def state(self) -> list[float]:
        """Return what a run that is resumed needs."""
        return [float(self.is_open), float(self._opened_at), *self._ballot.state()]

    def load_state(self, state: Sequence[float]) -> None:
        """Restore what `state` returned."""
        self.is_open, self._opened_at = bool(state[0]), int(state[1])
        self._ballot.load_state(state[2:])


class Governor:
    """Keeps the rows of one direction within a budget of bytes, by a threshold that moves.

    A row wants to travel if its change, as a share of the value that the receiver has, is above the
    threshold. Of those for one peer at most the share that is allowed does, first the rows that
    changed most. After each epoch all ranks multiply the threshold by the root of the bytes that
    wanted to travel by those of the budget. A share that an epoch did not use is allowed in the
    next one, up to a second budget.

    So no epoch sends more than two budgets, and no run more than one for each of its epochs. A
    message may have one row more, where the share is not a whole number of rows.

    Args:
        limit: Budget, as a share of the bytes of all rows.

    Attributes:
        threshold: Share of the receiver's value.
        allowed: Share of the bytes of all rows that may travel in this epoch.

    References:
        Hsieh et al., "Gaia: Geo-Distributed Machine Learning Approaching LAN Speeds", NSDI 2017,
        whose thresholds are those of updates of weights.
    """

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self.threshold, self.allowed = _FIRST_THRESHOLD, limit
        self._figures = [0.0, 0.0, 0.0]

    def choose(
        self,
        now: Tensor,
        known: Tensor,
        lanes: Sequence[tuple[int, int, int]],
        row_bytes: int,
        *,
        exact_columns: int = 0,
    ) -> Tensor:
        """Choose the rows of a message that travel.

        Args:
            now: (num_sent, width). Rows of a turn.
            known: (num_sent, width). Values that the receivers have.
            lanes: (peer, start, stop) of the rows for each peer.
            row_bytes: Bytes of a row on the wire.
            exact_columns: See `Spared.choose`.

        Returns:
            (num_sent,) bool, on the processor. A row that is not finite changed most of all.
        """
        share = shares_of_change(now, known, exact_columns).cpu()
        wanted = share > self.threshold
        chosen = torch.zeros(len(now), dtype=torch.bool)
        for _, start, stop in lanes:
            most = max(math.ceil(self.allowed * (stop - start)), 0)
            count = min(int(wanted[start:stop].sum()), most)
            order = share[start:stop].sort(descending=True, stable=True).indices
            chosen[start + order[:count]] = True
        for place, rows in enumerate((int(wanted.sum()), int(chosen.sum()), len(now))):
            self._figures[place] += rows * row_bytes
        return chosen

    def take_own(self) -> list[float]:
        """Return the bytes of rows that wanted to travel, that did, and of all; see `Voter`."""
        figures, self._figures = self._figures, [0.0, 0.0, 0.0]
        return figures

    def hear(self, table: Tensor, epoch: int, *, is_whole: bool) -> None:
        """Move the threshold; see `Voter`."""
        del epoch, is_whole
        wanted, sent, of_all = table.sum(0).tolist()
        if not of_all:
            return
        self.allowed = min(self.allowed - sent / of_all, self._limit) + self._limit
        ratio = wanted / (of_all * self._limit)
        ratio = min(max(ratio, 1 / _MOST_RATIO), _MOST_RATIO)
        least, most = _THRESHOLDS
        self.threshold = min(max(self.threshold * math.sqrt(ratio), least), most)

    def state(self) -> list[float]:
        """Return what a run that is resumed needs."""
        return [self.threshold, self.allowed]

    def load_state(self, state: Sequence[float]) -> None:
        """Restore what `state` returned."""
        self.threshold, self.allowed = state


class Votes:
    """Gate and budget of one direction, which are decided epoch by epoch.

    Args:
        gate: When epochs are open; None for always.
        limit: Budget, as a share of the bytes of all rows; 0 for none.
        num_ranks: Number of ranks.

    Attributes:
        gate: Opens and shuts epochs; None where all are open.
        governor: Keeps a budget; None where there is none.
    """

    def __init__(self, gate: Gate | None, limit: float, num_ranks: int) -> None:
        self.gate = None if gate is None else Gatekeeper(gate, num_ranks)
        self.governor = Governor(limit) if limit else None

    @property
    def voters(self) -> dict[str, Voter]:
        """Those that decide, by name."""
        both: dict[str, Voter | None] = {"gate": self.gate, "governor": self.governor}
        return {name: voter for name, voter in both.items() if voter is not None}
