"""Models that become their mean by codes of how they changed."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import reference
import torch
from graphs import cut, make_graph
from torch import nn
from training import check_same_values, make_config, run

from distgnn.api.shared_models import TorchOptimizer
from distgnn.comm.threads import run_ranks
from distgnn.datasets import InputError
from distgnn.exchange.clock import Clock
from distgnn.kernels.seeds import MaskSeeds
from distgnn.optim.optimizers import build_optimizer
from distgnn.training.config.codecs import parse_weights
from distgnn.weights.coded_models import CodedModels
from distgnn.weights.local_models import LocalModels
from distgnn.weights.own_models import bound_squares
from distgnn.weights.rule import WeightRule

SIZES = [1, 2, 3, 4, 8]
ROWS = 9
"""Rows of 512 values that are coded."""


class Own(nn.Module):
    """A matrix that is coded, and a vector that is not."""

    def __init__(self):
        super().__init__()
        self.matrix = nn.Parameter(torch.ones(ROWS, 512))
        self.vector = nn.Parameter(torch.ones(7))


def gradients_of(rank, step, shapes):
    generator = torch.Generator().manual_seed(100 * rank + step)
    # Rows of very different sizes, as those of weights of rare and common features.
    return [
        torch.randn(shape, generator=generator)
        * torch.logspace(-3, 0, shape[-1])[torch.randperm(shape[-1], generator=generator)]
        for shape in shapes
    ]


def train(group, *, words, steps, optimizer="sgd", seen=None, kind=CodedModels):
    """Step by gradients of this rank; return model, optimizer and strategy."""
    model, rule = Own(), parse_weights(words)
    own = build_optimizer(optimizer, model.parameters(), lr=0.01, weight_decay=0.0)
    strategy = kind(group, Clock(), optimizer=own, rule=rule)
    shapes = [tuple(each.shape) for each in model.parameters()]
    for step in range(steps):
        drawn = gradients_of(group.rank, step, shapes)
        for each, gradient in zip(model.parameters(), drawn, strict=True):
            each.grad = gradient
        strategy.after_backward(model)
        own.step()
        strategy.after_step(model)
        if seen is not None:
            seen(step, model, own)
    return model, own, strategy


def code(values):
    """Rows as they arrive in 8 bits, rounded to the nearest."""
    told = [reference.decode_row(reference.encode_row(row, 8), 512, 8) for row in values]
    return np.stack(told)


def by_the_formula(size, *, steps, merge_every, lr=0.01):
    """The matrix of each rank under gradient descent with momentum 0.9, in float32."""
    weights = np.ones((size, ROWS, 512), np.float32)
    momenta = np.zeros_like(weights)
    before = [weights[0].copy(), momenta[0].copy()]
    for step in range(1, steps + 1):
        for rank in range(size):
            drawn = gradients_of(rank, step - 1, [(ROWS, 512), (7,)])[0].numpy()
            momenta[rank] = np.float32(0.9) * momenta[rank] + np.float32(size) * drawn
        weights -= np.float32(lr) * momenta
        if step % merge_every == 0 and size > 1:
            for place, all_of in enumerate((weights, momenta)):
                changes = all_of - before[place]
                # An owner adds its own slice of a sum of both tensors as it is.
                total = code(sum(_told(changes, place)))
                all_of[:] = before[place] = before[place] + total / np.float32(size)
    return weights


def _told(changes, place):
    """Codes of all ranks; the rows that a rank owns of both tensors as they are."""
    size = len(changes)
    owners = [rank * 2 * ROWS // size for rank in range(size + 1)]
    for rank in range(size):
        told = code(changes[rank])
        start, stop = (min(max(at - place * ROWS, 0), ROWS) for at in owners[rank : rank + 2])
        told[start:stop] = changes[rank][start:stop]
        yield told


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("merge_every", [1, 3])
def test_weights_are_those_of_the_formula(merge_every, size):
    words = f"every({merge_every})+int8(round=near)+mean"
    found = run_ranks(size, lambda group: train(group, words=words, steps=7)[0].matrix.detach())
    wanted = by_the_formula(size, steps=7, merge_every=merge_every)
    for own, expected in zip(found, wanted, strict=True):
        # A value between two codes may be rounded otherwise, by a 255th of a row's changes.
        far = np.abs(own.numpy() - expected)
        assert np.quantile(far, 0.99) < 1e-6
        assert far.max() < 0.005


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("own", ["", "+own-moments"])
@pytest.mark.parametrize("bits", [8, 4, 2])
def test_models_are_one_after_a_merge_and_near_the_mean_of_all(bits, own, optimizer):
    step = partial(train, steps=1, optimizer=optimizer)
    coded = run_ranks(3, partial(step, words=f"every(1)+int{bits}+mean{own}"))
    plain = run_ranks(3, partial(step, words=f"every(1)+mean{own}", kind=LocalModels))
    for (model, rule, _), (mean, other, _) in zip(coded, plain, strict=True):
        check_same_values(model.state_dict(), coded[0][0].state_dict())
        far = (model.matrix - mean.matrix).abs().max()
        # Twice a step of a code, of changes of 0.01 for Adam and at most 5 times 0.03 without it.
        assert 0 < far <= 2 * 0.3 / (2**bits - 1)
        assert torch.equal(model.vector, mean.vector) or (
            (model.vector - mean.vector).abs().max() < 1e-6
        )
        moments, means = rule.state_dict()[0], other.state_dict()[0]
        first = coded[0][1].state_dict()[0]
        for name, value in moments.items():
            if own or not value.dim():
                torch.testing.assert_close(value, means[name])
            else:
                assert torch.equal(value, first[name])
                # Squares are those of the mean root, so that they may be smaller.
                far = (value - means[name]).abs().max()
                assert far <= means[name].abs().max() * (1.0 if bits > 2 else 2.0)


@pytest.mark.parametrize("bits", [8, 4, 2, 1])
def test_squares_are_never_too_small_for_their_means(bits):
    def see(step, model, optimizer):
        for moments in optimizer.state_dict().values():
            mean, squares = moments["exp_avg"], moments["exp_avg_sq"]
            assert (squares >= 0).all()
            assert (mean.square() <= 53 * squares).all()

    words = f"every(2)+int{bits}+mean"
    run_ranks(3, partial(train, words=words, steps=10, optimizer="adam", seen=see))


BETAS = [(0.9, 0.999), (0.5, 0.9), (0.95, 0.9), (0.9, 0.81), (0.0, 0.5)]
"""Shares that moments keep: old gradients count less in the mean than in its square, or more."""


class Kept:
    """Moments of one parameter, as an optimizer gives them."""

    def __init__(self, betas, **moments):
        self.moments = {name: torch.as_tensor(value) for name, value in moments.items()}
        self._betas = betas

    def state_dict(self):
        return {0: self.moments}

    def betas(self, number):
        return self._betas


@pytest.mark.parametrize("num_steps", [1, 2, 7, 300])
@pytest.mark.parametrize(("beta1", "beta2"), BETAS)
def test_squares_that_gradients_can_leave_stay(beta1, beta2, num_steps):
    """The largest mean for its square: each gradient is the weight of the mean by the square's."""
    ages = np.arange(num_steps)
    gradients = (beta1 / beta2) ** ages
    first = (1 - beta1) * (beta1**ages * gradients).sum()
    second = (1 - beta2) * (beta2**ages * gradients**2).sum()
    mean = torch.tensor([first, 2 * first, 0.0], dtype=torch.float64)
    squares = torch.tensor([second, second, 0.0], dtype=torch.float64)
    bound_squares(Kept((beta1, beta2), step=num_steps, exp_avg=mean, exp_avg_sq=squares))
    np.testing.assert_allclose(squares.numpy(), [second, 4 * second, 0.0], rtol=1e-9)


