"""Values of edges, made of the rows at both of their ends, and the gradients of such values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import triton
import triton.language as tl

from distgnn.gpu.launch import (
    accumulator,
    expect,
    head_width,
    lanes,
    segment_of_program,
    tile_of_heads,
)
from distgnn.gpu.schedule import row_of_edge, schedule_of
from distgnn.gpu.sums import join_sums

if TYPE_CHECKING:
    from torch import Tensor

    from distgnn.gpu.schedule import Segments


@triton.jit
def _combine_ends(
    indices_ptr,
    row_ptr,
    num_edges,
    x_ptr,
    y_ptr,
    factor_ptr,
    out_ptr,
    width,
    IS_DOT: tl.constexpr,
    IS_LEAKY: tl.constexpr,
    SLOPE: tl.constexpr,
    SUM: tl.constexpr,
    EDGES: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    # 64 bits: edges times columns may be more than 32 hold.
    edge = tl.program_id(0).to(tl.int64) * EDGES + tl.arange(0, EDGES)
    head, num_heads = tl.program_id(1), tl.num_programs(1)
    column = tl.arange(0, COLUMNS)
    is_edge = edge < num_edges
    source = tl.load(indices_ptr + edge, mask=is_edge, other=0).to(tl.int64)
    row = tl.load(row_ptr + edge, mask=is_edge, other=0)
    is_read = is_edge[:, None] & (column < width)[None, :]
    x = x_ptr + (source[:, None] * num_heads + head) * width + column[None, :]
    y = y_ptr + (row[:, None] * num_heads + head) * width + column[None, :]
    a = tl.load(x, mask=is_read, other=0).to(SUM)
    b = tl.load(y, mask=is_read, other=0).to(SUM)
    terms = a * b if IS_DOT else a + b
    if IS_LEAKY:
        factor = tl.load(factor_ptr + head * width + column, mask=column < width, other=0)
        terms = tl.where(terms > 0, terms, terms * SLOPE) * factor[None, :]
    result = tl.sum(terms, 1)
    tl.store(out_ptr + edge * num_heads + head, result, mask=is_edge)


@triton.jit
def _sum_gates(
    begin_ptr,
    end_ptr,
    target_ptr,
    row_ptr,
    indices_ptr,
    edge_ptr,
    value_ptr,
    x_ptr,
    y_ptr,
    out_ptr,
    WIDTH: tl.constexpr,
    NUM_HEADS: tl.constexpr,
    SLOPE: tl.constexpr,
    HAS_EDGE: tl.constexpr,
    SUM: tl.constexpr,
    EDGES: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    begin, end, target = segment_of_program(begin_ptr, end_ptr, target_ptr)
    row = tl.load(row_ptr + tl.program_id(0))
    lane = tl.arange(0, EDGES)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    is_column = column < WIDTH
    own = tl.load(y_ptr + row * WIDTH + column, mask=is_column, other=0)
    sums = tl.zeros((EDGES, COLUMNS), SUM)
    for first in range(begin, end, EDGES):
        number = first + lane
        is_there = number < end
        source = tl.load(indices_ptr + number, mask=is_there, other=0).to(tl.int64)
        edge = number.to(tl.int64)
        if HAS_EDGE:
            edge = tl.load(edge_ptr + number, mask=is_there, other=0)
        is_read = is_there[:, None] & is_column[None, :]
        of_head = edge[:, None] * NUM_HEADS + (column // (WIDTH // NUM_HEADS))[None, :]
        value = tl.load(value_ptr + of_head, mask=is_read, other=0)
        at = source[:, None] * WIDTH + column[None, :]
        total = tl.load(x_ptr + at, mask=is_read, other=0) + own[None, :]
        sums += tl.where(total > 0, value, value * SLOPE)
    tl.store(out_ptr + target * WIDTH + column, tl.sum(sums, 0), mask=is_column)


def _combine(
    indptr: Tensor,
    indices: Tensor,
    x: Tensor,
    y: Tensor,
    out: Tensor,
    *,
    is_dot: bool,
    factor: Tensor | None = None,
    slope: float = 0.0,
) -> None:
    num_edges, num_heads = len(indices), out.shape[1]
    expect("y", y, len(indptr) - 1, x.shape[1])
    expect("out", out, num_edges, num_heads)
    width = head_width("x", x, num_heads) if is_dot or factor is not None else 1
    if num_edges == 0:
        return
    cut = tile_of_heads(num_edges, num_heads, width)
    _combine_ends[cut.grid](
        indices,
        row_of_edge(indptr, num_edges),
        num_edges,
        x,
        y,
        factor,
        out,
        width,
        IS_DOT=is_dot,
        IS_LEAKY=factor is not None,
        SLOPE=slope,
        SUM=accumulator(x.dtype),
        EDGES=cut.rows,
        COLUMNS=cut.columns,
    )


def sddmm_dot(
    indptr: Tensor, indices: Tensor, x: Tensor, y: Tensor, out: Tensor, *, walk: Any = None
) -> None:
    """Multiply the rows at both ends of every edge; see `distgnn.kernels.edge_values.sddmm_dot`."""
    del walk
    _combine(indptr, indices, x, y, out, is_dot=True)


def sddmm_leaky(
    indptr: Tensor,
    indices: Tensor,
    x: Tensor,
    y: Tensor,
    factor: Tensor,
    out: Tensor,
    *,
    slope: float,
    walk: Any = None,
) -> None:
    """Score every edge as GATv2 does; see `distgnn.kernels.edge_values.sddmm_leaky`."""
    del walk
    expect("factor", factor, x.shape[1])
    _combine(indptr, indices, x, y, out, is_dot=False, factor=factor, slope=slope)


def sddmm_leaky_backward(
    indptr: Tensor,
    indices: Tensor,
    edge: Tensor | None,
    value: Tensor,
    x: Tensor,
    y: Tensor,
    out: Tensor,
    *,
    slope: float,
    walk: Any = None,
) -> None:
    """Sum the gradients of scores at one end; see `kernels.edge_values.sddmm_leaky_backward`."""
    del walk
    num_rows, num_heads, width = len(indptr) - 1, value.shape[1], x.shape[1]
    head_width("x", x, num_heads)
    expect("value", value, len(indices), num_heads)
    expect("y", y, num_rows, width)
    expect("out", out, num_rows, width)
    if edge is not None:
        expect("edge", edge, len(indices))
    cut, schedule = lanes(width, x.element_size()), schedule_of(indptr)

    def over(segments: Segments, sums: Tensor) -> None:
        if len(segments.target) == 0 or width == 0:
            return
        _sum_gates[len(segments.target), cut.programs](
            *segments.ends,
            segments.row,
            indices,
            edge,
            value,
            x,
            y,
            sums,
            WIDTH=width,
            NUM_HEADS=num_heads,
            SLOPE=slope,
            HAS_EDGE=edge is not None,
            SUM=accumulator(x.dtype),
            EDGES=cut.edges,
            COLUMNS=cut.columns,
            num_warps=1,
        )

    over(schedule.rows, out)
    if schedule.pieces is not None:
        sums = x.new_empty((schedule.num_pieces, width))
        over(schedule.pieces, sums)
        join_sums(schedule, sums, out, accumulate=False)


def sddmm_add(
    indptr: Tensor, indices: Tensor, x: Tensor, y: Tensor, out: Tensor, *, walk: Any = None
) -> None:
    """Add the values at both ends of every edge; see `distgnn.kernels.edge_values.sddmm_add`."""
    del walk
    expect("x", x, len(x), out.shape[1])
    _combine(indptr, indices, x, y, out, is_dot=False)
