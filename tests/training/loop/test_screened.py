"""Evaluation screened over coded rows: exact results, fewer bytes."""

from __future__ import annotations

import dataclasses
import gc
import re
from types import SimpleNamespace

import pytest
import torch
from graphs import cut, make_graph
from hypothesis import given
from hypothesis import strategies as st
from training import ends_of, make_config, run

import distgnn as dg
from distgnn.api.announcement import announce
from distgnn.cli.results import result_lines
from distgnn.comm.single import SingleGroup
from distgnn.comm.threads import run_ranks
from distgnn.datasets import InputError
from distgnn.datasets.held_out import hold_out_links
from distgnn.datasets.planted import planted
from distgnn.exchange.codec import EXACT
from distgnn.forecast.traffic import forecast, planned_evaluation_bytes, screened_bytes
from distgnn.pages.run import run_page
from distgnn.partition import assign
from distgnn.partition.directory.store import read_manifest, read_part, write
from distgnn.partition.quality import measure
from distgnn.training.loop.best import Best
from distgnn.training.loop.own_model import own_config
from distgnn.training.loop.screened import (
    CONFIRMED,
    SCREENED,
    CodedScreen,
    NoScreen,
    with_confirmed,
)
from distgnn.training.loop.trainer import Trainer
from distgnn.training.run.directory import RunDirectory
from distgnn.training.tasks.measures import Accuracy, MeanSquaredError
from distgnn.training.tasks.tasks import resolve

METRICS = [f"{split}_metric" for split in ("train", "val", "test")]
MODELS = {
    "sage": {},
    "sage-max": {"aggregator": "max"},
    "gcn": {"model": "gcn", "layers": 3, "norm": "batch", "residual": True},
    "gat": {"model": "gat", "heads": 2, "hidden": 8},
    "gatv2": {"model": "gatv2", "heads": 2, "hidden": 8},
    "gin": {"model": "gin"},
    "sgc": {"model": "sgc", "hops": 2},
    "appnp": {"model": "appnp", "hops": 3},
}


def planted_graph(num_classes=4):
    """Return a graph on which the validation metric rises and falls."""
    shape = {"num_vertices": 600, "num_classes": num_classes, "num_features": 16, "seed": 3}
    return planted(**shape, signal=0.4, homophily=0.5, split="0.1/0.5/0.4")


def screen_of(looks, *, margin, measure=None, **options):
    """Return a screen that sees what is written down, one value a look."""
    values = iter(looks)

    def evaluate(graph):
        return SimpleNamespace(metric={"val": next(values)}, val_loss=1.0)

    graph = SimpleNamespace(exchange=SimpleNamespace(take_bytes=lambda: 0))
    config = make_config(evaluation=f"screened(int8, margin={margin})", **options)
    return CodedScreen(graph, evaluate, measure or Accuracy(), torch.nn.Linear(1, 1), config)


# The rate of the next epoch depends on whether this one is the best, so nothing is held.
AT_ONCE = {"lr_schedule": "plateau"}


def passed(looks, best, *, margin, measure=None):
    screen = screen_of(looks, margin=margin, measure=measure, **AT_ONCE)
    return [screen.passes(Best(3, best, 1.0), 4, is_last=False) for _ in looks]


def test_an_epoch_passes_if_it_may_be_as_good_as_the_best():
    looks = [0.8, 0.79, 0.75, 0.7499, None]
    assert passed(looks, 0.8, margin=0.05) == [True, True, True, False, True]
    assert passed(looks, 0.8, margin=0.0) == [True, False, False, False, True]


def test_an_error_passes_if_it_may_be_as_small_as_the_best():
    looks = [3.0, 3.9, 4.1]
    found = passed(looks, -3.0, margin=1.0, measure=MeanSquaredError())
    assert found == [True, True, False]


def test_the_first_epoch_and_the_last_are_evaluated_exactly():
    screen = screen_of([0.2], margin=0.1)
    assert screen.passes(Best(), 0, is_last=False)
    assert screen.take_values() == {SCREENED: None, CONFIRMED: []}
    assert screen.passes(Best(3, 0.9, 1.0), 4, is_last=True)
    assert screen.take_values() == {SCREENED: 0.2, CONFIRMED: []}, "it tells how far looks are off"


