"""Values of edges, made of the rows at both of their ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import triton
import triton.language as tl

from distgnn.gpu.launch import accumulator, expect, head_width, tile_of_heads
from distgnn.gpu.schedule import row_of_edge

if TYPE_CHECKING:
    from torch import Tensor


@triton.jit
def _combine_ends(
    indices_ptr,
    row_ptr,
    num_edges,
    x_ptr,
    y_ptr,
    out_ptr,
    width,
    IS_DOT: tl.constexpr,
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
    result = tl.sum(a * b, 1) if IS_DOT else tl.sum(a + b, 1)
    tl.store(out_ptr + edge * num_heads + head, result, mask=is_edge)


def _combine(
    indptr: Tensor, indices: Tensor, x: Tensor, y: Tensor, out: Tensor, *, is_dot: bool
) -> None:
    num_edges, num_heads = len(indices), out.shape[1]
    expect("y", y, len(indptr) - 1, x.shape[1])
    expect("out", out, num_edges, num_heads)
    width = head_width("x", x, num_heads) if is_dot else 1
    if num_edges == 0:
        return
    cut = tile_of_heads(num_edges, num_heads, width)
    _combine_ends[cut.grid](
        indices,
        row_of_edge(indptr, num_edges),
        num_edges,
        x,
        y,
        out,
        width,
        IS_DOT=is_dot,
        SUM=accumulator(x.dtype),
        EDGES=cut.rows,
        COLUMNS=cut.columns,
    )


def sddmm_dot(
    indptr: Tensor, indices: Tensor, x: Tensor, y: Tensor, out: Tensor, *, plan: Any = None
) -> None:
    """Multiply the rows at both ends of every edge; see `distgnn.heads.sddmm_dot`."""
    del plan
    _combine(indptr, indices, x, y, out, is_dot=True)


def sddmm_add(
    indptr: Tensor, indices: Tensor, x: Tensor, y: Tensor, out: Tensor, *, plan: Any = None
) -> None:
    """Add the values at both ends of every edge; see `distgnn.heads.sddmm_add`."""
    del plan
    expect("x", x, len(x), out.shape[1])
    _combine(indptr, indices, x, y, out, is_dot=False)
