"""Rows coded with a few bits a value, as they travel.

The rules of `distgnn.kernels` hold here. A coded row is a header of 4 bytes, its packed codes, and
its last columns as float32 where they must stay exact. csrc/codec.h has the layout.

    16 bits     bfloat16, rounded to the nearest; no header.
    8, 4, 2     (minimum, unit) as bfloat16, rounded outwards; codes count units from the minimum.
    1 bit       (lower, upper) as bfloat16: the means of the values up to the mean, and above it.

References:
    Alistarh et al., "QSGD: Communication-Efficient SGD via Gradient Quantization", NIPS 2017.
    Markov et al., "CGX: Adaptive System Support for Communication-Efficient Deep Learning",
    Middleware 2022.
    Seide et al., "1-Bit Stochastic Gradient Descent", Interspeech 2014.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from distgnn.kernels.devices import kernels_on
from distgnn.kernels.tensors import array, float_type

if TYPE_CHECKING:
    from torch import Tensor

BITS = (16, 8, 4, 2, 1)
"""Numbers of bits that a value can be coded with."""
PLAIN_BITS = 32
"""Stands for rows that travel as they are; `row_bytes` knows it, the kernels do not."""
_CODED = (torch.float32, torch.bfloat16)
_HEADER_BYTES = 4


def row_bytes(width: int, bits: int, exact_columns: int = 0, item_bytes: int = 4) -> int:
    """Return the bytes of a row on the wire.

    Args:
        width: Number of columns, the exact ones included.
        bits: Bits of a coded value, one of `BITS`; `PLAIN_BITS` for rows as they are.
        exact_columns: Number of the last columns, which travel as float32.
        item_bytes: Bytes of a value of the rows as they are.

    Raises:
        ValueError: If there are no codes of so many bits, or more exact columns than columns.
    """
    if bits == PLAIN_BITS:
        return width * item_bytes
    if bits not in BITS:
        raise ValueError(f"bits must be one of {', '.join(map(str, BITS))}, got {bits}")
    if not 0 <= exact_columns <= width:
        raise ValueError(
            f"exact_columns must be from 0 to the {width} columns of a row, got {exact_columns}"
        )
    coded = width - exact_columns
    header = _HEADER_BYTES if coded and bits < BITS[0] else 0
    return header + (coded * bits + 7) // 8 + 4 * exact_columns


def row_offsets(bits: Tensor, width: int, exact_columns: int = 0) -> Tensor:
    """Return where each row of a message begins whose rows have bits of their own.

    Args:
        bits: (count,) uint8. Bits of each row, each one of `BITS`.
        width: Number of columns, the exact ones included.
        exact_columns: Number of the last columns, which travel as float32.

    Returns:
        (count + 1,) int64 on the device of `bits`. Byte offsets; the last is the message's length.

    Raises:
        ValueError: If a row has other bits.
    """
    found = torch.zeros(bits.shape[0] + 1, dtype=torch.int64, device=bits.device)
    for value in torch.unique(bits).tolist():
        found[1:][bits == value] = row_bytes(width, value, exact_columns)
    return found.cumsum_(0)


def encode_rows(
    rows: Tensor,
    picked: Tensor | None,
    count: int,
    *,
    bits: int | Tensor,
    exact_columns: int = 0,
    seed: int | None,
    out: Tensor,
    offsets: Tensor | None = None,
) -> None:
    """Code rows, gathered as `gather_rows` does.

    Rounding at random leaves the mean of a value as it is, up to a 512th of a unit with 2 bits and
    a 65536th with 4 and 8. What is drawn depends on (seed, row of the message, column) alone. One
    bit and 16 bits are never rounded at random.

    A decoded value differs from its own by at most a unit, by half of one if rounded to the
    nearest, and by the rounding of float32. A unit is the row's range over 2**bits - 1, rounded up.

    Args:
        rows: (num_rows, width) float32 or bfloat16.
        picked: (count,) int32. Row of `rows` for each row of the message; None for the first.
        count: Number of rows of the message.
        bits: Bits of a coded value, one of `BITS`; or (count,) uint8, those of each row.
        exact_columns: Number of the last columns, which travel as float32.
        seed: In [0, 2**64), for rounding at random; None rounds to the nearest.
        out: (count, row_bytes) uint8, or (num_bytes,) with `offsets`. Written.
        offsets: (count + 1,) int64. Where each row begins; see `row_offsets`. Required where
            rows have bits of their own, else None.

    Raises:
        ValueError: If a coded value is NaN, infinite or beyond 2**96, or the seed is out of range.
    """
    if seed is not None and not 0 <= seed < 2**64:
        raise ValueError(f"seed must be in [0, 2**64), got {seed}")
    dtype = float_type("rows", rows, _CODED)
    bad = kernels_on("rows", rows).functions.encode_rows(
        array("rows", rows, dtype, 2),
        _numbers("picked", picked),
        count,
        *_layout(bits, offsets),
        exact_columns,
        seed,
        _message("out", out, count, rows.shape[1], bits, exact_columns),
    )
    if bad >= 0:
        source = bad if picked is None else int(picked[bad])
        raise ValueError(
            f"row {source} cannot be coded: it holds a value that is NaN, infinite or beyond "
            "2**96, so training has diverged; lower the learning rate or clip gradients, or send "
            "rows as they are"
        )


def decode_rows(
    codes: Tensor,
    width: int,
    *,
    bits: int | Tensor,
    exact_columns: int = 0,
    out: Tensor,
    places: Tensor | None = None,
    weight: float = 1.0,
    add: bool = False,
    offsets: Tensor | None = None,
) -> None:
    """Decode rows to where they belong.

    Args:
        codes: (count, row_bytes) uint8, or (num_bytes,) with `offsets`. Rows that were coded.
        width: Number of columns, the exact ones included.
        bits: See `encode_rows`.
        exact_columns: See `encode_rows`.
        out: (num_rows, width) float32 or bfloat16; float32 if added to. Changed.
        places: (count,) int32. Row of `out` for each row of the message; None for the first rows.
            May repeat if added.
        weight: out[places[k]] += weight * (row k - out[places[k]]). 1 overwrites.
        add: out[places[k]] += row k instead, in the order of k.
        offsets: See `encode_rows`.

    Raises:
        ValueError: If `add` is given with a weight.
    """
    if add and weight != 1:
        raise ValueError(f"weight must be 1 where rows are added, got {weight}; blend or add")
    dtype = float_type("out", out, _CODED[:1] if add else _CODED)
    count = codes.shape[0] if offsets is None else offsets.shape[0] - 1
    if out.dim() == 2 and out.shape[1] != width:
        raise ValueError(f"out must have {width} columns, got {out.shape[1]}")
    kernels_on("out", out).functions.decode_rows(
        _message("codes", codes, count, width, bits, exact_columns),
        count,
        *_layout(bits, offsets),
        exact_columns,
        _numbers("places", places),
        weight,
        add,
        array("out", out, dtype, 2),
    )


def _numbers(name: str, rows: Tensor | None) -> Any:
    return None if rows is None else array(name, rows, torch.int32, 1)


def _layout(bits: int | Tensor, offsets: Tensor | None) -> tuple[int, Any, Any]:
    """Return bits of all rows, bits of each row, and where rows begin, as kernels take them."""
    if isinstance(bits, int):
        if offsets is not None:
            raise ValueError("offsets are for rows with bits of their own; leave them out")
        return bits, None, None
    if offsets is None:
        raise ValueError("rows with bits of their own need offsets; call row_offsets")
    return BITS[0], array("bits", bits, torch.uint8, 1), array("offsets", offsets, torch.int64, 1)


def _message(
    name: str, codes: Tensor, count: int, width: int, bits: int | Tensor, exact_columns: int
) -> Any:
    """View a message as kernels take it: its bytes, one after the other."""
    if isinstance(bits, int):
        expected = (count, row_bytes(width, bits, exact_columns))
        if tuple(codes.shape) != expected:
            raise ValueError(f"{name} must have shape {expected}, got {tuple(codes.shape)}")
        return array(name, codes, torch.uint8, 2).reshape(-1)
    return array(name, codes, torch.uint8, 1)