def test_a_look_that_is_not_finite_passes_so_that_the_exact_evaluation_refuses_it():
    screen = screen_of([0.1], margin=0.0)
    screen._evaluate = lambda _: SimpleNamespace(metric={"val": 0.1}, val_loss=float("nan"))
    assert screen.passes(Best(3, 0.9, 1.0), 4, is_last=False)


def test_a_metric_that_rises_drops_what_is_held_before_it_is_evaluated():
    screen, best = screen_of([0.5, 0.52, 0.6, 0.8, 0.78, 0.7], margin=0.05), Best(0, 0.4, 1.0)
    held = []
    for epoch in range(1, 7):
        assert not screen.passes(best, epoch, is_last=False)
        held.append([one.epoch for one in screen.held])
    assert held == [[1], [1, 2], [1, 2, 3], [4], [4, 5], [4, 5, 6]]
    confirmed = []
    while screen.held:
        screen.settle(lambda epoch: confirmed.append(epoch) or {}, lambda: Best(4, 0.79, 1.0))
    assert confirmed == [4, 5], "the most promising epoch first, and none that cannot be the best"


def test_the_epoch_that_seems_to_reach_the_goal_is_evaluated_at_once():
    screen = screen_of([0.5, 0.56, 0.7], margin=0.05, goal=0.6)
    best = Best(0, 0.4, 1.0)
    assert [screen.passes(best, epoch, is_last=False) for epoch in (1, 2)] == [False, True]
    assert not screen.passes(Best(2, 0.6, 1.0), 3, is_last=False), "the goal was reached"


def test_no_more_is_held_than_there_is_room_for(monkeypatch):
    best = Best(0, 0.4, 1.0)
    screen = screen_of([0.5] * 20, margin=0.05)
    for epoch in range(1, 17):
        assert not screen.is_due(best, epoch, is_last=False)
        screen.passes(best, epoch, is_last=False)
    assert screen.is_due(best, 16, is_last=False)
    monkeypatch.setattr("distgnn.training.loop.screened._HELD_BYTES", 4)
    assert screen_of([0.5], margin=0.05).passes(best, 1, is_last=False)


def tensors():
    """Return all tensors that somebody holds."""
    gc.collect()
    return [each for each in gc.get_objects() if type(each) is torch.Tensor]


def test_what_is_held_at_most_is_counted():
    # What is there before is kept, so that no other thread frees it meanwhile.
    best, before = Best(0, 0.4, 1.0), tensors()
    known = {id(each) for each in before}
    screen = screen_of([0.5] * 20, margin=0.05)
    for epoch in range(1, 17):
        screen.passes(best, epoch, is_last=False)
    seen = []

    def confirm(_epoch):
        seen.append(sum(each.nbytes for each in tensors() if id(each) not in known))
        return {}

    screen.settle(confirm, lambda: best)
    assert screen.working_bytes() == seen[0] == 17 * 8
    assert screen_of([], margin=0.05, **AT_ONCE).working_bytes() == 0
    screen._graph = None
    assert screen.working_bytes() == NoScreen().working_bytes() == 0


def test_what_may_be_held_is_forecast(tmp_path, monkeypatch):
    monkeypatch.setattr(CodedScreen, "working_bytes", lambda screen: 2**60)
    with pytest.raises(InputError, match=r"1048576\.0 TiB"):
        dg.train(planted_graph(), evaluation="screened", epochs=2, out=tmp_path / "run")


