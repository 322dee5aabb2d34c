"""The goal of a run: what it took to get there, the same on any ranks and after a resume."""

from __future__ import annotations

import pytest
from graphs import cut, make_graph
from training import ends_of, make_config, run

from distgnn.cli.results import result_lines
from distgnn.cli.series import series_lines
from distgnn.comm.single import SingleGroup
from distgnn.datasets import InputError
from distgnn.datasets.planted import planted
from distgnn.pages.run import run_page
from distgnn.training.loop.goal import FIGURES, Goal, describe_goal
from distgnn.training.loop.metrics import summarise
from distgnn.training.loop.trainer import Trainer
from distgnn.training.run.series import Member, summarise_series
from distgnn.training.tasks.measures import Accuracy, MeanSquaredError
from distgnn.training.tasks.tasks import resolve

NUM_EPOCHS = 12
VALUES = [0.2, None, 0.5, 0.4, 0.6]


def records_of(values):
    sent = {"halo_bytes_sent": 100, "eval_halo_bytes_sent": 10, "weight_bytes_sent": 1}
    return [
        {"epoch": n, "val_metric": value, "epoch_s": 2.0, "eval_s": 0.5, **sent}
        for n, value in enumerate(values)
    ]


def test_seconds_and_bytes_are_those_until_the_first_epoch_that_is_as_good():
    figures = Goal(0.45, Accuracy()).figures(records_of(VALUES))
    assert figures == {
        "goal": 0.45,
        "epochs_to_goal": 3,
        "time_to_goal_s": 3 * 2.5,
        "training_to_goal_s": 3 * 2.0,
        "sent_to_goal_bytes": 3 * 111,
    }
    assert Goal(0.5, Accuracy()).figures(records_of(VALUES))["epochs_to_goal"] == 3
    assert Goal(0.51, Accuracy()).figures(records_of(VALUES))["epochs_to_goal"] == 5


def test_an_error_reaches_its_goal_from_above():
    goal = Goal(0.4, MeanSquaredError())
    assert goal.figures(records_of([0.9, 0.5, 0.4, 0.3]))["epochs_to_goal"] == 3
    assert str(goal) == "validation mse at most 0.4"
    assert str(Goal(0.4, Accuracy())) == "validation accuracy at least 0.4"


def test_a_goal_that_was_not_reached_has_no_figures():
    figures = Goal(0.7, Accuracy()).figures(records_of(VALUES))
    assert all(figures[name] is None for name in FIGURES)
    summary = {**figures, "num_epochs": 5, "val_metric": 0.6}
    assert describe_goal(summary) == "0.7 was not reached in 5 epochs; the best epoch has 0.6000"


def figures_of(trained):
    """Return the figures of a run that do not measure time."""
    return {n: trained.summary[n] for n in ("goal", "epochs_to_goal")}


def planted_graph():
    return planted(num_vertices=400, num_classes=4, num_features=8, signal=0.6, seed=3)


def goal_of(folder, graph):
    """Return a goal that a run reaches in the middle, and the epoch that reaches it."""
    records = run(folder, graph, cut(graph, 1), make_config(epochs=NUM_EPOCHS))[0].records
    metrics = [record["val_metric"] for record in records]
    goal = (metrics[0] + max(metrics)) / 2
    first = next(n for n, metric in enumerate(metrics) if metric >= goal)
    assert 0 < first < NUM_EPOCHS - 1, "the case says something"
    return goal, first


def test_the_goal_is_reached_in_the_same_epoch_on_any_number_of_ranks(tmp_path):
    graph = planted_graph()
    goal, first = goal_of(tmp_path / "free", graph)
    config = make_config(epochs=NUM_EPOCHS, goal=goal)
    one = run(tmp_path / "one", graph, cut(graph, 1), config)[0]
    three = run(tmp_path / "three", graph, cut(graph, 3), config)
    assert figures_of(one) == figures_of(three[0]) == {"goal": goal, "epochs_to_goal": first + 1}
    assert len({result.summary["time_to_goal_s"] for result in three}) == 1
    spent = three[0].records[: first + 1]
    sent = sum(r["halo_bytes_sent"] + r["eval_halo_bytes_sent"] for r in spent)
    sent += sum(r["weight_bytes_sent"] for r in spent)
    assert three[0].summary["sent_to_goal_bytes"] == sent > 0
    assert one.summary["sent_to_goal_bytes"] == 0
    assert len(three[0].records) == NUM_EPOCHS, "training continues"


