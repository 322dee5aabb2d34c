from __future__ import annotations

import numpy as np
import pytest
import reference
import torch

from distgnn import kernels

DTYPES = [torch.float32, torch.float64]


def keep_mask(row_key, width, *, seed, probability=0.5):
    row_key = torch.as_tensor(row_key, dtype=torch.int64)
    out = torch.empty(len(row_key), width)
    kernels.dropout(torch.ones_like(out), row_key, out, seed=seed, probability=probability)
    return out.numpy() != 0


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [1, 7, 16, 33])
@pytest.mark.parametrize("seed", [0, 2**64 - 1])
def test_dropout_has_the_bits_of_the_reference(dtype, width, seed, num_threads):
    row_key = torch.tensor([0, 5, 5, -1, 2**62, -(2**63)])
    x = torch.randn(6, width, generator=torch.Generator().manual_seed(1), dtype=dtype)
    for probability in (0.0, 0.3, 0.999):
        out = torch.full_like(x, torch.nan)
        kernels.dropout(x, row_key, out, seed=seed, probability=probability)
        expected = reference.dropout(x.numpy(), row_key.numpy(), seed=seed, probability=probability)
        np.testing.assert_array_equal(out.numpy(), expected)


def test_a_row_gets_its_mask_wherever_it_stands(num_threads):
    keys = np.random.default_rng(2).permutation(1000)
    by_key = keep_mask(np.arange(1000), 40, seed=3)
    np.testing.assert_array_equal(keep_mask(keys, 40, seed=3), by_key[keys])
    np.testing.assert_array_equal(keep_mask(keys, 9, seed=3), by_key[keys, :9])


def test_stored_entries_meet_the_fate_they_meet_in_the_dense_matrix(num_threads):
    rng = np.random.default_rng(4)
    row, column = np.nonzero(rng.random((300, 70)) < 0.1)
    key = rng.integers(-(2**62), 2**62, 300)
    dense = np.zeros((300, 70), np.float32)
    dense[row, column] = rng.standard_normal(row.size)
    expected, values = np.empty_like(dense), np.empty(row.size, np.float32)
    kernels.dropout(
        *(torch.from_numpy(part) for part in (dense, key, expected)), seed=5, probability=0.4
    )
    arrays = (dense[row, column], key[row], column.astype(np.int32), values)
    kernels.dropout_values(*(torch.from_numpy(part) for part in arrays), seed=5, probability=0.4)
    np.testing.assert_array_equal(values, expected[row, column])


@pytest.mark.parametrize("dtype", DTYPES)
def test_dropout_may_write_over_its_input(dtype):
    x = torch.randn(50, 20, generator=torch.Generator().manual_seed(6), dtype=dtype)
    row_key, out = torch.arange(50), torch.empty_like(x)
    kernels.dropout(x, row_key, out, seed=7, probability=0.5)
    kernels.dropout(x, row_key, x, seed=7, probability=0.5)
    assert torch.equal(x, out)


def test_a_dropped_nan_is_zero():
    out = torch.empty(100, 10)
    x = torch.full_like(out, torch.nan)
    kernels.dropout(x, torch.arange(100), out, seed=8, probability=0.5)
    assert 0 < int((out == 0).sum()) < 1000
    assert int(out.isnan().sum()) == 1000 - int((out == 0).sum())


@pytest.mark.parametrize("probability", [0.01, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("stride", [1, 2, 4096, 2**32, 2**33 + 1])
def test_the_kept_fraction_is_binomial_over_rows_columns_and_all(probability, stride):
    mask = keep_mask(np.arange(4000) * stride, 256, seed=9, probability=probability)
    deviation = np.sqrt(probability * (1 - probability))
    for axis, samples, limit in ((None, mask.size, 4.5), (0, 4000, 5.5), (1, 256, 6.5)):
        scores = (mask.mean(axis) - (1 - probability)) / deviation * np.sqrt(samples)
        assert np.abs(scores).max() < limit


def correlation_score(a, b):
    """Correlation of two masks in standard deviations of independent fair bits."""
    return abs(((a * 2.0 - 1) * (b * 2.0 - 1)).mean()) * np.sqrt(a.size)


@pytest.mark.parametrize("distance", [1, 2, 3, 8, 16, 64, 128])
def test_masks_of_other_rows_columns_and_seeds_are_uncorrelated(distance):
    keys = np.arange(3000)
    mask = keep_mask(keys, 256, seed=10)
    assert correlation_score(mask[:-distance], mask[distance:]) < 4.5
    assert correlation_score(mask[:, :-distance], mask[:, distance:]) < 4.5
    assert correlation_score(mask[:-distance, :-distance], mask[distance:, distance:]) < 4.5
    assert correlation_score(mask, keep_mask(keys, 256, seed=10 + distance)) < 4.5


def test_triples_of_columns_are_equally_often_kept_together():
    """An exclusive or of neighbouring bits, which a linear hash would make constant."""
    mask = keep_mask(np.arange(4000), 256, seed=11)
    parity = mask[:, :-2] ^ mask[:, 1:-1] ^ mask[:, 2:]
    assert abs(parity.mean() - 0.5) * 2 * np.sqrt(parity.size) < 4.5
