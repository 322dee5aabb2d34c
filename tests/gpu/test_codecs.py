"""Codecs on a CUDA device, or in Triton's interpreter, against the plain version, byte by byte."""

from __future__ import annotations

import numpy as np
import pytest
import reference
import torch
from on_device import put

from distgnn.kernels import codec

WIDTHS = [1, 33]


def rows_of(num_rows, width, *, seed=0, dtype=torch.float32):
    values = np.random.default_rng(seed).standard_normal((num_rows, width)) * 3 + seed
    return torch.from_numpy(values.astype(np.float32)).to(dtype)


def encoded(device, rows, bits, *, picked=None, seed=None, exact=0):
    count = len(rows) if picked is None else len(picked)
    size = codec.row_bytes(rows.shape[1], bits, exact)
    out = torch.full((count, size), 0xAB, dtype=torch.uint8, device=device)
    (numbers,) = put(device, picked)
    options = {"bits": bits, "exact_columns": exact, "seed": seed}
    codec.encode_rows(rows.to(device), numbers, count, **options, out=out)
    return out


def referred(rows, bits, *, seed=None, exact=0):
    coded = [
        reference.encode_row(row, bits, row=number, seed=seed, exact=exact)
        for number, row in enumerate(rows.float().numpy())
    ]
    width = rows.shape[1]
    values = [reference.decode_row(code, width, bits, exact=exact) for code in coded]
    return b"".join(coded), torch.from_numpy(np.array(values, np.float32).reshape(rows.shape))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("seed", [None, 2**64 - 1])
@pytest.mark.parametrize("bits", codec.BITS)
def test_codes_are_those_of_the_processor(bits, seed, dtype, device):
    for width in WIDTHS:
        for exact in {0, min(3, width)}:
            rows, picked = (
                rows_of(4, width, seed=width % 3, dtype=dtype),
                np.array([3, 0], np.int32),
            )
            codes = encoded(device, rows, bits, picked=picked, seed=seed, exact=exact)
            expected, values = referred(rows[picked], bits, seed=seed, exact=exact)
            assert codes.cpu().numpy().tobytes() == expected
            out = torch.empty(2, width, device=device)
            codec.decode_rows(codes, width, bits=bits, exact_columns=exact, out=out)
            assert torch.equal(out.cpu(), values)


@pytest.mark.parametrize("bits", codec.BITS)
def test_rows_of_one_value_are_those_of_the_processor(bits, device):
    values = [0.0, -0.0, 1.0, 0.3, -0.3, 2.0**96, 1e-30]
    rows = torch.tensor(values)[:, None].expand(-1, 9).contiguous()
    codes = encoded(device, rows, bits, seed=1)
    assert codes.cpu().numpy().tobytes() == referred(rows, bits, seed=1)[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bits", [16, 4, 1])
def test_decoded_rows_overwrite_are_blended_or_added(bits, dtype, device):
    codes = encoded(device, rows_of(5, 21), bits, exact=2)
    _, values = referred(rows_of(5, 21), bits, exact=2)
    where = np.array([7, 2, 0, 5, 1], np.int32)
    (places,) = put(device, where)
    for weight in (1.0, 0.25):
        start = rows_of(9, 21, seed=4, dtype=dtype)
        out, expected, old = start.to(device), start.clone(), start[where].float()
        shared = {"bits": bits, "exact_columns": 2, "out": out}
        codec.decode_rows(codes, 21, places=places, weight=weight, **shared)
        expected[where] = (values if weight == 1 else old + weight * (values - old)).to(dtype)
        assert torch.equal(out.cpu(), expected)
    start = rows_of(9, 21, seed=5)
    where = np.array([7, 2, 7, 7, 2], np.int32)
    (places,) = put(device, where)
    total = start.clone().to(device)
    codec.decode_rows(codes, 21, bits=bits, exact_columns=2, out=total, places=places, add=True)
    expected = reference.scatter_add_rows(values.numpy(), where, start.numpy())
    np.testing.assert_allclose(total.cpu().numpy(), expected, rtol=1e-6, atol=1e-6)
    total = start.clone().to(device)
    codec.decode_rows(codes, 21, bits=bits, exact_columns=2, out=total, add=True)
    assert torch.equal(total[:5].cpu(), start[:5] + values)


def test_rows_may_have_bits_of_their_own(device):
    rows, chosen = rows_of(6, 19), np.array([8, 1, 16, 2, 4, 8], np.uint8)
    (bits,) = put(device, chosen)
    offsets = codec.row_offsets(bits, 19, 2)
    out = torch.empty(int(offsets[-1]), dtype=torch.uint8, device=device)
    shared = {"bits": bits, "exact_columns": 2, "offsets": offsets}
    codec.encode_rows(rows.to(device), None, 6, seed=3, out=out, **shared)
    expected = [
        reference.encode_row(row, int(own), row=number, seed=3, exact=2)
        for number, (row, own) in enumerate(zip(rows.numpy(), chosen, strict=True))
    ]
    assert out.cpu().numpy().tobytes() == b"".join(expected)
    found = torch.empty(6, 19, device=device)
    codec.decode_rows(out, 19, out=found, **shared)
    values = [
        reference.decode_row(code, 19, int(own), exact=2)
        for code, own in zip(expected, chosen, strict=True)
    ]
    assert np.array_equal(found.cpu().numpy(), np.array(values))


@pytest.mark.parametrize("value", [torch.nan, -torch.inf, 2.0**97])
@pytest.mark.parametrize("bits", codec.BITS)
def test_a_row_that_cannot_be_coded_is_named(bits, value, device):
    rows = rows_of(6, 20)
    rows[5, 0] = rows[3, 19] = value
    with pytest.raises(ValueError, match="row 3 cannot be coded: it holds a value that is NaN"):
        encoded(device, rows, bits)


def test_more_rows_than_there_are_are_refused(device):
    rows, out = torch.zeros(6, 4, device=device), torch.empty(7, 8, dtype=torch.uint8).to(device)
    with pytest.raises(ValueError, match="count must be at most the number of rows, 6, got 7"):
        codec.encode_rows(rows, None, 7, bits=8, seed=None, out=out)
