"""Values of gradients that ranks tell each other once they matter."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from training import check_same_values, trained_on_ranks

from distgnn.comm.threads import run_ranks
from distgnn.datasets import InputError
from distgnn.exchange.clock import Clock
from distgnn.optim.optimizers import build_optimizer
from distgnn.training.config.codecs import parse_weights
from distgnn.weights.significant_updates import SignificantUpdates

STEPS, LR = 12, 0.05


@pytest.mark.parametrize("num_parts", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
def test_without_a_threshold_it_is_the_sum_of_gradients_to_the_bit(optimizer, num_parts):
    options = {"optimizer": optimizer, "norm": "batch", "clip_grad_norm": 0.5}
    told = trained_on_ranks(num_parts, weights="changed(0)", **options)
    summed = trained_on_ranks(num_parts, **options)
    for (records, state), (others, other) in zip(told, summed, strict=True):
        check_same_values(state, other)
        for name in ("loss", "val_metric", "test_metric"):
            assert [r[name] for r in records] == [r[name] for r in others]


def by_the_formula(gradients, threshold, *, decays, start):
    """Gradient descent with momentum 0.9, and significant sums of gradients of other ranks."""
    size = gradients.shape[1]
    weights = np.repeat(start[None], size, 0)
    momenta, unsent, num_told = np.zeros_like(weights), np.zeros_like(weights), 0
    for step, own in enumerate(gradients, 1):
        unsent = unsent + own
        share = threshold / np.sqrt(step) if decays else threshold
        is_told = (LR * abs(unsent) >= share * 0.1 * abs(weights)) & (unsent != 0)
        told = np.where(is_told, unsent, 0)
        unsent, num_told = unsent - told, num_told + is_told.sum(1)
        momenta = 0.9 * momenta + own + told.sum(0) - told
        weights = weights - LR * momenta
    return weights, unsent, num_told


@pytest.mark.parametrize("size", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("threshold", [0.0, 1.0, 8.0, np.inf])
@pytest.mark.parametrize("decays", [False, True])
def test_weights_are_those_of_the_formula(decays, threshold, size):
    gradients = np.random.default_rng(0).normal(size=(STEPS, size, 7))
    start = np.random.default_rng(1).normal(size=7)
    rule = parse_weights(f"changed({threshold}{',decay=sqrt' if decays else ''})")

    def on_rank(group):
        model = nn.Linear(7, 1, bias=False).double()
        with torch.no_grad():
            model.weight.copy_(torch.from_numpy(start[None]))
        optimizer = build_optimizer("sgd", model.parameters(), lr=LR, weight_decay=0.0)
        strategy = SignificantUpdates(group, Clock(), optimizer=optimizer, how=rule.significance)
        for gradient in gradients[:, group.rank]:
            model.weight.grad = torch.from_numpy(gradient[None].copy())
            strategy.after_backward(model)
            optimizer.step()
        unsent = strategy.state(model).get("unsent.weight", torch.zeros(1, 7)).double()
        return model.weight.detach()[0], unsent[0], strategy.take_bytes()

    weights, unsent, num_told = by_the_formula(gradients, threshold, decays=decays, start=start)
    if threshold == 8 and size > 1 and not decays:
        assert 0 < num_told.sum() < STEPS * size * 7
    for rank, (found, rest, sent) in enumerate(run_ranks(size, on_rank)):
        torch.testing.assert_close(found, torch.from_numpy(weights[rank]), rtol=0, atol=1e-12)
        if size == 1 or threshold == np.inf:
            assert sent == 0
        else:
            torch.testing.assert_close(rest, torch.from_numpy(unsent[rank]), rtol=0, atol=1e-12)
            # A byte of bits in each step, and 8 bytes a value.
            assert sent == (size - 1) * (STEPS + 8 * num_told[rank])


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_a_step_is_foretold_by_the_divisor(optimizer):
    weight = nn.Parameter(torch.tensor([3.0, -2.0], dtype=torch.float64))
    rule = build_optimizer(optimizer, [weight], lr=0.01, weight_decay=0.0)
    gradient = torch.tensor([0.5, -4.0], dtype=torch.float64)
    if optimizer == "adam":
        assert rule.divisor(weight) == 0
    for _ in range(200):
        weight.grad = gradient.clone()
        before = weight.detach().clone()
        rule.step()
    # The same gradient in every step moves a weight by as much as one does in the end.
    moved = before - weight.detach()
    torch.testing.assert_close(moved, 0.01 * gradient / rule.divisor(weight), rtol=1e-4, atol=0)


def test_a_value_that_is_not_finite_is_told():
    def on_rank(group):
        model = nn.Linear(2, 1, bias=False)
        optimizer = build_optimizer("sgd", model.parameters(), lr=0.1, weight_decay=0.0)
        rule = parse_weights("changed(1e30)")
        strategy = SignificantUpdates(group, Clock(), optimizer=optimizer, how=rule.significance)
        values = [[float("nan"), 1.0]] if group.rank else [[0.0, 2.0]]
        model.weight.grad = torch.tensor(values)
        strategy.after_backward(model)
        return model.weight.grad[0].tolist()

    first, second = run_ranks(2, on_rank)
    assert first[0] != first[0]
    assert first[1] == 2
    assert second[1] == 1


def test_words_are_read_and_written_back():
    for text in ("changed(0.01,decay=sqrt)", "sum+changed(0.01, decay=sqrt)", "gaia-weights"):
        assert parse_weights(text).text == "changed(0.01,decay=sqrt)+sum"
    assert parse_weights("changed(inf)").text == "changed(inf)+sum"


@pytest.mark.parametrize("more", ["mean", "int8", "pairs", "own-moments"])
def test_more_than_values_is_refused(more):
    with pytest.raises(InputError) as caught:
        parse_weights(f"changed(0.1)+{more}")
    assert str(caught.value) == (
        f"--weights changed(0.1)+{more} says more than changed, which adds single values of "
        "gradients up as they are; use changed(0.1)+sum"
    )
