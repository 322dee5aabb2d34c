from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from distgnn import datasets
from distgnn.datasets import Graph, InputError, named_twins
from distgnn.datasets.ingest import ingest
from distgnn.datasets.named_twins import TWIN_NAMES
from distgnn.datasets.twins import TWINS

SMALL = {"reddit": "1/64", "products": "1/256", "arxiv": "1/16", "papers": "1/2048"}


def accuracy(features: Any, graph: Graph) -> float:
    """Measure ridge regression, which no MLP beats on classes of normal noise."""
    assert graph.labels is not None
    assert graph.train_mask is not None
    assert graph.test_mask is not None
    train, test = graph.train_mask[0], graph.test_mask[0]
    one_hot = np.eye(graph.num_classes)[graph.labels[train]]
    known = features[train]
    ridge = known.T @ known + 1.0 * np.eye(known.shape[1])
    weights = np.linalg.solve(ridge, known.T @ (one_hot - one_hot.mean(axis=0)))
    scores = features[test] @ weights
    return float((scores.argmax(axis=1) == graph.labels[test]).mean())


@pytest.mark.parametrize("name", TWIN_NAMES)
def test_neighbours_tell_the_label_and_a_vertex_alone_does_not(name: str) -> None:
    graph = datasets.load(f"synthetic:{name}@{SMALL[name]}", undirected=name == "papers")
    ones = np.ones(graph.num_edges, np.float32)
    shape = (graph.num_vertices, graph.num_vertices)
    adjacency = scipy.sparse.csr_matrix((ones, (graph.dst, graph.src)), shape)
    adjacency = adjacency + scipy.sparse.eye_array(graph.num_vertices, dtype=np.float32)
    mean = scipy.sparse.diags_array(1 / np.asarray(adjacency.sum(axis=1)).ravel()) @ adjacency
    alone = np.asarray(graph.features, dtype=np.float64)
    alone /= alone.std()
    together = mean @ (mean @ alone)
    together /= together.std()
    found = accuracy(alone, graph), accuracy(together, graph)
    assert found[0] < 0.2
    assert found[1] > 3 * found[0]
    assert found[1] > 0.35


@pytest.mark.parametrize("name", TWINS)
def test_a_twin_has_the_widths_and_shares_of_its_original(name: str) -> None:
    twin = TWINS[name]
    graph = datasets.load(f"synthetic:{name}@{SMALL[name]}")
    assert graph.name == f"{name}-twin"
    assert (graph.num_features, graph.num_classes) == (twin.num_features, twin.num_classes)
    assert np.unique(np.asarray(graph.labels)).size == twin.num_classes
    masks = (graph.train_mask, graph.val_mask, graph.test_mask)
    shares = [float(mask.mean()) for mask in masks if mask is not None]
    assert np.allclose(shares, np.array(twin.split) / twin.num_vertices, atol=1e-3)
    both = set(zip(graph.src.tolist(), graph.dst.tolist(), strict=True))
    assert len(both) == graph.num_edges
    assert both == {(b, a) for a, b in both}


@pytest.mark.parametrize("name", ["arxiv", "papers"])
def test_a_seed_fixes_a_twin(name: str) -> None:
    source = f"synthetic:{name}@{'1/64' if name == 'arxiv' else '1/8192'}"
    first, again, other = (
        datasets.load(s) for s in (source, f"{source},seed=0", f"{source},seed=1")
    )
    assert np.array_equal(first.src, again.src)
    assert np.array_equal(np.asarray(first.features), np.asarray(again.features))
    assert not np.array_equal(first.src[:100], other.src[:100])


def test_papers_is_the_same_from_memory_and_from_disk(tmp_path: Path) -> None:
    source = "synthetic:papers@1/8192,seed=3"
    graph = datasets.load(source)
    folder = ingest(source, tmp_path)
    again = datasets.load(folder)
    for field in ("src", "dst", "labels", "train_mask", "val_mask", "test_mask", "features"):
        assert np.array_equal(getattr(graph, field), getattr(again, field)), field


def test_a_twin_is_described_without_being_drawn() -> None:
    about = datasets.describe("synthetic:products")
    assert (about["num_vertices"], about["num_features"]) == (2_449_029, 100)
    assert datasets.describe("synthetic:papers@1/64")["num_edges"] == 25_245_094


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("synthetic:reddit@2", "must be above 0 and at most 1, got '2'; write for example"),
        ("synthetic:reddit@x", "got 'x'; write for example synthetic:reddit@1/64"),
        ("synthetic:reddit@1/0", "got '1/0'"),
        ("synthetic:reddit@", "got ''"),
        ("synthetic:reddit@1e999999999", "got '1e999999999'"),
        ("synthetic:reddit,scale=1/2", "takes one option, a seed of at least 0, got 'scale=1/2'"),
        ("synthetic:reddit@1/64,seed=-1", "takes one option, a seed of at least 0, got 'seed=-1'"),
        ("synthetic:reddit@1e-6", r"scale must be in \[0.00175992, 1\], got 1e-06"),
        ("synthetic:papers@1e-6", "none of them in the"),
        ("synthetic:redit", "no synthetic graph 'redit'"),
    ],
)
def test_wrong_twins_are_one_sentence(source: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        datasets.load(source)


def test_a_twin_that_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(named_twins, "total_memory", lambda: 1 << 29)
    monkeypatch.setattr(named_twins, "memory_limit", lambda: None)
    with pytest.raises(InputError, match=r"this machine has 0 GiB; take .*, or cut it from"):
        datasets.load("synthetic:papers@1/64")
    monkeypatch.setattr(named_twins, "total_memory", lambda: 1 << 60)
    monkeypatch.setattr(named_twins, "memory_limit", lambda: 4 << 30)
    with pytest.raises(InputError, match=r"a program here may take 4 GiB; take a smaller scale$"):
        datasets.load("synthetic:products")
