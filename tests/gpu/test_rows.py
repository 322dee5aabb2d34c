from __future__ import annotations

import numpy as np
import pytest
import reference
import torch
from on_device import put
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from distgnn import kernels
from distgnn.kernels import dense
from distgnn.kernels.dense import Factor, Finish, GradientFactor

FLOAT, NARROW = torch.float32, torch.bfloat16


@pytest.fixture(params=[1 << 24, 11])
def _slices(request, monkeypatch):
    """Rows are multiplied together, and two or three at a time where they have four columns."""
    monkeypatch.setattr("distgnn.gpu.dense.SLICE_VALUES", request.param)


class Largest(TorchDispatchMode):
    """Remembers how many values the largest tensor of values has that operations return."""

    def __init__(self):
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for value in tree_leaves(result):
            # Triton's interpreter copies memory as bytes.
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                self.numel = max(self.numel, value.numel())
        return result


def rows_of(shape, dtype, seed=0):
    values = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return torch.from_numpy(values).to(dtype)


@pytest.mark.parametrize("dtype", [FLOAT, NARROW, torch.float64])
@pytest.mark.parametrize("width", [1, 3, 16, 33, 100, 130])
def test_rows_are_picked(width, dtype, device):
    x, picked = rows_of((9, width), dtype), np.array([3, 3, 0, 8], np.int32)
    (rows,) = put(device, picked)
    out = torch.full((4, width), 7.0, dtype=dtype, device=device)
    kernels.gather_rows(x.to(device), rows, out)
    assert torch.equal(out.cpu(), x[picked])


def test_rows_are_encoded_as_they_are_picked_and_decoded_as_they_are_added(device):
    gpu = pytest.importorskip("distgnn.gpu")
    x, picked = rows_of((9, 33), FLOAT), np.array([3, 0, 8], np.int32)
    (rows,) = put(device, picked)
    sent = torch.empty(3, 33, dtype=NARROW, device=device)
    gpu.gather_rows(x.to(device), rows, sent)
    assert torch.equal(sent.cpu(), x[picked].bfloat16())
    total = torch.ones(9, 33, device=device)
    gpu.scatter_add_rows(sent, rows, total)
    expected = torch.ones(9, 33).index_add(0, torch.from_numpy(picked).long(), sent.cpu().float())
    assert torch.equal(total.cpu(), expected)


@pytest.mark.parametrize(("dtype", "out_dtype"), [(FLOAT, FLOAT), (FLOAT, NARROW), (NARROW,) * 2])
def test_rows_are_scaled_and_rounded_once(dtype, out_dtype, device):
    x, factor = rows_of((9, 33), dtype), rows_of(9, FLOAT, seed=1)
    out = torch.empty(9, 33, dtype=out_dtype, device=device)
    kernels.scale_rows(x.to(device), factor.to(device), out)
    assert torch.equal(out.cpu(), (x.float() * factor[:, None]).to(out_dtype))


