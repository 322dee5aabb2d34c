"""Models that move towards a center which is found while they are trained."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from training import check_same_values, make_config, trained_on_ranks

from distgnn.comm.threads import run_ranks
from distgnn.datasets import InputError
from distgnn.exchange.clock import Clock
from distgnn.optim.optimizers import build_optimizer
from distgnn.training.config.codecs import parse_weights
from distgnn.training.config.presets import PRESETS
from distgnn.weights.background import BackgroundModels
from distgnn.weights.rule import Background, WeightRule

SIZES = [1, 2, 3, 4, 8]
HOW = ["corrected", "lerp(0.3)", "elastic(0.4)", "momentum(0.6,rate=0.7,share=0.5)"]
SEED = 5


def by_the_formula(gradients, rule, *, lr):
    """Gradient descent of each rank, and moves to what was found some steps ago."""
    both, how, g, speed = np.zeros((2, *gradients.shape[1:])), rule.background, 0.0, 0.0
    size, begun, snapshot, found = gradients.shape[1], -1, both, both
    for step in range(1, len(gradients) + 1):
        both[1] = 0.9 * both[1] + size * gradients[step - 1]
        both[0] -= lr * both[1]
        for is_begin in (False, True, False):
            if is_begin and step % rule.merge_every == 0 and size > 1:
                begun, snapshot, found = step, both.copy(), np.empty_like(both)
                for rank in range(size):
                    own = rule.members(rank, size, SEED, step)
                    found[:, rank] = g if how.center == "elastic" else both[:, own].mean(1)
                    g = g + how.share * (both[:, rank] - g) if how.center == "elastic" else g
                if how.center == "momentum":
                    speed = how.momentum * speed + how.rate * (found[0] - g)
                    found[0] = g = g + speed
            elif not is_begin and step - begun == how.lag and begun > 0:
                origin = [(snapshot if how.is_corrected else both)[0], snapshot[1]]
                moves, begun = how.share * (origin - found), -1
                both -= moves * ([[[1]], [[not rule.keeps_moments]]])
    return both[0]


def strategy_of(group, words, model, *, lr=0.1):
    optimizer = build_optimizer("sgd", model.parameters(), lr=lr, weight_decay=0.0)
    rule = words if isinstance(words, WeightRule) else parse_weights(words)
    return BackgroundModels(group, Clock(), optimizer=optimizer, rule=rule, seed=SEED), optimizer


def train(group, model, gradients, words, *, num_kept=0, lr=0.1):
    """Take a step by each gradient; keep a checkpoint after some, and go on from it."""
    strategy, optimizer = strategy_of(group, words, model, lr=lr)
    for step, gradient in enumerate(gradients, 1):
        model.weight.grad = torch.from_numpy(gradient.copy())
        strategy.after_backward(model)
        optimizer.step()
        strategy.after_step(model)
        if step == num_kept:
            state, clock = strategy.state(model), Clock()
            strategy = BackgroundModels(
                group, clock, optimizer=optimizer, rule=parse_weights(words), seed=SEED
            )
            if group.size > 1:
                nn.init.constant_(model.weight, 99.0)
            strategy.load_state(state, model, step)
    return model.weight.detach().clone()


def check_formula(gradients, words, **options):
    size = gradients.shape[1]

    def on_rank(group):
        model = nn.Linear(5, 1, bias=False).double()
        nn.init.zeros_(model.weight)
        return train(group, model, gradients[:, group.rank, None], words, **options)[0]

    rule = words if isinstance(words, WeightRule) else parse_weights(words)
    expected = by_the_formula(gradients, rule, lr=0.1)
    found = run_ranks(size, on_rank)
    for own, weights in zip(found, expected, strict=True):
        torch.testing.assert_close(own, torch.from_numpy(weights), rtol=0, atol=1e-12)
    return found


def drawn(size, num_steps=13):
    return np.random.default_rng(0).normal(size=(num_steps, size, 5))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize(("every", "lag"), [(1, 0), (1, 1), (3, 0), (3, 1), (3, 2), (4, 4)])
@pytest.mark.parametrize("moments", ["", "+own-moments"])
def test_weights_are_those_of_the_formula(moments, every, lag, how, size):
    check_formula(drawn(size), f"every({every})+lag({lag})+{how}{moments}")


@pytest.mark.parametrize("size", [3, 4, 8])
@pytest.mark.parametrize("whom", ["pairs", "groups(2,order=grid)"])
def test_groups_find_a_mean_of_their_own(whom, size):
    check_formula(drawn(size), f"every(3)+lag(2)+corrected+{whom}")


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("num_kept", [3, 4, 5, 6, 7, 8])
def test_a_checkpoint_changes_no_bit(num_kept, how):
    words, gradients = f"every(4)+lag(3)+{how}", drawn(3)
    straight = check_formula(gradients, words)
    again = check_formula(gradients, words, num_kept=num_kept)
    for one, other in zip(straight, again, strict=True):
        assert torch.equal(one, other)


def test_bagua_adds_the_step_to_the_mean_of_before():
    """With a lag of one step it is w <- mean(w) - u, the averaging that overlaps a step."""
    gradients = drawn(4)
    weights, momenta = np.zeros((2, 4, 5))
    for step, gradient in enumerate(gradients):
        momenta = 0.9 * momenta + 4 * gradient
        before = weights.mean(0) if step else weights
        weights = before - 0.1 * momenta
    found = check_formula(gradients, "every(1)+lag(1)+corrected+own-moments")
    for own, expected in zip(found, weights, strict=True):
        torch.testing.assert_close(own, torch.from_numpy(expected), rtol=0, atol=1e-12)


def test_a_center_without_momentum_is_the_mean_and_no_share_is_no_merge():
    options = {"lag": 2, "is_corrected": False}
    momentum, mean = (
        WeightRule(
            merge_every=2, keeps_moments=True, background=Background(center=center, **options)
        )
        for center in ("momentum", "mean")
    )
    for one, other in zip(
        check_formula(drawn(3), momentum), check_formula(drawn(3), mean), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)
    never = by_the_formula(drawn(3), parse_weights("every(99)+corrected"), lr=0.1)
    none = WeightRule(merge_every=1, background=Background(share=0.0, is_corrected=False))
    for own, alone in zip(check_formula(drawn(3), none), never, strict=True):
        torch.testing.assert_close(own, torch.from_numpy(alone), rtol=0, atol=1e-12)


@pytest.mark.parametrize("size", [2, 3, 4, 8])
@pytest.mark.parametrize("lag", [0, 2])
def test_the_sum_of_the_center_and_of_all_models_stays(lag, size):
    """Without steps they come together, and what one gets another one gives."""

    def on_rank(group):
        model = nn.Linear(5, 1, bias=False).double()
        nn.init.constant_(model.weight, 2.0)
        strategy, _ = strategy_of(group, f"every(2)+lag({lag})+elastic(0.4)", model)
        strategy.after_backward(model)
        nn.init.constant_(model.weight, float(group.rank))
        totals = []
        for step in range(1, 81):
            strategy.after_step(model)
            if step % 2 == (0 if lag == 0 else 1):
                continue
            total = model.weight.detach().clone()[0]
            group.all_reduce(total)
            center = strategy.state(model)["center.torch.float64"]
            totals.append((total, center))
        return totals, model.weight.detach()

    found = run_ranks(size, on_rank)
    mean = (2.0 + sum(range(size))) / (size + 1)
    for _, weight in found:
        torch.testing.assert_close(weight, torch.full_like(weight, mean), rtol=0, atol=1e-3)
    if lag == 0:
        for place in range(40):
            center = torch.cat([totals[place][1] for totals, _ in found])
            whole = center + found[0][0][place][0]
            torch.testing.assert_close(
                whole, torch.full_like(whole, mean * (size + 1)), rtol=0, atol=1e-12
            )


class _Centered:
    """Moments of a centered RMSprop: squares, which come first, and means."""

    def __init__(self, square, mean):
        self.moments = {
            "square_avg": torch.full((1, 5), square),
            "grad_avg": torch.full((1, 5), mean),
        }

    def state_dict(self):
        return {0: self.moments}

    def betas(self, number):
        return None


def test_squares_are_bounded_by_means_that_have_moved_too():
    """Ranks with mean 2 and 0 and no variance meet at mean 1 and square 2, not at square 4."""

    def on_rank(group):
        model = nn.Linear(5, 1, bias=False)
        optimizer = _Centered(*[(4.0, 2.0), (0.0, 0.0)][group.rank])
        rule = parse_weights("every(1)+corrected")
        strategy = BackgroundModels(group, Clock(), optimizer=optimizer, rule=rule, seed=SEED)
        strategy.after_backward(model)
        strategy.after_step(model)
        return [float(each[0, 0]) for each in optimizer.moments.values()]

    assert run_ranks(2, on_rank) == [[2.0, 1.0]] * 2


class _Counted:
    """A message that counts when it is waited for."""

    def __init__(self, work, waits):
        self._work, self._waits = work, waits

    def wait(self):
        self._waits.append(1)
        self._work.wait()


@pytest.mark.parametrize(("lag", "waits"), [(2, {1, 2}), (4, {2, 4}), (1, {1}), (0, {0})])
def test_nobody_waits_before_half_of_the_lag_is_over(lag, waits):
    def on_rank(group):
        model = nn.Linear(5, 1, bias=False)
        strategy, _ = strategy_of(group, f"every(4)+lag({lag})+corrected", model)
        counted, plain = [], group.transfer
        group.transfer = lambda *them: [_Counted(each, counted) for each in plain(*them)]
        strategy.after_backward(model)
        ages = set()
        for step in range(1, 13):
            before = len(counted)
            strategy.after_step(model)
            if len(counted) > before:
                ages.add(step % 4)
        return ages

    for ages in run_ranks(2, on_rank):
        assert ages == {age % 4 for age in waits}


@pytest.mark.parametrize("preset", ["async-average", "shadow-easgd", "shadow-ma", "shadow-bmuf"])
def test_presets_have_the_same_bits_each_time(preset):
    one, other = (trained_on_ranks(3, preset=preset) for _ in range(2))
    for (records, state), (others, another) in zip(one, other, strict=True):
        check_same_values(state, another)
        assert [r["loss"] for r in records] == [r["loss"] for r in others]
    rule = make_config(preset=preset).weight_rule
    assert rule.text == PRESETS[preset].weights
    assert not rule.makes_one(8)


@pytest.mark.parametrize("how", HOW)
def test_words_are_read_and_written_back(how):
    for text in (f"every(3)+lag(2)+{how}+own-moments", f"every(3)+{how}+own-moments"):
        assert parse_weights(text).text == text
        others = parse_weights(text.removesuffix("+own-moments"))
        assert others != parse_weights(text)
        assert parse_weights(others.text) == others
    assert parse_weights("every(2)+lag(0)+mean") == parse_weights("every(2)")
    usual = parse_weights("every(2)+momentum(0.5)").background
    assert usual == Background(0, "momentum", 0.5, is_corrected=False, momentum=0.5)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            "lag(2)",
            "--weights lag(2) says how models move towards each other, but not when; add every(K)",
        ),
        (
            "every(4)+lag(2)",
            (
                "--weights every(4)+lag(2) takes the mean of models 2 steps late, but does not say "
                "what becomes of these steps; add corrected, lerp(A), elastic(A) or momentum(E)"
            ),
        ),
        (
            "every(2)+lag(4)+corrected",
            (
                "--weights every(2)+lag(4)+corrected lets a merge take 4 steps, but the next one "
                "begins after 2; use every(4) or lag(2)"
            ),
        ),
        (
            "changed-gradient(0.1)+lerp(0.5)",
            (
                "--weights changed-gradient(0.1)+lerp(0.5) moves models towards a center, which "
                "changed-gradient does not; use every(K)+lerp(0.5), or drop lerp(0.5)"
            ),
        ),
        (
            "every(1)+ring+corrected",
            (
                "--weights every(1)+ring+corrected moves models towards a center, which ring does "
                "not; use every(K)+corrected, or drop corrected"
            ),
        ),
        (
            "every(1)+pairs+elastic(0.5)",
            (
                "--weights every(1)+pairs+elastic(0.5) has one center of all ranks, but groups "
                "that merge by themselves; use corrected or lerp(A), or all"
            ),
        ),
        (
            "every(1)+elastic(1)",
            "--weights elastic has 1 at character 18; it is a number above 0 and below 1",
        ),
        (
            "every(1)+lerp(0)",
            "--weights lerp has 0 at character 15; it is a number above 0 and below 1",
        ),
        (
            "every(1)+momentum(0.5,share=0)",
            (
                "--weights momentum has share=0 at character 23; share is a number above 0 and "
                "below 1"
            ),
        ),
        (
            "every(1)+lerp",
            ("--weights lerp at character 10 needs a number above 0 and below 1; write lerp(0.5)"),
        ),
        (
            "changed(0.1)+corrected",
            (
                "--weights changed(0.1)+corrected says more than changed, which adds single values "
                "of gradients up as they are; use changed(0.1)+sum"
            ),
        ),
    ],
)
def test_what_cannot_work_is_refused(words, sentence):
    with pytest.raises(InputError) as caught:
        parse_weights(words)
    assert str(caught.value) == sentence


def test_an_optimizer_that_begins_again_leaves_its_moments_behind():
    """A head start empties it; moments of before, with their sizes, would be mixed into the new."""

    def on_rank(group):
        model = nn.Linear(3, 2, bias=False)
        optimizer = build_optimizer("adam", model.parameters(), lr=0.1, weight_decay=0.0)
        rule = parse_weights("every(2)+lag(2)+elastic(0.5)")
        strategy = BackgroundModels(group, Clock(), optimizer=optimizer, rule=rule, seed=SEED)

        def names():
            return [n for n in (*strategy._centers, *strategy._rounds) if n.startswith("moments")]

        def step():
            model.weight.grad = torch.ones_like(model.weight)
            strategy.after_backward(model)
            found = names()
            optimizer.step()
            strategy.after_step(model)
            return found

        for _ in range(4):
            step()
        assert names()
        optimizer.load_state_dict({})
        assert step() == []

    run_ranks(3, on_rank)