def simulated(exact, looks, margin, patience, capacity):
    """Return the best epoch, the number of epochs and of exact evaluations, by the rule alone."""
    looks = looks[1:]  # the first epoch has no look
    screen, confirmed = screen_of(looks, margin=margin, patience=patience), []
    screen._capacity = capacity
    best = Best()

    def confirm(epoch):
        nonlocal best
        confirmed.append(epoch)
        if best.improves(exact[epoch], 1.0, epoch):
            best = Best(epoch, exact[epoch], 1.0)
        return {}

    for epoch in range(len(exact)):
        is_last = epoch + 1 == len(exact)
        if screen.passes(best, epoch, is_last=is_last):
            confirm(epoch)
        while screen.is_due(best, epoch, is_last=is_last):
            screen.settle(confirm, lambda: best)
        if patience and not screen.held and epoch - best.epoch >= patience:
            break
    assert len(set(confirmed)) == len(confirmed)
    return best.epoch, epoch + 1


def by_exact_evaluation(exact, patience):
    best = 0
    for epoch, metric in enumerate(exact):
        best = epoch if metric > exact[best] else best
        if patience and epoch - best >= patience:
            break
    return best, epoch + 1


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(-5, 5)), min_size=1, max_size=40),
    st.integers(5, 8),
    st.integers(0, 6),
    st.sampled_from([0, 1, 2, 16]),
)
def test_the_best_epoch_is_that_of_exact_evaluation_if_the_margin_covers_the_error(
    pairs, margin, patience, capacity
):
    # Whole numbers, so that a sum at the edge of the margin is not rounded over it.
    exact = [float(metric) for metric, _ in pairs]
    looks = [float(metric + error) for metric, error in pairs]
    found = simulated(exact, looks, float(margin), patience, capacity)
    assert found == by_exact_evaluation(exact, patience)


def records_of(folder, evaluation, graph=None, num_ranks=3, **options):
    graph = planted_graph() if graph is None else graph
    config = make_config(
        **{"hidden": 16, "epochs": 25, "lr": 0.05, **options}, evaluation=evaluation
    )
    return run(folder, graph, cut(graph, num_ranks), config)[0]


SAME = ("best_epoch", "train_metric", "val_metric", "test_metric", "final_loss")


def is_look_alone(record):
    return record["val_metric"] is None and not record[CONFIRMED]


def check_same_results(screened, exact):
    """Compare the results of a screened run with those of an exact one, bit by bit."""
    for name in SAME:
        assert screened.summary[name] == exact.summary[name], name
    for name, tensor in exact.trainer.best_state.items():
        assert torch.equal(screened.trainer.best_state[name], tensor), name


@pytest.mark.parametrize("model", MODELS)
def test_the_best_epoch_and_its_metrics_are_those_of_exact_evaluation(model, tmp_path):
    exact = records_of(tmp_path / "exact", "exact", **MODELS[model])
    words = "screened(int8, margin=0.01)"
    screened = records_of(tmp_path / "screened", words, **MODELS[model])
    assert screened.summary["screening_error"] <= 0.01, "the margin covers the error"
    check_same_results(screened, exact)
    seen = [record for record in screened.records if record[SCREENED] is not None]
    assert len(seen) == len(screened.records) - 1
    assert screened.summary["num_screened"] == len(seen)
    confirmed = [found for record in screened.records for found in record[CONFIRMED]]
    # The last epoch is evaluated exactly in any case.
    assert screened.summary["num_confirmed"] == len(confirmed) + 1
    assert 2 * len(confirmed) < len(seen)
    for one, other in zip(with_confirmed(screened.records), exact.records, strict=True):
        assert one["loss"] == other["loss"]
        if one["val_metric"] is not None:
            assert [one[name] for name in METRICS] == [other[name] for name in METRICS]


def test_a_look_sends_fewer_bytes_than_an_exact_evaluation(tmp_path):
    options = {"hidden": 64, "static_input": False}
    exact = records_of(tmp_path / "exact", "exact", **options).records
    screened = records_of(tmp_path / "screened", "screened", **options).records
    whole = {record["eval_halo_bytes_sent"] for record in exact}
    looks = {r["eval_halo_bytes_sent"] for r in screened if is_look_alone(r)}
    assert len(whole) == len(looks) == 1
    # Rows of the four classes are narrow, and travel as they are.
    assert 2 * max(looks) < max(whole)


