"""The end of attention, after its sums, and the begin of its backward."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from distgnn.gpu.launch import expect, head_width, tile_of_heads
from distgnn.gpu.rows import DropoutMask, finish_rows

if TYPE_CHECKING:
    from torch import Tensor


def finish_attention(
    out: Tensor,
    maximum: Tensor,
    denominator: Tensor,
    *,
    result: Tensor,
    bias: Tensor | None = None,
    has_relu: bool = False,
    row_key: Tensor | None = None,
    seed: int = 0,
    probability: float = 0.0,
) -> None:
    """Divide sums by denominators; see `distgnn.kernels.attention.finish_attention`."""
    num_rows, num_heads = maximum.shape
    width = head_width("out", out, num_heads)
    expect("out", out, num_rows, num_heads * width)
    expect("denominator", denominator, num_rows, num_heads)
    has_seen = denominator != 0
    divisor = torch.where(has_seen, denominator, 1)
    sums = out.view(num_rows, num_heads, width)
    sums.div_(divisor[:, :, None]).masked_fill_(~has_seen[:, :, None], 0)
    maximum.add_(divisor.log()).masked_fill_(~has_seen, 0)
    expect("result", result, num_rows, num_heads * width)
    if bias is not None:
        expect("bias", bias, num_heads * width)
    mask = None
    if row_key is not None:
        expect("row_key", row_key, num_rows)
        mask = DropoutMask(row_key, seed, probability)
    if result is not out or bias is not None or has_relu or mask is not None:
        finish_rows(out, result, bias=bias, has_relu=has_relu, mask=mask)


@triton.jit
def _delta(
    grad_ptr,
    result_ptr,
    bias_ptr,
    num_rows,
    out_ptr,
    SCALE: tl.constexpr,
    NUM_HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    head, column = tl.program_id(1), tl.arange(0, COLUMNS)
    is_row, is_column = row < num_rows, column < WIDTH
    is_inside = is_row[:, None] & is_column[None, :]
    at = row * NUM_HEADS + head
    place = (at * WIDTH)[:, None] + column[None, :]
    values = tl.load(result_ptr + place, mask=is_inside, other=0).to(out_ptr.dtype.element_ty)
    values *= SCALE
    if HAS_BIAS:
        values -= tl.load(bias_ptr + head * WIDTH + column, mask=is_column, other=0)[None, :]
    grad = tl.load(grad_ptr + place, mask=is_inside, other=0).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + at, tl.sum(values * grad, 1), mask=is_row)


def attention_delta(
    grad: Tensor, result: Tensor, out: Tensor, *, bias: Tensor | None, scale: float
) -> None:
    """Sum products by head; see `distgnn.kernels.attention.attention_delta`."""
    num_rows, num_heads = out.shape
    width = head_width("grad", grad, num_heads)
    expect("grad", grad, num_rows, num_heads * width)
    expect("result", result, num_rows, num_heads * width)
    if bias is not None:
        expect("bias", bias, num_heads * width)
    if num_rows == 0:
        return
    cut = tile_of_heads(num_rows, num_heads, width)
    _delta[cut.grid](
        grad,
        result,
        bias,
        num_rows,
        out,
        SCALE=scale,
        NUM_HEADS=num_heads,
        WIDTH=width,
        HAS_BIAS=bias is not None,
        ROWS=cut.rows,
        COLUMNS=cut.columns,
    )
