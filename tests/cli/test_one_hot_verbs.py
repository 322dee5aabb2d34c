"""`--one-hot` on the command line: trained on whole and in parts, in recipes, and refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
from ring import ring_arrays

GCN = ("--model", "gcn", "--hidden", 4, "--epochs", 3, "--dropout", 0, "--quiet", "--json")


@pytest.fixture
def bare(here):
    """The ring without features."""
    arrays = ring_arrays()
    del arrays["features"]
    np.savez(here / "bare.npz", **arrays)
    return "bare.npz"


def losses(run):
    return [json.loads(line)["loss"] for line in (run / "metrics.jsonl").read_text().splitlines()]


def test_a_graph_without_features_is_learned_by_its_vertices(distgnn, bare, here):
    assert "--one-hot" in distgnn("train", bare, "--run", "none", *GCN).sentence
    summary = distgnn("train", bare, "--one-hot", "--run", "whole", *GCN).json
    assert distgnn("partition", bare, "--one-hot", "--parts", 1, "--out", "part").status == 0
    assert distgnn("train", "part", "--run", "parts", *GCN).status == 0
    assert losses(here / "parts") == pytest.approx(losses(here / "whole"), rel=1e-5)
    evaluated = distgnn("evaluate", "whole", "--json").json
    assert evaluated["test_metric"] == pytest.approx(summary["test_metric"])


def test_a_recipe_says_how_a_graph_is_loaded_unless_it_is_cut(distgnn, bare, here):
    recipe = {"source": {"one-hot": True, "undirected": False}, "flags": {"hidden": 4, "epochs": 2}}
    (here / "mine.json").write_text(json.dumps(recipe))
    train = ("train", "--recipe", "mine.json", "--quiet", "--json")
    assert distgnn(*train, bare, "--run", "whole").status == 0
    assert json.loads((here / "whole/config.json").read_text())["source"]["one_hot"]
    assert distgnn("partition", bare, "--one-hot", "--parts", 1, "--out", "part").status == 0
    assert distgnn(*train, "part", "--run", "parts").status == 0
    merged = distgnn("repartition", "part", "--parts", 1, "--out", "again", "--overwrite")
    assert merged.status == 0, merged.err
    assert distgnn(*train, "again", "--run", "merged").status == 0
    assert distgnn("partition", bare, "--parts", 1, "--out", "plain").status == 0
    assert distgnn(*train, "plain", "--run", "refused").sentence == (
        "recipe 'mine' loads its graph with --one-hot, but partition directory 'plain' was cut "
        "without; cut it again with distgnn partition --one-hot, or leave the recipe out and give "
        "its flags"
    )
    manifest = json.loads((here / "part/manifest.json").read_text())
    manifest["options"] = {"of": "another program"}
    (here / "part/manifest.json").write_text(json.dumps(manifest))
    assert distgnn(*train, "part", "--run", "trusted").status == 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ("train", "part", "--run", "r", "--one-hot"),
            "--one-hot has no effect on partition directory",
        ),
        (
            ("partition", "bare.npz", "--one-hot", "--out-of-core", "on", "--parts=1", "--out=o"),
            "--out-of-core on and --one-hot exclude each other; leave one of them out",
        ),
    ],
)
def test_where_it_cannot_be_had_it_is_refused(distgnn, bare, words, sentence):
    assert distgnn("partition", bare, "--one-hot", "--parts", 1, "--out", "part").status == 0
    assert sentence in distgnn(*words).sentence
