"""Sums over the edges of every row, and over what arrived for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import triton
import triton.language as tl

from distgnn.gpu.launch import (
    accumulator,
    expect,
    head_width,
    lanes,
    segment_of_program,
    stored,
    summed,
)
from distgnn.gpu.schedule import arrivals_of, schedule_of

if TYPE_CHECKING:
    from torch import Tensor

    from distgnn.gpu.schedule import Schedule, Segments


@triton.jit
def _sum_segments(
    begin_ptr,
    end_ptr,
    target_ptr,
    indices_ptr,
    weight_ptr,
    factor_ptr,
    x_ptr,
    out_ptr,
    WIDTH: tl.constexpr,
    NUM_HEADS: tl.constexpr,
    HAS_INDICES: tl.constexpr,
    HAS_WEIGHT: tl.constexpr,
    IS_PER_SOURCE: tl.constexpr,
    HAS_FACTOR: tl.constexpr,
    ACCUMULATE: tl.constexpr,
    SUM: tl.constexpr,
    EDGES: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    begin, end, target = segment_of_program(begin_ptr, end_ptr, target_ptr)
    lane = tl.arange(0, EDGES)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    is_column = column < WIDTH
    terms = tl.zeros((EDGES, COLUMNS), SUM)
    for first in range(begin, end, EDGES):
        edge = first + lane
        is_there = edge < end
        source = edge
        if HAS_INDICES:
            source = tl.load(indices_ptr + edge, mask=is_there, other=0).to(tl.int64)
        is_read = is_there[:, None] & is_column[None, :]
        at = source[:, None] * WIDTH + column[None, :]
        term = tl.load(x_ptr + at, mask=is_read, other=0).to(SUM)
        if HAS_WEIGHT and IS_PER_SOURCE:
            term *= tl.load(weight_ptr + source, mask=is_there, other=0)[:, None]
        elif HAS_WEIGHT and NUM_HEADS == 1:
            # Read once for all columns.
            term *= tl.load(weight_ptr + edge, mask=is_there, other=0)[:, None]
        elif HAS_WEIGHT:
            of_head = edge[:, None] * NUM_HEADS + (column // (WIDTH // NUM_HEADS))[None, :]
            term *= tl.load(weight_ptr + of_head, mask=is_read, other=0)
        terms += term
    total = tl.sum(terms, 0)
    out = out_ptr + target * WIDTH + column
    if ACCUMULATE:
        total += tl.load(out, mask=is_column, other=0).to(SUM)
    if HAS_FACTOR:
        total *= tl.load(factor_ptr + target)
    tl.store(out, stored(total, out_ptr.dtype.element_ty), mask=is_column)


class _Summed(NamedTuple):
    """Terms of a sum.

    Attributes:
        x: (num_sources, width).
        indices: (num_edges,) Rows of x; None if edge k reads row k.
        weight: (num_edges, num_heads), (num_edges,), or (num_sources,); None for ones.
        num_heads: Heads of the weight.
        is_per_source: Whether sources have the weights, not edges.
    """

    x: Tensor
    indices: Tensor | None = None
    weight: Tensor | None = None
    num_heads: int = 1
    is_per_source: bool = False

    def over(
        self, segments: Segments, out: Tensor, *, accumulate: bool, factor: Tensor | None = None
    ) -> None:
        num_segments, width = len(segments.target), self.x.shape[1]
        if num_segments == 0 or width == 0:
            return
        cut = lanes(width, self.x.element_size())
        _sum_segments[num_segments, cut.programs](
            *segments.ends,
            self.indices,
            self.weight,
            factor,
            self.x,
            out,
            WIDTH=width,
            NUM_HEADS=self.num_heads,
            HAS_INDICES=self.indices is not None,
            HAS_WEIGHT=self.weight is not None,
            IS_PER_SOURCE=self.is_per_source,
            HAS_FACTOR=factor is not None,
            ACCUMULATE=accumulate,
            SUM=accumulator(self.x.dtype),
            EDGES=cut.edges,
            COLUMNS=cut.columns,
            num_warps=1,
        )

    def into(
        self, schedule: Schedule, out: Tensor, *, accumulate: bool, factor: Tensor | None = None
    ) -> None:
        """Sum all rows; those of long ones in two passes."""
        self.over(schedule.rows, out, accumulate=accumulate, factor=factor)
        if schedule.pieces is not None and schedule.joins is not None:
            shape, dtype = (schedule.num_pieces, self.x.shape[1]), summed(self.x.dtype)
            sums = self.x.new_empty(shape, dtype=dtype)
            self.over(schedule.pieces, sums, accumulate=False)
            _Summed(sums).over(schedule.joins, out, accumulate=accumulate, factor=factor)


def spmm_sum(
    indptr: Tensor,
    indices: Tensor,
    weight: Tensor | None,
    x: Tensor,
    out: Tensor,
    *,
    accumulate: bool,
    row_factor: Tensor | None = None,
    source_factor: Tensor | None = None,
    walk: Any = None,
) -> None:
    """Sum the source rows of every destination row; see `distgnn.kernels.spmm_sum`."""
    del walk
    num_rows = len(indptr) - 1
    expect("out", out, num_rows, x.shape[1])
    summed = _Summed(x, indices)
    if weight is not None:
        expect("weight", weight, len(indices))
        if source_factor is not None:
            raise ValueError("source_factor must be None where there is a weight")
        summed = _Summed(x, indices, weight)
    elif source_factor is not None:
        expect("source_factor", source_factor, len(x))
        summed = _Summed(x, indices, source_factor, is_per_source=True)
    if row_factor is not None:
        expect("row_factor", row_factor, num_rows)
    summed.into(schedule_of(indptr), out, accumulate=accumulate, factor=row_factor)


def spmm_heads(
    indptr: Tensor,
    indices: Tensor,
    weight: Tensor,
    x: Tensor,
    out: Tensor,
    *,
    accumulate: bool,
    walk: Any = None,
) -> None:
    """Sum with a weight for each edge and head; see `distgnn.kernels.edge_values.spmm_heads`."""
    del walk
    num_heads = weight.shape[1]
    head_width("x", x, num_heads)
    expect("weight", weight, len(indices), num_heads)
    expect("out", out, len(indptr) - 1, x.shape[1])
    summed = _Summed(x, indices, weight, num_heads)
    summed.into(schedule_of(indptr), out, accumulate=accumulate)


def edge_sum(indptr: Tensor, edge_value: Tensor, out: Tensor, *, accumulate: bool) -> None:
    """Sum the values of the edges of every row; see `distgnn.kernels.attention.edge_sum`."""
    expect("out", out, len(indptr) - 1, edge_value.shape[1])
    _Summed(edge_value).into(schedule_of(indptr), out, accumulate=accumulate)


def scatter_add_rows(x: Tensor, rows: Tensor, out: Tensor) -> None:
    """Add the rows of a buffer where they belong; see `distgnn.kernels.scatter_add_rows`."""
    expect("x", x, len(rows), out.shape[1])
    order, segments = arrivals_of(rows)
    _Summed(x, order).over(segments, out, accumulate=True)


def join_sums(schedule: Schedule, sums: Tensor, out: Tensor, *, accumulate: bool) -> None:
    """Add the sums that the pieces of long rows left, in order.

    Args:
        schedule: With pieces.
        sums: (num_pieces, width).
        out: (num_rows, width). The long rows are written.
        accumulate: Start from the values in `out` instead of zero.
    """
    assert schedule.joins is not None, "rows were cut into pieces"
    _Summed(sums).over(schedule.joins, out, accumulate=accumulate)
