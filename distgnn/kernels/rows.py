"""Rows that are copied, added, scaled, blended and dropped.

The rules of `distgnn.kernels` hold here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from distgnn.kernels.devices import kernels_on
from distgnn.kernels.tensors import STORED, array, computed, float_type

if TYPE_CHECKING:
    from torch import Tensor


def gather_rows(x: Tensor, rows: Tensor, out: Tensor) -> None:
    """Copy rows into a buffer: out[k] = x[rows[k]].

    Args:
        x: (num_rows, width). May be bfloat16.
        rows: (num_gathered,) int32.
        out: (num_gathered, width). Written.
    """
    dtype = float_type("x", x, STORED)
    kernels_on("x", x).functions.gather_rows(
        array("x", x, dtype, 2), array("rows", rows, torch.int32, 1), array("out", out, dtype, 2)
    )


def scatter_add_rows(x: Tensor, rows: Tensor, out: Tensor) -> None:
    """Add the rows of a buffer where they belong: out[rows[k]] += x[k], in the order of k.

    Args:
        x: (num_gathered, width). May be bfloat16.
        rows: (num_gathered,) int32. May repeat.
        out: (num_rows, width). Added to; float32 if x is bfloat16.
    """
    stored = float_type("x", x, STORED)
    kernels_on("x", x).functions.scatter_add_rows(
        array("x", x, stored, 2),
        array("rows", rows, torch.int32, 1),
        array("out", out, computed(stored), 2),
    )


def scale_rows(x: Tensor, factor: Tensor, out: Tensor) -> None:
    """Multiply each row by a number: out[i] = factor[i] * x[i].

    Args:
        x: (num_rows, width). May be bfloat16.
        factor: (num_rows,).
        out: (num_rows, width). Written; may be x. bfloat16 if x is; may be if x is float32.
    """
    dtype = float_type("x", x, STORED)
    kernels_on("x", x).functions.scale_rows(
        array("x", x, dtype, 2),
        array("factor", factor, computed(dtype), 1),
        array("out", out, _rounded(dtype, out), 2),
    )


def blend_rows(x: Tensor, rows: Tensor, out: Tensor, *, weight: float) -> None:
    """Move rows towards those of a buffer: out[rows[k]] += weight * (x[k] - out[rows[k]]).

    Args:
        x: (num_rows, width). May be bfloat16, which is blended in float32.
        rows: (num_rows,) int32. No row may repeat.
        out: (num_out, width). Changed.
        weight: 1 copies bit by bit.
    """
    dtype = float_type("x", x, STORED)
    kernels_on("x", x).functions.blend_rows(
        array("x", x, dtype, 2),
        array("rows", rows, torch.int32, 1),
        array("out", out, dtype, 2),
        weight=weight,
    )


def dropout(x: Tensor, row_key: Tensor, out: Tensor, *, seed: int, probability: float) -> None:
    """Zero values at random, scale the others by 1 / (1 - probability).

    Whether a value is kept depends on (seed, key of its row, column) alone. With global ids as keys
    a vertex gets the same mask whatever the partition, and backward is this call on the gradient.

    Args:
        x: (num_rows, width). May be bfloat16.
        row_key: (num_rows,) int64.
        out: (num_rows, width). Written; may be x. bfloat16 if x is; may be if x is float32.
        seed: In [0, 2**64). Another seed gives an independent mask.
        probability: In [0, 1). Of being zeroed.

    Raises:
        TypeError: If a dtype is not the documented one.
        ValueError: If shapes do not fit, a tensor is not contiguous or on another device, or the
            seed or the probability is out of range.

    References:
        Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011.
    """
    dtype = float_type("x", x, STORED)
    kernels_on("x", x).functions.dropout(
        array("x", x, dtype, 2),
        array("row_key", row_key, torch.int64, 1),
        array("out", out, _rounded(dtype, out), 2),
        seed=_checked_seed(seed),
        probability=probability,
    )


def dropout_values(
    values: Tensor,
    row_key: Tensor,
    column: Tensor,
    out: Tensor,
    *,
    seed: int,
    probability: float,
) -> None:
    """Apply `dropout` to the stored entries of sparse rows.

    An entry meets the fate it would meet in the dense matrix.

    Args:
        values: (num_entries,).
        row_key: (num_entries,) int64. Key of the row of each entry.
        column: (num_entries,) int32.
        out: (num_entries,). Written; may be `values`.
        seed: In [0, 2**64).
        probability: In [0, 1).

    Raises:
        TypeError: If a dtype is not the documented one.
        ValueError: If shapes do not fit, a tensor is not contiguous or on another device, or the
            seed or the probability is out of range.
    """
    dtype = float_type("values", values)
    kernels_on("values", values).functions.dropout_values(
        array("values", values, dtype, 1),
        array("row_key", row_key, torch.int64, 1),
        array("column", column, torch.int32, 1),
        array("out", out, dtype, 1),
        seed=_checked_seed(seed),
        probability=probability,
    )


def _rounded(dtype: torch.dtype, out: Tensor) -> torch.dtype:
    """Return the dtype of out that goes with one of x: float32 may be rounded."""
    is_rounded = (dtype, out.dtype) == (torch.float32, torch.bfloat16)
    return torch.bfloat16 if is_rounded else dtype


def _checked_seed(seed: int) -> int:
    if not 0 <= seed < 2**64:
        message = f"seed must be in [0, 2**64), got {seed}"
        raise ValueError(message)
    return seed