@pytest.mark.parametrize("num_layers", [2, 3])
def test_a_crude_screen_without_margin_still_reports_exact_numbers(num_layers, tmp_path):
    options = {"hidden": 32, "layers": num_layers, "static_input": False, "epochs": 40}
    exact = records_of(tmp_path / "exact", "exact", **options)
    words = "screened(int1, margin=0)"
    screened = records_of(tmp_path / "screened", words, **options)
    assert screened.summary["screening_error"] > 0, "the screen is off"
    records = with_confirmed(screened.records)
    for one, other in zip(records, exact.records, strict=True):
        if one["val_metric"] is not None:
            assert [one[name] for name in METRICS] == [other[name] for name in METRICS]
    confirmed = [record for record in records if record["val_metric"] is not None]
    best = records[screened.summary["best_epoch"]]
    assert best["val_metric"] == max(record["val_metric"] for record in confirmed)
    assert screened.summary["test_metric"] == best["test_metric"]


def test_a_screen_that_is_off_by_more_than_its_margin_is_a_warning(tmp_path, monkeypatch):
    lines: list[str] = []
    monkeypatch.setattr("distgnn.training.loop.progress.Silent.warn", lambda _, t: lines.append(t))
    words = "screened(int1, margin=0)"
    found = records_of(tmp_path, words, hidden=32, static_input=False, epochs=40)
    error = found.summary["screening_error"]
    # All ranks are threads of one test, and each has a display.
    sentence = (
        f"screened evaluation was off by {error:.4f}, more than its margin 0: all metrics are "
        "exact, but an epoch that was not evaluated may be better; use a larger margin or more bits"
    )
    assert set(lines) == {sentence}
    lines.clear()
    records_of(tmp_path / "fine", "screened(int8, margin=0.5)")
    assert not lines


@pytest.mark.parametrize("patience", [0, 4])
@pytest.mark.parametrize("eval_every", [1, 3])
def test_patience_and_the_interval_of_evaluations_are_as_without_a_screen(
    patience, eval_every, tmp_path
):
    options = {"patience": patience, "eval_every": eval_every, "epochs": 30, "lr": 0.05}
    exact = records_of(tmp_path / "exact", "exact", **options)
    screened = records_of(tmp_path / "screened", "screened(int8, margin=0.01)", **options)
    check_same_results(screened, exact)
    assert len(screened.records) == len(exact.records)
    for one in screened.records:
        is_due = (one["epoch"] + 1) % eval_every == 0 or one["epoch"] == 29
        assert is_due or (one[SCREENED], one["val_metric"]) == (None, None)


@pytest.mark.parametrize("algorithm", ["cd-0", "cd-2", "0c"])
def test_a_resumed_run_has_the_bits_of_the_straight_one(algorithm, tmp_path):
    graph = planted_graph()
    parts = cut(graph, 3)
    options = {"algorithm": algorithm, "epochs": 12, "checkpoint_every": 2, "dropout": 0.3}
    config = make_config(**options, hidden=16, evaluation="screened(int4, margin=0.01)")
    straight = run(tmp_path / "straight", graph, parts, config)
    run(tmp_path / "halted", graph, parts, config, stop_at=7)
    resumed = run(tmp_path / "halted", graph, parts, config, resume=True)
    names = ("epoch", "loss", "eval_halo_bytes_sent", SCREENED, CONFIRMED, *METRICS)
    for one, other in zip(resumed[0].records, straight[0].records, strict=True):
        assert [one[name] for name in names] == [other[name] for name in names]
    for name in ("num_screened", "num_confirmed", "screening_error"):
        assert resumed[0].summary[name] == straight[0].summary[name]
    files = [RunDirectory(tmp_path / name).model_path for name in ("straight", "halted")]
    assert files[0].read_bytes() == files[1].read_bytes()


# The best of the first epochs is the eighth.
GAT = {**MODELS["gat"], "lr": 0.05, "checkpoint_every": 8}


