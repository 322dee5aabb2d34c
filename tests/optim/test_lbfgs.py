"""L-BFGS against torch's, and its line search on functions with known minima."""

from __future__ import annotations

import math

import pytest
import torch

from distgnn.comm.single import SingleGroup
from distgnn.optim.lbfgs import MOST_EVALUATIONS, Lbfgs
from distgnn.optim.line_search import Point, search

FUNCTIONS = {
    "parabola": (lambda t: (t - 3) ** 2, lambda t: 2 * (t - 3)),
    "steep": (lambda t: 500 * (t - 0.01) ** 2, lambda t: 1000 * (t - 0.01)),
    "wall": (
        lambda t: -t if t < 2 else math.nan,
        lambda t: -1.0 + t * t / 4,
    ),
}


@pytest.mark.parametrize("first", [1e-3, 0.3, 1.0, 30.0])
@pytest.mark.parametrize("name", ["parabola", "steep", "wall"])
def test_a_search_ends_where_both_conditions_hold(name, first):
    value, slope = FUNCTIONS[name]
    calls = []

    def measure(at):
        calls.append(at)
        return Point(at, value(at), slope(at))

    start = Point(0.0, value(0.0), slope(0.0))
    found = search(measure, start, first, 25)
    assert found.value <= start.value + 1e-4 * found.length * start.slope
    assert abs(found.slope) <= 0.9 * abs(start.slope)
    assert found.length in calls


def test_a_search_keeps_to_its_tries_and_returns_the_start_if_nothing_is_lower():
    calls = []

    def measure(at):
        calls.append(at)
        return Point(at, 1.0 + at, -1.0)

    start = Point(0.0, 1.0, -1.0)
    assert search(measure, start, 1.0, 7) is start
    assert len(calls) == 7
    rising = start._replace(slope=1.0)
    assert search(measure, rising, 1.0, 7) is rising
    assert len(calls) == 7


def problem(seed=0):
    torch.manual_seed(seed)
    rows = torch.randn(200, 12, dtype=torch.float64) * torch.logspace(-0.5, 0.5, 12)
    labels = torch.randint(0, 4, (200,))
    weight = torch.nn.Parameter(torch.zeros(12, 4, dtype=torch.float64))
    bias = torch.nn.Parameter(torch.zeros(4, dtype=torch.float64))
    return (weight, bias), lambda: torch.nn.functional.cross_entropy(rows @ weight + bias, labels)


def evaluated(loss_of, count):
    def evaluate():
        count.append(1)
        loss = loss_of()
        loss.backward()
        return loss.detach()

    return evaluate


def test_the_minimum_is_that_of_torch_with_fewer_evaluations():
    decay = 1e-2
    (weight, bias), loss_of = problem()
    count: list[int] = []
    ours = Lbfgs((weight, bias), SingleGroup(), lr=1.0, weight_decay=decay)
    for _ in range(60):
        last = float(ours.take(evaluated(loss_of, count)))
    (other_weight, other_bias), other_loss = problem()
    theirs = torch.optim.LBFGS(
        (other_weight, other_bias),
        max_iter=1,
        max_eval=30,
        tolerance_grad=0,
        tolerance_change=0,
        history_size=10,
        line_search_fn="strong_wolfe",
    )
    other_count: list[int] = []

    def closure():
        other_count.append(1)
        theirs.zero_grad()
        penalty = sum(each.square().sum() for each in (other_weight, other_bias))
        loss = other_loss() + decay / 2 * penalty
        loss.backward()
        return loss

    for _ in range(60):
        theirs.step(closure)
    assert last == pytest.approx(float(other_loss().detach()), rel=1e-6)
    torch.testing.assert_close(weight, other_weight, rtol=1e-3, atol=1e-4)
    assert len(count) < len(other_count)


def test_the_penalty_is_on_the_weights_that_decay():
    for decaying, is_smaller in ((None, True), ((), False)):
        (weight, bias), loss_of = problem()
        decayed = Lbfgs((weight, bias), SingleGroup(), lr=1.0, weight_decay=1.0, decaying=decaying)
        (free_weight, free_bias), free_loss = problem()
        free = Lbfgs((free_weight, free_bias), SingleGroup(), lr=1.0, weight_decay=0.0)
        for _ in range(20):
            decayed.take(evaluated(loss_of, []))
            free.take(evaluated(free_loss, []))
        assert (
            float(weight.detach().norm()) < 0.5 * float(free_weight.detach().norm())
        ) == is_smaller


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_descent_ends_at_the_last_digit_of_the_loss_without_a_search_in_vain(dtype):
    torch.manual_seed(0)
    rows = torch.randn(200, 12, dtype=dtype)
    labels = torch.randint(0, 4, (200,))
    weight = torch.nn.Parameter(torch.zeros(12, 4, dtype=dtype))
    optimizer = Lbfgs((weight,), SingleGroup(), lr=1.0, weight_decay=1e-2)
    count: list[int] = []
    evaluate = evaluated(lambda: torch.nn.functional.cross_entropy(rows @ weight, labels), count)
    tries, note = [], None
    while note is None and len(tries) < 200:
        before = len(count)
        optimizer.take(evaluate)
        note = optimizer.take_note()
        tries.append(len(count) - before)
    assert note is not None
    assert "no step lowers the loss any more" in note
    assert max(tries) < MOST_EVALUATIONS
    assert tries[-1] == 0
    gradient = optimizer.state_dict()[0]["lbfgs_gradient"]
    assert float(gradient.abs().max()) < 10 * torch.finfo(dtype).eps ** 0.5


def test_a_descent_ends_when_no_step_lowers_the_loss_and_says_so_once():
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = Lbfgs((weight,), SingleGroup(), lr=1.0, weight_decay=0.0)
    count: list[int] = []

    def evaluate():
        # Its gradient points the wrong way.
        count.append(1)
        weight.grad = -torch.ones(3)
        return weight.detach().sum()

    assert float(optimizer.take(evaluate)) == 3
    assert "no step lowers the loss any more" in optimizer.take_note()
    assert len(count) == 1 + MOST_EVALUATIONS
    assert torch.equal(weight.detach(), torch.ones(3))
    optimizer.take(evaluate)
    assert len(count) == 1 + MOST_EVALUATIONS
    assert optimizer.take_note() is None
    assert weight.grad is None
