"""Attention in states that can be merged, and its backward; see `distgnn.attention`.

A state is rescaled whenever a larger score comes: one pass over the edges. Nothing is stored per
edge but one gradient.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import triton
import triton.language as tl

from distgnn.gpu.launch import expect, head_width, segments_of_program, tile_of_heads
from distgnn.gpu.schedule import arrivals_of, schedule_of

if TYPE_CHECKING:
    from torch import Tensor

    from distgnn.gpu.schedule import Segments

# Below any score: infinity minus infinity would be no number.
_LOWEST = tl.constexpr(-3.0e38)


@triton.jit
def _load_state(
    out_ptr,
    maximum_ptr,
    denominator_ptr,
    place,
    at,
    is_inside,
    is_row,
):
    """The sums, the maximum and the denominator of rows; a state of nothing has no maximum."""
    denominator = tl.load(denominator_ptr + at, mask=is_row, other=0)
    has_seen = denominator != 0
    maximum = tl.load(maximum_ptr + at, mask=is_row, other=0)
    sums = tl.load(out_ptr + place, mask=is_inside, other=0)
    return (
        tl.where(has_seen[:, None], sums, 0),
        tl.where(has_seen, maximum, _LOWEST),
        denominator,
    )


@triton.jit
def _attend(
    begin_ptr,
    end_ptr,
    row_ptr,
    target_ptr,
    num_segments,
    indices_ptr,
    source_score_ptr,
    target_score_ptr,
    x_ptr,
    out_ptr,
    maximum_ptr,
    denominator_ptr,
    width,
    SLOPE: tl.constexpr,
    ACCUMULATE: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    segment, is_row, begin, length = segments_of_program(begin_ptr, end_ptr, num_segments, ROWS)
    head, num_heads = tl.program_id(1), tl.num_programs(1)
    column = tl.arange(0, COLUMNS)
    is_column = column < width
    is_inside = is_row[:, None] & is_column[None, :]
    row = tl.load(row_ptr + segment, mask=is_row, other=0)
    at = tl.load(target_ptr + segment, mask=is_row, other=0) * num_heads + head
    place = at[:, None] * width + column[None, :]
    target = tl.load(target_score_ptr + row * num_heads + head, mask=is_row, other=0)
    if ACCUMULATE:
        sums, maximum, denominator = _load_state(
            out_ptr, maximum_ptr, denominator_ptr, place, at, is_inside, is_row
        )
    else:
        sums = tl.zeros((ROWS, COLUMNS), x_ptr.dtype.element_ty)
        maximum = tl.full((ROWS,), _LOWEST, x_ptr.dtype.element_ty)
        denominator = tl.zeros((ROWS,), x_ptr.dtype.element_ty)
    for k in range(tl.max(length, 0)):
        is_there = is_row & (k < length)
        source = tl.load(indices_ptr + begin + k, mask=is_there, other=0).to(tl.int64)
        source = source * num_heads + head
        raw = tl.load(source_score_ptr + source, mask=is_there, other=0) + target
        score = tl.where(raw > 0, raw, raw * SLOPE)
        largest = tl.where(is_there, tl.maximum(maximum, score), maximum)
        kept = tl.exp(maximum - largest)
        share = tl.where(is_there, tl.exp(tl.where(is_there, score - largest, 0)), 0)
        is_read = is_there[:, None] & is_column[None, :]
        x = tl.load(x_ptr + source[:, None] * width + column[None, :], mask=is_read, other=0)
        sums = sums * kept[:, None] + share[:, None] * x
        denominator = denominator * kept + share
        maximum = largest
    tl.store(out_ptr + place, sums, mask=is_inside)
    tl.store(maximum_ptr + at, tl.where(denominator != 0, maximum, 0), mask=is_row)
    tl.store(denominator_ptr + at, denominator, mask=is_row)


@triton.jit
def _merge_states(
    begin_ptr,
    end_ptr,
    target_ptr,
    num_segments,
    order_ptr,
    other_ptr,
    other_maximum_ptr,
    other_denominator_ptr,
    other_stride,
    other_state_stride,
    out_ptr,
    maximum_ptr,
    denominator_ptr,
    width,
    HAS_ORDER: tl.constexpr,
    ACCUMULATE: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    segment, is_row, begin, length = segments_of_program(begin_ptr, end_ptr, num_segments, ROWS)
    head, num_heads = tl.program_id(1), tl.num_programs(1)
    column = tl.arange(0, COLUMNS)
    is_column = column < width
    is_inside = is_row[:, None] & is_column[None, :]
    at = tl.load(target_ptr + segment, mask=is_row, other=0) * num_heads + head
    place = at[:, None] * width + column[None, :]
    if ACCUMULATE:
        sums, maximum, denominator = _load_state(
            out_ptr, maximum_ptr, denominator_ptr, place, at, is_inside, is_row
        )
    else:
        sums = tl.zeros((ROWS, COLUMNS), out_ptr.dtype.element_ty)
        maximum = tl.full((ROWS,), _LOWEST, out_ptr.dtype.element_ty)
        denominator = tl.zeros((ROWS,), out_ptr.dtype.element_ty)
    for k in range(tl.max(length, 0)):
        is_there = is_row & (k < length)
        number = begin + k
        if HAS_ORDER:
            number = tl.load(order_ptr + number, mask=is_there, other=0)
        state = number * other_state_stride + head
        weight = tl.load(other_denominator_ptr + state, mask=is_there, other=0)
        is_there &= weight != 0
        other = tl.load(other_maximum_ptr + state, mask=is_there, other=0)
        largest = tl.where(is_there, tl.maximum(maximum, other), maximum)
        kept = tl.exp(maximum - largest)
        share = tl.where(is_there, tl.exp(tl.where(is_there, other - largest, 0)), 0)
        is_read = is_there[:, None] & is_column[None, :]
        from_row = number[:, None] * other_stride + head * width + column[None, :]
        x = tl.load(other_ptr + from_row, mask=is_read, other=0)
        sums = sums * kept[:, None] + share[:, None] * x
        denominator = denominator * kept + share * weight
        maximum = largest
    tl.store(out_ptr + place, sums, mask=is_inside)
    tl.store(maximum_ptr + at, tl.where(denominator != 0, maximum, 0), mask=is_row)
    tl.store(denominator_ptr + at, denominator, mask=is_row)


class _State(NamedTuple):
    """Sums (num_rows, num_heads * width), maxima and denominators (num_rows, num_heads)."""

    out: Tensor
    maximum: Tensor
    denominator: Tensor

    def merge(
        self, other: _State, segments: Segments, order: Tensor | None, *, accumulate: bool
    ) -> None:
        """Merge runs of other states into rows."""
        num_segments, num_heads = len(segments.target), self.maximum.shape[1]
        if num_segments == 0:
            return
        width = head_width("out", self.out, num_heads)
        cut = tile_of_heads(num_segments, num_heads, width)
        _merge_states[cut.grid](
            segments.begin,
            segments.end,
            segments.target,
            num_segments,
            order,
            *other,
            other.out.stride(0),
            other.maximum.stride(0),
            *self,
            width,
            HAS_ORDER=order is not None,
            ACCUMULATE=accumulate,
            ROWS=cut.rows,
            COLUMNS=cut.columns,
        )


def attend(
    indptr: Tensor,
    indices: Tensor,
    source_score: Tensor,
    target_score: Tensor,
    x: Tensor,
    *,
    out: Tensor,
    maximum: Tensor,
    denominator: Tensor,
    slope: float,
    accumulate: bool,
    plan: Any = None,
) -> None:
    """Take the edges of every row into its state; see `distgnn.attention.attend`."""
    del plan
    (num_rows, num_heads), schedule = target_score.shape, schedule_of(indptr)
    width = head_width("x", x, num_heads)
    expect("target_score", target_score, len(indptr) - 1, num_heads)
    expect("source_score", source_score, len(x), num_heads)
    expect("out", out, num_rows, x.shape[1])
    expect("maximum", maximum, num_rows, num_heads)
    expect("denominator", denominator, num_rows, num_heads)

    def take(segments: Segments, state: _State, *, accumulate: bool) -> None:
        num_segments = len(segments.target)
        if num_segments == 0:
            return
        cut = tile_of_heads(num_segments, num_heads, width)
        _attend[cut.grid](
            *segments,
            num_segments,
            indices,
            source_score,
            target_score,
            x,
            *state,
            width,
            SLOPE=slope,
            ACCUMULATE=accumulate,
            ROWS=cut.rows,
            COLUMNS=cut.columns,
        )

    state = _State(out, maximum, denominator)
    take(schedule.rows, state, accumulate=accumulate)
    if schedule.pieces is not None and schedule.joins is not None:
        count = schedule.num_pieces
        pieces = _State(*(part.new_empty((count, part.shape[1])) for part in state))
        take(schedule.pieces, pieces, accumulate=False)
        state.merge(pieces, schedule.joins, None, accumulate=accumulate)


def merge_attention(
    received: Tensor, rows: Tensor, *, out: Tensor, maximum: Tensor, denominator: Tensor
) -> None:
    """Merge states of others, in the order received; see `distgnn.attention.merge_attention`."""
    num_heads, columns = maximum.shape[1], out.shape[1]
    expect("received", received, len(rows), columns + 2 * num_heads)
    order, segments = arrivals_of(rows)
    other = _State(*received.split([columns, num_heads, num_heads], dim=1))
    _State(out, maximum, denominator).merge(other, segments, order, accumulate=True)


def finish_attention(out: Tensor, maximum: Tensor, denominator: Tensor) -> None:
    """Divide sums by denominators; see `distgnn.attention.finish_attention`."""
    num_rows, num_heads = maximum.shape
    width = head_width("out", out, num_heads)
    expect("out", out, num_rows, num_heads * width)
    expect("denominator", denominator, num_rows, num_heads)
    has_seen = denominator != 0
    divisor = torch.where(has_seen, denominator, 1)
    sums = out.view(num_rows, num_heads, width)
    sums.div_(divisor[:, :, None]).masked_fill_(~has_seen[:, :, None], 0)
    maximum.add_(divisor.log()).masked_fill_(~has_seen, 0)
