"""Steps between merges that move by the accuracy that models lose on vertices of other ranks."""

from __future__ import annotations

import re

import numpy as np
import pytest
from graphs import cut, make_graph
from training import check_same_values, ends_of, make_config, run

from distgnn.comm.threads import run_ranks
from distgnn.datasets.errors import InputError
from distgnn.training.config.codecs import parse_weights
from distgnn.training.loop.skew_scout import Climber
from distgnn.training.loop.trainer import Trainer
from distgnn.weights.rule import Travel


def by_the_formula(lost, *, period, loss, most, probes):
    """Hill climbing by factors of two on 50 max(0, A - L) + 1 / K."""
    found, last, step = [], np.inf, 2.0
    for _ in range(probes):
        cost = 50 * max(0.0, lost(period) - loss) + 1 / period
        step = 2.0 if period == 1 else 1 / step if cost > last else step
        step = 0.5 if lost(period) > loss else step
        period, last = min(max(int(period * step), 1), most), cost
        found.append(period)
    return found


@pytest.mark.parametrize("period", [1, 4, 100])
@pytest.mark.parametrize(
    "lost", [lambda k: 0.02 * np.log2(k), lambda k: 0.0, lambda k: 0.5 * (k > 1), lambda k: 0.5]
)
def test_the_climb_is_that_of_the_formula(lost, period):
    climber, found = Climber(period, 0.05, 100), []
    for probe in range(30):
        climber.move(lost(climber.period))
        found.append(climber.period)
        if probe % 7 == 0:
            state, climber = climber.state(), Climber(3, 0.05, 100)
            climber.load_state(state)
    assert found == by_the_formula(lost, period=period, loss=0.05, most=100, probes=30)


def test_steps_become_many_without_a_loss_and_few_with_one():
    free, skewed = Climber(1, 0.05, 512), Climber(64, 0.05, 512)
    for _ in range(20):
        free.move(0.0)
        skewed.move(0.0 if skewed.period == 1 else 0.5)
    assert free.period == 512
    assert skewed.period <= 2


def test_the_accuracy_lost_is_that_of_each_model_away_from_home():
    graph = make_graph()
    parts = cut(graph, 3)
    config = make_config(epochs=5, weights="every(4)+travel(10)", dropout=0.0)

    def on_rank(group):
        trainer = Trainer(config, ends_of(graph), parts[group.rank], group)
        for _ in range(3):
            trainer.train_epoch()
        own = {name: each.clone() for name, each in trainer.model.state_dict().items()}
        lost = trainer.controller._accuracy_lost()
        check_same_values(trainer.model.state_dict(), own)
        assert trainer.controller.take_bytes() == 2 * sum(
            4 * each.numel() for each in trainer.model.parameters()
        )
        return lost, own

    results = run_ranks(3, on_rank)

    def whole(group):
        found = []
        part = cut(graph, 1)[0]
        trainer = Trainer(config, ends_of(graph), part, group)
        for _, state in results:
            trainer.model.load_state_dict(state)
            right = (
                trainer.exact_scores().argmax(1).numpy()
                == graph.labels[part.global_id[: part.num_roots]]
            )
            found.append(right)
        return found, part.global_id[: part.num_roots]

    [(found, ids)] = run_ranks(1, whole)
    losses = []
    is_val = graph.val_mask[0][ids]
    for home, right in enumerate(found):
        at_home = np.isin(ids, parts[home].global_id[: parts[home].num_roots])
        losses.append(right[at_home & is_val].mean() - right[~at_home & is_val].mean())
    for lost, _ in results:
        assert lost == pytest.approx(np.mean(losses), abs=1e-6)
    assert abs(np.mean(losses)) > 0


def test_a_resumed_run_climbs_on(tmp_path):
    graph = make_graph()
    parts = cut(graph, 3)
    words = "every(2)+travel(4,loss=0.9)"
    config = make_config(epochs=13, checkpoint_every=1, weights=words, eval_every=3)
    straight = run(tmp_path / "straight", graph, parts, config)
    run(tmp_path / "again", graph, parts, config, stop_at=9)
    again = run(tmp_path / "again", graph, parts, config, resume=True)
    for one, other in zip(again, straight, strict=True):
        for name in ("loss", "weight_syncs"):
            assert [r[name] for r in one.records] == [r[name] for r in other.records]
        check_same_values(one.trainer.model.state_dict(), other.trainer.model.state_dict())
        figures = other.trainer.controller.figures()
        assert one.trainer.controller.figures() == figures
        assert figures["merge_every"] == 4
    # Models are due to travel after epoch 4, and do so before the merge of epoch 6.
    merges = [r["epoch"] + 1 for r in straight[0].records if r["weight_syncs"]]
    assert merges == [2, 4, 8, 12]
    # What they send then is in the record of epoch 6, also where the run was stopped between.
    run(tmp_path / "between", graph, parts, config, stop_at=5)
    between = run(tmp_path / "between", graph, parts, config, resume=True)
    for found in (again, between):
        for one, other in zip(found, straight, strict=True):
            sent, expected = (
                [r["eval_halo_bytes_sent"] for r in each.records] for each in (one, other)
            )
            assert sent == expected
            assert expected[5] > expected[2] > 0


def test_words_are_read_and_written_back():
    for words, travel in (("travel(20)", Travel(20)), ("travel(5,loss=0.1)", Travel(5, 0.1))):
        rule = parse_weights(f"every(4)+{words}")
        assert rule.travel == travel
        assert rule.text == f"every(4)+mean+{words}"
        assert rule.sends_at_most
        assert (rule.at_most.merge_every, rule.at_most.travel) == (1, None)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"weights": "travel(5)"}, "does not say how many there are at first; add every(K)"),
        (
            {"weights": "changed-gradient(0.1)+travel(5)"},
            "and says more of when models are merged; use every(K)+travel(5)",
        ),
        (
            {"weights": "every(4)+lag(1)+corrected+travel(5)"},
            "and says more of when models are merged; use every(K)+travel(5)",
        ),
        (
            {"weights": "every(40)+travel(5)"},
            "lets models travel more often than they are merged; use at most every(5), or travel(",
        ),
        (
            {"weights": "every(2)+travel(5)", "halo": "auto"},
            "while the run trains, each by what the metric does; let one of the two",
        ),
    ],
)
def test_what_cannot_work_is_refused(options, sentence):
    with pytest.raises(InputError, match=re.escape(sentence)):
        make_config(**options)


def test_a_metric_of_all_together_is_refused():
    graph = make_graph("multi-label")
    parts = cut(graph, 2)
    config = make_config(weights="every(2)+travel(5)", metric="roc-auc")

    def on_rank(group):
        Trainer(config, ends_of(graph), parts[group.rank], group)

    sentence = "--metric roc-auc is of the vertices of all together; use accuracy, micro-f1 or"
    with pytest.raises(InputError, match=re.escape(sentence)):
        run_ranks(2, on_rank)
