"""Edges of 32 bits from a file to its parts, and 64 where a method takes no others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distgnn as dg
from distgnn.api import partitioning
from distgnn.datasets import Graph
from distgnn.datasets.npz import write_npz
from distgnn.partition import METHODS, assign, orders, quality
from distgnn.partition.build import build_parts


def graph_of(num_vertices: int = 120) -> Graph:
    src, dst = np.random.default_rng(0).integers(0, num_vertices, (2, 900))
    # Hubs, a loop and parallel edges; most edges have a reverse.
    src[:200], dst[300:310] = 3, src[300:310]
    ends = np.concatenate([src, dst[:700]]), np.concatenate([dst, src[:700]])
    return Graph(name="some", num_vertices=num_vertices, src=ends[0], dst=ends[1])


def test_a_graph_becomes_narrow_and_wide_again() -> None:
    graph = graph_of()
    narrow = graph.narrowed()
    assert (narrow.src.dtype, narrow.dst.dtype) == (np.int32, np.int32)
    assert graph.src.dtype == np.int64, "the given one stays as it is"
    assert graph.widened() is graph
    wide = narrow.widened()
    assert (wide.src.dtype, wide.dst.dtype) == (np.int64, np.int64)
    for other in (narrow, wide):
        assert np.array_equal(other.src, graph.src)
        assert np.array_equal(other.dst, graph.dst)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_cuts_a_narrow_graph_as_it_is(method: str) -> None:
    wide, narrow = (assign(method, each, 4) for each in (graph_of(), graph_of().narrowed()))
    assert np.array_equal(wide.edge_part, narrow.edge_part)
    assert np.array_equal(wide.root_part, narrow.root_part)


def test_what_is_counted_and_built_is_the_same() -> None:
    graph = graph_of()
    cut = assign("metis", graph, 4)
    found = []
    for each in (graph, graph.narrowed()):
        order = orders.arrange("auto", each, cut)
        found.append((quality.measure(each, cut).to_json(), *build_parts(each, cut, order=order)))
    (counts, *parts), (same_counts, *same_parts) = found
    assert counts == same_counts
    for part, same in zip(parts, same_parts, strict=True):
        for name, array in vars(part).items():
            other = getattr(same, name)
            if isinstance(array, np.ndarray):
                assert array.dtype == other.dtype, name
            assert np.array_equal(array, other), name


def test_a_graph_of_a_file_is_narrow_and_a_callers_is_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kinds = []
    real = partitioning._cut

    def watched(asked: Any, graph: Graph, *others: Any) -> Any:
        kinds.append(graph.src.dtype)
        return real(asked, graph, *others)

    monkeypatch.setattr(partitioning, "_cut", watched)
    graph = graph_of()
    write_npz(graph, tmp_path / "some.npz")
    dg.partition_graph(tmp_path / "some.npz", 2, tmp_path / "parts")
    dg.partition_graph(graph, 2, tmp_path / "others")
    assert kinds == [np.int32, np.int64]
