"""Models that ranks train by themselves: their means, their gradients, checkpoints and bytes."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch
from graphs import cut, make_graph
from torch import nn
from training import check_same_values, ends_of, make_config, run, trained_on_ranks

from distgnn.comm.single import SingleGroup
from distgnn.comm.threads import run_ranks
from distgnn.datasets import InputError
from distgnn.exchange.clock import Clock
from distgnn.exchange.spared import Gate
from distgnn.optim.optimizers import build_optimizer
from distgnn.training.config.codecs import parse_weights
from distgnn.training.loop.trainer import Trainer
from distgnn.training.run.beginning import resume
from distgnn.training.run.directory import RunDirectory
from distgnn.weights.groups import draw_group
from distgnn.weights.local_models import LocalModels
from distgnn.weights.rule import WeightRule

SIZES = [1, 2, 3, 4, 8]
SEED = 5


def every(steps):
    return f"every({steps})+mean"


def trained(num_parts, *, steps=5, **options):
    return trained_on_ranks(num_parts, epochs=steps, **options)


@pytest.mark.parametrize("num_parts", SIZES)
def test_a_mean_in_every_step_of_gradient_descent_is_the_sum_of_gradients(num_parts):
    options = {"optimizer": "sgd", "lr": 0.1}
    merged = trained(num_parts, weights=every(1), **options)
    summed = trained(num_parts, **options)
    for (records, state), (others, other) in zip(merged, summed, strict=True):
        for name, tensor in other.items():
            if name != "moments":
                torch.testing.assert_close(state[name], tensor, rtol=1e-6, atol=1e-6)
        assert [r["loss"] for r in records] == pytest.approx([r["loss"] for r in others], rel=1e-5)
    if num_parts == 1:
        check_same_values(merged[0][1], summed[0][1])


@pytest.mark.parametrize("num_parts", [2, 3, 8])
@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
def test_models_are_one_after_a_merge_and_differ_before(optimizer, num_parts):
    options = {"weights": every(3), "optimizer": optimizer}
    merged = trained(num_parts, steps=6, **options)
    for _, state in merged[1:]:
        check_same_values(state, merged[0][1])
    own = trained(num_parts, steps=5, **options)
    name = next(iter(own[0][1]))
    assert not torch.equal(own[0][1][name], own[1][1][name])
    for records, _ in own:
        assert [r["val_metric"] for r in records] == [r["val_metric"] for r in own[0][0]]


def test_a_record_says_how_far_models_are_from_their_mean():
    graph = make_graph()
    config = make_config(epochs=4, weights=every(4), eval_every=2, dropout=0.0)
    parts = cut(graph, 3)

    def on_rank(group):
        trainer = Trainer(config, ends_of(graph), parts[group.rank], group)
        found = []
        for record in trainer.epochs():
            flat = torch.cat([each.detach().reshape(-1) for each in trainer.model.parameters()])
            found.append((record.get("consensus_distance"), flat.double().numpy()))
        return found

    results = run_ranks(3, on_rank)
    for epoch, seen in enumerate(zip(*results, strict=True)):
        own = np.array([flat for _, flat in seen])
        far = np.sqrt(((own - own.mean(0)) ** 2).sum(1).mean()) / np.linalg.norm(own.mean(0))
        expected = None if epoch % 2 == 0 else pytest.approx(far, rel=1e-5)
        assert [distance for distance, _ in seen] == [expected] * 3
        assert (far > 1e-4) == (epoch < 3)


def by_the_formula(
    gradients, *, steps, merge_every, lr, corrections=0, keeps_moments=False, group_size=0
):
    """Gradient descent of each rank with momentum 0.9, and the means of weights and momenta."""
    weights, momenta = np.zeros_like(gradients[0]), np.zeros_like(gradients[0])
    size = len(weights)
    for step in range(1, steps + 1):
        momenta = 0.9 * momenta + size * gradients[step - 1]
        weights = weights - lr * momenta
        if step % merge_every <= corrections:
            for rank in range(size):
                own = draw_group(rank, size, group_size or size, SEED, step)
                if rank == own[0]:
                    weights[own] = weights[own].mean(0)
                    momenta[own] = momenta[own] if keeps_moments else momenta[own].mean(0)
    return weights


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("merge_every", [1, 2, 3])
@pytest.mark.parametrize("keeps_moments", [False, True])
@pytest.mark.parametrize(("group_size", "corrections"), [(0, 0), (2, 0), (3, 0), (0, 1)])
def test_weights_are_those_of_the_formula(
    group_size, corrections, keeps_moments, merge_every, size
):
    how = {"merge_every": merge_every, "keeps_moments": keeps_moments, "group_size": group_size}
    how |= {"corrections": corrections}
    gradients = np.random.default_rng(0).normal(size=(7, size, 5))

    def on_rank(group):
        model = nn.Linear(5, 1, bias=False).double()
        nn.init.zeros_(model.weight)
        optimizer = build_optimizer("sgd", model.parameters(), lr=0.1, weight_decay=0.0)
        rule = WeightRule(**how)
        strategy = LocalModels(group, Clock(), optimizer=optimizer, rule=rule, seed=SEED)
        for step in range(7):
            model.weight.grad = torch.from_numpy(gradients[step, group.rank][None].copy())
            strategy.after_backward(model)
            optimizer.step()
            before = model.weight.detach().clone()
            group.all_reduce(before)
            strategy.after_step(model)
            after = model.weight.detach().clone()
            group.all_reduce(after)
            # A merge keeps the sum of all weights.
            torch.testing.assert_close(after, before, rtol=0, atol=1e-12)
        with strategy.consensus(model):
            mean = model.weight.detach().clone()
        torch.testing.assert_close(mean, after / size, rtol=0, atol=1e-12)
        return model.weight.detach()[0]

    expected = by_the_formula(gradients, steps=7, lr=0.1, **how)
    for rank, found in enumerate(run_ranks(size, on_rank)):
        torch.testing.assert_close(found, torch.from_numpy(expected[rank]), rtol=0, atol=1e-12)


def test_rows_travel_in_the_steps_that_correct_models_alone():
    options = {"optimizer": "sgd", "lr": 0.1, "dropout": 0.0}
    words = {"halo": "every(4)+drop", "weights": "every(4,for=1)+mean"}
    found = trained(3, steps=9, **words, **options)
    for records, state in found:
        assert [r["weight_syncs"] for r in records] == [1, 0, 0, 1, 1, 0, 0, 1, 1]
        assert [r["halo_bytes_sent"] > 0 for r in records] == [True, *[False] * 3] * 2 + [True]
        check_same_values(state, found[0][1])
    # The first step is one of all ranks together, from the same weights.
    corrected, exact = (trained(3, steps=1, **more, **options) for more in (words, {}))
    for (_, state), (_, other) in zip(corrected, exact, strict=True):
        for name, tensor in other.items():
            if name != "moments":
                torch.testing.assert_close(state[name], tensor, rtol=1e-6, atol=1e-6)


def by_votes(gradients, *, level, lr, vote):
    """Gradient descent of each rank, and the mean of weights once gradients change."""
    weights, momenta, merges, past, norms = 0 * gradients[0], 0 * gradients[0], [], [], None
    for own in len(gradients[0]) * gradients:
        momenta = 0.9 * momenta + own
        weights = weights - lr * momenta
        squares, before = (own**2).sum(1), norms
        norms = squares if before is None else before + 2 / 26 * (squares - before)
        changes = own[:, 0] + np.inf if before is None else abs(norms - before) / before
        limit = float(level) if level[0] != "q" else 0.0
        if level[0] == "q" and past:
            seen = np.mean(past, 1) if vote == "mean" else past
            limit = np.quantile(seen, int(level[1:]) / 100)
        share = {"any": 1 / len(own), "half": 0.51}.get(vote, vote)
        yes = changes.mean() > limit if vote == "mean" else (changes > limit).mean() >= share
        past = [*past, changes][-20:] if np.isfinite(changes).all() else past
        merges.append(bool(yes) and limit < np.inf)
        weights = np.repeat(weights.mean(0, keepdims=True), len(own), 0) if merges[-1] else weights
    return weights, merges


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("level", ["0", "0.1", "0.3", "inf", "q50", "q90"])
@pytest.mark.parametrize("vote", ["any", "half", "mean", 0.75])
def test_ranks_merge_once_gradients_change(vote, level, size):
    gradients = np.random.default_rng(0).normal(size=(35, size, 5))
    gradients[7, -1] *= 9.0
    rule = parse_weights(f"changed-gradient({level},vote={vote})+own-moments")

    def on_rank(group):
        model = nn.Linear(5, 1, bias=False).double()
        nn.init.zeros_(model.weight)
        optimizer = build_optimizer("sgd", model.parameters(), lr=0.1, weight_decay=0.0)
        strategy = LocalModels(group, Clock(), optimizer=optimizer, rule=rule)
        merges = []
        for gradient in gradients[:, group.rank]:
            model.weight.grad = torch.from_numpy(gradient[None].copy())
            strategy.after_backward(model)
            optimizer.step()
            strategy.after_step(model)
            merges.append(strategy.take_merges() == 1)
        return model.weight.detach()[0], merges, strategy.take_bytes()

    expected, merges = by_votes(gradients, level=level, lr=0.1, vote=vote)
    if level in ("0.3", "q90") and vote == "any":
        assert merges[7]
        assert not all(merges)
    for rank, (found, seen, sent) in enumerate(run_ranks(size, on_rank)):
        torch.testing.assert_close(found, torch.from_numpy(expected[rank]), rtol=0, atol=1e-12)
        assert seen == (merges if size > 1 else [False] * 35)
        votes = 8 * (size - 1) * 35 * (level not in ("0", "inf"))
        assert sent == votes + sum(seen) * (2 * (size - 1) * 5 * 8 // size)


def test_the_least_threshold_is_a_merge_in_every_step_and_the_largest_is_none():
    options = {"eval_every": 5, "dropout": 0.0}
    always, merged, never = (
        trained(3, weights=words, **options)
        for words in ("changed-gradient(0)", every(1), "changed-gradient(inf)")
    )
    for (records, state), (others, other) in zip(always, merged, strict=True):
        check_same_values(state, other)
        for name in ("loss", "val_metric", "weight_bytes_sent", "weight_syncs"):
            assert [r[name] for r in records] == [r[name] for r in others]
        assert [r["weight_syncs"] for r in records] == [1] * 5
    for records, _ in never:
        assert [r["weight_syncs"] for r in records] == [0] * 5
        assert [r["weight_bytes_sent"] > 0 for r in records] == [False] * 4 + [True]


def test_a_gradient_of_zeros_does_not_change():
    def on_rank(group):
        model = nn.Linear(2, 1)
        optimizer = build_optimizer("adam", model.parameters(), lr=0.1, weight_decay=0.0)
        rule = parse_weights("changed-gradient(0.5)")
        strategy = LocalModels(group, Clock(), optimizer=optimizer, rule=rule)
        found = []
        for scale in (0.0, 0.0, 1.0, 1.0):
            model.weight.grad = torch.full_like(model.weight, scale * group.rank)
            strategy.after_backward(model)
            strategy.after_step(model)
            found.append(strategy.take_merges())
        return found

    # The first step merges, and so does the first gradient of rank 1, which counts for 25 steps.
    assert run_ranks(2, on_rank) == [[1, 0, 1, 1]] * 2


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("group_size", [2, 3, 4, 9])
def test_groups_are_disjoint_and_are_drawn_again(group_size, size):
    seen = set()
    for step in range(60):
        drawn = {tuple(draw_group(rank, size, group_size, SEED, step)) for rank in range(size)}
        assert sorted(rank for own in drawn for rank in own) == list(range(size))
        sizes = sorted(len(own) for own in drawn)
        assert sizes[1:] == [group_size] * (size // group_size) or sizes == [group_size] * len(
            sizes
        )
        seen |= {pair for own in drawn for pair in combinations(own, 2)}
    assert seen == set(combinations(range(size), 2)), "all ranks meet"


@pytest.mark.parametrize(("words", "largest"), [("pairs", 2), ("groups(3)", 3), ("all", 8)])
def test_models_come_together_without_steps(words, largest):
    rule = parse_weights(f"every(1)+{words}")

    def on_rank(group):
        model = nn.Linear(3, 1, bias=False).double()
        nn.init.constant_(model.weight, float(group.rank))
        optimizer = build_optimizer("sgd", model.parameters(), lr=0.0, weight_decay=0.0)
        strategy = LocalModels(group, Clock(), optimizer=optimizer, rule=rule, seed=SEED)
        found = []
        for _ in range(40):
            strategy.after_step(model)
            found.append(float(model.weight.detach()[0, 0]))
        return found

    weights = np.array(run_ranks(8, on_rank))
    assert len(np.unique(weights[:, 0])) == -(-8 // largest)
    np.testing.assert_allclose(weights[:, -1], 3.5, rtol=0, atol=1e-4)
    np.testing.assert_allclose(weights.mean(0), 3.5, rtol=0, atol=1e-12)


def test_a_consensus_is_the_mean_and_leaves_every_model_as_it_was():
    def on_rank(group):
        model = nn.Linear(2, 1, bias=False)
        nn.init.constant_(model.weight, float(group.rank))
        optimizer = build_optimizer("adam", model.parameters(), lr=0.1, weight_decay=0.0)
        rule = WeightRule(merge_every=4)
        strategy = LocalModels(group, Clock(), optimizer=optimizer, rule=rule)
        strategy.after_step(model)
        with strategy.consensus(model):
            inside = model.weight.detach().clone()
        return inside.tolist(), model.weight.detach().tolist(), strategy.take_bytes()

    for rank, (inside, after, sent) in enumerate(run_ranks(3, on_rank)):
        assert inside == [[1, 1]]
        assert after == [[rank, rank]]
        assert sent == 2 * 2 * 8 // 3


def test_a_rank_without_a_gradient_counts_as_one_of_zeros():
    model = nn.Linear(2, 1)
    optimizer = build_optimizer("sgd", model.parameters(), lr=0.1, weight_decay=0.0)
    rule = WeightRule(merge_every=1)
    strategy = LocalModels(SingleGroup(), Clock(), optimizer=optimizer, rule=rule)
    strategy.after_backward(model)
    assert all(not each.grad.any() for each in model.parameters())
    strategy.after_step(model)
    assert strategy.take_bytes() == 0
    assert strategy.state(model) == {}


@pytest.mark.parametrize("stop", [3, 4, 5])
@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize(
    "words",
    [
        every(4),
        f"{every(4)}+own-moments",
        "every(2)+pairs",
        "every(1)+pairs+own-moments",
        "changed-gradient(0.02)",
        "changed-gradient(q40,vote=0.5)",
        "changed-gradient(0.03)+pairs+own-moments",
        "changed-gradient(0.03)+groups(2,order=tournament)+own-moments",
    ],
)
def test_a_resumed_run_has_the_bits_of_the_straight_one(words, optimizer, stop, tmp_path):
    graph = make_graph()
    parts = cut(graph, 3)
    options = {"epochs": 9, "checkpoint_every": 1, "dropout": 0.3, "clip_grad_norm": 0.5}
    config = make_config(**options, weights=words, optimizer=optimizer, norm="batch")
    straight = run(tmp_path / "straight", graph, parts, config)
    run(tmp_path / "again", graph, parts, config, stop_at=stop)
    again = run(tmp_path / "again", graph, parts, config, resume=True)
    for one, other in zip(again, straight, strict=True):
        assert [r["loss"] for r in one.records] == [r["loss"] for r in other.records]
        assert [r["weight_bytes_sent"] for r in one.records] == [
            r["weight_bytes_sent"] for r in other.records
        ]
        check_same_values(one.trainer.model.state_dict(), other.trainer.model.state_dict())
        check_same_values(one.trainer.optimizer.state_dict(), other.trainer.optimizer.state_dict())
        check_same_values(one.trainer.best_state, other.trainer.best_state)


def test_on_another_partition_all_ranks_begin_as_the_mean(tmp_path):
    graph = make_graph()
    config = make_config(epochs=6, checkpoint_every=1, weights=every(4), dropout=0.0)
    run(tmp_path, graph, cut(graph, 3), config, stop_at=3)
    results = run(tmp_path, graph, cut(graph, 2), config, resume=True)
    assert [record["epoch"] for record in results[0].records] == list(range(6))
    losses = [record["loss"] for record in results[0].records]
    # The mean of three models is as far as the run was: a new one would be where it began.
    assert losses[5] < losses[0]


@pytest.mark.parametrize(
    ("words", "rest"),
    [(every(4), ""), ("changed(0.1)", "; gradients that were not told yet are dropped")],
)
def test_a_run_says_that_models_start_from_their_mean(words, rest, tmp_path):
    graph, lines = make_graph(), []
    config = make_config(epochs=6, checkpoint_every=1, weights=words)
    run(tmp_path, graph, cut(graph, 3), config, stop_at=3)
    parts = cut(graph, 2)

    def on_rank(group):
        trainer = Trainer(config, ends_of(graph), parts[group.rank], group)
        resume(trainer, RunDirectory(tmp_path), lines.append)

    run_ranks(2, on_rank)
    said = "ranks start from the mean of their models, which are of another partition"
    assert f"{said}{rest}" in lines


def test_words_are_read_and_written_back():
    rule = WeightRule(merge_every=4)
    for text in ("every(4)", "every(4)+mean", "mean + every(4)"):
        assert parse_weights(text) == rule
    own = WeightRule(merge_every=4, keeps_moments=True)
    assert parse_weights("own-moments+every(4)") == parse_weights(own.text) == own
    assert make_config(weights="every(4)").weights == rule.text == every(4)
    assert parse_weights("every(4)+all") == rule
    pairs = WeightRule(merge_every=4, group_size=2)
    assert parse_weights("groups(2)+every(4)") == parse_weights(pairs.text) == pairs
    assert pairs.text == "every(4)+pairs+mean"
    changed = WeightRule(merge_every=1, gate=Gate(0.05))
    assert changed.text == "changed-gradient(0.05)+mean"
    half = parse_weights("changed-gradient(0.05,vote=half)")
    assert half.text == "changed-gradient(0.05,vote=half)+mean"
    quorum = parse_weights("changed-gradient(q80,vote=0.25)")
    assert quorum.gate == Gate(0.0, 0.25, quantile=0.8)
    assert quorum.text == "changed-gradient(q80,vote=0.25)+mean"
    never = parse_weights("changed-gradient(inf)+groups(4)")
    assert never.text == "changed-gradient(inf)+groups(4)+mean"
    for rule in (changed, half, never):
        assert parse_weights(rule.text) == rule
    groups = WeightRule(merge_every=1, group_size=3, keeps_moments=True)
    assert groups.text == "every(1)+groups(3)+mean+own-moments"
    assert parse_weights(groups.text) == groups


@pytest.mark.parametrize("preset", ["decentralized", "ds-sync-weights"])
def test_presets_merge_models_within_groups(preset):
    config = make_config(preset=preset)
    assert config.weight_rule == make_config(weights=preset).weight_rule
    assert not config.weight_rule.makes_one(8)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"weights": "mean"},
            "--weights mean takes the mean of models, but does not say when; add every(K)",
        ),
        (
            {"weights": "own-moments"},
            (
                "--weights own-moments keeps the moments of models that are merged, but does not "
                "say when; add every(K), or drop own-moments"
            ),
        ),
        (
            {"weights": "pairs"},
            "--weights pairs says with whom models are merged, but not when; add every(K)",
        ),
        (
            {"weights": "every(2)+groups(1)"},
            "--weights groups has 1 at character 17; it is a whole number of at least 2",
        ),
        (
            {"weights": "every(2)+groups(4)+pairs"},
            "--weights groups(4)+pairs says twice with whom; keep one",
        ),
        (
            {"weights": "every"},
            "--weights every needs a whole number of at least 1; write every(1)",
        ),
        (
            {"weights": "changed-gradient"},
            (
                "--weights changed-gradient needs a number of at least 0, or a quantile from q1 to "
                "q99; write changed-gradient(0)"
            ),
        ),
        (
            {"weights": "changed-gradient(nan)"},
            (
                "--weights changed-gradient has nan at character 18; it is a number of at least 0, "
                "or a quantile from q1 to q99"
            ),
        ),
        (
            {"weights": "changed-gradient(q80,vote=2)"},
            (
                "--weights changed-gradient has vote=2 at character 22; vote is any or half or "
                "mean, or a share of the ranks above 0 and at most 1"
            ),
        ),
        (
            {"weights": "changed-gradient(0.1)+sum"},
            (
                "--weights changed-gradient(0.1)+sum adds gradients up in every step, but "
                "changed-gradient says when models are merged; use changed-gradient(0.1)+mean, or "
                "drop changed-gradient"
            ),
        ),
        (
            {"weights": "every(2,for=2)"},
            (
                "--weights every(2,for=2) leaves no step that a rank takes by itself; for is below "
                "2, and every(1) merges in every step"
            ),
        ),
        (
            {"weights": "every(3,for=1)+pairs"},
            (
                "--weights every(3,for=1)+pairs corrects models in steps that all ranks take "
                "together; drop for=1, or take the mean of all"
            ),
        ),
        (
            {"weights": "every(0)"},
            "--weights every has 0 at character 7; it is a whole number of at least 1",
        ),
        (
            {"weights": "every(2)+sum"},
            (
                "--weights every(2)+sum adds gradients up in every step, but every says when "
                "models are merged; use every(2)+mean, or drop every"
            ),
        ),
        (
            {"weights": "every(2)", "ema": 0.9},
            (
                "--ema 0.9 averages the weights of one model, but with --weights "
                "every(2)+mean each rank has its own; drop one of the two"
            ),
        ),
        (
            {"weights": "every(2)", "task": "link"},
            (
                "--weights every(2)+mean lets ranks have models of their own, whose rows "
                "a link model would mix; use sum or a codec"
            ),
        ),
    ],
)
def test_what_cannot_work_is_refused(options, sentence):
    with pytest.raises(InputError) as caught:
        make_config(**options)
    assert str(caught.value) == sentence