@pytest.mark.parametrize("num_steps", [1, 2, 7, 300])
@pytest.mark.parametrize(("beta1", "beta2"), BETAS)
def test_lengths_that_gradients_can_leave_stay(beta1, beta2, num_steps):
    """The largest mean for its length: gradients were the larger, the older they are."""
    ages = np.arange(num_steps)
    mean = torch.tensor([1.0, -2.0, 0.0]).double() * (1 - beta1) * ((beta1 / beta2) ** ages).sum()
    lengths = torch.tensor([1.0, 1.0, 0.0], dtype=torch.float64)
    bound_squares(Kept((beta1, beta2), step=num_steps, exp_avg=mean, exp_inf=lengths))
    np.testing.assert_allclose(lengths.numpy(), [1, 2, 0], rtol=1e-9)


OPTIMIZERS = {
    "Adam": {},
    "Adam of short squares": {"betas": (0.95, 0.9)},
    "Adam of the largest": {"amsgrad": True},
    "NAdam": {},
    "RAdam": {},
    "Adamax": {},
    "RMSprop": {},
    "Adagrad": {},
    "Adadelta": {"lr": 1.0},
    "Rprop": {},
    "SGD": {"lr": 0.01, "momentum": 0.9},
}
"""Optimizers of torch and their options."""


