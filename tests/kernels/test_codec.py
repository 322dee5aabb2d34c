from __future__ import annotations

import numpy as np
import pytest
import reference
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from distgnn.kernels import codec

WIDTHS = [0, 1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 64, 65, 100, 127, 128, 130, 256, 602]
GRIDS = (8, 4, 2)
SHARE = {8: 2.0**-16, 4: 2.0**-16, 2: 2.0**-9}
"""Largest part that random rounding may add to a mean, in units."""
SLACK = 1e-5


def rows_of(num_rows, width, *, seed=0, offset=0.0, dtype=torch.float32):
    values = np.random.default_rng(seed).standard_normal((num_rows, width)) + offset
    return torch.from_numpy(values.astype(np.float32)).to(dtype)


def encoded(rows, bits, *, picked=None, count=None, seed=None, exact=0):
    picked = None if picked is None else torch.tensor(picked, dtype=torch.int32)
    count = len(rows if picked is None else picked) if count is None else count
    size = codec.row_bytes(rows.shape[1], bits, exact)
    out = torch.full((count, size), 0xAB, dtype=torch.uint8)
    options = {"bits": bits, "exact_columns": exact, "seed": seed}
    codec.encode_rows(rows, picked, count, **options, out=out)
    return out


def decoded(codes, width, bits, *, exact=0, dtype=torch.float32):
    out = torch.full((len(codes), width), torch.nan, dtype=dtype)
    codec.decode_rows(codes, width, bits=bits, exact_columns=exact, out=out)
    return out


def referred(rows, bits, *, seed=None, exact=0):
    """Codes of the plain version, and what it decodes."""
    coded = [
        reference.encode_row(row, bits, row=number, seed=seed, exact=exact)
        for number, row in enumerate(rows.float().numpy())
    ]
    width = rows.shape[1]
    values = [reference.decode_row(code, width, bits, exact=exact) for code in coded]
    return coded, torch.from_numpy(np.array(values, np.float32).reshape(rows.shape))


def unit_of(codes):
    return codes[:, 2:4].clone(memory_format=torch.contiguous_format).view(torch.bfloat16).float()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("seed", [None, 0, 2**64 - 1])
@pytest.mark.parametrize("bits", codec.BITS)
def test_codes_and_values_are_those_of_the_plain_version(bits, seed, dtype):
    for width in WIDTHS:
        for exact in {0, min(1, width), min(5, width), width}:
            rows = rows_of(3, width, seed=width, offset=width % 3, dtype=dtype)
            codes = encoded(rows, bits, seed=seed, exact=exact)
            expected, values = referred(rows, bits, seed=seed, exact=exact)
            assert [code.numpy().tobytes() for code in codes] == expected
            assert torch.equal(decoded(codes, width, bits, exact=exact), values)


@pytest.mark.parametrize("bits", codec.BITS)
def test_any_number_of_threads_gives_the_same_bytes(bits, num_threads):
    rows = rows_of(700, 33)
    picked = np.random.default_rng(1).integers(0, 700, 1500)
    codes = encoded(rows, bits, picked=picked, seed=3, exact=2)
    expected, values = referred(rows[picked][:20], bits, seed=3, exact=2)
    assert [code.numpy().tobytes() for code in codes[:20]] == expected
    assert torch.equal(codes, encoded(rows[picked].contiguous(), bits, seed=3, exact=2))
    assert torch.equal(decoded(codes, 33, bits, exact=2)[:20], values)


@pytest.mark.parametrize("bits", codec.BITS)
def test_the_first_rows_are_coded_where_none_are_picked(bits):
    rows = rows_of(9, 20)
    assert torch.equal(encoded(rows, bits, count=4), encoded(rows[:4], bits))
    assert encoded(rows, bits, count=0).shape == (0, codec.row_bytes(20, bits))


VALUES = st.floats(-(2.0**96), 2.0**96, width=32) | st.floats(-100, 100, width=32)


