"""Which rows of a channel have their turn: index lists, made once."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from distgnn.exchange.route import binned_rows, num_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from distgnn.exchange.route import Route, Segment


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
        num_sent: Rows that leave.
        num_received: Rows that arrive.
    """

    outgoing: tuple[PeerRows, ...]
    incoming: tuple[PeerRows, ...]
    picked: Tensor | None
    places: Tensor | None
    num_sent: int
    num_received: int

    def to(self, device: torch.device) -> Turn:
        """Return the same turn, its index lists on a device."""
        picked, places = (
            None if rows is None else rows.to(device) for rows in (self.picked, self.places)
        )
        return self._replace(picked=picked, places=places)


class Turns:
    """The turns of one channel.

    Args:
        route: Who gets how many rows.
        picked: (num_out,) int32. Row of the table that stands in each row of the packed buffer;
            None if the table is packed.
        num_bins: At least 1.
        device: Where the rows are.

    Attributes:
        bins: A turn for each bin.
        whole: All rows.
        most_sent: Rows of the longest message of a bin that leaves.
        most_received: Rows of the longest that arrives.
    """

    def __init__(
        self, route: Route, picked: Tensor | None, num_bins: int, *, device: torch.device
    ) -> None:
        turns = (_turn_of_bin(route, picked, bin_id, num_bins) for bin_id in range(num_bins))
        self.bins = [turn.to(device) for turn in turns]
        outgoing, incoming = (
            tuple(PeerRows(segment.peer, segment.start, segment.stop) for segment in segments)
            for segments in (route.outgoing, route.incoming)
        )
        self.whole = Turn(outgoing, incoming, picked, None, route.num_out, route.num_in)
        self.most_sent = max(turn.num_sent for turn in self.bins)
        self.most_received = max(turn.num_received for turn in self.bins)


def _turn_of_bin(route: Route, picked: Tensor | None, bin_id: int, num_bins: int) -> Turn:
    outgoing, packed = _lanes(route.outgoing, bin_id, num_bins)
    incoming, places = _lanes(route.incoming, bin_id, num_bins)
    rows = packed if picked is None else picked[packed.long().to(picked.device)]
    return Turn(outgoing, incoming, rows, places, len(rows), len(places))


def _lanes(
    segments: Sequence[Segment], bin_id: int, num_bins: int
) -> tuple[tuple[PeerRows, ...], Tensor]:
    """Return who has which rows of a bin's message, and where these lie in the packed buffer."""
    lanes, rows, start = [], [torch.zeros(0, dtype=torch.int32)], 0
    for peer, taken in binned_rows(segments, bin_id, num_bins):
        stop = start + num_rows(taken)
        lanes.append(PeerRows(peer, start, stop))
        rows.append(torch.arange(taken.start, taken.stop, taken.step, dtype=torch.int32))
        start = stop
    return tuple(lanes), torch.cat(rows)