@pytest.mark.parametrize("num_ranks", [1, 2, 3])
def test_epochs_that_are_held_go_through_a_checkpoint(num_ranks, tmp_path):
    graph = planted_graph()
    config = make_config(**GAT, epochs=14, evaluation="screened(int8, margin=0.05)")
    straight = run(tmp_path / "straight", graph, cut(graph, 3), config)[0]
    later = [found["epoch"] for record in straight.records[8:] for found in record[CONFIRMED]]
    assert straight.summary["best_epoch"] in (one for one in later if one < 8)
    run(tmp_path / "run", graph, cut(graph, 3), config, stop_at=12)
    resumed = run(tmp_path / "run", graph, cut(graph, num_ranks), config, resume=True)[0]
    for name in ("best_epoch", "val_metric", "test_metric"):
        assert resumed.summary[name] == straight.summary[name]


def test_a_run_that_ends_when_it_is_resumed_knows_its_best_epoch(tmp_path):
    graph = planted_graph()
    parts, words = cut(graph, 3), "screened(int8, margin=0.05)"
    run(tmp_path / "run", graph, parts, make_config(**GAT, epochs=14, evaluation=words), stop_at=12)
    short = make_config(**GAT, epochs=8, evaluation=words)
    resumed = run(tmp_path / "run", graph, parts, short, resume=True)[0]
    exact = run(tmp_path / "exact", graph, parts, make_config(**GAT, epochs=8))[0]
    check_same_results(resumed, exact)


# The models of ranks differ after the eighth epoch, where the checkpoint is written.
@pytest.mark.parametrize("kind", [{"weights": "every(5)"}, {"ema": 0.9}], ids=["own", "ema"])
def test_what_is_held_at_the_end_is_the_mean_of_ranks_or_of_steps(kind, tmp_path):
    graph = planted_graph()
    parts = cut(graph, 3)
    options = GAT | kind
    words = "screened(int8, margin=0.05)"
    config = make_config(**options, epochs=14, evaluation=words)
    run(tmp_path / "run", graph, parts, config, stop_at=12)
    short = make_config(**options, epochs=8, evaluation=words)
    resumed = run(tmp_path / "run", graph, parts, short, resume=True)
    exact = run(tmp_path / "exact", graph, parts, make_config(**options, epochs=8))[0]
    models = [each.trainer.model.state_dict() for each in resumed]
    is_one = all(torch.equal(value, models[1][name]) for name, value in models[0].items())
    assert is_one == ("weights" not in kind)
    for each in resumed:
        assert each.records[-1][CONFIRMED], "the last epochs were held"
        check_same_results(each, exact)


def test_one_rank_sends_nothing_and_evaluates_exactly(tmp_path):
    exact = records_of(tmp_path / "exact", "exact", num_ranks=1)
    screened = records_of(tmp_path / "screened", "screened", num_ranks=1)
    check_same_results(screened, exact)
    assert all(record["val_metric"] is not None for record in screened.records)
    assert "num_screened" not in screened.summary


def test_a_screen_needs_validation_vertices():
    graph = make_graph("random")
    graph.val_mask[:] = False
    sentence = (
        r"^--evaluation screened\(int8\) looks for the best validation metric, but the split has "
        "no validation vertices; use --evaluation exact$"
    )
    config = make_config(evaluation="screened")
    with pytest.raises(InputError, match=sentence):
        Trainer(config, ends_of(graph), cut(graph, 1)[0], SingleGroup())


def test_an_error_needs_a_margin_on_the_scale_of_the_labels():
    ends = ends_of(make_graph("regression"))
    sentence = (
        r"^--evaluation screened\(int4\) needs a margin of its own, as --metric mse is on the scale"
        r" of the labels; write screened\(int4, margin=X\)$"
    )
    with pytest.raises(InputError, match=sentence):
        resolve(make_config(evaluation="screened(int4)"), ends)
    resolve(make_config(evaluation="screened(int4, margin=3)"), ends)
    resolve(make_config(evaluation="screened(int4)", metric="r2"), ends)


