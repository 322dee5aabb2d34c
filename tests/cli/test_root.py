"""Graphs that users bring, by name, through the command line."""

from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.sparse


@pytest.fixture
def root(tmp_path):
    """A folder with an archive of gnn-benchmark under its published name."""
    rng = np.random.default_rng(0)
    ends = rng.integers(0, 60, (2, 200))
    adjacency = scipy.sparse.csr_matrix((np.ones(200, np.float32), ends), (60, 60))
    adjacency.sum_duplicates()
    attributes = scipy.sparse.random(60, 5, 0.5, format="csr", random_state=0)
    arrays = {"labels": np.arange(60) % 3}
    for kind, matrix in (("adj", adjacency), ("attr", attributes)):
        for part in ("data", "indices", "indptr", "shape"):
            arrays[f"{kind}_{part}"] = np.asarray(getattr(matrix, part))
    folder = tmp_path / "datasets"
    folder.mkdir()
    np.savez(folder / "ms_academic_cs.npz", **arrays)
    return folder


def test_a_named_graph_is_trained_on_and_found_again(distgnn, root, tmp_path, monkeypatch):
    monkeypatch.setenv("DISTGNN_DATASETS", str(root))
    split = ("--split", "0.5/0.25/0.25")
    run = tmp_path / "run"
    distgnn("train", "coauthor-cs", *split, "--run", run, "--epochs", "2", "--hidden", "4")
    remembered = json.loads((run / "config.json").read_text())["source"]["source"]
    assert remembered == str(root / "ms_academic_cs.npz")
    monkeypatch.delenv("DISTGNN_DATASETS")
    assert distgnn("evaluate", run, "--json").status == 0


def test_a_named_graph_is_cut_in_memory_and_from_disk(distgnn, root, tmp_path):
    cut = ("partition", "coauthor-cs", "--root", root, "--parts", "2", "--json")
    small = distgnn(*cut, "--out", tmp_path / "a").json
    large = distgnn(*cut, "--out", tmp_path / "b", "--out-of-core", "on").json
    assert small["num_edges"] == large["num_edges"]
    assert small["num_vertices"] == large["num_vertices"] == 60


def test_what_is_not_there_is_one_sentence(distgnn, root, tmp_path):
    sentence = distgnn("train", "reddit", "--root", root, "--run", tmp_path / "run").sentence
    assert f"dataset 'reddit' is not in {root}; put reddit_graph.npz or reddit.zip" in sentence


def test_a_root_that_nothing_is_looked_up_in_is_refused(distgnn, root, here):
    (here / "graph.csv").write_text("0,1\n1,2\n")
    (here / "reddit").mkdir()
    for source, why in (
        ("cora", "comes with distgnn"),
        ("synthetic:path", "comes with distgnn"),
        ("graph.csv", "is a file or folder here"),
        ("reddit", "is a file or folder here"),
        (here / "graph.csv", "is a file or folder here"),
    ):
        outcome = distgnn("partition", source, "--root", root, "--parts", 2, "--out", "p")
        assert outcome.sentence == (
            f"--root {root} is where data sets lie that are named, but '{source}' {why}; leave "
            "--root out"
        )
    # The root is the working directory: both ways lead there.
    cut = ("--root", here, "--parts", 1, "--out", "p")
    assert distgnn("partition", "graph.csv", *cut).status == 0
