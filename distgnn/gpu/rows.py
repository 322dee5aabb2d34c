"""Rows picked, scaled, blended and dropped out; see `distgnn.kernels`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from distgnn.gpu.launch import accumulator, expect, stored, tile

if TYPE_CHECKING:
    from torch import Tensor

_WORD = 2**64 - 1


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
def _column_hash(mixed_seed, key, column):
    """The 32 bits that decide on entries, as int64; as in csrc/mask.h."""
    bits = _mix64(mixed_seed.to(tl.uint64) + key.to(tl.uint64) * 0x9E3779B97F4A7C15)
    low, high = (bits & 0xFFFFFFFF).to(tl.uint32), (bits >> 32).to(tl.uint32)
    h = column.to(tl.uint32) * 0x9E3779B9 + low
    h = (h ^ (h >> 16)) * 0x21F0AAAD
    h = h + high
    h = (h ^ (h >> 15)) * 0x735A2D97
    return (h ^ (h >> 15)).to(tl.int64)


@triton.jit
def _drop_rows(
    x_ptr,
    key_ptr,
    column_ptr,
    seed_ptr,
    threshold,
    num_rows,
    out_ptr,
    width,
    SCALE: tl.constexpr,
    HAS_COLUMN: tl.constexpr,
    SUM: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    is_inside = (row < num_rows)[:, None] & (column < width)[None, :]
    place = row[:, None] * width + column[None, :]
    key = tl.load(key_ptr + row, mask=row < num_rows, other=0)[:, None]
    number = column[None, :]
    if HAS_COLUMN:
        number = tl.load(column_ptr + row, mask=row < num_rows, other=0)[:, None]
    is_kept = _column_hash(tl.load(seed_ptr), key, number) >= threshold
    values = tl.load(x_ptr + place, mask=is_inside, other=0).to(SUM) * SCALE
    values = stored(tl.where(is_kept, values, 0), out_ptr.dtype.element_ty)
    tl.store(out_ptr + place, values, mask=is_inside)


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
    out.copy_(x * factor[:, None])


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
    _drop(x, row_key, None, out, seed=seed, probability=probability)


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
    _drop(values[:, None], row_key, column, out[:, None], seed=seed, probability=probability)


def _drop(
    x: Tensor,
    row_key: Tensor,
    column: Tensor | None,
    out: Tensor,
    *,
    seed: int,
    probability: float,
) -> None:
    if not 0 <= probability < 1:
        raise ValueError(f"probability must be in [0, 1), got {probability}")
    num_rows, width = x.shape
    if num_rows == 0 or width == 0:
        return
    cut = tile(num_rows, width)
    _drop_rows[cut.grid](
        x,
        row_key,
        column,
        torch.tensor([_mixed(seed)], dtype=torch.int64).to(x.device),
        int(probability * 2**32),
        num_rows,
        out,
        width,
        SCALE=1 / (1 - probability),
        HAS_COLUMN=column is not None,
        SUM=accumulator(x.dtype),
        ROWS=cut.rows,
        COLUMNS=cut.columns,
    )


def _mixed(seed: int) -> int:
    """Mix a seed as csrc/mask.h does; its 64 bits as a number with a sign."""
    z = (seed + 0x9E3779B97F4A7C15) & _WORD
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _WORD
    z ^= z >> 31
    return z - 2**64 if z >= 2**63 else z