def test_codes_of_rows_that_are_as_short_anyway_are_refused():
    sentence = (
        r"^--evaluation screened\(bf16\) saves nothing, as --activations-dtype bf16 sends such rows"
        " anyway; use int8$"
    )
    with pytest.raises(InputError, match=sentence):
        make_config(evaluation="screened(bf16)", activations_dtype="bf16")
    make_config(evaluation="screened(bf16)")
    make_config(evaluation="screened", activations_dtype="bf16")


def test_a_stop_by_a_loss_that_few_epochs_measure_is_refused():
    sentence = (
        r"^--stop-on loss waits for a lower validation loss, which --evaluation screened\(int8\) "
        "measures of a few epochs only; use --stop-on metric or --evaluation exact$"
    )
    with pytest.raises(InputError, match=sentence):
        make_config(evaluation="screened", patience=3, stop_on="loss")


def test_a_rate_that_waits_for_a_better_metric_is_as_without_a_screen(tmp_path):
    options = {"lr_schedule": "plateau:2:0.5", "epochs": 30}
    exact = records_of(tmp_path / "exact", "exact", **options)
    screened = records_of(tmp_path / "screened", "screened(int8, margin=0.01)", **options)
    assert [r["lr"] for r in screened.records] == [r["lr"] for r in exact.records]
    assert len({record["lr"] for record in exact.records}) > 1
    check_same_results(screened, exact)


def test_the_way_of_evaluation_may_not_change_when_a_run_is_resumed():
    config = make_config()
    other = dataclasses.replace(config, evaluation="screened")
    assert config.differences(other) == ["evaluation (begun with exact, now screened(int8))"]


def check_bytes(records, look, exact):
    """Check that an epoch sent what its look and its exact evaluations send."""
    for record in records:
        is_seen, is_exact = (record[name] is not None for name in (SCREENED, "val_metric"))
        num_exact = is_exact + len(record[CONFIRMED])
        assert record["eval_halo_bytes_sent"] == look * is_seen + exact * num_exact
    sent = sum(record["eval_halo_bytes_sent"] for record in records)
    assert sent <= len(records) * (look + exact)


@pytest.mark.parametrize("static_input", [True, False])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.slow
def test_the_bytes_are_those_that_are_predicted(model, static_input, tmp_path):
    # Rows of twenty classes are wide enough to be coded.
    graph, options = planted_graph(20), {"hidden": 32, "epochs": 20, **MODELS[model]}
    config = make_config(
        **options, lr=0.05, static_input=static_input, evaluation="screened(int4, margin=0)"
    )
    assignment = assign("libra", graph, 3, seed=1)
    quality = measure(graph, assignment)
    about = {"method": "libra", "options": {}, "seed": 1}
    write(tmp_path / "parts", graph, assignment, quality=quality, **about)
    manifest = read_manifest(tmp_path / "parts")
    parts = [read_part(tmp_path / "parts", number) for number in range(3)]
    records = run(tmp_path / "run", graph, parts, config)[0].records
    found = forecast(tmp_path / "parts", manifest, config)
    look, exact = screened_bytes(found, config), found.evaluation_bytes
    assert look < exact
    assert any(record["val_metric"] is None for record in records), "a look decided"
    check_bytes(records, look, exact)

    def on_rank(group):
        trainer = Trainer(config, ends_of(graph), parts[group.rank], group)
        return [
            planned_evaluation_bytes(config, trainer.model, trainer.graphs, codec)
            for codec in (config.screening.codec, EXACT)
        ]

    planned = run_ranks(3, on_rank)
    assert [sum(own) for own in zip(*planned, strict=True)] == [look, exact]


def note_of(graph, num_ranks=3, factory=None, **options):
    """Return what the log says about evaluations."""
    config = make_config(evaluation="screened(int8, margin=0.01)", **options)
    if factory is not None:
        config = dataclasses.replace(config, model=own_config(factory))
    parts = cut(graph, num_ranks)

    def on_rank(group):
        trainer = Trainer(config, ends_of(graph), parts[group.rank], group, factory=factory)
        lines: list[str] = []
        rest = {"estimates": False, "is_quiet": False, "say": lines.append}
        announce(trainer, parts[group.rank], ends_of(graph), 0, **rest)
        return lines

    lines = run_ranks(num_ranks, on_rank)[0]
    (found,) = [line for line in lines if line.startswith("evaluation: ")]
    return found


