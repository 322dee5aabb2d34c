"""Groups of ranks that follow each other in a tournament, in a grid, or at random."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch
from torch import nn

from distgnn.comm.threads import run_ranks
from distgnn.datasets import InputError
from distgnn.exchange.clock import Clock
from distgnn.optim.optimizers import build_optimizer
from distgnn.training.config.codecs import parse_weights
from distgnn.weights import rule as rule_module
from distgnn.weights.local_models import LocalModels
from distgnn.weights.rule import VOTE_BYTES
from distgnn.weights.traffic import WeightTraffic

SIZES = [1, 2, 3, 4, 8]
SEED = 5
ORDERS = ["random", "tournament", "grid"]
# Written down, for four ranks in pairs: the groups of one merge after another.
BY_HAND = {
    "tournament": [[[0, 3], [1, 2]], [[0, 1], [2, 3]], [[0, 2], [1, 3]]],
    "grid": [[[0, 1], [2, 3]], [[0, 2], [1, 3]]],
}


def rule_of(group_size, order, merge_every=1):
    return parse_weights(f"every({merge_every})+groups({group_size},order={order})+own-moments")


def groups_of(rule, size, merge):
    """The groups of a merge, each once."""
    steps = rule.merge_every * (merge + 1)
    return sorted({tuple(rule.members(rank, size, SEED, steps)) for rank in range(size)})


@pytest.mark.parametrize("order", BY_HAND)
@pytest.mark.parametrize("merge_every", [1, 3])
def test_four_ranks_meet_as_it_is_written_down(merge_every, order):
    rule = rule_of(2, order, merge_every)
    expected = BY_HAND[order]
    found = [groups_of(rule, 4, merge) for merge in range(2 * len(expected))]
    by_first = sorted(sorted(map(tuple, groups)) for groups in expected)
    assert sorted(found[: len(expected)]) == by_first
    assert found[len(expected) :] == found[: len(expected)], "groups come again"
    assert rule.num_rounds(4) == len(expected)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("group_size", [2, 4, 6])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 8, 9, 12])
def test_every_rank_is_in_one_group_that_is_not_too_large(size, group_size, order):
    rule = rule_of(group_size, order)
    for merge in range(30):
        groups = groups_of(rule, size, merge)
        assert sorted(rank for own in groups for rank in own) == list(range(size))
        assert max(map(len, groups)) <= group_size


@pytest.mark.parametrize("group_size", [2, 4])
@pytest.mark.parametrize("size", [2, 3, 4, 5, 6, 7, 8, 12])
def test_in_a_tournament_halves_of_groups_meet_once(size, group_size):
    rule, half = rule_of(group_size, "tournament"), group_size // 2
    if rule.makes_one(size):
        return
    met = [
        pair
        for merge in range(rule.num_rounds(size))
        for own in groups_of(rule, size, merge)
        for pair in combinations(own, 2)
        if pair[0] // half != pair[1] // half
    ]
    others = [pair for pair in combinations(range(size), 2) if pair[0] // half != pair[1] // half]
    assert sorted(met) == others


def by_groups(gradients, rule, *, lr):
    """Gradient descent of each rank with momentum 0.9, and the means of groups."""
    size, weights, momenta = gradients.shape[1], 0.0, 0.0
    for step in range(1, len(gradients) + 1):
        momenta = 0.9 * momenta + size * gradients[step - 1]
        weights = weights - lr * momenta
        if step % rule.merge_every == 0:
            merge = step // rule.merge_every - 1
            for own in map(list, groups_of(rule, size, merge)):
                weights[own] = weights[own].mean(0)
    return weights


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("merge_every", [1, 2])
def test_weights_are_those_of_the_formula_and_their_sum_stays(merge_every, order, size):
    gradients = np.random.default_rng(0).normal(size=(9, size, 5))
    rule = rule_of(2, order, merge_every)

    def on_rank(group):
        model = nn.Linear(5, 1, bias=False).double()
        nn.init.zeros_(model.weight)
        optimizer = build_optimizer("sgd", model.parameters(), lr=0.1, weight_decay=0.0)
        strategy = LocalModels(group, Clock(), optimizer=optimizer, rule=rule, seed=SEED)
        for gradient in gradients[:, group.rank]:
            model.weight.grad = torch.from_numpy(gradient[None].copy())
            strategy.after_backward(model)
            optimizer.step()
            before = model.weight.detach().clone()
            group.all_reduce(before)
            strategy.after_step(model)
            after = model.weight.detach().clone()
            group.all_reduce(after)
            torch.testing.assert_close(after, before, rtol=0, atol=1e-12)
        return model.weight.detach()[0]

    expected = by_groups(gradients, rule, lr=0.1)
    for found, weights in zip(run_ranks(size, on_rank), expected, strict=True):
        torch.testing.assert_close(found, torch.from_numpy(weights), rtol=0, atol=1e-12)


def mixing(rule, size, num_merges):
    """Product of the matrices of means of so many merges."""
    product = np.eye(size)
    for merge in range(num_merges):
        matrix = np.zeros((size, size))
        for own in map(list, groups_of(rule, size, merge)):
            matrix[np.ix_(own, own)] = 1 / len(own)
        product = matrix @ product
    return product


@pytest.mark.parametrize(
    ("size", "group_size"), [(4, 2), (8, 2), (16, 2), (9, 3), (6, 3), (8, 4), (16, 4), (12, 6)]
)
def test_in_a_grid_models_are_one_after_a_merge_for_each_digit(size, group_size):
    rule = rule_of(group_size, "grid")
    num_merges = rule.num_rounds(size)
    np.testing.assert_allclose(mixing(rule, size, num_merges), 1 / size, rtol=0, atol=1e-12)
    assert np.abs(mixing(rule, size, num_merges - 1) - 1 / size).max() > 0.01


@pytest.mark.parametrize("resumed_after", [None, 1, 2, 3])
def test_where_votes_decide_groups_take_turns_merge_by_merge(resumed_after, monkeypatch):
    """Votes that pass in every second step would meet one digit of the grid alone."""
    rule = parse_weights("changed-gradient(0.05)+groups(2,order=grid)+mean")
    monkeypatch.setattr(LocalModels, "_is_voted_for", lambda self: self._num_steps % 2 == 0)

    def on_rank(group):
        def build():
            model = nn.Linear(1, 1, bias=False)
            optimizer = build_optimizer("sgd", model.parameters(), lr=0.1, weight_decay=0.0)
            return model, LocalModels(group, Clock(), optimizer=optimizer, rule=rule)

        model, strategy = build()
        nn.init.constant_(model.weight, group.rank)
        for step in range(1, 5):
            model.weight.grad = torch.zeros_like(model.weight)
            strategy.after_backward(model)
            strategy.after_step(model)
            if step == resumed_after:
                state = strategy.state(model)
                model, strategy = build()
                strategy.load_state(state, model, step)
        return float(model.weight.detach())

    assert run_ranks(4, on_rank) == [1.5] * 4


def test_bytes_are_at_most_those_of_any_round_where_votes_decide():
    rule = parse_weights("changed-gradient(0.05)+groups(2,order=grid)+own-moments")
    traffic, counted = WeightTraffic(((5, 7),), rule, seed=SEED), rule_of(2, "grid")
    others = traffic._replace(rule=counted)
    for size in (3, 5, 6, 8):
        most = max(others.bytes_in_epoch(size, epoch) for epoch in range(rule.num_rounds(size)))
        votes = size * (size - 1) * VOTE_BYTES
        for epoch in range(4):
            assert traffic.bytes_in_epoch(size, epoch) == most + votes
            by_rank = [
                traffic.bytes_of(rank, size, epoch, is_evaluated=False) for rank in range(size)
            ]
            assert sum(by_rank) >= most + votes


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("size", [3, 5, 6, 7, 8, 11])
def test_models_come_together_in_any_order_but_not_if_groups_stay(size, order):
    rule = rule_of(2, order)
    np.testing.assert_allclose(mixing(rule, size, 400), 1 / size, rtol=0, atol=1e-6)
    same = np.linalg.matrix_power(mixing(rule, size, 1), 400)
    assert np.abs(same - 1 / size).max() > 0.1


def test_words_are_read_and_written_back():
    drawn = parse_weights("every(2)+groups(4,order=random)")
    assert drawn.text == "every(2)+groups(4)+mean"
    for order in ("tournament", "grid"):
        rule = parse_weights(f"every(2)+groups(4, order={order})")
        assert rule.text == f"every(2)+groups(4,order={order})+mean"
        assert parse_weights(rule.text) == rule != drawn
    pairs = parse_weights("every(1)+groups(2,order=grid)")
    assert parse_weights(pairs.text) == pairs


def test_halves_of_groups_have_equal_size():
    with pytest.raises(InputError) as caught:
        parse_weights("every(1)+groups(3,order=tournament)")
    assert str(caught.value) == (
        "--weights groups(3,order=tournament) lets halves of groups meet; give groups an even "
        "number of ranks"
    )


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("group_size", [2, 4])
def test_bytes_of_groups_are_those_of_their_ranks(order, group_size):
    traffic = WeightTraffic(((5, 7),), rule_of(group_size, order, 2), seed=SEED)
    for size in range(2, 18):
        epochs = range(2 * traffic.rule.num_rounds(size))
        by_rank = [
            sum(traffic.bytes_of(rank, size, epoch, is_evaluated=False) for rank in range(size))
            for epoch in epochs
        ]
        assert [traffic.bytes_in_epoch(size, epoch) for epoch in epochs] == by_rank
        assert traffic.bytes_per_epoch(size) == pytest.approx(sum(by_rank) / len(epochs))


RULES = ["every(7)", "every(7,for=3)", "every(5)+groups(2,order=grid)", "every(6)+lag(2)+corrected"]


@pytest.mark.parametrize("words", [*RULES, "every(1)", "every(4)+groups(2,order=tournament)"])
def test_mean_bytes_are_those_of_all_steps_of_a_period(words):
    rule = parse_weights(words)
    traffic = WeightTraffic(((5, 7),), rule, seed=SEED)
    for size in (1, 2, 3, 6):
        epochs = range(rule.merge_every * rule.num_rounds(size))
        total = sum(traffic.bytes_in_epoch(size, epoch) for epoch in epochs)
        assert traffic.bytes_per_epoch(size) == pytest.approx(total / len(epochs))
    num_merges = sum(rule.may_merge(1 + step) for step in range(rule.merge_every))
    assert traffic.ring_bytes(2) == pytest.approx(4 * 35 * num_merges / rule.merge_every)


def test_bytes_of_a_long_period_are_counted_at_once(monkeypatch):
    """Each step of it would take longer than anybody waits."""
    traffic = WeightTraffic(((5, 7),), parse_weights("every(1000000000000,for=1000)"))
    counted, by_epoch = [], WeightTraffic._summed_bytes
    may_merge = type(traffic.rule).may_merge

    def count(*given):
        counted.append(given)
        assert len(counted) < 50
        return by_epoch(*given)

    def look(*given):
        counted.append(given)
        assert len(counted) < 50
        return may_merge(*given)

    monkeypatch.setattr(WeightTraffic, "_summed_bytes", count)
    monkeypatch.setattr(type(traffic.rule), "may_merge", look)
    assert traffic.bytes_per_epoch(2) == 2 * 4 * 35 * 1001 / 10**12
    assert traffic.ring_bytes(2) == 4 * 35 * 1001 / 10**12


@pytest.mark.parametrize("order", ORDERS)
def test_mean_bytes_of_many_ranks_are_counted_without_making_groups(monkeypatch, order):
    def make(*_):
        raise AssertionError("a group was made for each rank")

    for name in ("draw_group", "grid_group", "play_group"):
        monkeypatch.setattr(rule_module, name, make)
    counted = []
    traffic = WeightTraffic(((5, 7),), rule_of(2, order), seed=SEED)
    by_epoch = WeightTraffic._summed_bytes
    monkeypatch.setattr(
        WeightTraffic, "_summed_bytes", lambda *given: counted.append(0) or by_epoch(*given)
    )
    assert traffic.bytes_per_epoch(512) == 256 * 2 * 4 * 35
    assert len(counted) <= 9