@pytest.mark.parametrize("weight", [1.0, 0.25])
@pytest.mark.parametrize("dtype", [FLOAT, NARROW, torch.float64])
def test_rows_move_towards_those_of_a_buffer(dtype, weight, device):
    x, old = rows_of((3, 5), dtype), rows_of((9, 5), dtype, seed=1)
    (rows,) = put(device, np.array([4, 0, 7], np.int32))
    out = old.clone().to(device)
    kernels.blend_rows(x.to(device), rows, out, weight=weight)
    wide, before = x.double(), old[[4, 0, 7]].double()
    expected = old.clone()
    expected[[4, 0, 7]] = (before + weight * (wide - before)).to(dtype)
    torch.testing.assert_close(out.cpu(), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("seed", [0, 2**63 + 5, 2**64 - 1])
def test_the_mask_is_the_one_of_the_processor(seed, dtype, device):
    x, key = rows_of((6, 130), dtype) + 5, np.array([0, 1, 7, 2**40, 2**62, 5])
    expected = reference.dropout(x.numpy()[:, :40], key, seed=seed, probability=0.3)
    (row_key,) = put(device, key)
    out = torch.empty_like(x, device=device)
    kernels.dropout(x.to(device), row_key, out, seed=seed, probability=0.3)
    assert np.array_equal(out.cpu().numpy()[:, :40], expected)
    assert 0.6 < float((out != 0).double().mean()) < 0.8


def test_an_entry_of_a_sparse_row_meets_the_same_fate(device):
    dense, key = rows_of((6, 40), FLOAT) + 5, np.arange(6)
    expected = reference.dropout(dense.numpy(), key, seed=4, probability=0.5)
    at, column = np.nonzero(np.random.default_rng(2).random((6, 40)) < 0.3)
    row_key, columns = put(device, key[at], column.astype(np.int32))
    values = dense[at, column].to(device)
    kernels.dropout_values(values, row_key, columns, values, seed=4, probability=0.5)
    assert np.array_equal(values.cpu().numpy(), expected[at, column])


def test_a_probability_of_one_is_refused(device):
    x, key = torch.ones(2, 2, device=device), torch.zeros(2, dtype=torch.int64, device=device)
    with pytest.raises(ValueError, match=r"probability must be in \[0, 1\), got 1"):
        kernels.dropout(x, key, x, seed=0, probability=1)


@pytest.mark.usefixtures("_slices")
@pytest.mark.parametrize("dtype", [FLOAT, NARROW])
def test_products_are_finished_in_order(dtype, device):
    x, other = rows_of((9, 4), dtype).to(device), rows_of((6, 3), dtype, seed=1).to(device)
    matrix, second = rows_of((4, 5), FLOAT).to(device), rows_of((5, 3), FLOAT).to(device).t()
    picked, places, key = put(
        device,
        np.array([8, 1, 1, 0, 2, 3], np.int32),
        np.arange(6, dtype=np.int32)[::-1],
        np.arange(6),
    )
    factor, bias = rows_of(6, FLOAT, seed=2).to(device), rows_of(5, FLOAT, seed=3).to(device)
    finish = Finish(factor, bias, has_relu=True, row_key=key, seed=3, probability=0.5)
    start = rows_of((6, 5), dtype, seed=4).to(device)
    out = start.clone()
    factors = [Factor(x, matrix, picked), Factor(other, second)]
    dense.multiply(factors, out, out_rows=places, accumulate=True, finish=finish)
    total = x[picked].float() @ matrix + other.float() @ second + start[places].float()
    total = torch.relu(total * factor[:, None] + bias).cpu()
    mask = reference.dropout(np.ones((6, 5), np.float32), np.arange(6), seed=3, probability=0.5)
    expected = (total * torch.from_numpy(mask)).to(dtype)
    torch.testing.assert_close(out.cpu(), expected[places.cpu()])


@pytest.mark.usefixtures("_slices")
def test_gradients_pass_where_the_activation_was_positive(device):
    x, grad = rows_of((9, 4), FLOAT).to(device), rows_of((6, 5), FLOAT, seed=1).to(device)
    (picked,) = put(device, np.array([8, 1, 1, 0, 2, 3], np.int32))
    activation = rows_of((6, 5), FLOAT, seed=2).to(device)
    activation[0, 0] = torch.nan
    passed = torch.where(activation > 0, grad * 2, 0)
    gradient, bias = torch.empty(5, 4, device=device), torch.empty(5, device=device)
    factors = [GradientFactor(x, gradient, picked)]
    options = {"activation": activation, "scale": 2.0, "bias_gradient": bias}
    dense.multiply_transposed(factors, grad, **options)
    assert torch.equal(grad, passed)
    torch.testing.assert_close(gradient, passed.t() @ x[picked])
    torch.testing.assert_close(bias, passed.sum(0))


@pytest.mark.usefixtures("_slices")
def test_gradients_of_no_rows_are_zeros(device):
    gradient, bias = torch.ones(5, 4, device=device), torch.ones(5, device=device)
    rows, grad = (torch.empty(0, n, device=device, dtype=NARROW) for n in (4, 5))
    factors, options = [GradientFactor(rows, gradient)], {"activation": grad, "scale": 2.0}
    dense.multiply_transposed(factors, grad, **options, bias_gradient=bias)
    assert not gradient.any()
    assert not bias.any()


@pytest.mark.parametrize("is_picked", [False, True])
def test_rows_are_never_there_again_in_another_type(is_picked, device, monkeypatch):
    monkeypatch.setattr("distgnn.gpu.dense.SLICE_VALUES", 80)
    dtype = FLOAT if is_picked else NARROW
    x, out = rows_of((60, 8), dtype).to(device), torch.empty(60, 4, dtype=dtype, device=device)
    matrix, gradient = rows_of((8, 4), FLOAT).to(device), torch.empty(4, 8, device=device)
    picked = torch.arange(60, dtype=torch.int32, device=device) if is_picked else None
    grad, activation = out.clone().fill_(1), out.clone().fill_(1)
    bias = torch.zeros(4, device=device)
    with Largest() as largest:
        dense.multiply([Factor(x, matrix, picked)], out, finish=Finish(bias=bias))
        factors = [GradientFactor(x, gradient, picked)]
        dense.multiply_transposed(factors, grad, activation=activation)
    torch.testing.assert_close(out, (x.float() @ matrix.to(dtype).float()).to(dtype))
    torch.testing.assert_close(gradient, torch.ones(4, 60, device=device) @ x.float())
    assert largest.numel <= 80


@pytest.mark.usefixtures("_slices")
@pytest.mark.parametrize("is_shared", [False, True])
@pytest.mark.parametrize("num_factors", [1, 2])
def test_a_product_may_take_the_place_of_its_rows(num_factors, is_shared, device):
    x, other = rows_of((9, 5), FLOAT).to(device), rows_of((9, 3), FLOAT, seed=1).to(device)
    matrix, second = rows_of((5, 5), FLOAT, seed=2).to(device), rows_of((3, 5), FLOAT).to(device)
    factors = [Factor(other, second), Factor(x, matrix)][-num_factors:]
    expected = sum(factor.x @ factor.matrix for factor in factors)
    out = x if is_shared else torch.full((9, 5), torch.nan, device=device)
    dense.multiply(factors, out)
    torch.testing.assert_close(out, expected)