class Net(torch.nn.Module):
    """A model of the user's with rows that are wide enough to be coded."""

    def __init__(self, data):
        super().__init__()
        self.first = torch.nn.Linear(data.num_features, 32)
        self.last = torch.nn.Linear(32, data.num_classes)

    def forward(self, graph, x):
        return self.last(graph.aggregate(self.first(x).relu(), "mean"))


def test_the_log_says_what_looks_and_confirmations_send():
    graph, near = planted_graph(), "exact where the metric is within 0.01 of the best"
    number = r"[0-9.]+ [KM]?i?B"
    expected = (
        f"evaluation: screened over int8 rows, {number} each, and {near}, {number} more: at most "
        f"{number}"
    )
    assert re.fullmatch(expected, note_of(graph, hidden=32, layers=3))
    assert note_of(graph, num_ranks=1) == "evaluation: exact, as one rank sends nothing"
    assert note_of(graph, hidden=8) == (
        "evaluation: screened over int8 rows saves nothing, as all of them have fewer than 16 "
        "columns and travel as they are; use exact"
    )
    expected = f"evaluation: screened over int8 rows, and {near}"
    assert note_of(graph, factory=Net) == expected


def test_a_model_of_the_users_is_screened(tmp_path):
    graph, results = planted_graph(), []
    for words in ("exact", "screened(int8, margin=0.02)"):
        options = {"epochs": 30, "lr": 0.05, "evaluation": words}
        config = dataclasses.replace(make_config(**options), model=own_config(Net))
        results += run(tmp_path / words[:5], graph, cut(graph, 3), config, factory=Net)[:1]
    exact, screened = results
    check_same_results(screened, exact)
    assert screened.summary["num_screened"] > screened.summary["num_confirmed"]
    looks = {r["eval_halo_bytes_sent"] for r in screened.records if is_look_alone(r)}
    assert max(looks) < exact.records[0]["eval_halo_bytes_sent"]


def test_links_are_screened_over_coded_rows_of_the_model(tmp_path):
    graph = planted(num_vertices=200, num_classes=4, num_features=16, seed=0)
    graph = hold_out_links(graph, "0.8/0.1/0.1", seed=1)
    options = {"task": "link", "metric": "mrr", "hidden": 32, "layers": 3, "lr": 0.03}
    exact = records_of(tmp_path / "exact", "exact", graph, **options)
    words = "screened(int8, margin=0.001)"
    screened = records_of(tmp_path / "screened", words, graph, **options)
    check_same_results(screened, exact)
    assert 0 < screened.summary["screening_error"] <= 0.001
    looks = {r["eval_halo_bytes_sent"] for r in screened.records if is_look_alone(r)}
    assert max(looks) < exact.records[0]["eval_halo_bytes_sent"]


@pytest.mark.parametrize("model", ["rgcn", "rsage"])
@pytest.mark.parametrize("kind", ["typed", "featureless"])
def test_typed_models_are_screened(model, kind, tmp_path):
    graph = make_graph(kind)
    options = {"model": model, "hidden": 32, "epochs": 15}
    exact = records_of(tmp_path / "exact", "exact", graph, **options)
    words = "screened(int8, margin=0.3)"
    screened = records_of(tmp_path / "screened", words, graph, **options)
    check_same_results(screened, exact)
    assert screened.summary["num_screened"] == 14


def test_the_results_and_the_page_count_looks(tmp_path):
    found = records_of(tmp_path, "screened(int8, margin=0.01)")
    summary = found.summary
    sentence = (
        f"{summary['num_screened']} epochs screened, {summary['num_confirmed']} of them then "
        f"evaluated exactly, at most {summary['screening_error']:.4f} off"
    )
    assert any(line.endswith(sentence) for line in result_lines(summary, tmp_path))
    page = str(run_page({}, found.records, summary))
    assert "val, screened" in page
    assert "num screened" in page
