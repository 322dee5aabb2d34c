"""Attention in states that can be merged, and its backward; see `distgnn.kernels.attention`.

A state is rescaled whenever a larger score comes: one pass over the edges. Nothing is stored per
edge but one gradient.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import triton
import triton.language as tl

from distgnn.gpu.attention_edges import mask_of_edges, of_edges
from distgnn.gpu.launch import expect, head_lanes, head_width, segment_of_program
from distgnn.gpu.schedule import arrivals_of, schedule_of

if TYPE_CHECKING:
    from torch import Tensor

    from distgnn.gpu.schedule import Segments

# Below any score: infinity minus infinity would be no number.
_LOWEST = tl.constexpr(-3.0e38)
# That a warp waits for at a time: 32 a thread.
_VALUES = 1024


@triton.jit
def heads_of_program(
    num_heads: tl.constexpr, WIDTH: tl.constexpr, HEADS: tl.constexpr, COLUMNS: tl.constexpr
):
    """Heads of a program, whether each is there, their columns in a row, and whether those are."""
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    column = tl.arange(0, COLUMNS)
    is_head = head < num_heads
    place = head[:, None] * WIDTH + column[None, :]
    return head, is_head, place, is_head[:, None] & (column < WIDTH)[None, :]


@triton.jit
def _add_state(sums, maximum, denominator, new, new_maximum, new_denominator, is_there):
    """A state and what is added to it: rows, their scores and how much of them there is."""
    largest = tl.where(is_there, tl.maximum(maximum, new_maximum), maximum)
    kept = tl.exp(maximum - largest)
    share = tl.where(is_there, tl.exp(tl.where(is_there, new_maximum - largest, 0)), 0)
    sums = sums * kept[:, :, None] + share[:, :, None] * new
    return sums, largest, denominator * kept + share * new_denominator


@triton.jit
def _store_state(
    sums,
    maximum,
    denominator,
    out_ptr,
    maximum_ptr,
    denominator_ptr,
    place,
    is_inside,
    at,
    is_head,
    ACCUMULATE: tl.constexpr,
):
    """Join the states of the lanes, and that which is there where it counts, and write them."""
    largest = tl.max(maximum, 0)
    if ACCUMULATE:
        old_denominator = tl.load(denominator_ptr + at, mask=is_head, other=0)
        has_seen = old_denominator != 0
        old = tl.load(maximum_ptr + at, mask=is_head, other=0)
        largest = tl.where(has_seen, tl.maximum(largest, old), largest)
    kept = tl.exp(maximum - largest[None, :])
    total = tl.sum(sums * kept[:, :, None], 0)
    together = tl.sum(denominator * kept, 0)
    if ACCUMULATE:
        share = tl.where(has_seen, tl.exp(tl.where(has_seen, old - largest, 0)), 0)
        is_old = is_inside & has_seen[:, None]
        total += share[:, None] * tl.load(out_ptr + place, mask=is_old, other=0)
        together += share * old_denominator
    tl.store(out_ptr + place, total, mask=is_inside)
    # A state of nothing has no maximum.
    tl.store(maximum_ptr + at, tl.where(together != 0, largest, 0), mask=is_head)
    tl.store(denominator_ptr + at, together, mask=is_head)


# The seed is another one in each call, for which nothing is compiled.
@triton.jit(do_not_specialize=["mixed_seed"])
def _attend(
    begin_ptr,
    end_ptr,
    target_ptr,
    row_ptr,
    indices_ptr,
    source_score_ptr,
    target_score_ptr,
    x_ptr,
    out_ptr,
    maximum_ptr,
    denominator_ptr,
    edge_score_ptr,
    key_ptr,
    mixed_seed: tl.uint64,
    seed_ptr,
    threshold,
    SCALE: tl.constexpr,
    HAS_SCORE: tl.constexpr,
    HAS_KEY: tl.constexpr,
    HAS_PLACE: tl.constexpr,
    NUM_HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    SLOPE: tl.constexpr,
    ACCUMULATE: tl.constexpr,
    EDGES: tl.constexpr,
    HEADS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    begin, end, target = segment_of_program(begin_ptr, end_ptr, target_ptr)
    head, is_head, place, is_inside = heads_of_program(NUM_HEADS, WIDTH, HEADS, COLUMNS)
    lane = tl.arange(0, EDGES)
    row = tl.load(row_ptr + tl.program_id(0))
    target_score = tl.load(target_score_ptr + row * NUM_HEADS + head, mask=is_head, other=0)
    # Of rows in bfloat16 the scores are float32, and the sums.
    sums = tl.zeros((EDGES, HEADS, COLUMNS), out_ptr.dtype.element_ty)
    maximum = tl.full((EDGES, HEADS), _LOWEST, out_ptr.dtype.element_ty)
    denominator = tl.zeros((EDGES, HEADS), out_ptr.dtype.element_ty)
    for first in range(begin, end, EDGES):
        edge = first + lane
        is_edge = edge < end
        source = tl.load(indices_ptr + edge, mask=is_edge, other=0).to(tl.int64) * NUM_HEADS
        is_there = is_edge[:, None] & is_head[None, :]
        raw = tl.load(source_score_ptr + source[:, None] + head[None, :], mask=is_there, other=0)
        raw += target_score[None, :]
        if HAS_SCORE:
            own = (edge.to(tl.int64) * NUM_HEADS)[:, None] + head[None, :]
            raw += tl.load(edge_score_ptr + own, mask=is_there, other=0)
        score = tl.where(raw > 0, raw, raw * SLOPE)
        at = (source * WIDTH)[:, None, None] + place[None, :, :]
        is_read = is_edge[:, None, None] & is_inside[None, :, :]
        x = tl.load(x_ptr + at, mask=is_read, other=0).to(out_ptr.dtype.element_ty)
        if HAS_KEY:
            factor = mask_of_edges(
                score,
                key_ptr,
                mixed_seed,
                seed_ptr,
                threshold,
                edge,
                is_edge,
                head,
                SCALE,
                HAS_PLACE,
            )
            x *= factor[:, :, None]
        sums, maximum, denominator = _add_state(sums, maximum, denominator, x, score, 1, is_there)
    at = target * NUM_HEADS + head
    _store_state(
        sums,
        maximum,
        denominator,
        out_ptr,
        maximum_ptr,
        denominator_ptr,
        target * NUM_HEADS * WIDTH + place,
        is_inside,
        at,
        is_head,
        ACCUMULATE,
    )


@triton.jit
def _merge_states(
    begin_ptr,
    end_ptr,
    target_ptr,
    order_ptr,
    other_ptr,
    other_maximum_ptr,
    other_denominator_ptr,
    other_stride,
    other_state_stride,
    out_ptr,
    maximum_ptr,
    denominator_ptr,
    NUM_HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    HAS_ORDER: tl.constexpr,
    ACCUMULATE: tl.constexpr,
    EDGES: tl.constexpr,
    HEADS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    begin, end, target = segment_of_program(begin_ptr, end_ptr, target_ptr)
    head, is_head, place, is_inside = heads_of_program(NUM_HEADS, WIDTH, HEADS, COLUMNS)
    lane = tl.arange(0, EDGES)
    sums = tl.zeros((EDGES, HEADS, COLUMNS), out_ptr.dtype.element_ty)
    maximum = tl.full((EDGES, HEADS), _LOWEST, out_ptr.dtype.element_ty)
    denominator = tl.zeros((EDGES, HEADS), out_ptr.dtype.element_ty)
    for first in range(begin, end, EDGES):
        number = first + lane
        is_state = number < end
        if HAS_ORDER:
            number = tl.load(order_ptr + number, mask=is_state, other=0)
        is_there = is_state[:, None] & is_head[None, :]
        state = (number * other_state_stride)[:, None] + head[None, :]
        weight = tl.load(other_denominator_ptr + state, mask=is_there, other=0)
        is_there &= weight != 0
        score = tl.load(other_maximum_ptr + state, mask=is_there, other=0)
        at = (number * other_stride)[:, None, None] + place[None, :, :]
        is_read = is_there[:, :, None] & is_inside[None, :, :]
        x = tl.load(other_ptr + at, mask=is_read, other=0)
        sums, maximum, denominator = _add_state(
            sums, maximum, denominator, x, score, weight, is_there
        )
    at = target * NUM_HEADS + head
    _store_state(
        sums,
        maximum,
        denominator,
        out_ptr,
        maximum_ptr,
        denominator_ptr,
        target * NUM_HEADS * WIDTH + place,
        is_inside,
        at,
        is_head,
        ACCUMULATE,
    )


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
        cut = head_lanes(num_heads, width, _VALUES)
        _merge_states[num_segments, cut.programs](
            *segments.ends,
            order,
            *other,
            other.out.stride(0),
            other.maximum.stride(0),
            *self,
            NUM_HEADS=num_heads,
            WIDTH=width,
            HAS_ORDER=order is not None,
            ACCUMULATE=accumulate,
            EDGES=cut.edges,
            HEADS=cut.heads,
            COLUMNS=cut.columns,
            num_warps=cut.warps,
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
    edge_score: Tensor | None = None,
    edge_key: Tensor | None = None,
    seed: int = 0,
    probability: float = 0.0,
    walk: Any = None,
) -> None:
    """Take the edges of every row into its state; see `distgnn.kernels.attention.attend`."""
    del walk
    (num_rows, num_heads), schedule = target_score.shape, schedule_of(indptr)
    width = head_width("x", x, num_heads)
    expect("target_score", target_score, len(indptr) - 1, num_heads)
    expect("source_score", source_score, len(x), num_heads)
    expect("out", out, num_rows, x.shape[1])
    expect("maximum", maximum, num_rows, num_heads)
    expect("denominator", denominator, num_rows, num_heads)
    own = of_edges(edge_score, edge_key, seed, probability, (len(indices), num_heads))

    def take(segments: Segments, state: _State, *, accumulate: bool) -> None:
        num_segments = len(segments.target)
        if num_segments == 0:
            return
        cut = head_lanes(num_heads, width, _VALUES)
        _attend[num_segments, cut.programs](
            *segments.ends,
            segments.row,
            indices,
            source_score,
            target_score,
            x,
            *state,
            **own,
            NUM_HEADS=num_heads,
            WIDTH=width,
            SLOPE=slope,
            ACCUMULATE=accumulate,
            EDGES=cut.edges,
            HEADS=cut.heads,
            COLUMNS=cut.columns,
            num_warps=cut.warps,
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
    """Merge states of others, in the order received; see `kernels.attention.merge_attention`."""
    num_heads, columns = maximum.shape[1], out.shape[1]
    expect("received", received, len(rows), columns + num_heads)
    order, segments = arrivals_of(rows)
    means, log_sum = received.split([columns, num_heads], dim=1)
    # The denominator of a mean is 1, and 0 where nothing was seen.
    other = _State(means, log_sum.contiguous(), (log_sum != 0).to(log_sum.dtype))
    _State(out, maximum, denominator).merge(other, segments, order, accumulate=True)