@pytest.mark.parametrize("is_late", [False, True])
def test_a_resumed_run_knows_when_the_goal_was_reached(is_late, tmp_path):
    graph = planted_graph()
    parts = cut(graph, 2)
    goal, first = goal_of(tmp_path / "free", graph)
    config = make_config(epochs=NUM_EPOCHS, goal=goal, checkpoint_every=1)
    straight = run(tmp_path / "straight", graph, parts, config)[0]
    run(tmp_path / "halted", graph, parts, config, stop_at=first + is_late)
    resumed = run(tmp_path / "halted", graph, parts, config, resume=True)[0]
    assert figures_of(resumed) == figures_of(straight)
    assert resumed.summary["sent_to_goal_bytes"] == straight.summary["sent_to_goal_bytes"]


def test_the_goal_may_change_when_a_run_is_resumed():
    assert not make_config(goal=0.5).differences(make_config())


def test_the_configuration_keeps_a_goal_and_the_lack_of_one():
    for config in (make_config(), make_config(goal=0.5)):
        assert type(config).from_json(config.to_json()) == config


@pytest.mark.parametrize(
    ("kind", "options", "sentence"),
    [
        ("random", {"goal": 81}, "--goal 81 is never reached, as --metric accuracy is at most 1"),
        ("regression", {"goal": -1}, "--goal -1 is never reached, as --metric mse is at least 0"),
        (
            "regression",
            {"goal": 1.5, "metric": "r2"},
            "--goal 1.5 is never reached, as --metric r2 is at most 1; use another",
        ),
    ],
)
def test_a_goal_that_no_model_reaches_is_refused(kind, options, sentence):
    with pytest.raises(InputError, match=f"^{sentence}"):
        resolve(make_config(**options), ends_of(make_graph(kind)))
    assert resolve(make_config(goal=3.0), ends_of(make_graph("regression"))).goal == 3.0


def test_a_goal_needs_validation_vertices():
    graph = make_graph("random")
    graph.val_mask[:] = False
    sentence = (
        "^--goal 0.5 is compared with the validation metric, but the split has no validation "
        "vertices; leave it out$"
    )
    with pytest.raises(InputError, match=sentence):
        Trainer(make_config(goal=0.5), ends_of(graph), cut(graph, 1)[0], SingleGroup())


def test_a_run_says_when_it_reached_its_goal_and_that_it_did_not(tmp_path, monkeypatch):
    lines: list[str] = []
    monkeypatch.setattr("distgnn.training.loop.progress.Silent.note", lambda _, t: lines.append(t))
    graph = planted_graph()
    goal, first = goal_of(tmp_path / "free", graph)
    config = make_config(epochs=NUM_EPOCHS, goal=goal)
    found = run(tmp_path / "run", graph, cut(graph, 1), config)[0]
    assert lines == [f"goal: validation accuracy at least {goal:g} reached in epoch {first}"]
    shown = "\n".join(result_lines(found.summary, tmp_path))
    assert f"{goal:g} reached after {first + 1} epochs, " in shown
    high = summarise(found.records, first, Goal(1.0, Accuracy()), num_epochs=NUM_EPOCHS)
    summary = {**found.summary, **high}
    assert f"1 was not reached in {NUM_EPOCHS} epochs; the best epoch has 0." in "\n".join(
        result_lines(summary, tmp_path)
    )
    assert "was not reached in" in str(run_page({}, found.records, summary))


def test_a_series_says_how_many_runs_reached_the_goal(tmp_path):
    graph = make_graph("random")
    parts, config = cut(graph, 1), make_config(goal=0.01)
    summaries = [run(tmp_path, graph, parts, config)[0].summary]
    summaries.append({**summaries[0], **dict.fromkeys(FIGURES)})
    members = [Member(name, config) for name in ("seed-0", "seed-1")]
    series = summarise_series(members, summaries)
    assert [record["epochs_to_goal"] for record in series["runs"]] == [1, None]
    shown = "\n".join(series_lines(series, tmp_path))
    assert "0.01 reached by 1 of 2 runs" in shown
