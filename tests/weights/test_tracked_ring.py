"""A ring of models whose neighbors know each other by coded changes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from training import make_config

from distgnn.comm.threads import run_ranks
from distgnn.datasets import InputError
from distgnn.exchange.clock import Clock
from distgnn.optim.optimizers import build_optimizer
from distgnn.training.config.codecs import parse_weights
from distgnn.weights.rule import WeightRule
from distgnn.weights.tracked_ring import TrackedRing

SIZES = [1, 2, 3, 4, 8]
CODES = {"int8": 0.02, "int8(round=near)": 0.02, "int4": 0.3, "bf16": 0.01}
"""Error of each code that is allowed, as a share of the weights."""


def by_the_formula(gradients, *, merge_every, lr):
    """Gradient descent of each rank with momentum 0.9, and thirds of both neighbors."""
    size = gradients.shape[1]
    weights, momenta, told = (np.zeros_like(gradients[0]) for _ in range(3))
    for step in range(len(gradients)):
        momenta = 0.9 * momenta + size * gradients[step]
        weights = weights - lr * momenta
        if (step + 1) % merge_every == 0 and size > 1:
            told = weights + (np.roll(told, 1, 0) + np.roll(told, -1, 0) - 2 * told) / 3
            weights = told
    return weights


def train(group, model, gradients, words, *, lr=0.1):
    """Take a step by each gradient; return the strategy."""
    optimizer = build_optimizer("sgd", model.parameters(), lr=lr, weight_decay=0.0)
    strategy = TrackedRing(group, Clock(), optimizer=optimizer, rule=parse_weights(words))
    for gradient in gradients:
        model.weight.grad = torch.from_numpy(gradient.copy()).to(model.weight.dtype)
        strategy.after_backward(model)
        optimizer.step()
        strategy.after_step(model)
    return strategy


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("merge_every", [1, 3])
def test_without_loss_it_is_the_plain_ring(merge_every, size):
    gradients = np.random.default_rng(0).normal(size=(8, size, 2, 5))

    def on_rank(group):
        model = nn.Linear(5, 2, bias=False).double()
        nn.init.zeros_(model.weight)
        # Matrices of float64 are never coded.
        train(group, model, gradients[:, group.rank], f"every({merge_every})+ring+int8")
        return model.weight.detach()

    expected = by_the_formula(gradients, merge_every=merge_every, lr=0.1)
    for found, weights in zip(run_ranks(size, on_rank), expected, strict=True):
        torch.testing.assert_close(found, torch.from_numpy(weights), rtol=0, atol=1e-12)


@pytest.mark.parametrize("size", [2, 4, 5, 8])
def test_models_come_together_by_the_second_eigenvalue(size):
    shrinks = (1 + 2 * np.cos(2 * np.pi / size)) / 3
    # The slowest wave that fits into the ring, in a step that no other follows.
    gradients = np.zeros((12, size, 1, 1))
    gradients[0, :, 0, 0] = np.cos(2 * np.pi * np.arange(size) / size)

    def on_rank(group):
        model = nn.Linear(1, 1, bias=False).double()
        nn.init.constant_(model.weight, 7.0)
        optimizer = build_optimizer("sgd", model.parameters(), lr=0.1, weight_decay=0.0)
        rule = parse_weights("every(1)+ring")
        strategy = TrackedRing(group, Clock(), optimizer=optimizer, rule=rule)
        found = []
        for gradient in gradients[:, group.rank]:
            model.weight.grad = torch.from_numpy(gradient.copy())
            strategy.after_backward(model)
            optimizer.step()
            optimizer.set_lr(0.0)
            strategy.after_step(model)
            found.append(float(model.weight.detach()))
        return found

    distance = np.abs(np.array(run_ranks(size, on_rank)) - 7.0).max(0)
    np.testing.assert_allclose(distance, 0.1 * size * np.abs(shrinks) ** np.arange(12), atol=1e-12)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("code", CODES)
def test_with_a_code_neighbors_know_a_model_to_the_bit(code, size):
    gradients = np.random.default_rng(1).normal(size=(9, size, 30, 40))

    def on_rank(group):
        model = nn.Linear(40, 30)
        nn.init.zeros_(model.weight)
        nn.init.zeros_(model.bias)
        strategy = train(group, model, gradients[:, group.rank], f"every(1)+ring+{code}")
        return model.weight.detach(), strategy.state(model), strategy.take_bytes()

    found = run_ranks(size, on_rank)
    expected = by_the_formula(gradients, merge_every=1, lr=0.1)
    rule = parse_weights(code)
    # A matrix of 1200 values is three rows; the vector of 30 travels as it is.
    told = min(size - 1, 2) * (3 * rule.codec.row_bytes(512, 4) + 4 * 30)
    for rank, (weight, state, sent) in enumerate(found):
        assert sent == 9 * told
        error = torch.linalg.norm(weight - torch.from_numpy(expected[rank]))
        if size == 1:
            assert state == {}
            continue
        assert 0 < error < CODES[code] * np.linalg.norm(expected[rank])
        assert torch.equal(weight, state["own.weight"])
        right = found[(rank + 1) % size][1]
        for name in ("weight", "bias"):
            assert torch.equal(right[f"left.{name}"], state[f"own.{name}"])
            assert torch.equal(state[f"right.{name}"], right[f"own.{name}"])


def test_words_are_read_and_written_back():
    rule = WeightRule(merge_every=2, is_ring=True, keeps_moments=True)
    assert parse_weights("every(2)+ring") == parse_weights("every(2)+ring+own-moments") == rule
    assert rule.text == "every(2)+ring+mean+own-moments"
    coded = parse_weights("int4+ring+every(1)")
    assert coded.text == "every(1)+ring+int4+mean+own-moments"
    assert parse_weights(coded.text) == coded
    config = make_config(preset="lowprec-decentralized")
    assert config.weight_rule.codec == parse_weights("int8(round=near)").codec
    assert not rule.makes_one(3)


def test_a_ring_without_a_time_is_refused():
    with pytest.raises(InputError, match="--weights ring says with whom models are merged, but"):
        parse_weights("ring")
