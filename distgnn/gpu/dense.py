"""Products of rows with small matrices: the vendor's library, and torch for what follows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from distgnn.gpu.rows import Mask, finish_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


def multiply(
    factors: Sequence[tuple[Tensor, Tensor, Tensor | None]],
    out: Tensor,
    *,
    out_rows: Tensor | None,
    accumulate: bool,
    row_factor: Tensor | None,
    bias: Tensor | None,
    has_relu: bool,
    row_key: Tensor | None,
    seed: int,
    probability: float,
) -> None:
    """Sum products of rows; see `distgnn.products.multiply`, and `Finish` for the last six."""
    first = factors[0][1].dtype if factors else out.dtype
    dtype = torch.promote_types(first, torch.float32)
    is_here = out_rows is None and out.dtype == dtype
    total: Tensor | None = None
    if accumulate or not factors:
        total = _computed(out, out_rows, dtype)
    for x, matrix, picked in factors:
        rows = _computed(x, picked, dtype)
        if total is not None:
            total.addmm_(rows, matrix)
        elif is_here and not _overlap(out, factors):
            total = torch.mm(rows, matrix, out=out)
        else:
            total = rows @ matrix
    assert total is not None, "there are factors, or there is something to start from"
    mask = None
    if row_key is not None and probability > 0:
        mask = Mask(row_key, seed, probability)
    is_finished = row_factor is None and bias is None and mask is None and not has_relu
    if is_finished and total is out:
        return
    finish_rows(
        total, out, out_rows=out_rows, factor=row_factor, bias=bias, has_relu=has_relu, mask=mask
    )


def _overlap(out: Tensor, factors: Sequence[tuple[Tensor, Tensor, Tensor | None]]) -> bool:
    """Whether a product may not be written before the rows of all factors were read."""
    storage = out.untyped_storage().data_ptr()
    return any(x.untyped_storage().data_ptr() == storage for x, _, _ in factors)


def _computed(x: Tensor, picked: Tensor | None, dtype: torch.dtype) -> Tensor:
    return (x if picked is None else x[picked]).to(dtype)


def multiply_transposed(
    factors: Sequence[tuple[Tensor, Tensor, Tensor | None]],
    grad: Tensor,
    *,
    activation: Tensor | None,
    scale: float,
    bias_gradient: Tensor | None,
) -> None:
    """Compute the gradients of weights and bias; see `distgnn.products.multiply_transposed`."""
    if activation is not None:
        grad.mul_(scale).masked_fill_(~(activation > 0), 0)
    for x, gradient, picked in factors:
        dtype = gradient.dtype
        torch.mm(grad.to(dtype).t(), _computed(x, picked, dtype), out=gradient)
    if bias_gradient is not None:
        bias_gradient.copy_(grad.sum(0, dtype=bias_gradient.dtype))
