"""Features of edges on the command line: from a table to predictions, and what is refused."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from ring import ring_arrays

TRAIN = ("--hidden", 4, "--epochs", 3, "--dropout", 0, "--quiet", "--json")


@pytest.fixture
def table(here):
    """The ring as tables; each edge has a length and a note."""
    arrays = ring_arrays()
    rows = np.arange(arrays["edge_index"].shape[1])
    ends = arrays["edge_index"]
    lines = [f"{ends[0, i]},{ends[1, i]},{i % 5},a" for i in rows]
    (here / "edges.csv").write_text("src,dst,length,note\n" + "\n".join(lines) + "\n")
    splits = {name: arrays[f"{name}_mask"].reshape(-1) for name in ("train", "val", "test")}
    lines = ["id,label,split," + ",".join(f"f{i}" for i in range(arrays["features"].shape[1]))]
    for vertex, features in enumerate(arrays["features"]):
        split = next((name for name, mask in splits.items() if mask[vertex]), "")
        values = ",".join(str(float(value)) for value in features)
        lines.append(f"{vertex},{arrays['labels'][vertex]},{split},{values}")
    (here / "vertices.csv").write_text("\n".join(lines) + "\n")
    return "edges.csv", "--vertices", "vertices.csv"


def losses(run):
    text = (run / "metrics.jsonl").read_text()
    return [json.loads(line)["loss"] for line in text.splitlines()]


@pytest.mark.parametrize("model", ["gat", "gin"])
def test_a_table_with_columns_trains_and_answers(distgnn, table, here, model):
    options = ("--model", model, *TRAIN)
    summary = distgnn("train", *table, "--run", "whole", *options).json
    cut = distgnn("partition", *table, "--parts", 1, "--out", "p", "--json")
    assert re.search(r"\d features, 1 features of edges \(", cut.err)
    assert cut.json["num_edge_features"] == 1
    assert distgnn("train", "p", "--run", "parts", *options).status == 0
    assert losses(here / "parts") == pytest.approx(losses(here / "whole"), rel=1e-5)
    assert distgnn("train", "p", "--run", "bare", *options, "--edge-features", "ignore").status == 0
    assert losses(here / "bare") != pytest.approx(losses(here / "whole"), rel=1e-5)
    evaluated = distgnn("evaluate", "parts", "--json").json
    assert evaluated["test_metric"] == pytest.approx(summary["test_metric"])
    assert distgnn("predict", "parts", "--out", "out.csv", "--json").status == 0
    more = ("train", "p", "--run", "parts", "--resume", *options, "--epochs", 5)
    assert distgnn(*more).json["num_epochs"] == 5
    other = ("train", "p", "--run", "parts", "--resume", *options, "--edge-features", "ignore")
    assert "edge_features (begun with use, now ignore)" in distgnn(*other).sentence
    found = distgnn("inspect", "p", "--model", model, "--hidden", 4, "--json").json
    assert "edge features: 1 columns, each layer reads them as they are" in found["savings"]
    bare = distgnn("inspect", "p", "--model", model, "--edge-features", "ignore", "--json").json
    assert found["model"]["edge_features"] == "use"
    assert bare["model"]["edge_features"] == "ignore"


def test_a_run_is_not_evaluated_on_edges_with_other_features(distgnn, table, here):
    assert distgnn("train", *table, "--run", "r", "--model", "gat", *TRAIN).status == 0
    text = (here / "edges.csv").read_text()
    (here / "edges.csv").write_text(
        re.sub(r"(?m)^(\d+,\d+),.*$", r"\1", text).replace(",length,note", "")
    )
    match = (
        "run 'r' was trained on 1 features of edges, but '.*edges.csv' has 0; restore it or train"
    )
    outcome = distgnn("evaluate", "r")
    # The lines before say which columns the tables have.
    assert (outcome.status, outcome.out, len(outcome.err.splitlines())) == (2, "", 3)
    assert re.search(match, outcome.err.splitlines()[-1])
