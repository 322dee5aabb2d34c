from __future__ import annotations

import numpy as np
import pytest
import reference
import torch

from distgnn import kernels

WIDTHS = [1, 2, 3, 4, 5, 7, 15, 16, 17, 33, 63, 100, 130, 602]
CASES = {
    "no rows": (0, 3, 0),
    "no edges": (5, 4, 0),
    "one row": (1, 2, 6),
    "short rows": (90, 40, 120),
    "long rows": (6, 50, 400),
    "several blocks of rows": (700, 300, 2000),
}


def sum_of(graph, weight, x, start=None):
    num_rows = graph.indptr.size - 1
    out = np.full((num_rows, x.shape[1]), np.nan, x.dtype) if start is None else start.copy()
    kernels.spmm_sum(
        torch.from_numpy(graph.indptr),
        torch.from_numpy(graph.indices),
        None if weight is None else torch.from_numpy(weight),
        torch.from_numpy(x),
        torch.from_numpy(out),
        accumulate=start is not None,
    )
    return out


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("is_weighted", [False, True])
def test_sum_has_the_bits_of_the_reference_at_every_width(case, dtype, is_weighted, num_threads):
    num_rows, num_sources, num_edges = CASES[case]
    graph = reference.random_csr(num_rows, num_sources, num_edges, seed=1)
    rng = np.random.default_rng(2)
    weight = rng.standard_normal(num_edges).astype(dtype) if is_weighted else None
    for width in WIDTHS if num_rows < 100 else [16, 33]:
        x = rng.standard_normal((num_sources, width)).astype(dtype)
        expected = reference.spmm_sum(graph, weight, x, np.zeros((num_rows, width), dtype))
        np.testing.assert_array_equal(sum_of(graph, weight, x), expected)


@pytest.mark.parametrize("width", WIDTHS)
def test_accumulate_continues_the_sums_in_out(width):
    graph = reference.random_csr(40, 30, 200, seed=3)
    rng = np.random.default_rng(4)
    x = rng.standard_normal((30, width)).astype(np.float32)
    start = rng.standard_normal((40, width)).astype(np.float32)
    expected = reference.spmm_sum(graph, None, x, start)
    np.testing.assert_array_equal(sum_of(graph, None, x, start), expected)


@pytest.mark.parametrize("width", [16, 47, 64])
@pytest.mark.parametrize("offset", [1, 4, 15])
def test_rows_may_begin_anywhere_on_a_cache_line(width, offset):
    graph = reference.random_csr(200, 90, 1500, seed=6)
    rng = np.random.default_rng(7)
    padded = rng.standard_normal(90 * width + 32).astype(np.float32)
    first = (-padded.ctypes.data // 4) % 16 + offset
    x = padded[first : first + 90 * width].reshape(90, width)
    assert x.ctypes.data % 64 == 4 * offset
    expected = reference.spmm_sum(graph, None, x, np.zeros((200, width), np.float32))
    np.testing.assert_array_equal(sum_of(graph, None, x), expected)


def test_sum_over_no_columns_does_nothing():
    graph = reference.random_csr(4, 4, 8, seed=5)
    assert sum_of(graph, None, np.empty((4, 0), np.float32)).shape == (4, 0)


def test_nan_and_infinity_stay_in_their_column_and_row():
    graph = reference.csr_of(np.array([0, 1, 1]), np.array([0, 0, 1]), 2)
    x = np.zeros((2, 40), np.float32)
    x[0, 3], x[0, 39] = np.nan, np.inf
    total = sum_of(graph, None, x)
    assert np.isnan(total[0, 3])
    assert np.isinf(total[0, 39])
    assert np.count_nonzero(total) == 2
