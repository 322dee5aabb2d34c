"""Typed graphs on the command line: from a file to a run on parts, and what is refused."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from ring import ring_arrays

from distgnn.forecast import rehearsal

RGCN = ("--model", "rgcn", "--hidden", 4, "--epochs", 3, "--dropout", 0, "--quiet", "--json")


@pytest.fixture
def typed(here):
    """The ring without features; its edges have two relations, and nobody validates."""
    arrays = ring_arrays()
    del arrays["features"], arrays["val_mask"]
    num_edges = arrays["edge_index"].shape[1]
    np.savez(here / "typed.npz", **arrays, edge_type=np.arange(num_edges) % 2)
    return "typed.npz"


def losses(run):
    text = (run / "metrics.jsonl").read_text()
    return [json.loads(line)["loss"] for line in text.splitlines()]


def test_a_graph_in_parts_trains_as_in_one_process_and_answers(distgnn, typed, here):
    train = ("train", typed, "--inverse-relations", "--run", "whole", "--bases", 3, *RGCN)
    summary = distgnn(*train).json
    assert summary["val_metric"] is None
    assert summary["best_epoch"] == 2, "without validation vertices the last epoch counts"
    cut = ("partition", typed, "--parts", 1, "--inverse-relations", "--out", "part", "--json")
    manifest = distgnn(*cut).json
    assert (manifest["num_relations"], manifest["options"]["inverse_relations"]) == (4, True)
    assert distgnn("train", "part", "--run", "parts", "--bases", 3, *RGCN).status == 0
    assert losses(here / "parts") == pytest.approx(losses(here / "whole"), rel=1e-5)
    evaluated = distgnn("evaluate", "whole", "--json").json
    assert evaluated["test_metric"] == pytest.approx(summary["test_metric"])
    more = ("train", "part", "--run", "parts", "--bases", 3, "--resume", *RGCN, "--epochs", 5)
    assert distgnn(*more).json["num_epochs"] == 5


def test_inspect_predicts_typed_epochs(distgnn, typed):
    cut = ("partition", typed, "--parts", 3, "--method", "random", "--out", "p", "--json")
    assert distgnn(*cut).status == 0
    found = distgnn("inspect", "p", "--model", "rsage", "--hidden", 4, "--json").json
    assert found["model"]["model"] == "rsage"
    assert found["halo_bytes_per_epoch"] > 0


@pytest.mark.parametrize("model", ["rgcn", "rsage"])
def test_a_typed_epoch_with_features_is_planned(model, distgnn, here, monkeypatch):
    monkeypatch.setattr(rehearsal, "_LEAST_S", 0.0)
    arrays = ring_arrays()
    np.savez(here / "typed.npz", **arrays, edge_type=np.arange(len(arrays["edge_index"][0])) % 2)
    cut = ("partition", "typed.npz", "--parts", 3, "--method", "random", "--out", "p", "--json")
    assert distgnn(*cut).status == 0
    words = ("--model", model, "--hidden", 4, "--json")
    values = distgnn("plan", "p", "--bandwidth", "1Gb/s", "--threads", 1, *words).json
    inspected = distgnn("inspect", "p", *words).json
    assert values["halo_bytes_per_epoch"] == inspected["halo_bytes_per_epoch"] > 0
    assert values["memory_bytes_per_rank"] == inspected["memory_bytes_per_rank"]
    assert 0 < values["compute_s"] < values["epoch_s"] < 10


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (
            ("train", "p", "--run", "r", "--inverse-relations", *RGCN),
            "--inverse-relations has no effect on partition directory",
        ),
        (
            ("plan", "p", "--bandwidth", "1Gb/s", "--model", "rgcn"),
            "plan cannot rehearse --model rgcn on 'p', whose vertices have no features but learned",
        ),
        (("train", "p", "--run", "r", "--quiet"), "the graph has no features, .* use --model rgcn"),
    ],
)
def test_what_a_typed_directory_cannot_do_is_refused(distgnn, typed, words, match):
    assert distgnn("partition", typed, "--parts", 1, "--out", "p", "--json").status == 0
    assert re.search(match, distgnn(*words).sentence)


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (
            ("partition", "--parts", 2, "--out", "p", "--inverse-relations", "--out-of-core", "on"),
            "--out-of-core on and --inverse-relations exclude each other",
        ),
        (("train", "--run", "r", "--model", "rgcn"), "--model rgcn is for typed graphs"),
        (("train", "--run", "r", "--inverse-relations"), "has no edge_type, .* use --undirected"),
        (("train", "--run", "r", "--bases", 2), "--bases 2 has no effect on --model sage; .* rgcn"),
        (
            ("train", "--run", "r", "--relation-norm", "all"),
            "--relation-norm all has no effect on --model sage; .* rgcn or rsage",
        ),
        (
            ("train", "--run", "r", "--model", "rgcn", "--relation-norm", "some"),
            "--relation-norm must be one of relation, all, none, got 'some'",
        ),
    ],
)
def test_what_needs_types_is_refused_without(distgnn, ring, words, match):
    assert re.search(match, distgnn(words[0], ring, *words[1:]).sentence)
