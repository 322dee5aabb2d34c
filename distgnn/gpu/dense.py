"""Products of rows with small matrices: the vendor's library, and torch for what follows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from distgnn.gpu.rows import dropout

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
    products = [_product(*factor) for factor in factors]
    if accumulate or not products:
        products.append(_computed(out, out_rows, torch.promote_types(out.dtype, torch.float32)))
    # A sum of its own, even of one: what follows is done in place.
    total = torch.zeros_like(products[0])
    for product in products:
        total += product
    if row_factor is not None:
        total *= row_factor[:, None]
    if bias is not None:
        total += bias
    if has_relu:
        total.relu_()
    if row_key is not None and probability > 0:
        dropout(total, row_key, total, seed=seed, probability=probability)
    if out_rows is None:
        out.copy_(total)
    else:
        out[out_rows] = total.to(out.dtype)


def _product(x: Tensor, matrix: Tensor, picked: Tensor | None) -> Tensor:
    return _computed(x, picked, matrix.dtype) @ matrix


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
