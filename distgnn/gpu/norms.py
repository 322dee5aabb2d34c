"""Norms of columns and rows in torch, with relu and dropout; see `distgnn.kernels.norms`.

Unlike on the processor nothing is fused but what follows a norm, and no scratch is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from distgnn.gpu.launch import expect
from distgnn.gpu.rows import DropoutMask, finish_rows

if TYPE_CHECKING:
    from torch import Tensor


def column_moments(x: Tensor, mean: Tensor, deviation: Tensor, *, workspace: None) -> int:
    """Compute means and squared deviations of columns."""
    del workspace
    if len(x) == 0:
        mean.zero_(), deviation.zero_()
        return 0
    mean.copy_(x.mean(dim=0, dtype=torch.float64))
    deviation.copy_((x - mean.to(x.dtype)).square_().sum(dim=0, dtype=torch.float64))
    return 0


def normalise_columns(
    x: Tensor,
    mean: Tensor,
    scale: Tensor,
    out: Tensor,
    *,
    bias: Tensor | None,
    has_relu: bool,
    row_key: Tensor | None,
    seed: int,
    probability: float,
) -> None:
    """Subtract a mean from each column, scale it, and finish rows."""
    expect("out", out, *x.shape)
    mask = None if row_key is None else DropoutMask(row_key, seed, probability)
    finish_rows((x - mean).mul_(scale), out, bias=bias, has_relu=has_relu, mask=mask)


def column_gradient_sums(
    x: Tensor,
    mean: Tensor,
    rstd: Tensor,
    grad: Tensor,
    activation: Tensor | None,
    sums: Tensor,
    *,
    scale: float,
    workspace: None,
) -> int:
    """Sum the gradient, and its products with normalised rows, over rows."""
    del workspace
    before = _before(grad, activation, scale, x.dtype)
    sums[0] = before.sum(dim=0, dtype=torch.float64)
    sums[1] = before.mul_((x - mean).mul_(rstd)).sum(dim=0, dtype=torch.float64)
    return 0


def columns_backward(
    x: Tensor,
    mean: Tensor,
    factors: Tensor,
    grad: Tensor,
    activation: Tensor | None,
    out: Tensor,
    *,
    num_counted: int,
    scale: float,
) -> None:
    """Turn the gradient into that of x, with three factors for each column."""
    expect("out", out, *x.shape)
    torch.mul(_before(grad, activation, scale, x.dtype), factors[0], out=out)
    counted = slice(num_counted)
    out[counted] -= torch.addcmul(factors[1], x[counted] - mean, factors[2])


def normalise_rows(
    x: Tensor,
    weight: Tensor,
    out: Tensor,
    *,
    eps: float,
    bias: Tensor | None,
    has_relu: bool,
    row_key: Tensor | None,
    seed: int,
    probability: float,
) -> None:
    """Normalise each row, scale its columns, and finish rows."""
    expect("out", out, *x.shape)
    mask = None if row_key is None else DropoutMask(row_key, seed, probability)
    normal, _ = _normal(x, eps)
    finish_rows(normal.mul_(weight), out, bias=bias, has_relu=has_relu, mask=mask)


def rows_backward(
    x: Tensor,
    weight: Tensor,
    grad: Tensor,
    activation: Tensor | None,
    out: Tensor,
    sums: Tensor,
    *,
    eps: float,
    scale: float,
    workspace: None,
) -> int:
    """Turn the gradient into that of x, and those of bias and weight."""
    del workspace
    expect("out", out, *x.shape)
    before = _before(grad, activation, scale, x.dtype)
    normal, rstd = _normal(x, eps)
    sums[0] = before.sum(dim=0)
    sums[1] = (before * normal).sum(dim=0)
    weighted = before.mul_(weight)
    along = (weighted * normal).mean(dim=1, keepdim=True)
    shaped = torch.addcmul(weighted.mean(dim=1, keepdim=True), normal, along)
    torch.mul(weighted.sub_(shaped), rstd, out=out)
    return 0


def _normal(x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """(num_rows, width) normalised rows, and (num_rows, 1) 1 / their standard deviation."""
    variance, mean = torch.var_mean(x, dim=1, keepdim=True, correction=0)
    rstd = (variance + eps).rsqrt_()
    return (x - mean).mul_(rstd), rstd


def _before(grad: Tensor, activation: Tensor | None, scale: float, dtype: torch.dtype) -> Tensor:
    """(num_rows, width) A tensor of its own: the gradient before relu and dropout."""
    before = grad.to(dtype, copy=True)
    if activation is not None:
        before.mul_(scale).masked_fill_(~(activation > 0), 0)
    return before
