from __future__ import annotations

import numpy as np
import pytest
import reference
import torch
from fronts import Fronts

from distgnn import kernels

kernels = Fronts(kernels)

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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_factors_of_sources_give_the_bits_of_rows_that_were_multiplied_before(dtype, num_threads):
    del num_threads
    graph = reference.random_csr(300, 90, 4000, seed=8)
    parts = torch.from_numpy(graph.indptr), torch.from_numpy(graph.indices)
    walk = kernels.WalkOrder(*parts, num_sources=90)
    generator = torch.Generator().manual_seed(9)
    computed = torch.promote_types(dtype, torch.float32)
    factor = torch.randn(90, generator=generator, dtype=computed)
    for width in (3, 16, 64, 100):
        x = torch.randn(90, width, generator=generator).to(dtype)
        expected, out = torch.empty(300, width, dtype=computed), torch.empty(300, width)
        out = out.to(computed)
        kernels.spmm_sum(*parts, None, factor[:, None] * x, expected, accumulate=False)
        for order in (None, walk):
            kernels.spmm_sum(
                *parts, None, x, out, accumulate=False, source_factor=factor, order=order
            )
            assert torch.equal(out, expected)


def test_factors_of_sources_that_do_not_fit_are_refused():
    indptr, indices, x = torch.tensor([0, 1]), torch.zeros(1, dtype=torch.int32), torch.ones(2, 4)
    out, ones = torch.empty(1, 4), torch.ones(2)
    with pytest.raises(ValueError, match="source_factor has the wrong length, got 1, expected 2"):
        kernels.spmm_sum(indptr, indices, None, x, out, accumulate=False, source_factor=ones[:1])
    with pytest.raises(ValueError, match="a weight for edges or for sources, not both"):
        kernels.spmm_sum(indptr, indices, ones[:1], x, out, accumulate=False, source_factor=ones)
