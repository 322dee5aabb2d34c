"""Dense rows: linear maps and picked rows, for autograd."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.function import once_differentiable

from distgnn import kernels
from distgnn.kernels.dense import Factor, Finish, GradientFactor, multiply, multiply_transposed
from distgnn.kernels.tensors import computed
from distgnn.ops.gradients import differentiable_once

if TYPE_CHECKING:
    from torch import Tensor

    from distgnn.ops.buffers import Buffers
    from distgnn.ops.rows import Seen


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        rows: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        buffers: Buffers | None,
        dtype: torch.dtype | None,
        seen: Seen | None,
    ) -> Tensor:
        rows = rows.contiguous()
        ctx.save_for_backward(rows, weight)
        ctx.seen = seen
        ctx.empty = buffers.empty if buffers else partial(_empty, weight.device)
        out: Tensor = ctx.empty(rows.shape[0], weight.shape[0], dtype or weight.dtype)
        multiply([Factor(rows, weight.t())], out, finish=Finish(bias=bias))
        return out

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        rows, weight = ctx.saved_tensors
        grad = grads[0].contiguous()
        weight_grad = torch.empty_like(weight)
        bias_grad = weight.new_empty(weight.shape[0])
        multiply_transposed([GradientFactor(rows, weight_grad)], grad, bias_gradient=bias_grad)
        if ctx.seen is not None:
            ctx.seen(rows, grad)
        rows_grad = None
        if ctx.needs_input_grad[0]:
            rows_grad = ctx.empty(rows.shape[0], rows.shape[1], rows.dtype)
            multiply([Factor(grad, weight)], rows_grad)
        bias_given = bias_grad if ctx.needs_input_grad[2] else None
        return rows_grad, weight_grad, bias_given, None, None, None


def _empty(device: torch.device, num_rows: int, width: int, dtype: torch.dtype) -> Tensor:
    return torch.empty((num_rows, width), dtype=dtype, device=device)


def linear(
    rows: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    buffers: Buffers | None = None,
    dtype: torch.dtype | None = None,
    seen: Seen | None = None,
) -> Tensor:
    """Return rows W^T + b, with the same bits for any number of threads.

    Args:
        rows: (num_rows, in_width), float32 or float64; or bfloat16, for a weight in float32.
        weight: (out_width, in_width), contiguous.
        bias: (out_width,), or None.
        buffers: Where the result and the gradient of the rows lie; None for memory of their own.
        dtype: Type of the result: that of the weight if None, or bfloat16 for float32.
        seen: Called in backward with the rows and the gradient of the result; None for nothing.

    Returns:
        (num_rows, out_width).
    """
    result: Tensor = _Linear.apply(rows, weight, bias, buffers, dtype, seen)  # type: ignore[no-untyped-call]
    return result


class _PickRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, picked: Tensor) -> Tensor:
        ctx.picked, ctx.shape = picked, rows.shape
        out = rows.new_empty((len(picked), rows.shape[1]))
        kernels.gather_rows(rows.contiguous(), picked, out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        dtype = grads[0].dtype
        grad = grads[0].new_zeros(ctx.shape, dtype=computed(dtype))
        kernels.scatter_add_rows(grads[0].contiguous(), ctx.picked, grad)
        return grad.to(dtype), None


def pick_rows(rows: Tensor, picked: Tensor) -> Tensor:
    """Pick rows by number; unlike torch's indexing, backward runs on all threads.

    Args:
        rows: (num_rows, width), float32, float64 or bfloat16.
        picked: (num_picked,) int32.

    Returns:
        (num_picked, width).
    """
    result: Tensor = _PickRows.apply(rows, picked)  # type: ignore[no-untyped-call]
    return result
