"""Norms against plain ones in double precision, and against torch's."""

from __future__ import annotations

import numpy as np
import pytest
import reference
import torch

from distgnn.kernels import norms
from distgnn.kernels.dense import Finish
from distgnn.kernels.norms import Outcome

DTYPES = [torch.float32, torch.float64]
NARROW = torch.bfloat16
# Rows of several slices, and of a chunk that is not full; columns of one tile, less, and more.
SHAPES = [(1, 1), (5, 3), (131, 64), (1200, 7), (700, 130)]


def random(*shape, seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


def dropped(values, row_key, finish):
    kept = reference.dropout(values.double().numpy(), row_key.numpy(), **finish)
    return torch.from_numpy(kept)


def close(got, expected, dtype):
    rtol = {torch.float64: 1e-10, torch.float32: 2e-5, NARROW: 1e-2}[dtype]
    torch.testing.assert_close(got.double(), expected.double(), rtol=rtol, atol=rtol)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("num_rows", "width"), [*SHAPES, (40000, 2)])
def test_moments_keep_their_digits_far_from_zero(num_rows, width, dtype, num_threads):
    del num_threads
    x = random(num_rows, width, dtype=dtype) + 3000 * torch.arange(width).to(dtype)
    mean, deviation = norms.column_moments(x)
    exact = x.double()
    torch.testing.assert_close(mean, exact.mean(dim=0), rtol=1e-6, atol=1e-6)
    squares = (exact - exact.mean(dim=0)).square().sum(dim=0)
    torch.testing.assert_close(deviation, squares, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("out_dtype", [*DTYPES, NARROW])
@pytest.mark.parametrize(("num_rows", "width"), SHAPES[:3])
def test_columns_are_normalised_and_finished(num_rows, width, out_dtype):
    dtype = torch.float64 if out_dtype == torch.float64 else torch.float32
    x, mean = random(num_rows, width, dtype=dtype), random(width, seed=1, dtype=dtype)
    scale, bias = random(width, seed=2, dtype=dtype), random(width, seed=3, dtype=dtype)
    key, drawn = torch.arange(num_rows) * 7, {"seed": 9, "probability": 0.4}
    out = torch.full((num_rows, width), torch.nan, dtype=out_dtype)
    plain = (x.double() - mean) * scale + bias
    norms.normalise_columns(x, mean, scale, out, finish=Finish(bias=bias))
    close(out, plain, out_dtype)
    finish = Finish(bias=bias, has_relu=True, row_key=key, **drawn)
    norms.normalise_columns(x, mean, scale, out, finish=finish)
    close(out, dropped(plain.clamp(min=0), key, drawn), out_dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("num_rows", "width"), SHAPES)
def test_rows_are_normalised_as_torchs(num_rows, width, dtype, num_threads):
    del num_threads
    x, weight = random(num_rows, width, dtype=dtype), random(width, seed=1, dtype=dtype)
    bias, grad = random(width, seed=2, dtype=dtype), random(num_rows, width, seed=3, dtype=dtype)
    leaves = [values.double().clone().requires_grad_() for values in (x, weight, bias)]
    expected = torch.nn.functional.layer_norm(leaves[0], (width,), *leaves[1:], eps=1e-3)
    expected.backward(grad.double())
    out = torch.empty_like(x)
    norms.normalise_rows(x, weight, out, eps=1e-3, finish=Finish(bias=bias))
    close(out, expected.detach(), dtype)
    sums = norms.rows_backward(x, weight, Outcome(grad), out, eps=1e-3)
    for got, leaf in zip((out, sums[1], sums[0]), leaves, strict=True):
        torch.testing.assert_close(got.double(), leaf.grad, rtol=1e-4, atol=2e-4)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("num_counted", [0, 70, 100])
def test_the_gradient_of_columns_is_that_of_rows_that_shaped_statistics(num_counted, dtype):
    x, grad = random(100, 70, dtype=dtype), random(100, 70, seed=1, dtype=dtype)
    passed = random(100, 70, seed=2, dtype=dtype).clamp(min=0)
    mean, rstd = random(70, seed=3, dtype=dtype), random(70, seed=4, dtype=dtype)
    factors = random(3, 70, seed=5, dtype=dtype)
    outcome = Outcome(grad.clone(), passed, 2.5)
    before = torch.where(passed > 0, grad.double() * 2.5, 0)
    sums = norms.column_gradient_sums(x, mean, rstd, outcome)
    along = (before * (x.double() - mean) * rstd).sum(dim=0)
    close(sums, torch.stack([before.sum(dim=0), along]), dtype)
    norms.columns_backward(x, mean, factors, outcome, outcome.grad, num_counted=num_counted)
    expected = before * factors[0]
    expected[:num_counted] -= factors[1] + ((x.double() - mean) * factors[2])[:num_counted]
    close(outcome.grad, expected, dtype)


def test_gradients_in_bfloat16_are_those_of_the_same_values():
    x, weight = random(90, 70), random(70, seed=1)
    grad, passed = random(90, 70, seed=2).to(NARROW), random(90, 70, seed=3).to(NARROW).clamp(min=0)
    factors = random(3, 70, seed=4)
    narrow = Outcome(grad, passed, 1.5)
    wide = Outcome(grad.float(), passed.float(), 1.5)
    found = []
    for outcome in (narrow, wide):
        by_row, by_column = torch.empty_like(x), torch.empty_like(x)
        row_sums = norms.rows_backward(x, weight, outcome, by_row, eps=1e-5)
        sums = norms.column_gradient_sums(x, weight, weight, outcome)
        norms.columns_backward(x, weight, factors, outcome, by_column, num_counted=50)
        found.append([by_row, row_sums, sums, by_column])
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)


