"""The only part of a graph, against the general way to build parts."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distgnn.datasets.errors import InputError
from distgnn.datasets.graph import Graph
from distgnn.partition import structure
from distgnn.partition.assignment import Assignment
from distgnn.partition.build import Part, build_parts
from distgnn.partition.csr import Csr, order_by, transposed
from distgnn.partition.directory import whole
from distgnn.partition.directory.whole import whole_part


def general(graph: Graph) -> Part:
    edge_part, root_part = (
        np.zeros(graph.num_edges, np.int32),
        np.zeros(graph.num_vertices, np.int32),
    )
    return next(iter(build_parts(graph, Assignment(1, edge_part, root_part))))


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Small graphs with parallel edges and loops, sorted by destination, by both ends, or not."""
    num_vertices = draw(st.integers(1, 8))
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    src, dst = rng.integers(0, num_vertices, (2, draw(st.integers(0, 30))))
    if draw(st.booleans()):
        src, dst = np.concatenate([src, dst]), np.concatenate([dst, src])
    if draw(st.booleans()):
        src, dst = src[np.argsort(dst, kind="stable")], np.sort(dst)
        if draw(st.booleans()):
            src = src[np.lexsort((src, dst))]
    weight = rng.random(src.size).astype(np.float32) if draw(st.booleans()) else None
    types = rng.integers(0, 3, src.size) if draw(st.booleans()) else None
    edge_features = rng.random((src.size, 2)) if draw(st.booleans()) else None
    return Graph(
        name="g",
        num_vertices=num_vertices,
        src=src,
        dst=dst,
        edge_weight=weight,
        edge_features=edge_features,
        edge_type=types,
        vertex_type=None if types is None else rng.integers(0, 2, num_vertices),
        features=rng.random((num_vertices, 3)).astype(np.float32),
        labels=rng.integers(0, 2, num_vertices),
    )


@settings(max_examples=200)
@given(graph=graphs())
def test_it_is_what_the_general_way_builds(graph: Graph) -> None:
    part, expected = whole_part(graph), general(graph)
    assert part.t_edge is None
    part = replace(part, t_edge=part.edges_of_transpose())
    for field in fields(Part):
        mine, theirs = getattr(part, field.name), getattr(expected, field.name)
        np.testing.assert_array_equal(mine, theirs, err_msg=field.name)
        if isinstance(theirs, np.ndarray):
            assert mine.dtype == theirs.dtype, field.name
            assert mine.flags.c_contiguous, field.name


@pytest.mark.parametrize(
    ("source", "num_sorts"),
    [([0, 2, 0, 2], 0), ([0, 2, 1, 1], 1), ([1, 2, 0, 2], 1), ([2, 0, 0, 2], 2)],
)
def test_edges_that_come_sorted_are_sorted_once_and_undirected_ones_not_at_all(
    source: list[int], num_sorts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def counted(csr: Csr, num_columns: int) -> Csr:
        calls.append(csr)
        return transposed(csr, num_columns)

    monkeypatch.setattr(whole, "transposed", counted)
    graph = Graph(name="g", num_vertices=3, src=np.array(source), dst=np.array([0, 0, 2, 2]))
    part = whole_part(graph)
    assert len(calls) == num_sorts
    assert part.indices.tolist() == [*sorted(source[:2]), *source[2:]]
    assert (part.t_indices is part.indices) == (num_sorts == 0)


def test_what_needs_no_change_is_not_copied() -> None:
    ends = np.array([0, 1])
    graph = Graph(name="g", num_vertices=2, src=ends, dst=ends, features=np.ones((2, 3)))
    assert whole_part(graph).features is graph.features


def test_too_many_vertices_for_row_numbers_are_an_input_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(structure, "MAX_CLONES", 1)
    graph = Graph(name="g", num_vertices=2, src=np.array([0]), dst=np.array([1]))
    with pytest.raises(InputError, match="part 0 has 2 clones, but row numbers are 32-bit"):
        whole_part(graph)


def test_edges_of_a_row_keep_their_order() -> None:
    row = np.array([2, 0, 2, 1, 0])
    assert order_by(row, 3).tolist() == [1, 4, 3, 0, 2]
    assert order_by(row[:0], 3).tolist() == []
