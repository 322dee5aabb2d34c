"""Products of rows with small matrices: the vendor's library, and torch for what follows them.

Some products need copies: of picked rows, of rows stored as another type than is computed with, of
sums that are changed before they are left. Such copies hold `SLICE_VALUES` values at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from distgnn.gpu.rows import DropoutMask, finish_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

SLICE_VALUES = 1 << 24
"""64 MiB, which take a device longer to multiply than it takes to tell it so."""


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
    """Sum products of rows; see `distgnn.kernels.dense.multiply`, and `Finish` for the last six."""
    first = factors[0][1].dtype if factors else out.dtype
    dtype = torch.promote_types(first, torch.float32)
    is_here = out_rows is None and out.dtype == dtype and not _overlap(out, factors)
    is_ready = is_here and _are_ready([(x, picked) for x, _, picked in factors], dtype)
    widest = max([out.shape[1], *(x.shape[1] for x, _, _ in factors)])
    is_cut = not is_ready and _may_be_cut(out, out_rows, factors)
    key = row_key if probability > 0 else None
    is_finished = row_factor is None and bias is None and key is None and not has_relu
    for rows in _slices(len(out if out_rows is None else out_rows), widest if is_cut else 0):
        numbers = None if out_rows is None else out_rows[rows]
        own = out[rows] if numbers is None else out
        total = _computed(own, numbers, dtype) if accumulate or not factors else None
        for x, matrix, picked in factors:
            part = _part(x, picked, rows, dtype)
            if total is not None:
                total.addmm_(part, matrix)
            elif is_here:
                total = torch.mm(part, matrix, out=own)
            else:
                total = part @ matrix
        assert total is not None, "there are factors, or there is something to start from"
        if is_finished and total is own:
            continue
        factor = None if row_factor is None else row_factor[rows]
        mask = None if key is None else DropoutMask(key[rows], seed, probability)
        finish_rows(
            total, own, out_rows=numbers, factor=factor, bias=bias, has_relu=has_relu, mask=mask
        )


def multiply_transposed(
    factors: Sequence[tuple[Tensor, Tensor, Tensor | None]],
    grad: Tensor,
    *,
    activation: Tensor | None,
    scale: float,
    bias_gradient: Tensor | None,
) -> None:
    """Compute the gradients of weights and bias; see `kernels.dense.multiply_transposed`."""
    if activation is not None:
        for rows in _slices(len(grad), grad.shape[1]):
            grad[rows].mul_(scale).masked_fill_(~(activation[rows] > 0), 0)
    for x, gradient, picked in factors:
        dtype = gradient.dtype
        is_ready = _are_ready([(x, picked), (grad, None)], dtype)
        widest = 0 if is_ready else max(grad.shape[1], x.shape[1])
        is_first = True
        for rows in _slices(len(grad), widest):
            part, back = _part(x, picked, rows, dtype), grad[rows].to(dtype).t()
            if is_first:
                torch.mm(back, part, out=gradient)
            else:
                gradient.addmm_(back, part)
            is_first = False
    if bias_gradient is not None:
        bias_gradient.copy_(grad.sum(0, dtype=bias_gradient.dtype))


def _slices(num_rows: int, width: int) -> Iterator[slice]:
    """Cut rows into slices; of width 0, and where there are no rows, into one."""
    step = max(SLICE_VALUES // width, 1) if width else max(num_rows, 1)
    for start in range(0, max(num_rows, 1), step):
        yield slice(start, min(start + step, num_rows))


def _are_ready(rows: Sequence[tuple[Tensor, Tensor | None]], dtype: torch.dtype) -> bool:
    """Whether rows are multiplied as they lie, and none of them is copied before."""
    return all(picked is None and x.dtype == dtype for x, picked in rows)


def _overlap(out: Tensor, factors: Sequence[tuple[Tensor, Tensor, Tensor | None]]) -> bool:
    """Whether a product may not be written before the rows of all factors were read."""
    return any(_share(out, x) for x, _, _ in factors)


def _share(out: Tensor, x: Tensor) -> bool:
    return out.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()


def _may_be_cut(
    out: Tensor,
    out_rows: Tensor | None,
    factors: Sequence[tuple[Tensor, Tensor, Tensor | None]],
) -> bool:
    """Whether some rows of the result may be written before others of the factors were read.

    Of a factor in the place of the result only those must have been read that are written.
    """
    return all(
        not _share(out, x)
        or (
            picked is None
            and out_rows is None
            and (x.data_ptr(), x.dtype, x.shape) == (out.data_ptr(), out.dtype, out.shape)
        )
        for x, _, picked in factors
    )


def _computed(x: Tensor, picked: Tensor | None, dtype: torch.dtype) -> Tensor:
    return (x if picked is None else x[picked]).to(dtype)


def _part(x: Tensor, picked: Tensor | None, rows: slice, dtype: torch.dtype) -> Tensor:
    """Return some of the rows of a factor, as they are multiplied."""
    return (x[rows] if picked is None else x[picked[rows]]).to(dtype)
