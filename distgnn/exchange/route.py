"""Routes: how many rows go to and come from each peer, fixed when a part is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

import torch

from distgnn.datasets.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from distgnn.comm.group import Group


@dataclass(frozen=True)
class Segment:
    """The rows that travel between this rank and one peer, in one direction.

    Attributes:
        peer: The other rank.
        start: First row in the packed buffer.
        stop: One past the last row.
        first_index: Position of the first row among the rows of all pairs of ranks; sender and
            receiver hold the same number, so both put a row into the same bin.
    """

    peer: int
    start: int
    stop: int
    first_index: int

    def rows_of_bin(self, bin_id: int, num_bins: int) -> slice:
        """Rows of the packed buffer whose turn it is.

        Rows are dealt to bins round-robin over all pairs of ranks, so that every bin holds the
        same share of the total traffic to within one row.

        Args:
            bin_id: In [0, num_bins).
            num_bins: At least 1.

        Returns:
            A strided slice of the packed buffer.
        """
        offset = (bin_id - self.first_index) % num_bins
        return slice(min(self.start + offset, self.stop), self.stop, num_bins)


@dataclass(frozen=True)
class Route:
    """One half of an exchange as one rank sees it.

    Outgoing rows lie in one packed buffer ordered by peer, and so do incoming rows.

    Attributes:
        outgoing: Segments with at least one row, by ascending peer.
        incoming: Likewise.
        num_out: Rows of the outgoing buffer.
        num_in: Rows of the incoming buffer.
    """

    outgoing: tuple[Segment, ...]
    incoming: tuple[Segment, ...]
    num_out: int
    num_in: int

    def reversed(self) -> Route:
        """Return the adjoint route: the same rows, travelling back."""
        return Route(self.incoming, self.outgoing, self.num_in, self.num_out)


def plan_route(group: Group, out_counts: Sequence[int], in_counts: Sequence[int]) -> Route:
    """Agree with all peers on the rows of one half of an exchange.

    Collective: every rank calls it once per half, at load.

    Args:
        group: The ranks.
        out_counts: Rows that this rank sends to each rank; 0 to itself.
        in_counts: Rows that this rank expects from each rank.

    Returns:
        The route.

    Raises:
        InputError: If a peer sends another number of rows than this rank expects, which means that
            the two parts come from different partitions.
    """
    table = _table(group, out_counts)
    error: Exception | None = None
    for peer, expected in enumerate(in_counts):
        if table[peer][group.rank] != expected:
            error = InputError(
                f"part {peer} sends {table[peer][group.rank]} rows to part {group.rank}, which "
                f"expects {int(expected)}; the parts come from different partitions: "
                "partition again"
            )
            break
    group.agree(error)
    return _route(group, table)


def tell_route(group: Group, out_counts: Sequence[int]) -> Route:
    """Tell all peers of the rows that they get, which they need not expect.

    Collective.

    Args:
        group: The ranks.
        out_counts: Rows that this rank sends to each rank; 0 to itself.

    Returns:
        The route.
    """
    return _route(group, _table(group, out_counts))


def _table(group: Group, out_counts: Sequence[int]) -> list[list[int]]:
    """Rows that each rank sends to each."""
    own = torch.tensor([int(count) for count in out_counts], dtype=torch.int64)
    return [row.tolist() for row in group.all_gather(own)]


def _route(group: Group, table: list[list[int]]) -> Route:
    firsts = _first_indices(table)
    out_counts, in_counts = table[group.rank], [row[group.rank] for row in table]
    outgoing = _segments(out_counts, [firsts[group.rank][peer] for peer in range(group.size)])
    incoming = _segments(in_counts, [firsts[peer][group.rank] for peer in range(group.size)])
    return Route(outgoing, incoming, sum(out_counts), sum(in_counts))


def _first_indices(table: list[list[int]]) -> list[list[int]]:
    """Running count of rows over all pairs, row-major: the position of each pair's first row."""
    flat = [0, *accumulate(count for row in table for count in row)]
    size = len(table)
    return [flat[rank * size : (rank + 1) * size] for rank in range(size)]


def _segments(counts: Sequence[int], firsts: Sequence[int]) -> tuple[Segment, ...]:
    stops = list(accumulate(int(count) for count in counts))
    return tuple(
        Segment(peer, stop - int(count), stop, first)
        for peer, (count, stop, first) in enumerate(zip(counts, stops, firsts, strict=True))
        if count
    )


def buffer_like(rows: Tensor, count: int) -> Tensor:
    """Return an uninitialised buffer of `count` rows with the width, dtype and device of `rows`."""
    return rows.new_empty((count, rows.shape[1]))
