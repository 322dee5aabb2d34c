"""Tasks and metrics on the command line: what train, evaluate and predict make of labels."""

from __future__ import annotations

import json

import numpy as np
import pytest
from ring import ring_arrays


@pytest.fixture
def values(here):
    """The ring with numbers to be learned."""
    target = np.linspace(-1, 1, 12, dtype=np.float32)
    np.savez(here / "values.npz", **ring_arrays(labels=target))
    return here / "values.npz"


@pytest.mark.parametrize("num_parts", [1, 3])
def test_a_regression_is_trained_evaluated_and_predicted(distgnn, values, here, num_parts):
    source, run = values, here / "run"
    if num_parts > 1:
        source = here / "parts"
        assert distgnn("partition", values, "--parts", 3, "--out", source).status == 0
    command = ["train", values, "--run", run, "--epochs", 8, "--metric", "r2", "--json", "--quiet"]
    summary = distgnn(*command).json
    assert (summary["task"], summary["metric"]) == ("regression", "r2")
    config = json.loads((run / "config.json").read_text())
    assert (config["train"]["task"], config["train"]["metric"]) == ("regression", "r2")
    config["source"]["source"] = str(source)
    (run / "config.json").write_text(json.dumps(config))
    evaluated = distgnn("evaluate", run, "--json").json
    assert evaluated["metric"] == "r2"
    assert evaluated["val_metric"] == pytest.approx(summary["val_metric"], rel=1e-4)
    assert distgnn("predict", run, "--out", "out.csv").status == 0
    lines = (here / "out.csv").read_text().splitlines()
    assert lines[0] == "id,value"
    assert distgnn("predict", run, "--out", "out.npy").status == 0
    np.testing.assert_allclose(
        [float(line.split(",")[1]) for line in lines[1:]], np.load("out.npy")[:, 0], rtol=1e-6
    )


def test_predictions_are_of_the_task_that_the_run_learned(distgnn, here):
    labels = np.arange(12) % 3
    np.savez(here / "mine.npz", **ring_arrays(labels=labels))
    assert distgnn("train", "mine.npz", "--run", "r", "--epochs", 1, "--quiet").status == 0
    np.savez(here / "mine.npz", **ring_arrays(labels=np.eye(3, dtype=np.uint8)[labels]))
    for command in (("predict", "r", "--out", "out.csv"), ("evaluate", "r")):
        assert distgnn(*command).sentence.startswith(
            "the run learned a single-label task measured by accuracy, but the graph's labels are "
            "for multi-label; restore the graph"
        )
    assert not (here / "out.csv").exists()


def test_the_metric_of_the_graph_is_taken_unless_another_is_asked_for(distgnn, here):
    arrays = ring_arrays(labels=np.arange(12) % 2, metric=np.array("roc-auc"))
    np.savez(here / "two.npz", **arrays)
    assert distgnn("partition", "two.npz", "--parts", 1, "--out", "parts").status == 0
    for source in ("two.npz", "parts"):
        command = ["train", source, "--epochs", 1, "--json", "--quiet", "--overwrite", "--run", "r"]
        assert distgnn(*command).json["metric"] == "roc-auc"
        assert distgnn(*command, "--metric", "accuracy").json["metric"] == "accuracy"


def test_a_task_or_a_metric_that_does_not_suit_is_one_sentence(distgnn, ring):
    command = ["train", ring, "--run", "run"]
    assert distgnn(*command, "--task", "multi-label").sentence.startswith(
        "--task multi-label does not suit the graph's labels, which are for single-label;"
    )
    assert "use --metric accuracy" in distgnn(*command, "--metric", "mse").sentence
    assert distgnn(*command, "--metric", "f2").sentence.startswith(
        "--metric must be one of auto, accuracy, macro-f1, roc-auc"
    )


def test_scores_are_corrected_and_smoothed_where_that_is_asked_for(distgnn, ring_run, values, here):
    plain = distgnn("evaluate", ring_run, "--json").json
    found = distgnn("evaluate", ring_run, "--correct-and-smooth", "0.5,0", "--json").json
    assert found["train_metric"] == 1.0  # their own labels, smoothed by nothing
    assert found["val_loss"] != plain["val_loss"]
    words = ("--correct-and-smooth", "0.5,0", "--out", "out.npy")
    assert distgnn("predict", ring_run, *words).status == 0
    np.testing.assert_allclose(np.load("out.npy").sum(axis=1), 1, rtol=1e-5)
    wrong = distgnn("evaluate", ring_run, "--correct-and-smooth", "1,0").sentence
    assert wrong.startswith("--correct-and-smooth must be two shares of at least 0 and below 1")
    assert distgnn("train", values, "--run", "v", "--epochs", 1, "--quiet").status == 0
    refused = distgnn("evaluate", "v", "--correct-and-smooth", "0.5,0.5").sentence
    assert refused.startswith("--correct-and-smooth needs one label a vertex, but this is a regr")