def test_a_gradient_is_written_where_it_was_read():
    x, weight, grad = random(90, 70), random(70, seed=1), random(90, 70, seed=2)
    out = torch.empty_like(x)
    sums = norms.rows_backward(x, weight, Outcome(grad), out, eps=1e-5)
    assert torch.equal(norms.rows_backward(x, weight, Outcome(grad), grad, eps=1e-5), sums)
    assert torch.equal(grad, out)


def test_bits_do_not_depend_on_threads(num_threads):
    del num_threads
    x, weight, grad = random(3000, 20), random(20, seed=1), random(3000, 20, seed=2)

    def all_values():
        out = torch.empty_like(x)
        sums = norms.rows_backward(x, weight, Outcome(grad), out, eps=1e-5)
        found = [*norms.column_moments(x), out, sums]
        return [*found, norms.column_gradient_sums(x, weight, weight, Outcome(grad))]

    got = all_values()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    alone = all_values()
    torch.set_num_threads(threads)
    assert all(torch.equal(one, other) for one, other in zip(got, alone, strict=True))


def test_there_may_be_no_rows():
    x, weight = torch.empty(0, 3), torch.ones(3)
    assert not torch.cat(norms.column_moments(x)).any()
    assert not norms.column_gradient_sums(x, weight, weight, Outcome(x)).any()
    assert not norms.rows_backward(x, weight, Outcome(x), x, eps=1e-5).any()
    norms.normalise_columns(x, weight, weight, x, finish=Finish())


def test_a_nan_stays_one():
    x = torch.tensor([[np.nan, 1.0], [2.0, 3.0]])
    mean, deviation = norms.column_moments(x)
    assert mean.isnan().tolist() == deviation.isnan().tolist() == [True, False]
    out = torch.empty_like(x)
    norms.normalise_columns(x, torch.zeros(2), torch.ones(2), out, finish=Finish(has_relu=True))
    assert out.isnan().tolist() == x.isnan().tolist()


def test_what_does_not_fit_is_refused():
    x, row = torch.ones(4, 3), torch.ones(3)
    with pytest.raises(ValueError, match="mean has the wrong length, got 2, expected 3"):
        norms.normalise_columns(x, torch.ones(2), row, x, finish=Finish())
    with pytest.raises(ValueError, match="bias has the wrong length, got 4, expected 3"):
        norms.normalise_rows(x, row, x, eps=1e-5, finish=Finish(bias=torch.ones(4)))
    with pytest.raises(ValueError, match="out has the wrong number of rows, got 5, expected 4"):
        norms.normalise_rows(x, row, torch.ones(5, 3), eps=1e-5, finish=Finish())
    with pytest.raises(ValueError, match="grad has the wrong width, got 2, expected 3"):
        norms.rows_backward(x, row, Outcome(torch.ones(4, 2)), x, eps=1e-5)
    with pytest.raises(ValueError, match="factors has the wrong number of rows, got 2, expected 3"):
        norms.columns_backward(x, row, torch.ones(2, 3), Outcome(x), x, num_counted=4)
    with pytest.raises(ValueError, match="more rows are counted than there are"):
        norms.columns_backward(x, row, torch.ones(3, 3), Outcome(x), x, num_counted=5)
    with pytest.raises(TypeError, match=r"activation must be torch\.bfloat16, got"):
        norms.rows_backward(x, row, Outcome(x.to(NARROW), x), x, eps=1e-5)
    with pytest.raises(
        TypeError, match=r"x must be torch\.float32 or torch\.float64, got torch\.bf"
    ):
        norms.column_moments(x.to(NARROW))
