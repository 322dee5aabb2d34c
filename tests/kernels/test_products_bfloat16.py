"""Dense products of rows that are stored as bfloat16: those of the same values in float32."""

from __future__ import annotations

import pytest
import torch

from distgnn import _kernels, kernels
from distgnn.products import Factor, Finish, GradientFactor, multiply, multiply_transposed

NARROW = torch.bfloat16
SHAPES = ((1, 1, 1), (5, 3, 16), (24, 100, 47), (200, 33, 32), (131, 16, 100), (300, 7, 256))


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def some_rows(count, of, *, seed):
    permuted = torch.randperm(of, generator=torch.Generator().manual_seed(seed))
    return permuted[:count].int()


@pytest.mark.parametrize(("num_rows", "depth", "width"), SHAPES)
def test_rows_are_widened_and_results_rounded_once(num_rows, depth, width, num_threads):
    del num_threads
    x, w = random(num_rows, depth).bfloat16(), random(width, depth, seed=1).t()
    expected = torch.empty(num_rows, width)
    multiply([Factor(x.float(), w)], expected)
    for rows in (x, x.float()):
        for dtype in (torch.float32, NARROW):
            out = torch.full((num_rows, width), torch.nan, dtype=dtype)
            multiply([Factor(rows, w)], out)
            assert torch.equal(out, expected.to(dtype))


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("is_second_narrow", [False, True])
def test_picked_rows_of_two_factors_are_finished_as_in_float32(is_second_narrow, accumulate):
    x, x2 = random(90, 20).bfloat16(), random(70, 33, seed=1).bfloat16()
    w, w2 = random(20, 50, seed=2), random(33, 50, seed=3)
    picked, picked2, out_rows = (some_rows(60, of, seed=of) for of in (90, 70, 100))
    finish = Finish(
        random(60, seed=5), random(50, seed=6), True, torch.arange(60) * 5, seed=8, probability=0.4
    )
    out = random(100, 50, seed=4).bfloat16()
    wide = out.float()
    options = {"out_rows": out_rows, "accumulate": accumulate, "finish": finish}
    second = x2 if is_second_narrow else x2.float()
    multiply([Factor(x, w, picked), Factor(second, w2, picked2)], out, **options)
    multiply([Factor(x.float(), w, picked), Factor(x2.float(), w2, picked2)], wide, **options)
    assert torch.equal(out, wide.bfloat16())


@pytest.mark.parametrize(("num_rows", "depth", "width"), [*SHAPES, (5000, 33, 47)])
def test_gradients_are_those_of_the_same_values_in_float32(num_rows, depth, width, num_threads):
    del num_threads
    x, grad = random(num_rows, depth).bfloat16(), random(num_rows, width, seed=1).bfloat16()
    x2 = random(num_rows + 9, 5, seed=2).bfloat16()
    picked = some_rows(num_rows, num_rows + 9, seed=3)

    def gradients(x, x2, grad):
        found = torch.empty(width, depth), torch.empty(width, 5), torch.empty(width)
        factors = [GradientFactor(x, found[0]), GradientFactor(x2, found[1], picked)]
        multiply_transposed(factors, grad, bias_gradient=found[2])
        return found

    expected = gradients(x.float(), x2.float(), grad.float())
    for rows, rows2, narrow_grad in ((x, x2, grad), (x, x2.float(), grad.float()), (x, x2, grad)):
        for one, other in zip(gradients(rows, rows2, narrow_grad), expected, strict=True):
            assert torch.equal(one, other)


@pytest.mark.parametrize("scale", [1.0, 2.5])
def test_the_activation_passes_over_a_gradient_that_is_rounded_again(scale):
    x, grad = random(300, 6), random(300, 20, seed=1).bfloat16()
    activation = random(300, 20, seed=2).clamp(min=0).bfloat16()
    expected = torch.where(activation > 0, grad.float() * scale, 0).bfloat16()
    out, plain = torch.empty(20, 6), torch.empty(20, 6)
    multiply_transposed([GradientFactor(x, out)], grad, activation=activation, scale=scale)
    assert torch.equal(grad, expected)
    multiply_transposed([GradientFactor(x, plain)], expected.float())
    assert torch.equal(out, plain)


def test_a_product_of_nothing_that_is_stored_as_bfloat16_is_empty():
    out = torch.empty(0, 3, dtype=NARROW)
    multiply([Factor(torch.empty(0, 2, dtype=NARROW), torch.ones(2, 3))], out)
    gradient = torch.empty(3, 2)
    multiply_transposed([GradientFactor(torch.empty(0, 2, dtype=NARROW), gradient)], out)
    assert not gradient.any()


def test_types_that_do_not_go_together_are_refused():
    x, w, out = torch.ones(4, 3, dtype=NARROW), torch.ones(3, 2), torch.ones(4, 2)
    with pytest.raises(TypeError, match=r"x must be torch\.float64, got torch\.bfloat16"):
        multiply([Factor(x, w.double())], out)
    with pytest.raises(TypeError, match=r"out must be torch\.float32, got torch\.float64"):
        multiply([Factor(x, w)], out.double())
    with pytest.raises(TypeError, match=r"matrix must be .*float32 .*, got torch\.bfloat16"):
        multiply([Factor(x, w.bfloat16())], out)
    with pytest.raises(TypeError, match=r"activation must be torch\.float32, got torch\.bfloat16"):
        multiply_transposed([GradientFactor(x, w.t().contiguous())], out, activation=x[:, :2])


def test_the_compiled_functions_check_types_and_workspaces_themselves():
    x, panels, out = (torch.ones(*shape).numpy() for shape in ((4, 3), (48,), (4, 2)))
    options = dict.fromkeys(("out_rows", "row_factor", "bias", "row_key"))
    options |= {"accumulate": False, "has_relu": False, "seed": 0, "probability": 0.0}

    def call(x, out, workspace=None):
        more = (None, None, None, out)
        return _kernels.multiply(x, None, panels, *more, **options, workspace=workspace)

    assert call(x, out) == 0
    more = (None, None, None, out.astype("float64"))
    panels64 = torch.ones(24, dtype=torch.float64).numpy()
    with pytest.raises(TypeError, match="rows of bfloat16 go with float32 only"):
        _kernels.multiply(x.astype("int16"), None, panels64, *more, **options, workspace=None)
    size = call(x.astype("int16"), out)
    assert size > 0
    with pytest.raises(ValueError, match=f"workspace has the wrong length, got 1, expected {size}"):
        call(x.astype("int16"), out, torch.ones(1).numpy())
    with pytest.raises(TypeError, match="activation is of another type than grad"):
        _kernels.multiply_transposed(
            *(x, None, torch.ones(2, 3).numpy(), None, None, None, out),
            activation=out.astype("int16"),
            scale=1.0,
            bias=None,
            workspace=None,
        )


@pytest.mark.parametrize("stored", [torch.float32, NARROW])
def test_dropout_draws_the_same_mask_for_bfloat16_and_rounds_once(stored, num_threads):
    del num_threads
    x, key = random(200, 37).bfloat16(), torch.arange(200) * 3
    wide, out = torch.empty(200, 37), torch.empty(200, 37, dtype=NARROW)
    kernels.dropout(x.float(), key, wide, seed=5, probability=0.3)
    kernels.dropout(x.to(stored), key, out, seed=5, probability=0.3)
    assert torch.equal(out, wide.bfloat16())
    with pytest.raises(TypeError, match=r"out must be torch\.bfloat16, got torch\.float32"):
        kernels.dropout(x, key, wide, seed=5, probability=0.3)
