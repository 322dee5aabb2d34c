"""Dense products against numpy in double precision, and their bits over numbers of threads."""

from __future__ import annotations

import pytest
import torch

from distgnn import kernels
from distgnn.kernels.dense import Factor, Finish, GradientFactor, multiply, multiply_transposed
from distgnn.kernels.tensors import computed

DTYPES = (torch.float32, torch.float64)
SHAPES = ((1, 1, 1), (5, 3, 16), (24, 100, 47), (200, 33, 32), (131, 16, 100), (300, 7, 256))


def random(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def some_rows(count, of, *, seed):
    permuted = torch.randperm(of, generator=torch.Generator().manual_seed(seed))
    return permuted[:count].int()


def close(got, expected):
    torch.testing.assert_close(got.double(), expected, rtol=1e-5, atol=5e-4)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("num_rows", "depth", "width"), SHAPES)
def test_a_product_is_that_of_the_matrices(num_rows, depth, width, dtype):
    x, w = random(num_rows, depth, dtype=dtype), random(width, depth, seed=1, dtype=dtype)
    out = torch.full((num_rows, width), torch.nan, dtype=dtype)
    multiply([Factor(x, w.t())], out)
    close(out, x.double() @ w.double().t())
    again = torch.empty_like(out)
    multiply([Factor(x, w.t().contiguous())], again)
    assert torch.equal(again, out)


@pytest.mark.parametrize("dtype", DTYPES)
def test_two_products_of_picked_rows_are_added_to_picked_rows(dtype):
    x, x2 = random(90, 20, dtype=dtype), random(70, 33, seed=1, dtype=dtype)
    w, w2 = random(20, 50, seed=2, dtype=dtype), random(33, 50, seed=3, dtype=dtype)
    picked, picked2, rows = (some_rows(60, of, seed=of) for of in (90, 70, 100))
    out = random(100, 50, seed=4, dtype=dtype)
    expected = out.double()
    expected[rows.long()] += x.double()[picked.long()] @ w.double()
    expected[rows.long()] += x2.double()[picked2.long()] @ w2.double()
    multiply([Factor(x, w, picked), Factor(x2, w2, picked2)], out, out_rows=rows, accumulate=True)
    close(out, expected)


@pytest.mark.parametrize("probability", [0.0, 0.4])
def test_rows_are_finished_as_by_separate_operations(probability):
    x, w, bias = random(77, 9), random(9, 40, seed=1), random(40, seed=2)
    factor, key = random(77, seed=3), torch.arange(77) * 5
    out, plain = torch.empty(77, 40), torch.empty(77, 40)
    finish = Finish(factor, bias, has_relu=True, row_key=key, seed=8, probability=probability)
    multiply([Factor(x, w)], out, finish=finish)
    multiply([Factor(x, w)], plain)
    plain = torch.relu(plain * factor[:, None] + bias)
    kernels.dropout(plain, key, plain, seed=8, probability=probability)
    assert torch.equal(out, plain)


@pytest.mark.parametrize("dtype", [*DTYPES, torch.bfloat16])
def test_without_factors_rows_are_finished_where_they_lie(dtype):
    out, bias = random(2000, 20).to(dtype), random(20, seed=1).to(computed(dtype))
    factor, key = random(2000, seed=2).to(bias.dtype), torch.arange(2000) * 3
    expected = torch.relu(out.to(bias.dtype) * factor[:, None] + bias)
    kernels.dropout(expected, key, expected, seed=8, probability=0.3)
    finish = Finish(factor, bias, has_relu=True, row_key=key, seed=8, probability=0.3)
    multiply([], out, accumulate=True, finish=finish)
    assert torch.equal(out, expected.to(dtype))
    with pytest.raises(ValueError, match="without factors there is nothing but what is added to"):
        multiply([], out)


@pytest.mark.parametrize("dtype", [*DTYPES, torch.bfloat16])
def test_without_factors_a_gradient_passes_the_activation_and_sums_its_columns(dtype):
    grad, activation = random(3000, 20).to(dtype), random(3000, 20, seed=2).clamp(min=0).to(dtype)
    bias, plain = (torch.empty(20, dtype=computed(dtype)) for _ in range(2))
    same, out = grad.clone(), torch.empty(20, 3, dtype=bias.dtype)
    multiply_transposed([], grad, activation=activation, scale=2.5, bias_gradient=bias)
    factors = [GradientFactor(random(3000, 3).to(dtype), out)]
    multiply_transposed(factors, same, activation=activation, scale=2.5, bias_gradient=plain)
    assert torch.equal(grad, same)
    close(bias, plain.double())


def test_a_product_that_is_not_a_number_stays_so_behind_relu():
    out = torch.empty(1, 2)
    multiply(
        [Factor(torch.tensor([[torch.nan]]), torch.ones(1, 2))], out, finish=Finish(has_relu=True)
    )
    assert out.isnan().all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("num_rows", "depth", "width"), [*SHAPES, (5000, 33, 47), (300, 4, 0)])
def test_the_gradient_of_a_weight_is_a_product_of_transposed_rows(num_rows, depth, width, dtype):
    x, grad = random(num_rows, depth, dtype=dtype), random(num_rows, width, seed=1, dtype=dtype)
    x2 = random(num_rows + 9, 5, seed=2, dtype=dtype)
    picked = some_rows(num_rows, num_rows + 9, seed=3)
    before = grad.clone()
    out, out2 = torch.empty(width, depth, dtype=dtype), torch.empty(width, 5, dtype=dtype)
    bias = torch.empty(width, dtype=dtype)
    factors = [GradientFactor(x, out), GradientFactor(x2, out2, picked)]
    multiply_transposed(factors, grad, bias_gradient=bias)
    assert torch.equal(grad, before)
    close(out, grad.double().t() @ x.double())
    close(out2, grad.double().t() @ x2.double()[picked.long()])
    close(bias, grad.double().sum(dim=0))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("depth", [3, 53, 256])
