"""Kernels that follow the sums of attention, and that its backward begins with."""

from __future__ import annotations

import pytest
import torch

from distgnn import kernels
from distgnn.kernels import attention
from distgnn.kernels.dense import Finish

# (heads, columns of a head): 520 are more than are finished at a time, and cut a head.
SHAPES = [(1, 1), (3, 4), (2, 8), (4, 16), (3, 17), (4, 130), (2, 300)]
NUM_ROWS = 50


def random(*shape, seed, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def finishes(width, dtype):
    bias, key = random(width, seed=1, dtype=dtype), torch.arange(NUM_ROWS) * 7
    yield Finish()
    yield Finish(bias=bias)
    yield Finish(bias=bias, has_relu=True, row_key=key, seed=3, probability=0.4)


def expected_of(means, finish):
    """The steps one by one."""
    result = means if finish.bias is None else means + finish.bias
    result = torch.relu(result) if finish.has_relu else result.clone()
    if finish.row_key is not None:
        options = {"seed": finish.seed, "probability": finish.probability}
        kernels.dropout(result, finish.row_key, result, **options)
    return result


@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16, torch.float64])
def test_quotients_go_through_the_steps_that_follow(stored, num_threads):
    dtype = torch.float32 if stored == torch.bfloat16 else stored
    for heads, width in SHAPES:
        sums = random(NUM_ROWS, heads * width, seed=2, dtype=dtype)
        denominator = random(NUM_ROWS, heads, seed=3, dtype=dtype).abs()
        denominator[::7] = 0
        means = sums.view(NUM_ROWS, heads, width) / denominator[:, :, None]
        means = torch.where(denominator[:, :, None] == 0, 0, means).flatten(1)
        for finish in finishes(heads * width, dtype):
            maximum, out = torch.zeros_like(denominator), sums.clone()
            result = torch.empty_like(sums, dtype=stored)
            attention.finish_attention(out, maximum, denominator, result=result, finish=finish)
            assert torch.equal(result, expected_of(means, finish).to(stored)), (heads, width)
            attention.finish_attention(out, maximum, denominator, finish=finish)
            assert torch.equal(out.to(stored), result), "in place"


@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16, torch.float64])
def test_gradients_are_multiplied_with_what_they_are_of(stored, num_threads):
    dtype = torch.float32 if stored == torch.bfloat16 else stored
    tolerance = {"rtol": 1e-5, "atol": 1e-4} if dtype == torch.float32 else {}
    for heads, width in SHAPES:
        shape = NUM_ROWS, heads, width
        grad, result = (
            random(NUM_ROWS, heads * width, seed=seed, dtype=dtype).to(stored) for seed in (4, 5)
        )
        bias = random(heads * width, seed=6, dtype=dtype)
        for given, scale in ((None, 1.0), (bias, 0.6)):
            out = torch.empty(NUM_ROWS, heads, dtype=dtype)
            attention.attention_delta(grad, result, out, bias=given, scale=scale)
            means = result.double() * scale - (0 if given is None else given.double())
            expected = (grad.double() * means).view(shape).sum(2)
            torch.testing.assert_close(out, expected.to(dtype), **tolerance)


def test_no_rows_are_finished_and_multiplied():
    none, scores = torch.empty(0, 6), torch.empty(0, 2)
    attention.finish_attention(none, scores, scores.clone())
    attention.attention_delta(none, none, scores)
