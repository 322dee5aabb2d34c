from __future__ import annotations

import numpy as np
import pytest
import reference
import torch

from distgnn import kernels

WIDTHS = [1, 3, 5, 7, 16, 17, 33, 64, 100, 130]
ROWS = {
    "no rows": np.empty(0, np.int32),
    "one row often": np.full(500, 3, np.int32),
    "distinct rows": np.random.default_rng(0).permutation(400)[:300].astype(np.int32),
    "repeated rows": np.random.default_rng(1).integers(0, 400, 900).astype(np.int32),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("case", ROWS)
def test_gather_copies_the_listed_rows(case, dtype, num_threads):
    rows = ROWS[case]
    rng = np.random.default_rng(2)
    for width in WIDTHS:
        x = rng.standard_normal((400, width)).astype(dtype)
        out = torch.full((rows.size, width), torch.nan, dtype=torch.from_numpy(x).dtype)
        kernels.gather_rows(torch.from_numpy(x), torch.from_numpy(rows), out)
        np.testing.assert_array_equal(out.numpy(), x[rows])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("case", ROWS)
def test_scatter_adds_repeated_rows_in_the_order_of_the_list(case, dtype, num_threads):
    rows = ROWS[case]
    rng = np.random.default_rng(3)
    for width in WIDTHS:
        x = rng.standard_normal((rows.size, width)).astype(dtype)
        start = rng.standard_normal((400, width)).astype(dtype)
        out = torch.from_numpy(start.copy())
        kernels.scatter_add_rows(torch.from_numpy(x), torch.from_numpy(rows), out)
        expected = reference.scatter_add_rows(x, rows, start)
        np.testing.assert_array_equal(out.numpy(), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_rows_are_scaled_and_rounded_once(dtype, num_threads):
    for width in WIDTHS:
        x = torch.randn(300, width, generator=torch.Generator().manual_seed(4)).to(dtype)
        factor = torch.randn(300, dtype=torch.promote_types(dtype, torch.float32))
        expected = factor[:, None] * x
        outputs = {dtype, torch.bfloat16} if dtype == torch.float32 else {dtype}
        for stored in outputs:
            out = torch.empty(300, width, dtype=stored)
            kernels.scale_rows(x, factor, out)
            assert torch.equal(out, expected.to(stored))
        kernels.scale_rows(x, factor, x)
        assert torch.equal(x, expected.to(dtype))
    with pytest.raises(ValueError, match="factor has the wrong length, got 299, expected 300"):
        kernels.scale_rows(x, factor[1:], x)


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("case", ["no rows", "distinct rows"])
def test_blending_moves_the_listed_rows_and_no_others(case, dtype, weight, num_threads):
    rows = ROWS[case]
    rng = np.random.default_rng(4)
    for width in WIDTHS:
        x = rng.standard_normal((rows.size, width)).astype(dtype)
        start = rng.standard_normal((400, width)).astype(dtype)
        out = torch.from_numpy(start.copy())
        kernels.blend_rows(torch.from_numpy(x), torch.from_numpy(rows), out, weight=weight)
        expected = start.copy()
        expected[rows] += dtype(weight) * (x - start[rows])
        tolerance = 0 if weight == 0 else 4 * np.finfo(dtype).eps
        np.testing.assert_allclose(out.numpy(), expected, rtol=tolerance, atol=4 * tolerance)


def test_blending_with_weight_1_copies_bits_whatever_they_mean():
    rows = torch.tensor([2, 0], dtype=torch.int32)
    x = torch.tensor([[2**62 + 1], [-1]])
    out = torch.zeros(4, 1, dtype=torch.int64)
    moved = [each.view(torch.float64) for each in (x, out)]
    kernels.blend_rows(moved[0], rows, moved[1], weight=1)
    assert out[:, 0].tolist() == [-1, 0, 2**62 + 1, 0]


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_blended_rows_of_bfloat16_are_rounded_once(weight, num_threads):
    rows = torch.from_numpy(ROWS["distinct rows"])
    generator = torch.Generator().manual_seed(5)
    x, out = (torch.randn(size, 33, generator=generator).bfloat16() for size in (len(rows), 400))
    old = out[rows.long()].float()
    expected = (old + np.float32(weight) * (x.float() - old)).bfloat16()
    kernels.blend_rows(x, rows, out, weight=weight)
    assert torch.equal(out[rows.long()], expected)
