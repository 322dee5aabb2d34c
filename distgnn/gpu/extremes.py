"""Maxima and minima over the edges of every row, and which source they came from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import triton
import triton.language as tl

from distgnn.gpu.launch import accumulator, expect, lanes, segment_of_program
from distgnn.gpu.schedule import arrivals_of, schedule_of
from distgnn.gpu.sums import join_sums

if TYPE_CHECKING:
    from torch import Tensor

    from distgnn.gpu.schedule import Segments


# Beyond any edge of a row: of what has no winner.
_NOBODY = tl.constexpr(2147483647)


@triton.jit
def _take_extremes(
    begin_ptr,
    end_ptr,
    target_ptr,
    indices_ptr,
    x_ptr,
    x_source_ptr,
    out_ptr,
    source_ptr,
    WIDTH: tl.constexpr,
    IS_JOIN: tl.constexpr,
    IS_MAX: tl.constexpr,
    EDGES: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    begin, end, target = segment_of_program(begin_ptr, end_ptr, target_ptr)
    lane = tl.arange(0, EDGES)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    is_column = column < WIDTH
    value = tl.zeros((EDGES, COLUMNS), x_ptr.dtype.element_ty)
    winner = tl.full((EDGES, COLUMNS), _NOBODY, tl.int32)
    for first in range(begin, end, EDGES):
        edge = first + lane
        is_there = edge < end
        number = edge
        if not IS_JOIN:
            number = tl.load(indices_ptr + edge, mask=is_there, other=0).to(tl.int64)
        is_read = is_there[:, None] & is_column[None, :]
        at = number[:, None] * WIDTH + column[None, :]
        new = tl.load(x_ptr + at, mask=is_read, other=0)
        is_better = new > value if IS_MAX else new < value
        # Only a NaN differs from itself.
        is_better = (is_better | (new != new)) & (value == value)
        wins = is_read & (is_better | (winner == _NOBODY))
        value = tl.where(wins, new, value)
        winner = tl.where(wins, (edge - begin).to(tl.int32)[:, None], winner)
    # Each lane has the first of its best; of the lanes' best, the first edge's wins.
    is_found, is_nan = winner != _NOBODY, value != value
    lowest = float("-inf") if IS_MAX else float("inf")
    ranked = tl.where(is_found & (value == value), value, lowest)
    best = tl.max(ranked, 0) if IS_MAX else tl.min(ranked, 0)
    has_nan = tl.max(is_nan.to(tl.int32), 0) > 0
    is_candidate = is_found & tl.where(has_nan[None, :], is_nan, value == best[None, :])
    edge = tl.min(tl.where(is_candidate, winner, _NOBODY), 0)
    is_any = is_column & (edge != _NOBODY)
    edge = begin + edge
    if IS_JOIN:
        source = tl.load(x_source_ptr + edge * WIDTH + column, mask=is_any, other=-1)
        result = tl.load(x_ptr + edge * WIDTH + column, mask=is_any, other=0)
    else:
        source = tl.load(indices_ptr + edge, mask=is_any, other=-1)
        result = tl.where(has_nan, float("nan"), best)
        result = tl.where(is_any, result, 0).to(x_ptr.dtype.element_ty)
    tl.store(out_ptr + target * WIDTH + column, result, mask=is_column)
    tl.store(source_ptr + target * WIDTH + column, source, mask=is_column)


@triton.jit
def _route_back(
    begin_ptr,
    end_ptr,
    target_ptr,
    row_ptr,
    indptr_ptr,
    indices_ptr,
    source_ptr,
    grad_ptr,
    out_ptr,
    first_source,
    WIDTH: tl.constexpr,
    ACCUMULATE: tl.constexpr,
    SUM: tl.constexpr,
    EDGES: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    begin, end, target = segment_of_program(begin_ptr, end_ptr, target_ptr)
    lane = tl.arange(0, EDGES)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    is_column = column < WIDTH
    row = tl.load(row_ptr + tl.program_id(0))
    start = tl.load(indptr_ptr + row)
    wanted = row + first_source
    terms = tl.zeros((EDGES, COLUMNS), SUM)
    for first in range(begin, end, EDGES):
        edge = first + lane
        is_there = edge < end
        result = tl.load(indices_ptr + edge, mask=is_there, other=0).to(tl.int64)
        # Of several edges between the same ends, one brings the gradient.
        before = tl.load(indices_ptr + edge - 1, mask=is_there & (edge > start), other=-1)
        is_there &= result != before
        is_read = is_there[:, None] & is_column[None, :]
        at = result[:, None] * WIDTH + column[None, :]
        source = tl.load(source_ptr + at, mask=is_read, other=-1)
        is_ours = is_read & (source == wanted)
        terms += tl.load(grad_ptr + at, mask=is_ours, other=0).to(SUM)
    total = tl.sum(terms, 0)
    out = out_ptr + target * WIDTH + column
    if ACCUMULATE:
        total += tl.load(out, mask=is_column, other=0).to(SUM)
    tl.store(out, total, mask=is_column)


@triton.jit
def _merge_received(
    begin_ptr,
    end_ptr,
    target_ptr,
    order_ptr,
    received_ptr,
    received_id_ptr,
    id_ptr,
    out_ptr,
    source_ptr,
    WIDTH: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    begin, end, target = segment_of_program(begin_ptr, end_ptr, target_ptr)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    is_column = column < WIDTH
    place = target * WIDTH + column
    value = tl.load(out_ptr + place, mask=is_column, other=0)
    winner = tl.load(source_ptr + place, mask=is_column, other=-1)
    # Ids count from 1; 0 is that of no source.
    old_id = tl.load(id_ptr + winner, mask=is_column & (winner >= 0), other=-1) + 1
    for edge in range(begin, end):
        number = tl.load(order_ptr + edge)
        at = number * WIDTH + column
        new = tl.load(received_ptr + at, mask=is_column, other=0)
        new_id = tl.load(received_id_ptr + at, mask=is_column, other=0)
        is_larger = (new > value) | ((new != new) & (value == value))
        is_tie = (new == value) | ((new != new) & (value != value))
        wins = (winner == -1) | is_larger | (is_tie & (new_id < old_id))
        wins = wins & (new_id != 0)
        value = tl.where(wins, new, value)
        winner = tl.where(wins, (-2 - number).to(tl.int32), winner)
        old_id = tl.where(wins, new_id, old_id)
    tl.store(out_ptr + place, value, mask=is_column)
    tl.store(source_ptr + place, winner, mask=is_column)


def spmm_extreme(
    indptr: Tensor,
    indices: Tensor,
    x: Tensor,
    out: Tensor,
    *,
    source: Tensor,
    is_max: bool,
    walk: Any = None,
) -> None:
    """Take the maximum or minimum over source rows; see `distgnn.kernels.maxima.spmm_extreme`."""
    del walk
    width, schedule = x.shape[1], schedule_of(indptr)
    expect("out", out, len(indptr) - 1, width)
    expect("source", source, len(indptr) - 1, width)

    def take(segments: Segments, found: tuple[Tensor, Tensor], pieces: tuple[Any, Any]) -> None:
        num_segments, is_join = len(segments.target), pieces[0] is not None
        if num_segments == 0 or width == 0:
            return
        # Winners take as many registers again as values.
        cut = lanes(width, 2 * x.element_size())
        _take_extremes[num_segments, cut.programs](
            *segments.ends,
            None if is_join else indices,
            pieces[0] if is_join else x,
            pieces[1],
            *found,
            WIDTH=width,
            IS_JOIN=is_join,
            IS_MAX=is_max,
            EDGES=cut.edges,
            COLUMNS=cut.columns,
            num_warps=1,
        )

    take(schedule.rows, (out, source), (None, None))
    if schedule.pieces is not None and schedule.joins is not None:
        pieces = x.new_empty((schedule.num_pieces, width))
        sources = source.new_empty((schedule.num_pieces, width))
        take(schedule.pieces, (pieces, sources), (None, None))
        take(schedule.joins, (out, source), (pieces, sources))


def extreme_scratch(t_indptr: Tensor, t_indices: Tensor, *, num_rows: int, width: int) -> int:
    """Return 0: the backward of a maximum walks the edges here; see `follows_walk_order`."""
    del t_indptr, t_indices, num_rows, width
    return 0


def spmm_extreme_backward(
    t_indptr: Tensor,
    t_indices: Tensor,
    source: Tensor,
    grad: Tensor,
    *,
    out: Tensor,
    scratch: Tensor,
    accumulate: bool,
    first_source: int,
    walk: Any = None,
) -> None:
    """Send gradients to where results came from; see `kernels.maxima.spmm_extreme_backward`."""
    del walk, scratch
    width, schedule = out.shape[1], schedule_of(t_indptr)
    expect("out", out, len(t_indptr) - 1, width)
    expect("grad", grad, len(grad), width)
    expect("source", source, len(grad), width)

    def route(segments: Segments, sums: Tensor, *, accumulate: bool) -> None:
        num_segments = len(segments.target)
        if num_segments == 0 or width == 0:
            return
        cut = lanes(width, 4)
        _route_back[num_segments, cut.programs](
            *segments.ends,
            segments.row,
            t_indptr,
            t_indices,
            source,
            grad,
            sums,
            first_source,
            WIDTH=width,
            ACCUMULATE=accumulate,
            SUM=accumulator(grad.dtype),
            EDGES=cut.edges,
            COLUMNS=cut.columns,
            num_warps=1,
        )

    route(schedule.rows, out, accumulate=accumulate)
    if schedule.pieces is not None:
        sums = out.new_empty((schedule.num_pieces, width))
        route(schedule.pieces, sums, accumulate=False)
        join_sums(schedule, sums, out, accumulate=accumulate)


def merge_max(
    out: Tensor,
    source: Tensor,
    other: Tensor,
    other_source: Tensor,
    *,
    source_id: Tensor,
    first_source: int,
) -> None:
    """Merge the maxima over another block of edges; see `distgnn.kernels.maxima.merge_max`."""
    for name, tensor in (("source", source), ("other", other), ("other_source", other_source)):
        expect(name, tensor, *out.shape)
    if len(source_id) == 0:
        return
    new_source = other_source + first_source
    is_found, is_empty = other_source >= 0, source == -1
    is_larger = (other > out) | (other.isnan() & ~out.isnan())
    is_tie = (other == out) | (other.isnan() & out.isnan())
    old_id, new_id = (source_id[number.clamp(min=0).long()] for number in (source, new_source))
    wins = is_found & (is_empty | is_larger | (is_tie & (new_id < old_id)))
    out.copy_(torch.where(wins, other, out))
    source.copy_(torch.where(wins, new_source, source))


def merge_received_max(
    out: Tensor,
    source: Tensor,
    rows: Tensor,
    received: Tensor,
    received_id: Tensor,
    *,
    source_id: Tensor,
) -> None:
    """Merge maxima of other ranks; see `distgnn.kernels.maxima.merge_received_max`."""
    width, (order, segments) = out.shape[1], arrivals_of(rows)
    expect("source", source, *out.shape)
    expect("received", received, len(rows), width)
    expect("received_id", received_id, len(rows), width)
    num_segments = len(segments.target)
    if num_segments == 0 or width == 0:
        return
    cut = lanes(width, received.element_size())
    _merge_received[num_segments, cut.programs](
        *segments.ends,
        order,
        received,
        received_id,
        source_id,
        out,
        source,
        WIDTH=width,
        COLUMNS=cut.columns,
        num_warps=1,
    )
