"""Dropout that no partition changes, and dropout behind a ReLU, for autograd."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.function import once_differentiable

from distgnn import kernels
from distgnn.kernels.dense import multiply_transposed
from distgnn.ops.gradients import differentiable_once
from distgnn.ops.host_rows import HostRows
from distgnn.ops.sparse_rows import SparseRows

if TYPE_CHECKING:
    from torch import Tensor

    from distgnn.ops.rows import AnyRows


class _Dropout(torch.autograd.Function):
    """Dropout that keeps no mask: backward draws it again from the same counters."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, row_key: Tensor, seed: int, probability: float) -> Tensor:
        ctx.row_key, ctx.seed, ctx.probability = row_key, seed, probability
        return _masked(rows, row_key, seed, probability)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        return _masked(grads[0], ctx.row_key, ctx.seed, ctx.probability), None, None, None


def _masked(rows: Tensor, row_key: Tensor, seed: int, probability: float) -> Tensor:
    rows = rows.contiguous()
    out = torch.empty_like(rows)
    kernels.dropout(rows, row_key, out, seed=seed, probability=probability)
    return out


def dropout(rows: AnyRows, row_key: Tensor, *, seed: int, probability: float) -> AnyRows:
    """Zero entries at random and scale the others by 1 / (1 - probability).

    Whether an entry is kept is a function of (seed, its row's key, its column) alone, so that a
    vertex gets the same mask on any rank of any partition.

    Args:
        rows: (num_rows, width), float32, float64 or bfloat16; of any kind.
        row_key: (num_rows,) int64. Global vertex ids.
        seed: Differs from call to call and from epoch to epoch.
        probability: In [0, 1).

    Returns:
        (num_rows, width), of the same kind.
    """
    if isinstance(rows, SparseRows | HostRows):
        return rows.dropout(row_key, seed=seed, probability=probability)  # type: ignore[return-value]
    return _Dropout.apply(rows, row_key, seed, probability)  # type: ignore[no-any-return, no-untyped-call]


class _ReluDropout(torch.autograd.Function):
    """ReLU and dropout that keep their output only: an entry is positive where it passed both.

    The next layer keeps that output anyway, so the activation costs no memory of its own, and
    backward is one pass that draws no mask.
    """

    @staticmethod
    def forward(
        ctx: Any,
        rows: Tensor,
        row_key: Tensor,
        seed: int,
        probability: float,
        dtype: torch.dtype | None,
    ) -> Tensor:
        rows = rows.contiguous()
        out = torch.empty_like(rows, dtype=dtype)
        kernels.dropout(rows, row_key, out, seed=seed, probability=probability)
        out.clamp_(min=0)
        ctx.save_for_backward(out)
        ctx.scale, ctx.dtype = 1 / (1 - probability), rows.dtype
        return out

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None, None]:
        (out,) = ctx.saved_tensors
        grad = grads[0].to(ctx.dtype, copy=True, memory_format=torch.contiguous_format)
        multiply_transposed([], grad, activation=out.to(ctx.dtype), scale=ctx.scale)
        return grad, None, None, None, None


def relu_dropout(
    rows: Tensor,
    row_key: Tensor,
    *,
    seed: int,
    probability: float,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Return dropout(relu(rows)) in one operation; see `dropout`.

    Args:
        rows: (num_rows, width), float32 or float64.
        row_key: (num_rows,) int64. Global vertex ids.
        seed: Differs from call to call and from epoch to epoch.
        probability: In [0, 1).
        dtype: Type of the result: that of rows if None, or bfloat16 for float32.

    Returns:
        (num_rows, width).
    """
    result: Tensor = _ReluDropout.apply(rows, row_key, seed, probability, dtype)  # type: ignore[no-untyped-call]
    return result
