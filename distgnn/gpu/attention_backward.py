"""The gradients of attention, whose weights are computed again; see `distgnn.kernels.attention`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import triton
import triton.language as tl

from distgnn.gpu.attention import heads_of_program
from distgnn.gpu.attention_edges import mask_of_edges, of_edges
from distgnn.gpu.launch import expect, head_lanes, head_width, segment_of_program, stored
from distgnn.gpu.schedule import schedule_of
from distgnn.gpu.sums import join_sums

if TYPE_CHECKING:
    from torch import Tensor

    from distgnn.gpu.schedule import Segments


# That a warp waits for at a time; each is used twice, and the rows of the program's own are kept.
_VALUES = 256


# The seed is another one in each call, for which nothing is compiled.
@triton.jit(do_not_specialize=["mixed_seed"])
def _attend_backward(
    begin_ptr,
    end_ptr,
    target_ptr,
    row_ptr,
    indices_ptr,
    edge_ptr,
    source_score_ptr,
    target_score_ptr,
    log_sum_ptr,
    delta_ptr,
    x_ptr,
    grad_ptr,
    grad_x_ptr,
    grad_source_ptr,
    edge_grad_ptr,
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
    begin, end, out_row = segment_of_program(begin_ptr, end_ptr, target_ptr)
    head, is_head, place, is_inside = heads_of_program(NUM_HEADS, WIDTH, HEADS, COLUMNS)
    lane = tl.arange(0, EDGES)
    row = tl.load(row_ptr + tl.program_id(0)) * NUM_HEADS
    score = tl.load(source_score_ptr + row + head, mask=is_head, other=0)
    x = tl.load(x_ptr + row * WIDTH + place, mask=is_inside, other=0).to(score.dtype)
    grad_x = tl.zeros((EDGES, HEADS, COLUMNS), score.dtype)
    grad_source = tl.zeros((EDGES, HEADS), score.dtype)
    for first in range(begin, end, EDGES):
        number = first + lane
        is_edge = number < end
        target = tl.load(indices_ptr + number, mask=is_edge, other=0).to(tl.int64) * NUM_HEADS
        is_there = is_edge[:, None] & is_head[None, :]
        at = target[:, None] + head[None, :]
        raw = score[None, :] + tl.load(target_score_ptr + at, mask=is_there, other=0)
        edge = tl.load(edge_ptr + number, mask=is_edge, other=0)
        own = (edge * NUM_HEADS)[:, None] + head[None, :]
        if HAS_SCORE:
            raw += tl.load(edge_score_ptr + own, mask=is_there, other=0)
        leaky = tl.where(raw > 0, raw, raw * SLOPE)
        log_sum = tl.load(log_sum_ptr + at, mask=is_there, other=0)
        alpha = tl.where(is_there, tl.exp(tl.where(is_there, leaky - log_sum, 0)), 0)
        is_read = is_edge[:, None, None] & is_inside[None, :, :]
        grad_at = grad_ptr + (target * WIDTH)[:, None, None] + place[None, :, :]
        grad = tl.load(grad_at, mask=is_read, other=0).to(score.dtype)
        delta = tl.load(delta_ptr + at, mask=is_there, other=0)
        product = tl.sum(grad * x[None, :, :], 2)
        kept = alpha
        if HAS_KEY:
            factor = mask_of_edges(
                alpha,
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
            product *= factor
            kept = alpha * factor
        grad_raw = alpha * (product - delta)
        grad_raw = tl.where(raw > 0, grad_raw, grad_raw * SLOPE)
        tl.store(edge_grad_ptr + own, grad_raw, mask=is_there)
        grad_x += kept[:, :, None] * grad
        grad_source += grad_raw
    at = out_row * NUM_HEADS + head
    place += out_row * NUM_HEADS * WIDTH
    total, of_source = tl.sum(grad_x, 0), tl.sum(grad_source, 0)
    if ACCUMULATE:
        total += tl.load(grad_x_ptr + place, mask=is_inside, other=0).to(score.dtype)
        of_source += tl.load(grad_source_ptr + at, mask=is_head, other=0)
    tl.store(grad_x_ptr + place, stored(total, grad_x_ptr.dtype.element_ty), mask=is_inside)
    tl.store(grad_source_ptr + at, of_source, mask=is_head)


def attend_backward(
    t_indptr: Tensor,
    t_indices: Tensor,
    t_edge: Tensor,
    source_score: Tensor,
    target_score: Tensor,
    *,
    log_sum: Tensor,
    x: Tensor,
    grad: Tensor,
    delta: Tensor,
    grad_x: Tensor,
    grad_source: Tensor,
    edge_grad: Tensor,
    slope: float,
    accumulate: bool,
    edge_score: Tensor | None = None,
    edge_key: Tensor | None = None,
    seed: int = 0,
    probability: float = 0.0,
    walk: Any = None,
) -> None:
    """Compute the gradients of finished attention; see `kernels.attention.attend_backward`."""
    del walk
    num_targets, num_heads = target_score.shape
    num_sources, schedule = len(t_indptr) - 1, schedule_of(t_indptr)
    width = head_width("x", x, num_heads)
    expect("t_edge", t_edge, len(t_indices))
    expect("edge_grad", edge_grad, len(t_indices), num_heads)
    for name, scores in (("source_score", source_score), ("grad_source", grad_source)):
        expect(name, scores, num_sources, num_heads)
    for name, scores in (("log_sum", log_sum), ("delta", delta)):
        expect(name, scores, num_targets, num_heads)
    for name, rows in (("x", x), ("grad_x", grad_x)):
        expect(name, rows, num_sources, num_heads * width)
    expect("grad", grad, num_targets, num_heads * width)
    own = of_edges(edge_score, edge_key, seed, probability, (len(t_indices), num_heads))

    def launch(segments: Segments, sums: tuple[Tensor, Tensor], *, accumulate: bool) -> None:
        num_segments = len(segments.target)
        if num_segments == 0:
            return
        cut = head_lanes(num_heads, width, _VALUES)
        _attend_backward[num_segments, cut.programs](
            *segments.ends,
            segments.row,
            t_indices,
            t_edge,
            source_score,
            target_score,
            log_sum,
            delta,
            x,
            grad,
            *sums,
            edge_grad,
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

    launch(schedule.rows, (grad_x, grad_source), accumulate=accumulate)
    if schedule.pieces is not None:
        count = schedule.num_pieces
        empty = source_score.new_empty
        pieces = empty((count, num_heads * width)), empty((count, num_heads))
        launch(schedule.pieces, pieces, accumulate=False)
        for sums, out in zip(pieces, (grad_x, grad_source), strict=True):
            join_sums(schedule, sums, out, accumulate=accumulate)
