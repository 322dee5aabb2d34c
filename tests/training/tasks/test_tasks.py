"""Tasks: which one labels are for, what is refused, losses, and the run that remembers it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from graphs import cut, make_graph
from training import ends_of, first_step, make_config, run

from distgnn.datasets.errors import InputError
from distgnn.training.data.info import DataInfo
from distgnn.training.tasks.tasks import TASKS, resolve, resolve_again

METRICS_OF_KINDS = {
    "random": ("accuracy", "macro-f1"),
    "multi-label": ("micro-f1", "macro-f1", "roc-auc", "average-precision"),
    "unknown-flags": ("micro-f1", "macro-f1", "roc-auc"),
    "regression": ("mse", "mae", "r2"),
}


def ends(task, num_classes, metric=""):
    return DataInfo("graph", 4, num_classes, metric=metric, task=task)


@pytest.mark.parametrize(
    ("kind", "task"),
    [("random", "single-label"), ("multi-label", "multi-label"), ("regression", "regression")],
)
def test_labels_tell_their_task(kind, task):
    assert ends_of(make_graph(kind)).task == task


def test_a_graph_without_labels_has_no_task():
    graph = make_graph()
    bare = dict.fromkeys(("labels", "train_mask", "val_mask", "test_mask"))
    assert ends_of(replace(graph, **bare)).task == ""
    assert resolve(make_config(), ends("", 0)) == make_config()


def test_a_run_remembers_what_the_graph_chose():
    config = make_config()
    found = resolve(config, ends("single-label", 2, "roc-auc"))
    assert (found.task, found.metric) == ("single-label", "roc-auc")
    assert resolve(found, ends("single-label", 2)) == found
    assert resolve(config, ends("regression", 1)).metric == "mse"


@pytest.mark.parametrize(
    ("options", "data", "expected"),
    [
        (
            {"task": "regression"},
            ("single-label", 3, ""),
            "--task regression does not suit the graph's labels, which are for single-label; leave",
        ),
        (
            {"metric": "roc-auc"},
            ("single-label", 3, ""),
            "--metric 'roc-auc' is none of a single-label task with 3 classes; use --metric acc",
        ),
        (
            {},
            ("multi-label", 3, "accuracy"),
            "the graph's metric 'accuracy' is none of a multi-label task; use --metric micro-f1 or",
        ),
    ],
)
def test_what_labels_are_not_for_is_refused(options, data, expected):
    with pytest.raises(InputError, match=f"^{expected}"):
        resolve(make_config(**options), ends(*data))


def test_a_run_of_another_task_is_refused():
    graph = ends("single-label", 3)
    with pytest.raises(InputError, match=r"^the run learned a regression task measured by r2, but"):
        resolve_again(make_config(task="regression", metric="r2"), graph)
    with pytest.raises(InputError, match=r"^the run learned a single-label task measured by mse"):
        resolve_again(make_config(task="single-label", metric="mse"), graph)


def test_unknown_flags_and_values_have_no_loss():
    scores = torch.tensor([[1.0, 5.0], [0.5, 9.0]])
    flags = TASKS["multi-label"].targets(np.array([[1, 255], [255, 255]], np.uint8))
    losses = TASKS["multi-label"].losses(scores, flags)
    assert losses.tolist() == pytest.approx([float(torch.nn.functional.softplus(-scores[0, 0])), 0])
    values = TASKS["regression"].targets(np.array([[3, np.nan], [1, 1]], np.float32))
    assert TASKS["regression"].losses(scores, values).tolist() == [4.0, (0.25 + 64) / 2]


def test_vertices_of_which_nothing_is_known_do_not_count():
    flags = np.array([[1, 255], [255, 255], [0, 0]], np.uint8)
    assert TASKS["multi-label"].is_labelled(flags).tolist() == [True, False, True]
    classes = np.array([2, -1, 0])
    assert TASKS["single-label"].is_labelled(classes).tolist() == [True, False, True]
    values = np.array([[1, np.nan], [np.nan, np.nan], [0, 0]], np.float32)
    assert TASKS["regression"].is_labelled(values).tolist() == [True, False, True]


def test_the_loss_is_the_mean_over_vertices_of_which_something_is_known():
    graph = make_graph("unknown-flags")
    train = np.flatnonzero(graph.train_mask[0])
    graph.labels[train[:3]] = 255
    found = [record["loss"] for record in first_step(cut(graph, 1), graph, "gcn")[0]]
    graph.train_mask[0][train[:3]] = False
    expected = [record["loss"] for record in first_step(cut(graph, 1), graph, "gcn")[0]]
    assert found == pytest.approx(expected)


@pytest.mark.parametrize(
    ("kind", "metric"), [(kind, name) for kind, names in METRICS_OF_KINDS.items() for name in names]
)
def test_any_number_of_ranks_measures_the_same(kind, metric):
    graph = make_graph(kind)
    options = {"metric": metric, "num_epochs": 2}
    alone, own = first_step(cut(graph, 1), graph, "gcn", **options)
    for num_parts in (2, 5):
        records, grads = first_step(cut(graph, num_parts), graph, "gcn", **options)
        for got, expected in zip(records, alone, strict=True):
            for name in ("loss", "train_metric", "val_metric", "test_metric"):
                assert got[name] == pytest.approx(expected[name], rel=1e-5), name
        for name, grad in own[0].items():
            torch.testing.assert_close(grads[0][name], grad, rtol=1e-5, atol=1e-7)


def test_the_best_epoch_of_a_regression_has_the_lowest_error(tmp_path):
    graph = make_graph("regression")
    trained = run(tmp_path, graph, cut(graph, 2), make_config(epochs=6, lr=0.5))[0]
    errors = [record["val_metric"] for record in trained.records]
    assert trained.summary["best_epoch"] == int(np.argmin(errors)) != len(errors) - 1
    assert (trained.summary["task"], trained.summary["metric"]) == ("regression", "mse")
