"""Rows coded with a few bits a value; see `distgnn.kernels.codec`.

A program codes or decodes one row, with the bytes of csrc/codec.h. Products and sums are not fused,
so that results are those of the processor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from distgnn.gpu.launch import expect, stored
from distgnn.gpu.rows import column_hash
from distgnn.gpu.sums import scatter_add_rows
from distgnn.kernels.seeds import mixed_seed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

_HEADER_BYTES = 4
_HALF_BITS = 16
_NO_ROW = 2**31 - 1
# Values that a warp holds.
_WARP_VALUES = 256


@triton.jit
def _put_bytes(to, values, mask, COUNT: tl.constexpr):
    """Store the first bytes of words at addresses that need not be aligned."""
    for byte in tl.static_range(COUNT):
        tl.store(to + byte, ((values >> (8 * byte)) & 0xFF).to(tl.uint8), mask=mask)


@triton.jit
def _get_bytes(at, mask, COUNT: tl.constexpr):
    """Load words of some bytes."""
    words = tl.load(at, mask=mask, other=0).to(tl.uint32)
    for byte in tl.static_range(1, COUNT):
        words |= tl.load(at + byte, mask=mask, other=0).to(tl.uint32) << (8 * byte)
    return words


@triton.jit
def _key(values):
    """Integers in the order of floats, or floats' bits of such integers; NaNs are at the ends."""
    bits = values.to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def _of_key(key):
    return (key ^ ((key >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


@triton.jit
def _up(value):
    """The bits of a positive value rounded up to bfloat16."""
    return (value.to(tl.uint32, bitcast=True) + 0xFFFF) & 0xFFFF0000


@triton.jit
def _halves(value):
    """bfloat16 bits of values, rounded to the nearest."""
    return stored(value, tl.bfloat16).to(tl.uint16, bitcast=True).to(tl.uint32)


@triton.jit
def _folded(lanes):
    """The sum of 16 lanes, added by halves."""
    lanes = tl.sum(tl.reshape(lanes, (2, 8)), 0)
    lanes = tl.sum(tl.reshape(lanes, (2, 4)), 0)
    lanes = tl.sum(tl.reshape(lanes, (2, 2)), 0)
    return tl.sum(lanes, 0)


# The seed is another one in each call, for which nothing is compiled.
@triton.jit(do_not_specialize=["mixed_seed"])
def _encode(
    x_ptr,
    picked_ptr,
    number_ptr,
    offset_ptr,
    mixed_seed: tl.uint64,
    bad_ptr,
    out_ptr,
    width,
    exact,
    coded,
    length,
    row_bytes,
    header_bytes,
    code_bytes,
    BITS: tl.constexpr,
    PLANES: tl.constexpr,
    IS_RANDOM: tl.constexpr,
    HAS_PICKED: tl.constexpr,
    HAS_NUMBERS: tl.constexpr,
    HAS_OFFSETS: tl.constexpr,
    LENGTH: tl.constexpr,
    EXACT: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    if HAS_NUMBERS:
        row = tl.load(number_ptr + row)
    source = row
    if HAS_PICKED:
        source = tl.load(picked_ptr + row).to(tl.int64)
    out = out_ptr + row * row_bytes
    if HAS_OFFSETS:
        out = out_ptr + tl.load(offset_ptr + row)
    x = x_ptr + source * width
    number = tl.arange(0, LENGTH)
    if coded > 0:
        lowest, highest = 0x7FFFFFFF, -0x7FFFFFFF
        for i in tl.static_range(PLANES):
            column = i * length + number
            is_inside = (number < length) & (column < coded)
            key = _key(tl.load(x + column, mask=is_inside, other=0).to(tl.float32))
            lowest = tl.minimum(lowest, tl.min(tl.where(is_inside, key, 0x7FFFFFFF), 0))
            highest = tl.maximum(highest, tl.max(tl.where(is_inside, key, -0x7FFFFFFF), 0))
        # 2**96, and its negative.
        is_bad = (highest > 0x6F800000) | (lowest < -0x6F800001)
        if is_bad:
            tl.atomic_min(bad_ptr, row.to(tl.int32))
        # Nothing is computed with what has no code.
        lowest, highest = tl.where(is_bad, 0, lowest), tl.where(is_bad, 0, highest)
        coded = tl.where(is_bad, 0, coded)
        first, second, scale = 0.0, 0.0, 0.0
        if BITS == 1:
            lane = tl.arange(0, 16)
            total = tl.zeros((16,), tl.float32)
            for start in range(0, coded, 16):
                total += tl.load(x + start + lane, mask=start + lane < coded, other=0)
            scale = tl.div_rn(_folded(total), tl.maximum(coded, 1).to(tl.float32))
            below, above = tl.zeros((16,), tl.float32), tl.zeros((16,), tl.float32)
            num_above = 0
            for start in range(0, coded, 16):
                has_column = start + lane < coded
                found = tl.load(x + start + lane, mask=has_column, other=0).to(tl.float32)
                is_above = has_column & (found > scale)
                above += tl.where(is_above, found, 0)
                below += tl.where(has_column & (found <= scale), found, 0)
                num_above += tl.sum(is_above.to(tl.int32), 0)
            num_below = coded - num_above
            second = tl.div_rn(_folded(above), tl.maximum(num_above, 1).to(tl.float32))
            first = tl.div_rn(_folded(below), tl.maximum(num_below, 1).to(tl.float32))
            first, second = (
                tl.where(num_below == 0, second, first),
                tl.where(num_above == 0, first, second),
            )
        elif BITS < 16:
            # Adding 0 makes +0 of -0.
            low, high = _of_key(lowest) + 0.0, _of_key(highest) + 0.0
            bits = low.to(tl.uint32, bitcast=True)
            bits += tl.where(bits >> 31 != 0, 0xFFFF, 0).to(tl.uint32)
            first = (bits & 0xFFFF0000).to(tl.float32, bitcast=True)
            units = _up(tl.maximum(tl.div_rn(high - first, 2.0**BITS - 1), 2.0**-100))
            second = units.to(tl.float32, bitcast=True)
            if first + second * (2.0**BITS - 1) < high:
                second = (units + 0x10000).to(tl.float32, bitcast=True)
            scale = tl.div_rn(1.0, second)
            second = tl.where(high == first, 0.0, second)
            scale = tl.where(high == first, 0.0, scale)
        if BITS < 16:
            header = _halves(first) | (_halves(second) << 16)
            place = out + tl.arange(0, 4)
            tl.store(place, ((header >> (8 * tl.arange(0, 4))) & 0xFF).to(tl.uint8))
        if IS_RANDOM:
            hashed = column_hash(mixed_seed, row, number)
        packed = tl.zeros((LENGTH,), tl.uint32)
        for i in tl.static_range(PLANES):
            column = i * length + number
            is_inside = (number < length) & (column < coded)
            values = tl.load(x + column, mask=is_inside, other=0).to(tl.float32)
            if BITS == 16:
                _put_bytes(out + 2 * column, _halves(values), is_inside, 2)
            else:
                if BITS == 1:
                    code = (values > scale).to(tl.uint32)
                else:
                    r = 0.5
                    if IS_RANDOM:
                        if PLANES == 2:
                            field = (hashed >> (17 * i)) & 0x7FFF
                            r = field.to(tl.float32) * 2.0**-15 + 2.0**-16
                        else:
                            field = (hashed >> (8 * i)) & 0xFF
                            r = field.to(tl.float32) * 2.0**-8 + 2.0**-9
                    whole = ((values - first) * scale + r).to(tl.int32)
                    code = tl.minimum(whole, 2**BITS - 1).to(tl.uint32)
                code = tl.where(is_inside, code, 0)
                if BITS == 8:
                    tl.store(out + 4 + column, code.to(tl.uint8), mask=is_inside)
                else:
                    packed |= code << (BITS * i)
        if BITS < 8:
            tl.store(out + 4 + number, packed.to(tl.uint8), mask=number < length)
    if EXACT > 0:
        tail = tl.arange(0, EXACT)
        is_inside = tail < exact
        values = tl.load(x + width - exact + tail, mask=is_inside, other=0).to(tl.float32)
        to = out + header_bytes + code_bytes + 4 * tail
        _put_bytes(to, values.to(tl.uint32, bitcast=True), is_inside, 4)


@triton.jit
def _leave(to, values, mask, weight, ADDS: tl.constexpr, BLENDS: tl.constexpr):
    if ADDS:
        values = tl.load(to, mask=mask, other=0).to(tl.float32) + values
    if BLENDS:
        old = tl.load(to, mask=mask, other=0).to(tl.float32)
        values = old + weight * (values - old)
    tl.store(to, stored(values, to.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["weight"])
def _decode(
    message_ptr,
    number_ptr,
    offset_ptr,
    places_ptr,
    out_ptr,
    weight: tl.float32,
    width,
    exact,
    coded,
    length,
    row_bytes,
    header_bytes,
    code_bytes,
    BITS: tl.constexpr,
    PLANES: tl.constexpr,
    ADDS: tl.constexpr,
    BLENDS: tl.constexpr,
    HAS_NUMBERS: tl.constexpr,
    HAS_OFFSETS: tl.constexpr,
    HAS_PLACES: tl.constexpr,
    LENGTH: tl.constexpr,
    EXACT: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    if HAS_NUMBERS:
        row = tl.load(number_ptr + row)
    target = row
    if HAS_PLACES:
        target = tl.load(places_ptr + row).to(tl.int64)
    message = message_ptr + row * row_bytes
    if HAS_OFFSETS:
        message = message_ptr + tl.load(offset_ptr + row)
    out = out_ptr + target * width
    number = tl.arange(0, LENGTH)
    if coded > 0:
        first, second = 0.0, 0.0
        if BITS < 16:
            always = row >= 0
            first = (_get_bytes(message, always, 2) << 16).to(tl.float32, bitcast=True)
            second = (_get_bytes(message + 2, always, 2) << 16).to(tl.float32, bitcast=True)
        if BITS < 8:
            packed = tl.load(message + 4 + number, mask=number < length, other=0).to(tl.uint32)
        for i in tl.static_range(PLANES):
            column = i * length + number
            is_inside = (number < length) & (column < coded)
            if BITS == 16:
                bits = _get_bytes(message + 2 * column, is_inside, 2) << 16
                values = bits.to(tl.float32, bitcast=True)
            else:
                if BITS == 8:
                    code = tl.load(message + 4 + column, mask=is_inside, other=0).to(tl.uint32)
                else:
                    code = (packed >> (BITS * i)) & (2**BITS - 1)
                if BITS == 1:
                    values = tl.where(code != 0, second, first)
                else:
                    values = code.to(tl.float32) * second + first
            _leave(out + column, values, is_inside, weight, ADDS, BLENDS)
    if EXACT > 0:
        tail = tl.arange(0, EXACT)
        is_inside = tail < exact
        bits = _get_bytes(message + header_bytes + code_bytes + 4 * tail, is_inside, 4)
        values = bits.to(tl.float32, bitcast=True)
        _leave(out + width - exact + tail, values, is_inside, weight, ADDS, BLENDS)


def _shape(width: int, exact_columns: int, bits: int) -> dict[str, int]:
    """Return the sizes of a row that both kernels take."""
    coded = width - exact_columns
    planes = {16: 1, 8: 2}.get(bits, 8 // bits)
    length = -(-coded // planes)
    header_bytes = _HEADER_BYTES if coded and bits < _HALF_BITS else 0
    code_bytes = (coded * bits + 7) // 8
    block = triton.next_power_of_2(max(length, 1))
    return {
        "width": width,
        "exact": exact_columns,
        "coded": coded,
        "length": length,
        "row_bytes": header_bytes + code_bytes + 4 * exact_columns,
        "header_bytes": header_bytes,
        "code_bytes": code_bytes,
        "BITS": bits,
        "PLANES": planes,
        "LENGTH": block,
        "EXACT": triton.next_power_of_2(exact_columns) if exact_columns else 0,
        "num_warps": max(1, min(8, block // _WARP_VALUES)),
    }


def _by_bits(
    count: int, bits: int, bits_of_row: Tensor | None
) -> Iterator[tuple[int, int, Tensor | None]]:
    """Yield numbers of bits, how many rows have so many, and which; None for all."""
    if bits_of_row is None:
        yield bits, count, None
        return
    expect("bits", bits_of_row, count)
    for value in torch.unique(bits_of_row).tolist():
        numbers = (bits_of_row == value).nonzero().squeeze(1)
        yield value, len(numbers), numbers


def encode_rows(
    x: Tensor,
    picked: Tensor | None,
    count: int,
    bits: int,
    bits_of_row: Tensor | None,
    offsets: Tensor | None,
    exact_columns: int,
    seed: int | None,
    out: Tensor,
) -> int:
    """Code rows, and return the first that cannot be coded, or -1; waits for the device."""
    _check(count, picked, "picked", len(x), offsets, out)
    if count == 0 or x.shape[1] == 0:
        return -1
    bad = torch.full((1,), _NO_ROW, dtype=torch.int32, device=x.device)
    for each, num_rows, numbers in _by_bits(count, bits, bits_of_row):
        _encode[(num_rows,)](
            x,
            picked,
            numbers,
            offsets,
            mixed_seed(seed or 0),
            bad,
            out,
            IS_RANDOM=seed is not None and 1 < each < _HALF_BITS,
            HAS_PICKED=picked is not None,
            HAS_NUMBERS=numbers is not None,
            HAS_OFFSETS=offsets is not None,
            enable_fp_fusion=False,
            **_shape(x.shape[1], exact_columns, each),
        )
    found = int(bad)
    return -1 if found == _NO_ROW else found


def decode_rows(
    message: Tensor,
    count: int,
    bits: int,
    bits_of_row: Tensor | None,
    offsets: Tensor | None,
    exact_columns: int,
    places: Tensor | None,
    weight: float,
    add: bool,
    out: Tensor,
) -> None:
    """Decode rows to where they belong."""
    _check(count, places, "places", len(out), offsets, message)
    if count == 0 or out.shape[1] == 0:
        return
    if add and places is not None:
        # Rows may repeat: their order is that of `scatter_add_rows`.
        rows = out.new_empty(count, out.shape[1])
        decode_rows(
            message, count, bits, bits_of_row, offsets, exact_columns, None, 1.0, False, rows
        )
        scatter_add_rows(rows, places, out)
        return
    for each, num_rows, numbers in _by_bits(count, bits, bits_of_row):
        _decode[(num_rows,)](
            message,
            numbers,
            offsets,
            places,
            out,
            weight,
            ADDS=add,
            BLENDS=weight != 1 and not add,
            HAS_NUMBERS=numbers is not None,
            HAS_OFFSETS=offsets is not None,
            HAS_PLACES=places is not None,
            enable_fp_fusion=False,
            **_shape(out.shape[1], exact_columns, each),
        )


def _check(
    count: int,
    numbers: Tensor | None,
    name: str,
    num_rows: int,
    offsets: Tensor | None,
    message: Tensor,
) -> None:
    """Check what a kernel would otherwise read or write past."""
    if numbers is not None:
        expect(name, numbers, count)
    elif count > num_rows:
        raise ValueError(f"count must be at most the number of rows, {num_rows}, got {count}")
    if offsets is not None:
        expect("offsets", offsets, count + 1)
        expect("the message", message, int(offsets[-1]))
