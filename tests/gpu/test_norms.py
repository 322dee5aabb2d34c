"""Norms on a CUDA device, or in torch and Triton's interpreter, against torch's."""

from __future__ import annotations

import numpy as np
import pytest
import reference
import torch

from distgnn.kernels import norms
from distgnn.kernels.dense import Finish
from distgnn.kernels.norms import Outcome

DTYPES = [torch.float32, torch.bfloat16]


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def close(got, expected, dtype=torch.float32):
    rtol = 1e-2 if dtype == torch.bfloat16 else 1e-4
    torch.testing.assert_close(got.cpu().double(), expected.double(), rtol=rtol, atol=rtol)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_and_columns_are_normalised_and_finished(dtype, device):
    x, weight, bias = random(9, 33).double(), random(33, seed=1), random(33, seed=2)
    key = torch.arange(9) * 3
    finish = Finish(
        bias=bias.to(device), has_relu=True, row_key=key.to(device), seed=4, probability=0.3
    )
    by_row = torch.nn.functional.layer_norm(x, (33,), weight.double(), bias.double())
    by_column = (x - weight) * weight + bias
    outs = [torch.empty(9, 33, dtype=dtype, device=device) for _ in range(2)]
    rows, factor = x.float().to(device), weight.to(device)
    norms.normalise_rows(rows, factor, outs[0], eps=1e-5, finish=finish)
    norms.normalise_columns(rows, factor, factor, outs[1], finish=finish)
    for out, expected in zip(outs, (by_row, by_column), strict=True):
        passed = np.maximum(expected.numpy(), 0)
        kept = reference.dropout(passed, key.numpy(), seed=4, probability=0.3)
        close(out, torch.from_numpy(kept), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_gradients_pass_rows_and_columns_back(dtype, device):
    x, weight = random(9, 33), random(33, seed=1)
    grad, passed = random(9, 33, seed=2).to(dtype), random(9, 33, seed=3).to(dtype).clamp(min=0)
    before = torch.where(passed > 0, grad.double() * 1.5, 0)
    leaf = x.double().requires_grad_()
    normal = torch.nn.functional.layer_norm(leaf, (33,))
    (normal * weight).backward(before)
    outcome = Outcome(grad.to(device), passed.to(device), 1.5)
    rows, row, out = x.to(device), weight.to(device), torch.empty(9, 33, device=device)
    sums = norms.rows_backward(rows, row, outcome, out, eps=1e-5)
    close(out, leaf.grad)
    close(sums, torch.stack([before.sum(0), (before * normal.detach()).sum(0)]))
    along = (x.double() - weight) * weight
    sums = norms.column_gradient_sums(rows, row, row, outcome)
    close(sums, torch.stack([before.sum(0), (before * along).sum(0)]))
    factors = random(3, 33, seed=5)
    norms.columns_backward(rows, row, factors.to(device), outcome, out, num_counted=5)
    expected = before * factors[0]
    expected[:5] -= (factors[1] + (x.double() - weight) * factors[2])[:5]
    close(out, expected)


@pytest.mark.parametrize("num_rows", [0, 9])
def test_moments_are_those_of_columns(num_rows, device):
    x = random(num_rows, 33) + 100
    mean, deviation = norms.column_moments(x.to(device))
    exact = x.double()
    close(mean, exact.mean(0) if num_rows else torch.zeros(33))
    close(deviation, (exact - mean.cpu()).square().sum(0))
