"""Which program of a kernel walks which edges: made once for each graph, on its device."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

import torch
from torch.utils.weak import WeakTensorKeyDictionary

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

T = TypeVar("T")

PIECE_EDGES = 512
"""Edges that a program walks at most; longer rows are cut."""


class Segments(NamedTuple):
    """Runs of edges, each walked in order.

    Attributes:
        begin: (num_segments,) int64. First edge of each.
        end: (num_segments,) int64. One past its last edge.
        row: (num_segments,) int64. Row of the graph that it belongs to.
        target: (num_segments,) int64. Row of the output that its result is written to.
    """

    begin: Tensor
    end: Tensor
    row: Tensor
    target: Tensor

    @property
    def ends(self) -> tuple[Tensor, Tensor, Tensor]:
        """Where each begins and ends, and what its result is written to."""
        return self.begin, self.end, self.target


class Schedule(NamedTuple):
    """All rows of a graph.

    The sums of the pieces of a long row are written down and added by a second pass, in order: a
    result has the same bits in every run.

    Attributes:
        rows: Short rows, whole.
        pieces: Pieces of long rows, in order; their targets are their numbers. None without any.
        joins: For each long row the run of its pieces. None without any.
    """

    rows: Segments
    pieces: Segments | None
    joins: Segments | None

    @property
    def num_pieces(self) -> int:
        """Pieces there are."""
        return 0 if self.pieces is None else len(self.pieces.target)


_BY_INDPTR = WeakTensorKeyDictionary()
_BY_ROWS = WeakTensorKeyDictionary()
_ROW_OF_EDGE = WeakTensorKeyDictionary()


def schedule_of(indptr: Tensor) -> Schedule:
    """Return the schedule of a graph, made at the first call with this tensor.

    Args:
        indptr: (num_rows + 1,) int64. Never changed afterwards.
    """

    def make() -> Schedule:
        rows = torch.arange(len(indptr) - 1, device=indptr.device)
        return make_schedule(indptr[:-1], indptr[1:], rows)

    return _kept(_BY_INDPTR, indptr, make)


def row_of_edge(indptr: Tensor, num_edges: int) -> Tensor:
    """Return (num_edges,) int64, the row of each edge, made at the first call with this tensor.

    Args:
        indptr: (num_rows + 1,) int64. Never changed afterwards.
        num_edges: Edges there are.
    """

    def make() -> Tensor:
        return torch.repeat_interleave(indptr.diff(), output_size=num_edges)

    return _kept(_ROW_OF_EDGE, indptr, make)


class Arrivals(NamedTuple):
    """The rows of a buffer by the row that they belong to.

    Attributes:
        order: (num_received,) int64. Rows of the buffer; those of one row together, in order.
        rows: A run of them for each row that something belongs to: never cut, as a row gets one
            from each rank at most.
    """

    order: Tensor
    rows: Segments


def arrivals_of(rows: Tensor) -> Arrivals:
    """Sort the rows of a buffer by where they belong, at the first call with this tensor.

    Args:
        rows: (num_received,) int32. May repeat; never changed afterwards.
    """

    def make() -> Arrivals:
        order = rows.argsort(stable=True)
        if len(rows) == 0:
            return Arrivals(order, Segments(order, order, order, order))
        found, counts = torch.unique_consecutive(rows[order], return_counts=True)
        end = counts.cumsum(0)
        return Arrivals(order, Segments(end - counts, end, found.long(), found.long()))

    return _kept(_BY_ROWS, rows, make)


def _kept(kept: WeakTensorKeyDictionary, key: Tensor, make: Callable[[], T]) -> T:
    value: T | None = kept.get(key)
    if value is None:
        value = kept[key] = make()
    return value


def make_schedule(begin: Tensor, end: Tensor, row: Tensor) -> Schedule:
    """Divide rows among programs.

    Args:
        begin: (num_rows,) int64. First edge of each row.
        end: (num_rows,) int64. One past its last edge.
        row: (num_rows,) int64. Its number.

    Returns:
        The schedule.
    """
    is_long = end - begin > PIECE_EDGES
    is_short = ~is_long
    rows = Segments(begin[is_short], end[is_short], row[is_short], row[is_short])
    begin, end, row = begin[is_long], end[is_long], row[is_long]
    if len(row) == 0:
        return Schedule(rows, None, None)
    counts = (end - begin + PIECE_EDGES - 1) // PIECE_EDGES
    stops = counts.cumsum(0)
    numbers = torch.arange(int(stops[-1]), device=row.device)
    of_piece = torch.repeat_interleave(torch.arange(len(row), device=row.device), counts)
    first = begin[of_piece] + (numbers - (stops - counts)[of_piece]) * PIECE_EDGES
    last = torch.minimum(first + PIECE_EDGES, end[of_piece])
    pieces = Segments(first, last, row[of_piece], numbers)
    return Schedule(rows, pieces, Segments(stops - counts, stops, row, row))