def test_columns_of_a_gradient_do_not_depend_on_how_many_there_are(depth, dtype):
    x, grad = random(320, depth, dtype=dtype), random(300, 80, seed=1, dtype=dtype)
    picked = some_rows(300, 320, seed=2)
    out, few = torch.empty(80, depth, dtype=dtype), torch.empty(21, depth, dtype=dtype)
    multiply_transposed([GradientFactor(x, out, picked)], grad)
    multiply_transposed([GradientFactor(x, few, picked)], grad[:, :21].contiguous())
    assert torch.equal(few, out[:21])


def test_a_gradient_passes_the_activation_in_place():
    x, grad = random(300, 6), random(300, 20, seed=1)
    activation = random(300, 20, seed=2).clamp(min=0)
    expected = torch.where(activation > 0, grad * 2.5, 0)
    out, plain = torch.empty(20, 6), torch.empty(20, 6)
    multiply_transposed([GradientFactor(x, out)], grad, activation=activation, scale=2.5)
    assert torch.equal(grad, expected)
    multiply_transposed([GradientFactor(x, plain)], expected)
    assert torch.equal(out, plain)


def test_products_have_the_same_bits_for_any_number_of_threads(num_threads):
    del num_threads
    x, w, grad = random(4000, 40), random(40, 24, seed=1), random(4000, 24, seed=2)
    out, gradient = torch.empty(4000, 24), torch.empty(24, 40)
    multiply([Factor(x, w)], out)
    multiply_transposed([GradientFactor(x, gradient)], grad)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    alone, gradient_alone = torch.empty_like(out), torch.empty_like(gradient)
    multiply([Factor(x, w)], alone)
    multiply_transposed([GradientFactor(x, gradient_alone)], grad)
    torch.set_num_threads(threads)
    assert torch.equal(out, alone)
    assert torch.equal(gradient, gradient_alone)


def test_nothing_is_multiplied_where_there_are_no_rows():
    out, gradient, bias = torch.empty(0, 3), torch.empty(3, 2), torch.empty(3)
    multiply([Factor(torch.empty(0, 2), torch.ones(2, 3))], out)
    factors = [GradientFactor(torch.empty(0, 2), gradient)]
    multiply_transposed(factors, torch.empty(0, 3), bias_gradient=bias)
    assert not gradient.any()
    assert not bias.any()


def test_shapes_that_do_not_fit_are_refused():
    x, w, out = torch.ones(4, 3), torch.ones(3, 2), torch.ones(4, 2)
    with pytest.raises(ValueError, match="panels has the wrong length, got 64, expected 48"):
        multiply([Factor(x, torch.ones(4, 2))], out)
    with pytest.raises(ValueError, match="out has the wrong number of rows, got 5, expected 4"):
        multiply([Factor(x, w)], torch.ones(5, 2))
    with pytest.raises(ValueError, match="a factor has the wrong number of rows, got 3, expected"):
        multiply([Factor(x, w), Factor(torch.ones(3, 3), w)], out)
    with pytest.raises(ValueError, match="bias has the wrong length, got 3, expected 2"):
        multiply([Factor(x, w)], out, finish=Finish(bias=torch.ones(3)))
    with pytest.raises(ValueError, match="a gradient has the wrong width, got 4, expected 3"):
        multiply_transposed([GradientFactor(x, torch.ones(2, 4))], out)
    with pytest.raises(TypeError, match=r"picked must be torch\.int32, got torch\.int64"):
        multiply([Factor(x, w, torch.zeros(4).long())], out)


@pytest.mark.parametrize("dtype", [*DTYPES, torch.bfloat16])
def test_a_product_may_take_the_place_of_its_rows(dtype, num_threads):
    del num_threads
    x, x2 = random(700, 40).to(dtype), random(700, 9, seed=1).to(dtype)
    computed = torch.promote_types(dtype, torch.float32)
    w, w2 = random(40, 40, seed=2, dtype=computed), random(9, 40, seed=3, dtype=computed)
    bias = random(40, seed=4, dtype=computed)
    out = torch.empty_like(x)
    for first in (True, False):
        place = x.clone()
        factors = [Factor(place, w), Factor(x2, w2)][:: 1 if first else -1]
        multiply([f if f.x is x2 else Factor(x, w) for f in factors], out, finish=Finish(bias=bias))
        multiply(factors, place, finish=Finish(bias=bias))
        assert torch.equal(place, out)


def test_a_place_that_would_be_read_after_it_was_written_is_refused():
    x, w, picked = torch.ones(4, 3), torch.ones(3, 3), torch.zeros(4, dtype=torch.int32)
    message = "out is a factor, whose rows must neither be picked nor added to"
    with pytest.raises(ValueError, match=message):
        multiply([Factor(x, w, picked)], x)
    with pytest.raises(ValueError, match=message):
        multiply([Factor(x, w)], x, out_rows=picked)
    with pytest.raises(ValueError, match=message):
        multiply([Factor(x, w)], x, accumulate=True)
    with pytest.raises(ValueError, match="out is a factor of another width, got 6, expected 3"):
        multiply([Factor(x.view(2, 6), torch.ones(6, 3))], x[:2])
