"""The gradients of attention, whose weights are computed again; see `distgnn.attention`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import triton
import triton.language as tl

from distgnn.gpu.launch import expect, head_width, segments_of_program, tile_of_heads
from distgnn.gpu.schedule import schedule_of
from distgnn.gpu.sums import join_sums

if TYPE_CHECKING:
    from torch import Tensor

    from distgnn.gpu.schedule import Segments


@triton.jit
def _attend_backward(
    begin_ptr,
    end_ptr,
    row_ptr,
    target_ptr,
    num_segments,
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
    source = tl.load(row_ptr + segment, mask=is_row, other=0) * num_heads + head
    at = tl.load(target_ptr + segment, mask=is_row, other=0) * num_heads + head
    place = at[:, None] * width + column[None, :]
    score = tl.load(source_score_ptr + source, mask=is_row, other=0)
    x = tl.load(x_ptr + source[:, None] * width + column[None, :], mask=is_inside, other=0)
    if ACCUMULATE:
        grad_x = tl.load(grad_x_ptr + place, mask=is_inside, other=0)
        grad_source = tl.load(grad_source_ptr + at, mask=is_row, other=0)
    else:
        grad_x = tl.zeros((ROWS, COLUMNS), x_ptr.dtype.element_ty)
        grad_source = tl.zeros((ROWS,), x_ptr.dtype.element_ty)
    for k in range(tl.max(length, 0)):
        is_there = is_row & (k < length)
        target = tl.load(indices_ptr + begin + k, mask=is_there, other=0).to(tl.int64)
        target = target * num_heads + head
        raw = score + tl.load(target_score_ptr + target, mask=is_there, other=0)
        leaky = tl.where(raw > 0, raw, raw * SLOPE)
        log_sum = tl.load(log_sum_ptr + target, mask=is_there, other=0)
        alpha = tl.where(is_there, tl.exp(tl.where(is_there, leaky - log_sum, 0)), 0)
        is_read = is_there[:, None] & is_column[None, :]
        grad_at = grad_ptr + target[:, None] * width + column[None, :]
        grad = tl.load(grad_at, mask=is_read, other=0)
        delta = tl.load(delta_ptr + target, mask=is_there, other=0)
        grad_raw = alpha * (tl.sum(grad * x, 1) - delta)
        grad_raw = tl.where(raw > 0, grad_raw, grad_raw * SLOPE)
        edge = tl.load(edge_ptr + begin + k, mask=is_there, other=0)
        tl.store(edge_grad_ptr + edge * num_heads + head, grad_raw, mask=is_there)
        grad_x += alpha[:, None] * grad
        grad_source += grad_raw
    tl.store(grad_x_ptr + place, grad_x, mask=is_inside)
    tl.store(grad_source_ptr + at, grad_source, mask=is_row)


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
    plan: Any = None,
) -> None:
    """Compute the gradients of finished attention; see `distgnn.attention.attend_backward`."""
    del plan
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

    def walk(segments: Segments, sums: tuple[Tensor, Tensor], *, accumulate: bool) -> None:
        num_segments = len(segments.target)
        if num_segments == 0:
            return
        cut = tile_of_heads(num_segments, num_heads, width)
        _attend_backward[cut.grid](
            *segments,
            num_segments,
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
            width,
            SLOPE=slope,
            ACCUMULATE=accumulate,
            ROWS=cut.rows,
            COLUMNS=cut.columns,
        )

    walk(schedule.rows, (grad_x, grad_source), accumulate=accumulate)
    if schedule.pieces is not None:
        count = schedule.num_pieces
        pieces = x.new_empty((count, num_heads * width)), x.new_empty((count, num_heads))
        walk(schedule.pieces, pieces, accumulate=False)
        for sums, out in zip(pieces, (grad_x, grad_source), strict=True):
            join_sums(schedule, sums, out, accumulate=accumulate)
