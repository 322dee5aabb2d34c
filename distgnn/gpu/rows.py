"""Rows picked, scaled, blended and dropped out; see `distgnn.kernels`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
import triton
import triton.language as tl

from distgnn.gpu.launch import accumulator, expect, stored, tile
from distgnn.kernels.seeds import Seed, mixed_seed

if TYPE_CHECKING:
    from torch import Tensor


@triton.jit
def _move_rows(
    x_ptr,
    rows_ptr,
    num_rows,
    out_ptr,
    width,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    is_inside = (row < num_rows)[:, None] & (column < width)[None, :]
    source = tl.load(rows_ptr + row, mask=row < num_rows, other=0).to(tl.int64)
    values = tl.load(x_ptr + source[:, None] * width + column[None, :], mask=is_inside, other=0)
    place = out_ptr + row[:, None] * width + column[None, :]
    tl.store(place, stored(values, out_ptr.dtype.element_ty), mask=is_inside)


@triton.jit
def _mix64(z):
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB
    return z ^ (z >> 31)


@triton.jit
def column_hash(mixed_seed, key, column):
    """The 32 bits that decide on entries, as int64; as in csrc/mask.h."""
    bits = _mix64(mixed_seed.to(tl.uint64) + key.to(tl.uint64) * 0x9E3779B97F4A7C15)
    low, high = (bits & 0xFFFFFFFF).to(tl.uint32), (bits >> 32).to(tl.uint32)
    h = column.to(tl.uint32) * 0x9E3779B9 + low
    h = (h ^ (h >> 16)) * 0x21F0AAAD
    h = h + high
    h = (h ^ (h >> 15)) * 0x735A2D97
    return (h ^ (h >> 15)).to(tl.int64)


# The seed is another one in each call, for which nothing is compiled.
@triton.jit(do_not_specialize=["mixed_seed"])
def _finish_rows(
    x_ptr,
    rows_ptr,
    factor_ptr,
    bias_ptr,
    key_ptr,
    column_ptr,
    mixed_seed: tl.uint64,
    seed_ptr,
    threshold,
    num_rows,
    out_ptr,
    width,
    SCALE: tl.constexpr,
    HAS_ROWS: tl.constexpr,
    HAS_FACTOR: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    HAS_RELU: tl.constexpr,
    HAS_KEY: tl.constexpr,
    HAS_COLUMN: tl.constexpr,
    HAS_PLACE: tl.constexpr,
    SUM: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    is_row, is_column = row < num_rows, column < width
    is_inside = is_row[:, None] & is_column[None, :]
    at = row[:, None] * width + column[None, :]
    values = tl.load(x_ptr + at, mask=is_inside, other=0).to(SUM)
    if HAS_FACTOR:
        values *= tl.load(factor_ptr + row, mask=is_row, other=0)[:, None]
    if HAS_BIAS:
        values += tl.load(bias_ptr + column, mask=is_column, other=0)[None, :]
    if HAS_RELU:
        values = tl.where(values < 0, 0, values)
    if HAS_KEY:
        key = tl.load(key_ptr + row, mask=is_row, other=0)[:, None]
        number = column[None, :]
        if HAS_COLUMN:
            number = tl.load(column_ptr + row, mask=is_row, other=0)[:, None]
        if HAS_PLACE:
            mixed_seed = tl.load(seed_ptr).to(tl.uint64, bitcast=True)
        is_kept = column_hash(mixed_seed, key, number) >= threshold
        values = tl.where(is_kept, values * SCALE, 0)
    place = at
    if HAS_ROWS:
        target = tl.load(rows_ptr + row, mask=is_row, other=0).to(tl.int64)
        place = target[:, None] * width + column[None, :]
    tl.store(out_ptr + place, stored(values, out_ptr.dtype.element_ty), mask=is_inside)


def gather_rows(x: Tensor, rows: Tensor, out: Tensor) -> None:
    """Copy rows into a buffer, whose type may be another; see `distgnn.kernels.gather_rows`."""
    num_rows, width = len(rows), x.shape[1]
    expect("out", out, num_rows, width)
    if num_rows == 0 or width == 0:
        return
    cut = tile(num_rows, width)
    _move_rows[cut.grid](x, rows, num_rows, out, width, ROWS=cut.rows, COLUMNS=cut.columns)


def scale_rows(x: Tensor, factor: Tensor, out: Tensor) -> None:
    """Multiply each row by a number; see `distgnn.kernels.scale_rows`."""
    expect("factor", factor, len(x))
    expect("out", out, *x.shape)
    finish_rows(x, out, factor=factor)


def blend_rows(x: Tensor, rows: Tensor, out: Tensor, *, weight: float) -> None:
    """Move rows towards those of a buffer; see `distgnn.kernels.blend_rows`."""
    expect("x", x, len(rows), out.shape[1])
    if weight == 1:
        out[rows] = x
        return
    old = out[rows].to(torch.promote_types(out.dtype, torch.float32))
    out[rows] = (old + weight * (x.to(old.dtype) - old)).to(out.dtype)


def dropout(x: Tensor, row_key: Tensor, out: Tensor, *, seed: int, probability: float) -> None:
    """Zero values at random; the mask is that of `distgnn.kernels.dropout`."""
    expect("row_key", row_key, len(x))
    expect("out", out, *x.shape)
    finish_rows(x, out, mask=DropoutMask(row_key, seed, probability))


def dropout_values(
    values: Tensor,
    row_key: Tensor,
    column: Tensor,
    out: Tensor,
    *,
    seed: int,
    probability: float,
) -> None:
    """Drop entries of sparse rows; see `distgnn.kernels.dropout_values`."""
    for name, tensor in (("row_key", row_key), ("column", column), ("out", out)):
        expect(name, tensor, len(values))
    mask = DropoutMask(row_key, seed, probability, column)
    finish_rows(values[:, None], out[:, None], mask=mask)


class DropoutMask(NamedTuple):
    """Mask of dropout; see `distgnn.kernels.dropout`.

    Attributes:
        row_key: (num_rows,) int64.
        seed: In [0, 2**64). A `Seed` with a place is read from there by the kernel.
        probability: In [0, 1). Of being zeroed.
        column: (num_rows,) int32. Of each row, if it has one value; None if they have all columns.
    """

    row_key: Tensor
    seed: int
    probability: float
    column: Tensor | None = None


def finish_rows(
    x: Tensor,
    out: Tensor,
    *,
    out_rows: Tensor | None = None,
    factor: Tensor | None = None,
    bias: Tensor | None = None,
    has_relu: bool = False,
    mask: DropoutMask | None = None,
) -> None:
    """Multiply rows by factors, add a bias, apply relu and dropout, in one pass; round at its end.

    Args:
        x: (num_rows, width).
        out: (num_rows, width), or more rows if `out_rows` says which. Written; may be x if not.
        out_rows: (num_rows,) int32, distinct; None for all in order.
        factor: (num_rows,), or None for ones.
        bias: (width,), or None.
        has_relu: Whether what is negative becomes 0; a NaN stays one.
        mask: Mask of dropout, or None.

    Raises:
        ValueError: If a probability is out of range.
    """
    probability = mask.probability if mask else 0.0
    if not 0 <= probability < 1:
        raise ValueError(f"probability must be in [0, 1), got {probability}")
    num_rows, width = x.shape
    if num_rows == 0 or width == 0:
        return
    place = mask.seed.place if mask is not None and isinstance(mask.seed, Seed) else None
    cut = tile(num_rows, width)
    _finish_rows[cut.grid](
        x,
        out_rows,
        factor,
        bias,
        mask.row_key if mask else None,
        mask.column if mask else None,
        mixed_seed(mask.seed if mask else 0),
        place,
        int(probability * 2**32),
        num_rows,
        out,
        width,
        SCALE=1 / (1 - probability),
        HAS_ROWS=out_rows is not None,
        HAS_FACTOR=factor is not None,
        HAS_BIAS=bias is not None,
        HAS_RELU=has_relu,
        HAS_KEY=mask is not None,
        HAS_COLUMN=mask is not None and mask.column is not None,
        HAS_PLACE=place is not None,
        SUM=accumulator(x.dtype),
        ROWS=cut.rows,
        COLUMNS=cut.columns,
    )
