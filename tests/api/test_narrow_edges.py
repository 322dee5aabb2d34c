"""Edges of 32 bits from a file to its parts, and 64 where a method takes no others."""

from __future__ import annotations

import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distgnn as dg
from distgnn.api import partitioning
from distgnn.datasets import Graph, array_folder
from distgnn.datasets.npz import write_npz
from distgnn.partition import METHODS, assign, orders, quality
from distgnn.partition.assignment import Assignment
from distgnn.partition.build import build_parts
from distgnn.partition.methods.links import links_of
from distgnn.partition.refine import refinement


def graph_of(num_vertices: int = 120, **columns: Any) -> Graph:
    src, dst = np.random.default_rng(0).integers(0, num_vertices, (2, 900))
    # Hubs, a loop and parallel edges; most edges have a reverse.
    src[:200], dst[300:310] = 3, src[300:310]
    ends = np.concatenate([src, dst[:700]]), np.concatenate([dst, src[:700]])
    return Graph(name="some", num_vertices=num_vertices, src=ends[0], dst=ends[1], **columns)


def typed_and_weighted(num_vertices: int) -> Graph:
    draw = np.random.default_rng(1)
    weight, kind = draw.random(1600, np.float32), draw.integers(0, 3, 1600)
    return graph_of(num_vertices, edge_weight=weight, edge_type=kind)


# Products of the numbers of two vertices of the larger one need more than 32 bits.
GRAPHS = {
    "plain": graph_of(),
    "typed and weighted": typed_and_weighted(120),
    "of many vertices": typed_and_weighted(50_000),
}


def test_a_graph_becomes_narrow_and_wide_again() -> None:
    graph = graph_of()
    narrow = graph.narrowed()
    assert (narrow.src.dtype, narrow.dst.dtype) == (np.int32, np.int32)
    assert graph.src.dtype == np.int64, "the given one stays as it is"
    assert (graph.is_narrow, narrow.is_narrow) == (False, True)
    assert graph.widened() is graph
    wide = narrow.widened()
    assert (wide.src.dtype, wide.dst.dtype) == (np.int64, np.int64)
    for other in (narrow, wide):
        assert np.array_equal(other.src, graph.src)
        assert np.array_equal(other.dst, graph.dst)


@pytest.mark.parametrize("refine", [None, True])
@pytest.mark.parametrize("method", METHODS)
def test_every_method_cuts_a_narrow_graph_as_it_is(method: str, refine: bool | None) -> None:
    for graph in (GRAPHS["plain"], GRAPHS["typed and weighted"]):
        wide, narrow = (
            assign(method, each, 4, refine=refine) for each in (graph, graph.narrowed())
        )
        assert np.array_equal(wide.edge_part, narrow.edge_part)
        assert np.array_equal(wide.root_part, narrow.root_part)


def test_links_of_a_narrow_graph_are_the_same() -> None:
    graph = GRAPHS["of many vertices"]
    wide, narrow = links_of(graph), links_of(graph.narrowed())
    for name in ("low", "high", "weight", "edge"):
        assert getattr(narrow, name).dtype == np.int64
        assert np.array_equal(getattr(wide, name), getattr(narrow, name)), name


@pytest.mark.parametrize("order", ["auto", "rabbit"])
@pytest.mark.parametrize("graph", GRAPHS.values(), ids=list(GRAPHS))
def test_what_is_counted_and_built_is_the_same(graph: Graph, order: str) -> None:
    cut = assign("metis", graph, 4)
    found = []
    for each in (graph, graph.narrowed()):
        ranked = orders.arrange(order, each, cut)
        found.append((quality.measure(each, cut).to_json(), *build_parts(each, cut, order=ranked)))
    (counts, *parts), (same_counts, *same_parts) = found
    assert counts == same_counts
    for part, same in zip(parts, same_parts, strict=True):
        for name, array in vars(part).items():
            other = getattr(same, name)
            if isinstance(array, np.ndarray):
                assert array.dtype == other.dtype, name
            assert np.array_equal(array, other), name


def kinds_of_cuts(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return a list that gets the dtype of the ends of every graph that is cut."""
    kinds = []
    real = partitioning._cut

    def watched(asked: Any, graph: Graph, *others: Any) -> Any:
        kinds.append(graph.src.dtype)
        return real(asked, graph, *others)

    monkeypatch.setattr(partitioning, "_cut", watched)
    return kinds


def test_a_graph_of_a_file_is_narrow_and_a_callers_is_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kinds = kinds_of_cuts(monkeypatch)
    write_npz(graph_of(), tmp_path / "some.npz")
    dg.partition_graph(tmp_path / "some.npz", 2, tmp_path / "parts")
    dg.partition_graph(graph_of(), 2, tmp_path / "others")
    assert kinds == [np.int32, np.int64]


def test_a_graph_stays_wide_for_methods_that_take_no_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kinds = kinds_of_cuts(monkeypatch)
    write_npz(graph_of(), tmp_path / "some.npz")
    for method in ("auto", "hdrf", "ne"):
        dg.partition_graph(tmp_path / "some.npz", 2, tmp_path / method, method=method)
    assert kinds == [np.int32, np.int64, np.int64]


def test_ends_that_are_mapped_are_not_copied(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kinds, graph, folder = kinds_of_cuts(monkeypatch), graph_of(), tmp_path / "arrays"
    folder.mkdir()
    np.save(folder / "edge_index.npy", np.stack([graph.src, graph.dst]))
    np.save(folder / "num_vertices.npy", graph.num_vertices)
    monkeypatch.setattr(array_folder, "_MAP_BYTES", 0)
    dg.partition_graph(folder, 2, tmp_path / "parts", out_of_core="off")
    assert kinds == [np.int64]


def test_a_wide_copy_lives_no_longer_than_the_method(monkeypatch: pytest.MonkeyPatch) -> None:
    copies = []

    def widened(graph: Graph) -> Graph:
        copies.append(weakref.ref(wide := real(graph)))
        return wide

    def refined(graph: Graph, assignment: Assignment, **_: Any) -> Assignment:
        assert [copy() for copy in copies] == [None]
        return assignment

    real = Graph.widened
    monkeypatch.setattr(Graph, "widened", widened)
    monkeypatch.setattr(refinement, "refine_after", refined)
    assign("hdrf", graph_of().narrowed(), 2, refine=True)
    assert len(copies) == 1
