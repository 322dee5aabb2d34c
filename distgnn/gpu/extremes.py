"""Maxima and minima over the edges of every row, and which source they came from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import triton
import triton.language as tl

from distgnn.gpu.launch import accumulator, expect, segments_of_program, tile
from distgnn.gpu.schedule import arrivals_of, schedule_of
from distgnn.gpu.sums import join_sums

if TYPE_CHECKING:
    from torch import Tensor

    from distgnn.gpu.schedule import Segments


@triton.jit
def _take_extremes(
    begin_ptr,
    end_ptr,
    target_ptr,
    num_segments,
    indices_ptr,
    x_ptr,
    x_source_ptr,
    out_ptr,
    source_ptr,
    width,
    IS_JOIN: tl.constexpr,
    IS_MAX: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    segment, is_row, begin, length = segments_of_program(begin_ptr, end_ptr, num_segments, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    is_column = column < width
    target = tl.load(target_ptr + segment, mask=is_row, other=0)
    value = tl.zeros((ROWS, COLUMNS), x_ptr.dtype.element_ty)
    winner = tl.full((ROWS, COLUMNS), -1, tl.int32)
    for k in range(tl.max(length, 0)):
        is_there = is_row & (k < length)
        edge = begin + k
        is_read = is_there[:, None] & is_column[None, :]
        if IS_JOIN:
            at = edge[:, None] * width + column[None, :]
            source = tl.load(x_source_ptr + at, mask=is_read, other=0)
        else:
            number = tl.load(indices_ptr + edge, mask=is_there, other=0)
            at = number[:, None].to(tl.int64) * width + column[None, :]
            source = tl.broadcast_to(number[:, None], (ROWS, COLUMNS))
        new = tl.load(x_ptr + at, mask=is_read, other=0)
        is_better = new > value if IS_MAX else new < value
        # Only a NaN differs from itself.
        is_better = (is_better | (new != new)) & (value == value)
        wins = is_read & (is_better | (winner < 0))
        value = tl.where(wins, new, value)
        winner = tl.where(wins, source, winner)
    at = target[:, None] * width + column[None, :]
    is_inside = is_row[:, None] & is_column[None, :]
    tl.store(out_ptr + at, value, mask=is_inside)
    tl.store(source_ptr + at, winner, mask=is_inside)


@triton.jit
def _route_back(
    begin_ptr,
    end_ptr,
    row_ptr,
    target_ptr,
    num_segments,
    indptr_ptr,
    indices_ptr,
    source_ptr,
    grad_ptr,
    out_ptr,
    width,
    first_source,
    ACCUMULATE: tl.constexpr,
    SUM: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    segment, is_row, begin, length = segments_of_program(begin_ptr, end_ptr, num_segments, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    is_column = column < width
    is_inside = is_row[:, None] & is_column[None, :]
    row = tl.load(row_ptr + segment, mask=is_row, other=0)
    first = tl.load(indptr_ptr + row, mask=is_row, other=0)
    target = tl.load(target_ptr + segment, mask=is_row, other=0)
    wanted = (row + first_source)[:, None]
    out = out_ptr + target[:, None] * width + column[None, :]
    if ACCUMULATE:
        total = tl.load(out, mask=is_inside, other=0).to(SUM)
    else:
        total = tl.zeros((ROWS, COLUMNS), SUM)
    for k in range(tl.max(length, 0)):
        is_there = is_row & (k < length)
        edge = begin + k
        result = tl.load(indices_ptr + edge, mask=is_there, other=0).to(tl.int64)
        # Of several edges between the same ends, one brings the gradient.
        has_before = is_there & (edge > first)
        before = tl.load(indices_ptr + edge - 1, mask=has_before, other=-1)
        is_there &= result != before
        is_read = is_there[:, None] & is_column[None, :]
        at = result[:, None] * width + column[None, :]
        source = tl.load(source_ptr + at, mask=is_read, other=-1)
        is_ours = is_read & (source == wanted)
        total += tl.load(grad_ptr + at, mask=is_ours, other=0).to(SUM)
    tl.store(out, total, mask=is_inside)


@triton.jit
def _merge_received(
    begin_ptr,
    end_ptr,
    target_ptr,
    num_segments,
    order_ptr,
    received_ptr,
    received_id_ptr,
    id_ptr,
    out_ptr,
    source_ptr,
    width,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    segment, is_row, begin, length = segments_of_program(begin_ptr, end_ptr, num_segments, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    is_column = column < width
    is_inside = is_row[:, None] & is_column[None, :]
    target = tl.load(target_ptr + segment, mask=is_row, other=0)
    place = target[:, None] * width + column[None, :]
    value = tl.load(out_ptr + place, mask=is_inside, other=0)
    winner = tl.load(source_ptr + place, mask=is_inside, other=-1)
    # Ids count from 1; 0 is that of no source.
    old_id = tl.load(id_ptr + winner, mask=is_inside & (winner >= 0), other=-1) + 1
    for k in range(tl.max(length, 0)):
        is_there = is_row & (k < length)
        number = tl.load(order_ptr + begin + k, mask=is_there, other=0)
        is_read = is_there[:, None] & is_column[None, :]
        at = number[:, None] * width + column[None, :]
        new = tl.load(received_ptr + at, mask=is_read, other=0)
        new_id = tl.load(received_id_ptr + at, mask=is_read, other=0)
        is_larger = (new > value) | ((new != new) & (value == value))
        is_tie = (new == value) | ((new != new) & (value != value))
        wins = (winner == -1) | is_larger | (is_tie & (new_id < old_id))
        wins = wins & (new_id != 0)
        value = tl.where(wins, new, value)
        winner = tl.where(wins, (-2 - number[:, None]).to(tl.int32), winner)
        old_id = tl.where(wins, new_id, old_id)
    tl.store(out_ptr + place, value, mask=is_inside)
    tl.store(source_ptr + place, winner, mask=is_inside)


def spmm_extreme(
    indptr: Tensor,
    indices: Tensor,
    x: Tensor,
    out: Tensor,
    *,
    source: Tensor,
    is_max: bool,
    plan: Any = None,
) -> None:
    """Take the maximum or minimum over source rows; see `distgnn.extreme.spmm_extreme`."""
    del plan
    width, schedule = x.shape[1], schedule_of(indptr)
    expect("out", out, len(indptr) - 1, width)
    expect("source", source, len(indptr) - 1, width)

    def take(segments: Segments, found: tuple[Tensor, Tensor], pieces: tuple[Any, Any]) -> None:
        num_segments, is_join = len(segments.target), pieces[0] is not None
        if num_segments == 0 or width == 0:
            return
        cut = tile(num_segments, width)
        _take_extremes[cut.grid](
            segments.begin,
            segments.end,
            segments.target,
            num_segments,
            None if is_join else indices,
            pieces[0] if is_join else x,
            pieces[1],
            *found,
            width,
            IS_JOIN=is_join,
            IS_MAX=is_max,
            ROWS=cut.rows,
            COLUMNS=cut.columns,
        )

    take(schedule.rows, (out, source), (None, None))
    if schedule.pieces is not None and schedule.joins is not None:
        pieces = x.new_empty((schedule.num_pieces, width))
        sources = source.new_empty((schedule.num_pieces, width))
        take(schedule.pieces, (pieces, sources), (None, None))
        take(schedule.joins, (out, source), (pieces, sources))


def extreme_scratch(t_indptr: Tensor, t_indices: Tensor, *, num_rows: int, width: int) -> int:
    """Return 0: the backward of a maximum walks the edges here; see `extreme.follows_plan`."""
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
    plan: Any = None,
) -> None:
    """Send gradients to where results came from; see `distgnn.extreme.spmm_extreme_backward`."""
    del plan, scratch
    width, schedule = out.shape[1], schedule_of(t_indptr)
    expect("out", out, len(t_indptr) - 1, width)
    expect("grad", grad, len(grad), width)
    expect("source", source, len(grad), width)

    def route(segments: Segments, sums: Tensor, *, accumulate: bool) -> None:
        num_segments = len(segments.target)
        if num_segments == 0 or width == 0:
            return
        cut = tile(num_segments, width)
        _route_back[cut.grid](
            *segments[:4],
            num_segments,
            t_indptr,
            t_indices,
            source,
            grad,
            sums,
            width,
            first_source,
            ACCUMULATE=accumulate,
            SUM=accumulator(grad.dtype),
            ROWS=cut.rows,
            COLUMNS=cut.columns,
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
    """Merge the maxima over another block of edges; see `distgnn.extreme.merge_max`."""
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
    """Merge maxima of other ranks; see `distgnn.extreme.merge_received_max`."""
    width, (order, segments) = out.shape[1], arrivals_of(rows)
    expect("source", source, *out.shape)
    expect("received", received, len(rows), width)
    expect("received_id", received_id, len(rows), width)
    num_segments = len(segments.target)
    if num_segments == 0 or width == 0:
        return
    cut = tile(num_segments, width)
    _merge_received[cut.grid](
        segments.begin,
        segments.end,
        segments.target,
        num_segments,
        order,
        received,
        received_id,
        source_id,
        out,
        source,
        width,
        ROWS=cut.rows,
        COLUMNS=cut.columns,
    )
