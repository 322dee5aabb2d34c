"""Index lists of the rows of a channel that have their turn; made once, but for random deals."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from distgnn.exchange.route import Route, Segment
    from distgnn.exchange.rule import Rota


class PeerRows(NamedTuple):
    """The rows of a message that go to or come from one peer."""

    peer: int
    start: int
    stop: int


class Turn(NamedTuple):
    """The rows that travel together, as one rank sees them.

    Attributes:
        outgoing: Rows of the message that leaves, by peer.
        incoming: Rows of the message that arrives, by peer.
        picked: (num_sent,) int32. Row of the table that each row that leaves is taken from; None
            if all of them leave, in order.
        places: (num_received,) int32. Where each row that arrives belongs; None if all of them
            arrive, in order.
        packed: (num_sent,) int32. Place of each row that leaves among all rows of the channel; None
            if all of them leave, in order.
        num_sent: Rows that leave.
        num_received: Rows that arrive.
    """

    outgoing: tuple[PeerRows, ...]
    incoming: tuple[PeerRows, ...]
    picked: Tensor | None
    places: Tensor | None
    packed: Tensor | None
    num_sent: int
    num_received: int

    def to(self, device: torch.device) -> Turn:
        """Return the same turn, its index lists on a device."""
        lists = (self.picked, self.places, self.packed)
        picked, places, packed = (None if rows is None else rows.to(device) for rows in lists)
        return self._replace(picked=picked, places=places, packed=packed)


class Turns:
    """The turns of one channel.

    Args:
        route: Who gets how many rows.
        picked: (num_out,) int32. Row of the table that stands in each row of the packed buffer;
            None if the table is packed.
        deal: Which rows have their turn.
        rank: This rank.
        num_ranks: Number of ranks.
        device: Where the rows are.

    Attributes:
        whole: All rows.
        most_sent: Rows of the longest message of a turn that leaves.
        most_received: Rows of the longest that arrives.
    """

    def __init__(
        self,
        route: Route,
        picked: Tensor | None,
        deal: Rota,
        rank: int,
        num_ranks: int,
        *,
        device: torch.device,
    ) -> None:
        self._route, self._picked, self._deal = route, picked, deal
        self._place = (rank, num_ranks)
        self._device = device
        outgoing, incoming = (
            tuple(PeerRows(segment.peer, segment.start, segment.stop) for segment in segments)
            for segments in (route.outgoing, route.incoming)
        )
        self.whole = Turn(outgoing, incoming, picked, None, None, route.num_out, route.num_in)
        self.most_sent, self.most_received = route.num_out, route.num_in
        self._kept = [self._make(epoch) for epoch in deal.first_epochs]
        if self._kept:
            self.most_sent = max(turn.num_sent for turn in self._kept)
            self.most_received = max(turn.num_received for turn in self._kept)

    @property
    def groups(self) -> list[int]:
        """Numbers of the groups of rows that are heard of at the same time, if they have rows."""
        # Rows that never have their turn are heard of together, whenever all of them travel.
        if self._deal.how in ("rows", "peers") and self._deal.period:
            return [number for number, turn in enumerate(self._kept) if turn.num_received]
        return [0] if self.whole.num_received else []

    def group_of(self, epoch: int) -> int:
        """Return the number of the group whose rows have their turn in an epoch."""
        return self._deal.turn_of(epoch) if self._deal.how in ("rows", "peers") else 0

    def at(self, epoch: int) -> Turn:
        """Return the turn of an epoch.

        Args:
            epoch: From 0.
        """
        return self._kept[self._deal.turn_of(epoch)] if self._kept else self._make(epoch)

    def _make(self, epoch: int) -> Turn:
        picked = self._picked
        outgoing, packed = self._lanes(self._route.outgoing, epoch)
        incoming, places = self._lanes(self._route.incoming, epoch)
        rows = packed if picked is None else picked[packed.long().to(picked.device)]
        turn = Turn(outgoing, incoming, rows, places, packed, len(rows), len(places))
        return turn.to(self._device)

    def _lanes(
        self, segments: Sequence[Segment], epoch: int
    ) -> tuple[tuple[PeerRows, ...], Tensor]:
        """Return who has which rows of a turn's message, and their places in the packed buffer."""
        lanes, rows, start = [], [torch.zeros(0, dtype=torch.int32)], 0
        for segment in segments:
            taken = self._deal.rows_of(segment, epoch, *self._place)
            if len(taken):
                lanes.append(PeerRows(segment.peer, start, start + len(taken)))
                rows.append(torch.from_numpy(taken.astype(np.int32)))
                start += len(taken)
        return tuple(lanes), torch.cat(rows)
