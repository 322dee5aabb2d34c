"""Dense products of rows that are stored as bfloat16: those of the same values in float32.

Where all rows are, matrices are rounded, too, and terms are added in pairs, the second of each
first. The result is that of float32 rows whose columns were swapped pair by pair. In gradients
their rows were.
"""

from __future__ import annotations

import pytest
import torch

from distgnn import _kernels, kernels
from distgnn.kernels.dense import Factor, Finish, GradientFactor, multiply, multiply_transposed

NARROW = torch.bfloat16
SHAPES = ((1, 1, 1), (5, 3, 16), (24, 100, 47), (200, 33, 32), (131, 16, 100), (300, 7, 256))


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def some_rows(count, of, *, seed):
    permuted = torch.randperm(of, generator=torch.Generator().manual_seed(seed))
    return permuted[:count].int()


def in_pairs(count):
    """Numbers below count, the second of each pair first."""
    swapped = torch.arange(count) ^ 1
    return torch.where(swapped < count, swapped, count - 1)


def as_pairs(x, w):
    """The factor in float32 that adds up what a product in pairs does."""
    order = in_pairs(x.shape[1])
    return x.float()[:, order].contiguous(), w.bfloat16().float()[order].contiguous()


@pytest.mark.parametrize(("num_rows", "depth", "width"), SHAPES)
def test_results_are_rounded_once(num_rows, depth, width, num_threads):
    del num_threads
    x, w = random(num_rows, depth).bfloat16(), random(width, depth, seed=1).t()
    for factor, same in ((Factor(x, w), Factor(*as_pairs(x, w))), (Factor(x.float(), w),) * 2):
        expected = torch.empty(num_rows, width)
        multiply([same], expected)
        for dtype in (torch.float32, NARROW):
            out = torch.full((num_rows, width), torch.nan, dtype=dtype)
            multiply([factor], out)
            assert torch.equal(out, expected.to(dtype))


def test_a_product_in_pairs_is_that_of_rounded_matrices():
    x, w = random(70, 133).bfloat16(), random(133, 40, seed=1)
    out = torch.empty(70, 40)
    multiply([Factor(x, w)], out)
    expected = x.double() @ w.bfloat16().double()
    torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=1e-4)


def test_what_is_too_small_to_be_normal_counts_as_nothing_in_pairs():
    x = torch.tensor([[1e-20, 1.0], [1e-40, 1.0]]).bfloat16()
    w = torch.tensor([[1e-20, 1e30], [0.0, 0.0]])
    out = torch.empty(2, 2)
    multiply([Factor(x, w)], out)
    assert out[:, 0].tolist() == [0.0, 0.0]
    assert out[1, 1] == 0
    multiply([Factor(x.float(), w)], out)
    assert out[0, 0] > 0
    assert out[1, 1] > 0


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
    same, same2 = (x.float(), w), (x2.float(), w2)
    if is_second_narrow:
        same, same2 = as_pairs(x, w), as_pairs(x2, w2)
    multiply([Factor(*same, picked), Factor(*same2, picked2)], wide, **options)
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
    for rows, rows2, any_grad in ((x, x2.float(), grad.float()), (x, x2.float(), grad)):
        for one, other in zip(gradients(rows, rows2, any_grad), expected, strict=True):
            assert torch.equal(one, other)
    # In pairs: the same sums, but for the order of terms, and the bias as it was.
    order = in_pairs(num_rows)
    picked = picked[order]
    same = gradients(x.float()[order].contiguous(), x2.float(), grad.float()[order].contiguous())
    picked = picked[order]
    found = gradients(x, x2, grad)
    for one, other in zip(found, [*same[:2], expected[2]], strict=True):
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

    def call(x, out, workspace=None, panels=panels):
        more = (None, None, None, out)
        return _kernels.multiply(x, None, panels, *more, **options, workspace=workspace)

    assert call(x, out) == 0
    more = (None, None, None, out.astype("float64"))
    panels64 = torch.ones(24, dtype=torch.float64).numpy()
    how = {"is_transposed": False, "is_paired": True}
    narrow_panels = torch.ones(_kernels.pack_panels(torch.ones(3, 2).numpy(), None, **how)).numpy()
    with pytest.raises(ValueError, match="panels has the wrong length, got 1, expected"):
        _kernels.pack_panels(x, panels[:1], **how)
    with pytest.raises(TypeError, match="rows of bfloat16 go with float32 only"):
        _kernels.multiply(x.astype("int16"), None, panels64, *more, **options, workspace=None)
    rows = (x.astype("int16"), out)
    size = call(*rows, panels=narrow_panels)
    assert size > 0
    with pytest.raises(ValueError, match=f"workspace has the wrong length, got 1, expected {size}"):
        call(*rows, torch.ones(1).numpy(), narrow_panels)
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