class TorchSteps:
    """A matrix, an optimizer of torch for it, and coded merges after every fourth step."""

    def __init__(self, group, words, make):
        self.model = nn.Linear(512, 4, bias=False)
        nn.init.zeros_(self.model.weight)
        self.own = TorchOptimizer(self.model)
        self.own.optimizer = make(self.model.parameters())
        rule = parse_weights(words)
        kind = CodedModels if rule.codes_models else LocalModels
        self.strategy = kind(group, Clock(), optimizer=self.own, rule=rule)

    def step(self, gradient):
        """Take a step; the largest move of a weight."""
        self.model.weight.grad = gradient.clone()
        self.strategy.after_backward(self.model)
        before = self.model.weight.detach().clone()
        self.own.optimizer.step()
        moved = float((self.model.weight.detach() - before).abs().max())
        self.strategy.after_step(self.model)
        return moved


@pytest.mark.parametrize("code", ["int8", "int4"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_no_optimizer_of_torch_takes_longer_steps_with_a_code(name, code):
    def largest(group, words):
        kind = getattr(torch.optim, name.split(" ")[0])
        steps = TorchSteps(group, words, lambda weights: kind(weights, **OPTIMIZERS[name]))
        drawn = (gradients_of(group.rank, step, [(4, 512)])[0] for step in range(16))
        return max(steps.step(gradient) for gradient in drawn)

    coded, plain = (
        max(run_ranks(2, partial(largest, words=words)))
        for words in (f"every(4)+{code}+mean", "every(4)+mean")
    )
    assert coded < 10 * plain


def test_moments_that_nobody_knows_travel_as_they_are():
    def on_rank(group):
        steps = TorchSteps(group, "every(1)+int8(round=near)+mean", partial(torch.optim.SGD, lr=1))
        steps.step(torch.ones(4, 512))
        below = torch.full((4, 512), -1.0 - group.rank)
        steps.own.optimizer.state[steps.model.weight]["slow"] = below
        steps.step(torch.ones(4, 512))
        return below

    for found in run_ranks(2, on_rank):
        torch.testing.assert_close(found, torch.full((4, 512), -1.5))


def test_a_merge_makes_models_one_that_were_changed_in_between():
    def on_rank(group):
        steps = TorchSteps(group, "every(1)+int4+mean", partial(torch.optim.SGD, lr=0.01))
        for step in range(5):
            steps.step(gradients_of(group.rank, step, [(4, 512)])[0])
            merged = steps.model.weight.detach().clone()
            steps.model.weight.data += group.rank
        return merged

    first, second = run_ranks(2, on_rank)
    assert torch.equal(first, second)


def test_each_parameter_has_the_shares_of_its_group():
    model = nn.Linear(512, 4)
    own = TorchOptimizer(model)
    assert own.betas(0) is None
    groups = [
        {"params": [model.bias], "betas": (0.5, 0.9)},
        {"params": [model.weight], "betas": (0.8, 0.99)},
    ]
    own.optimizer = torch.optim.Adam(groups)
    assert own.betas(0) == (0.8, 0.99)
    own.optimizer.param_groups[1]["betas"] = (0.98, 0.92, 0.99)
    assert own.betas(0) is None
    own.optimizer = torch.optim.SGD(model.parameters())
    assert own.betas(0) is None


def test_an_optimizer_that_begins_again_forgets_its_moments():
    def on_rank(group):
        steps = TorchSteps(group, "every(4)+int8+mean", torch.optim.Adam)
        for step in range(6):
            steps.step(gradients_of(group.rank, step, [(4, 512)])[0])
        kept = steps.strategy.state(steps.model)
        steps.own.optimizer = torch.optim.Adam(steps.model.parameters())
        steps.step(gradients_of(group.rank, 6, [(4, 512)])[0])
        return [name for name in kept if name.startswith("before")], [
            name for name in steps.strategy.state(steps.model) if name.startswith("before")
        ]

    for before, after in run_ranks(2, on_rank):
        assert before == [
            "before.weight.weight",
            "before.moment.0.exp_avg",
            "before.moment.0.exp_avg_sq",
        ]
        assert after == ["before.weight.weight"]


@pytest.mark.parametrize("stop", [3, 4, 5])
@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize(
    "words",
    [
        "every(4)+int4+mean",
        "every(2)+int8(round=near)+mean+own-moments",
        "changed-gradient(0.02)+int8+mean",
        "every(4,for=1)+int8+mean",
    ],
)
def test_a_resumed_run_has_the_bits_of_the_straight_one(words, optimizer, stop, tmp_path):
    graph = make_graph()
    parts = cut(graph, 3)
    config = make_config(
        epochs=9,
        checkpoint_every=1,
        dropout=0.3,
        hidden=64,
        weights=words,
        optimizer=optimizer,
        norm="batch",
    )
    straight = run(tmp_path / "straight", graph, parts, config)
    run(tmp_path / "again", graph, parts, config, stop_at=stop)
    again = run(tmp_path / "again", graph, parts, config, resume=True)
    for one, other in zip(again, straight, strict=True):
        for key in ("loss", "weight_bytes_sent", "weight_syncs"):
            assert [r[key] for r in one.records] == [r[key] for r in other.records]
        check_same_values(one.trainer.model.state_dict(), other.trainer.model.state_dict())
        check_same_values(one.trainer.optimizer.state_dict(), other.trainer.optimizer.state_dict())


def test_on_another_partition_all_ranks_begin_as_the_mean(tmp_path):
    graph = make_graph()
    config = make_config(epochs=6, checkpoint_every=1, weights="every(4)+int8", hidden=64)
    run(tmp_path, graph, cut(graph, 3), config, stop_at=3)
    results = run(tmp_path, graph, cut(graph, 2), config, resume=True)
    assert results[0].records[5]["loss"] < results[0].records[0]["loss"]


def test_random_rounding_depends_on_the_seed_and_the_epoch():
    def merged(seed, epoch):
        def on_rank(group):
            seeds = MaskSeeds()
            seeds.seed, seeds.epoch = seed, epoch
            model = Own()
            own = build_optimizer("sgd", model.parameters(), lr=0.01, weight_decay=0.0)
            rule = WeightRule(merge_every=1, codec=parse_weights("int4").codec)
            strategy = CodedModels(group, Clock(), optimizer=own, rule=rule, seeds=seeds)
            for each in model.parameters():
                each.grad = gradients_of(group.rank, 0, [tuple(each.shape)])[0]
            strategy.after_backward(model)
            own.step()
            strategy.after_step(model)
            return model.matrix.detach()

        return run_ranks(2, on_rank)[0]

    assert torch.equal(merged(1, 2), merged(1, 2))
    assert not torch.equal(merged(1, 2), merged(1, 3))
    assert not torch.equal(merged(1, 2), merged(2, 2))


def test_words_are_read_and_written_back():
    rule = parse_weights("int8+every(4)")
    assert rule.text == "every(4)+int8+mean"
    assert parse_weights(rule.text) == rule
    assert rule.codes_models
    own = parse_weights("every(4,for=1)+int4(round=near)+mean+own-moments")
    assert parse_weights(own.text) == own
    assert not parse_weights("every(4)+ring+int8").codes_models
    assert not parse_weights("int8").codes_models


@pytest.mark.parametrize("whom", ["pairs", "groups(4)", "corrected", "lerp(0.5)"])
def test_a_code_needs_a_model_that_all_know(whom):
    with pytest.raises(InputError) as caught:
        parse_weights(f"every(2)+int8+{whom}")
    assert str(caught.value) == (
        f"--weights every(2)+int8+{whom} codes how models changed since they were one, but in "
        "groups or towards a center they never are; use every(K)+int8+mean, or drop int8"
    )