@given(st.lists(VALUES, min_size=1, max_size=70), st.sampled_from(GRIDS), st.integers(0, 2**64 - 1))
@settings(max_examples=300)
def test_a_value_moves_by_a_unit_at_most_and_by_half_of_one_to_the_nearest(row, bits, seed):
    rows = torch.tensor([row], dtype=torch.float32)
    rounding = rows.abs().max() * 2.0**-22
    for chosen, share in ((seed, 1.0), (None, 0.5)):
        codes = encoded(rows, bits, seed=chosen)
        error = (decoded(codes, len(row), bits) - rows).abs().max()
        assert error <= unit_of(codes)[0] * (share + SLACK) + rounding
        expected, _ = referred(rows, bits, seed=chosen)
        assert codes.numpy().tobytes() == expected[0]
    low, unit = codes[0, :4].clone().view(torch.bfloat16).double()
    exact = rows.double()
    assert low <= exact.min()
    assert low.float() + unit.float() * (2**bits - 1) >= rows.max()
    smallest = max(float(exact.max() - low) / (2**bits - 1), 2.0**-100)
    assert unit == 0 or unit <= smallest * (1 + 2.0**-6)


@pytest.mark.parametrize("offset", [0.0, 50.0, -50.0])
@pytest.mark.parametrize("bits", GRIDS)
def test_rounding_at_random_keeps_the_mean(bits, offset):
    row, times = rows_of(1, 40, offset=offset), 4000
    codes = encoded(row.expand(times, 40).contiguous(), bits, seed=7)
    error = (decoded(codes, 40, bits) - row).double()
    unit = unit_of(codes)[0].item()
    bound = 4 * error.std(0) / times**0.5 + SHARE[bits] * unit + abs(offset) * 2.0**-22
    assert (error.mean(0).abs() <= bound).all()
    assert error.std(0).max() > 0.3 * unit


@pytest.mark.parametrize("bits", GRIDS)
def test_other_seeds_rows_and_columns_are_rounded_by_other_numbers(bits):
    rows = torch.tensor([0.0, 1.0]).repeat(400, 32)
    middle = unit_of(encoded(rows, bits))[0] * 1.5
    rows[:, 2:] = middle
    first, second = (decoded(encoded(rows, bits, seed=seed), 64, bits) for seed in (1, 2))
    is_up = first[:, 2:] > middle
    for other in (second[:, 2:] > middle, is_up.roll(1, 0), is_up.roll(1, 1), is_up.roll(31, 1)):
        assert 0.47 < (is_up == other).double().mean() < 0.53


@pytest.mark.parametrize("seed", [None, 5])
@pytest.mark.parametrize("bits", codec.BITS)
def test_rows_of_one_value_are_kept(bits, seed):
    rows = torch.tensor([0.0, -0.0, 1.0, -3.0, 0.3, -0.3, 2.0**96, 1e-30, -1e-38, 1000.3])
    rows = rows[:, None].expand(-1, 21).contiguous()
    found = decoded(encoded(rows, bits, seed=seed), 21, bits)
    assert torch.equal(found[:4], rows[:4])
    assert ((found - rows).abs() <= rows.abs() * 2.0**-7 + 2.0**-100).all()
    if bits in GRIDS:
        assert not encoded(rows[:1], bits, seed=seed).any()


def test_a_row_whose_unit_would_not_be_finite_has_a_larger_one():
    rows = torch.tensor([[0.0, 1e-40, 1e-38, 3e-38]])
    assert decoded(encoded(rows, 8), 4, 8).abs().max() <= 2.0**-100


