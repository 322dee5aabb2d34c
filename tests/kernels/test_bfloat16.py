from __future__ import annotations

import numpy as np
import pytest
import reference
import torch
from fronts import Fronts

from distgnn import kernels

kernels = Fronts(kernels)

WIDTHS = [1, 3, 7, 16, 17, 33, 100, 602]


def bfloat16(rng, shape):
    """Random bfloat16 rows, and the same values in float32."""
    values = torch.from_numpy(rng.standard_normal(shape).astype(np.float32)).bfloat16()
    return values, values.float().numpy()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("is_weighted", [False, True])
def test_rows_stored_as_bfloat16_are_summed_in_float32(width, is_weighted, num_threads):
    graph = reference.random_csr(30, 20, 300, seed=1)
    rng = np.random.default_rng(2)
    x, wide = bfloat16(rng, (20, width))
    weight = rng.standard_normal(300).astype(np.float32) if is_weighted else None
    expected = reference.spmm_sum(graph, weight, wide, np.zeros((30, width), np.float32))
    for dtype in (torch.float32, torch.bfloat16):
        out = torch.full((30, width), torch.nan, dtype=dtype)
        kernels.spmm_sum(
            torch.from_numpy(graph.indptr),
            torch.from_numpy(graph.indices),
            None if weight is None else torch.from_numpy(weight),
            x,
            out,
            accumulate=False,
        )
        rounded = reference.round_to_bfloat16(expected) if dtype == torch.bfloat16 else expected
        np.testing.assert_array_equal(out.float().numpy(), rounded)


def test_a_sum_is_rounded_once_even_where_a_walk_order_cuts_rows():
    rng = np.random.default_rng(3)
    rows = np.repeat(np.arange(5000), 40)
    graph = reference.csr_of(rng.integers(0, 5000, rows.size), rows, 5000)
    parts = (torch.from_numpy(graph.indptr), torch.from_numpy(graph.indices))
    walk = kernels.WalkOrder(*parts, num_sources=5000)
    assert walk.describe()["is_cut"]
    x, _ = bfloat16(rng, (5000, 16))
    plain, ordered = torch.empty_like(x), torch.empty_like(x)
    kernels.spmm_sum(*parts, None, x, plain, accumulate=False)
    kernels.spmm_sum(*parts, None, x, ordered, accumulate=False, order=walk)
    assert torch.equal(plain, ordered)


def test_rounding_is_that_of_torch():
    """Ties, values that round up to infinity, subnormal ones, infinities and NaN."""
    bits = np.arange(0, 2**32, 32749, dtype=np.uint64).astype(np.uint32)
    ties = (np.arange(0, 2**16, 7, dtype=np.uint32) << 16) | 0x8000
    values = torch.from_numpy(np.concatenate([bits, ties]).view(np.float32).copy())[:, None]
    num_rows = values.shape[0]
    exact = (values - values.bfloat16().float()).bfloat16()
    x = torch.cat([values.bfloat16(), exact])
    indptr = torch.arange(0, 2 * num_rows + 1, 2)
    indices = torch.stack([torch.arange(num_rows), torch.arange(num_rows) + num_rows], 1)
    wide, half = torch.empty(num_rows, 1), torch.empty(num_rows, 1, dtype=torch.bfloat16)
    for out in (wide, half):
        kernels.spmm_sum(indptr, indices.flatten().int(), None, x, out, accumulate=False)
    expected = wide.bfloat16()
    is_nan = expected.isnan()
    assert torch.equal(half.isnan(), is_nan)
    assert torch.equal(half[~is_nan], expected[~is_nan])


def test_bfloat16_goes_with_float32_weights_only():
    indptr, indices = torch.tensor([0, 1]), torch.zeros(1, dtype=torch.int32)
    x = torch.zeros(1, 2, dtype=torch.bfloat16)
    with pytest.raises(TypeError, match=r"weight must be torch\.float32, got torch\.bfloat16"):
        kernels.spmm_sum(indptr, indices, x[0, :1], x, x.clone(), accumulate=False)
    with pytest.raises(TypeError, match=r"out must be torch\.float32, got torch\.float64"):
        kernels.spmm_sum(indptr, indices, None, x, x.double(), accumulate=False)


@pytest.mark.parametrize("width", WIDTHS)
def test_rows_of_bfloat16_are_gathered_and_added_to_float32(width, num_threads):
    rng = np.random.default_rng(4)
    rows = rng.integers(0, 40, 300).astype(np.int32)
    x, wide = bfloat16(rng, (300, width))
    start = rng.standard_normal((40, width)).astype(np.float32)
    out = torch.from_numpy(start.copy())
    kernels.scatter_add_rows(x, torch.from_numpy(rows), out)
    np.testing.assert_array_equal(out.numpy(), reference.scatter_add_rows(wide, rows, start))
    packed = torch.empty_like(x)
    kernels.gather_rows(x[:40].contiguous(), torch.from_numpy(rows), packed)
    assert torch.equal(packed, x[:40][rows])