def test_one_bit_tells_the_means_on_both_sides_of_the_mean():
    rows = torch.tensor([[1.0, 2.0, 6.0, 7.0, 4.0]])
    codes = encoded(rows, 1)
    assert codes[0, 4:].tolist() == [0b01100]
    found = decoded(codes, 5, 1)
    assert found[0, 2:4].tolist() == [6.5, 6.5]
    assert (found[0, [0, 1, 4]] - 7 / 3).abs().max() < 2.0**-7


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf, 2.0**97])
@pytest.mark.parametrize("bits", codec.BITS)
def test_a_row_that_cannot_be_coded_is_named(bits, value, num_threads):
    rows = rows_of(600, 37)
    rows[577, 36] = rows[301, 0] = rows[590, 17] = value
    message = r"row 301 cannot be coded: it holds a value .* lower the learning rate"
    for picked in (None, np.arange(599, -1, -1)):
        with pytest.raises(ValueError, match=message if picked is None else "row 590 cannot"):
            encoded(rows, bits, picked=picked)
    found = decoded(encoded(rows[301:302], bits, exact=37), 37, bits, exact=37)
    assert torch.equal(found, rows[301:302]) or value != value


@pytest.mark.parametrize("bits", codec.BITS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_decoded_rows_overwrite_or_are_blended_where_they_belong(dtype, bits, num_threads):
    rows, places = rows_of(300, 33), np.random.default_rng(2).permutation(400)[:300]
    codes = encoded(rows, bits, exact=3)
    values = decoded(codes, 33, bits, exact=3)
    for weight in (1.0, 0.3, 0.0):
        start = rows_of(400, 33, seed=4, dtype=dtype)
        expected, out = start.clone(), start.clone()
        old = start[places].float()
        blended = old + np.float32(weight) * (values - old)
        expected[places] = (values if weight == 1 else blended).to(dtype)
        options = {"out": out, "places": torch.from_numpy(places.astype(np.int32))}
        codec.decode_rows(codes, 33, bits=bits, exact_columns=3, weight=weight, **options)
        assert torch.equal(out, expected)


@pytest.mark.parametrize("bits", codec.BITS)
def test_decoded_rows_are_added_in_the_order_of_the_list(bits, num_threads):
    rows, places = rows_of(900, 21), np.random.default_rng(3).integers(0, 400, 900)
    codes = encoded(rows, bits, seed=1, exact=2)
    values = decoded(codes, 21, bits, exact=2)
    start = rows_of(400, 21, seed=5)
    out = start.clone()
    options = {"out": out, "places": torch.from_numpy(places.astype(np.int32)), "add": True}
    codec.decode_rows(codes, 21, bits=bits, exact_columns=2, **options)
    expected = reference.scatter_add_rows(values.numpy(), places, start.numpy())
    assert np.array_equal(out.numpy(), expected)
    out = start[:300].clone()
    codec.decode_rows(codes[:300], 21, bits=bits, exact_columns=2, out=out, add=True)
    assert torch.equal(out, start[:300] + values[:300])


@pytest.mark.parametrize("seed", [None, 9])
def test_rows_may_have_bits_of_their_own(seed, num_threads):
    rows, picked = rows_of(300, 45), torch.from_numpy(np.arange(299, -1, -1, dtype=np.int32))
    chosen = np.random.default_rng(6).choice(codec.BITS, 300)
    bits = torch.from_numpy(chosen.astype(np.uint8))
    offsets = codec.row_offsets(bits, 45, 2)
    out = torch.empty(int(offsets[-1]), dtype=torch.uint8)
    shared = {"bits": bits, "exact_columns": 2, "offsets": offsets}
    codec.encode_rows(rows, picked, 300, seed=seed, out=out, **shared)
    flipped = rows.flip(0).contiguous()
    expected = [
        reference.encode_row(row, int(own), row=number, seed=seed, exact=2)
        for number, (row, own) in enumerate(zip(flipped.numpy(), chosen, strict=True))
    ]
    assert out.numpy().tobytes() == b"".join(expected)
    found = torch.empty(300, 45)
    codec.decode_rows(out, 45, out=found, **shared)
    for own in codec.BITS:
        is_own = torch.from_numpy(chosen == own)
        alone = decoded(encoded(flipped, own, seed=seed, exact=2), 45, own, exact=2)
        assert torch.equal(found[is_own], alone[is_own])


def test_bytes_of_a_row_are_counted():
    assert [codec.row_bytes(256, bits) for bits in codec.BITS] == [512, 260, 132, 68, 36]
    assert codec.row_bytes(7, 4, 2) == 4 + 3 + 8
    assert codec.row_bytes(7, 4, 7) == 28
    assert codec.row_bytes(0, 8) == 0
    assert codec.row_bytes(7, codec.PLAIN_BITS, 2, 2) == 14


def encode(**changes):
    given = {"rows": torch.zeros(3, 8), "picked": None, "count": 3, "bits": 8, "seed": None}
    codec.encode_rows(**(given | {"out": torch.zeros(3, 12, dtype=torch.uint8)} | changes))


def decode(**changes):
    given = {"codes": torch.zeros(3, 12, dtype=torch.uint8), "width": 8, "bits": 8}
    codec.decode_rows(**(given | {"out": torch.zeros(3, 8)} | changes))


OWN = torch.full((3,), 8, dtype=torch.uint8)
WRONG = {
    "bits": (encode, {"bits": 3}, "bits must be one of 16, 8, 4, 2, 1, got 3"),
    "exact": (encode, {"exact_columns": 9}, "exact_columns must be from 0 to the 8 columns"),
    "seed": (encode, {"seed": -1}, r"seed must be in \[0, 2\*\*64\), got -1"),
    "count": (encode, {"count": 4, "out": torch.zeros(4, 12, dtype=torch.uint8)}, "count must be"),
    "picked": (encode, {"picked": torch.zeros(2, dtype=torch.int32)}, "picked has the wrong len"),
    "out": (encode, {"bits": 4}, r"out must have shape \(3, 8\), got \(3, 12\)"),
    "no rows": (encode, {"rows": torch.zeros(0, 8)}, "there are no rows to code"),
    "offsets": (encode, {"offsets": torch.zeros(4, dtype=torch.int64)}, "offsets are for rows wi"),
    "no offsets": (encode, {"bits": OWN}, "rows with bits of their own need offsets; call row_o"),
    "width": (decode, {"width": 9}, "out must have 9 columns, got 8"),
    "codes": (decode, {"codes": torch.zeros(2, 9, dtype=torch.uint8)}, r"codes must have shape"),
    "places": (decode, {"places": torch.zeros(2, dtype=torch.int32)}, "places has the wrong len"),
    "add": (decode, {"add": True, "weight": 0.5}, "weight must be 1 where rows are added, got 0"),
    "bits of rows": (
        encode,
        {"bits": OWN[:2], "offsets": torch.arange(4) * 12, "out": torch.zeros(36).byte()},
        "bits has the wrong length, got 2, expected 3",
    ),
    "length of offsets": (
        encode,
        {"bits": OWN, "offsets": torch.arange(3) * 12, "out": torch.zeros(36).byte()},
        "offsets has the wrong length, got 3, expected 4",
    ),
    "message": (
        encode,
        {"bits": OWN, "offsets": torch.arange(4) * 12, "out": torch.zeros(35).byte()},
        "the message has the wrong number of bytes, got 35, expected 36",
    ),
    "bits in offsets": (
        lambda **given: codec.row_offsets(width=8, **given),
        {"bits": torch.tensor([8, 3], dtype=torch.uint8)},
        "bits must be one of 16, 8, 4, 2, 1, got 3",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_arguments_that_do_not_fit_are_refused(case):
    call, changes, message = WRONG[case]
    with pytest.raises(ValueError, match=message):
        call(**changes)


@pytest.mark.parametrize(
    ("call", "changes", "name"),
    [
        (encode, {"rows": torch.zeros(3, 8, dtype=torch.float64)}, "rows"),
        (decode, {"out": torch.zeros(3, 8, dtype=torch.float64)}, "out"),
        (decode, {"out": torch.zeros(3, 8, dtype=torch.bfloat16), "add": True}, "out"),
        (encode, {"out": torch.zeros(3, 12, dtype=torch.int8)}, "out"),
    ],
)
def test_other_types_are_refused(call, changes, name):
    with pytest.raises(TypeError, match=f"{name} must be torch"):
        call(**changes)
