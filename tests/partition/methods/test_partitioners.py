from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distgnn.datasets import Graph, InputError
from distgnn.partition import METHODS, assign
from distgnn.partition.assignment import Assignment
from distgnn.partition.quality import measure

# Methods that choose roots and then place the edges; all others choose roots for their edges.
ROOTS_FIRST = ("metis", "hierarchical", "edge-cut", "fennel")


@st.composite
def multigraphs(draw: st.DrawFn) -> Graph:
    num_vertices = draw(st.integers(1, 12))
    vertex = st.integers(0, num_vertices - 1)
    edges = draw(st.lists(st.tuples(vertex, vertex), max_size=30))
    src, dst = np.array(edges, np.int64).reshape(-1, 2).T
    return Graph(name="drawn", num_vertices=num_vertices, src=src, dst=dst)


def undirected(num_vertices: int, pairs: list[tuple[int, int]]) -> Graph:
    one, other = np.array(pairs, np.int64).T
    return Graph(
        name="known",
        num_vertices=num_vertices,
        src=np.concatenate([one, other]),
        dst=np.concatenate([other, one]),
    )


def clique(vertices: range) -> list[tuple[int, int]]:
    return [(u, v) for u in vertices for v in vertices if u < v]


def halo_rows_by_sets(graph: Graph, assignment: Assignment) -> int:
    edges = list(zip(graph.src, graph.dst, assignment.edge_part, strict=True))
    reads = {(u, p) for u, _, p in edges if assignment.root_part[u] != p}
    writes = {(v, p) for _, v, p in edges if assignment.root_part[v] != p}
    return len(reads) + len(writes)


@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=60)
@given(graph=multigraphs(), data=st.data())
def test_every_edge_has_a_part_and_every_root_lives_with_its_edges(
    method: str, graph: Graph, data: st.DataObject
) -> None:
    num_parts = data.draw(st.integers(1, graph.num_vertices))
    assignment = assign(method, graph, num_parts, seed=data.draw(st.integers(0, 5)))
    assert assignment.edge_part.shape == (graph.num_edges,)
    assert assignment.root_part.shape == (graph.num_vertices,)
    homes: list[set[int]] = [set() for _ in range(graph.num_vertices)]
    for u, v, p in zip(graph.src, graph.dst, assignment.edge_part, strict=True):
        homes[u].add(p)
        homes[v].add(p)
    if method not in ROOTS_FIRST:
        placed = zip(assignment.root_part, homes, strict=True)
        assert all(root in parts for root, parts in placed if parts)
    elif method not in ("metis", "hierarchical"):
        # An edge lives with one of its ends, which is then no leaf there, until it is refined.
        ends = assignment.root_part[graph.src], assignment.root_part[graph.dst]
        assert ((assignment.edge_part == ends[0]) | (assignment.edge_part == ends[1])).all()


@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=40)
@given(graph=multigraphs(), data=st.data())
def test_quality_counts_the_halo_like_plain_sets(
    method: str, graph: Graph, data: st.DataObject
) -> None:
    assignment = assign(method, graph, data.draw(st.integers(1, graph.num_vertices)))
    quality = measure(graph, assignment)
    assert quality.halo_rows == halo_rows_by_sets(graph, assignment)
    at_destination = Assignment(
        assignment.num_parts, assignment.root_part[graph.dst], assignment.root_part
    )
    assert quality.halo_rows_at_destination == halo_rows_by_sets(graph, at_destination)


@settings(max_examples=60)
@given(graph=multigraphs(), data=st.data())
def test_the_cover_never_moves_more_rows_than_the_edge_cut(
    graph: Graph, data: st.DataObject
) -> None:
    # Refinement moves roots, too: then the bound is that of other roots.
    num_parts = data.draw(st.integers(1, graph.num_vertices))
    quality = measure(graph, assign("metis", graph, num_parts, refine=False))
    assert quality.halo_rows <= quality.halo_rows_at_destination


@pytest.mark.parametrize("method", METHODS)
def test_the_same_seed_gives_the_same_assignment(method: str) -> None:
    generator = np.random.default_rng(1)
    src, dst = generator.integers(0, 60, (2, 300))
    graph = Graph(name="g", num_vertices=60, src=src, dst=dst)
    first, second = (assign(method, graph, 5, seed=3) for _ in range(2))
    assert np.array_equal(first.edge_part, second.edge_part)
    assert np.array_equal(first.root_part, second.root_part)


@pytest.mark.parametrize("method", METHODS)
def test_another_seed_gives_another_assignment(method: str) -> None:
    generator = np.random.default_rng(1)
    src, dst = generator.integers(0, 200, (2, 900))
    graph = Graph(name="g", num_vertices=200, src=src, dst=dst)
    first, second = (assign(method, graph, 5, seed=seed) for seed in (0, 1))
    assert not np.array_equal(first.edge_part, second.edge_part)


def test_random_parts_do_not_follow_a_graph_of_the_same_seed() -> None:
    src, dst = np.random.default_rng(0).integers(0, 3, (2, 3000))
    graph = Graph(name="g", num_vertices=3, src=src, dst=dst)
    edge_part = assign("random", graph, 3, seed=0).edge_part
    assert abs(np.count_nonzero(edge_part == src) - 1000) < 100


@pytest.mark.parametrize("method", METHODS)
def test_one_part_has_no_halo(method: str) -> None:
    quality = measure(known := undirected(4, clique(range(4))), assign(method, known, 1))
    assert quality.halo_rows == 0
    assert quality.replication_factor == 1.0


@pytest.mark.parametrize("method", METHODS)
def test_a_graph_without_edges_spreads_its_roots(method: str) -> None:
    empty = np.zeros(0, np.int64)
    graph = Graph(name="dots", num_vertices=12, src=empty, dst=empty)
    quality = measure(graph, assign(method, graph, 4))
    assert quality.halo_rows == 0
    assert quality.num_roots.max() <= 4


GRID = [(8 * i + j, 8 * i + j + 1) for i in range(8) for j in range(7)] + [
    (8 * i + j, 8 * i + j + 8) for i in range(7) for j in range(8)
]


@pytest.mark.parametrize(
    ("graph", "num_parts", "optimum"),
    [
        pytest.param(undirected(41, [(0, v) for v in range(1, 41)]), 4, 6, id="star"),
        pytest.param(undirected(60, [(v, v + 1) for v in range(59)]), 3, 4, id="path"),
        pytest.param(undirected(64, GRID), 2, 16, id="grid"),
        pytest.param(undirected(8, clique(range(8))), 2, 8, id="complete"),
        pytest.param(
            undirected(20, [*clique(range(10)), *clique(range(10, 20)), (9, 10)]),
            2,
            2,
            id="two cliques with a bridge",
        ),
    ],
)
def test_metis_reaches_the_known_optimum(graph: Graph, num_parts: int, optimum: int) -> None:
    quality = measure(graph, assign("metis", graph, num_parts))
    assert quality.halo_rows == optimum
    assert quality.edge_balance <= 1.1
    assert quality.vertex_balance <= 1.25


def test_parallel_edges_and_file_order_do_not_change_the_roots() -> None:
    generator = np.random.default_rng(2)
    src, dst = generator.integers(0, 80, (2, 400))
    order = generator.permutation(400)
    graph = Graph(name="g", num_vertices=80, src=src, dst=dst)
    shuffled = Graph(name="g", num_vertices=80, src=src[order], dst=dst[order])
    first, second = (assign("metis", each, 4) for each in (graph, shuffled))
    assert np.array_equal(first.root_part, second.root_part)
    assert np.array_equal(first.edge_part[order], second.edge_part)


@pytest.mark.parametrize(
    ("method", "num_parts", "options", "message"),
    [
        ("mets", 2, {}, r"unknown partitioning method 'mets'; .*metis.*did you mean 'metis'\?"),
        ("metis", 0, {}, "num_parts must be at least 1, got 0"),
        ("metis", 5, {}, "more parts than vertices: num_parts is 5, .* at most 4 parts"),
        ("metis", 2, {"seed": -1}, r"seed must be in 0\.\.2\*\*63 - 1, got -1"),
        ("random", 2, {"speed": 1}, "method 'random' has no option 'speed'; .*none"),
        ("metis", 2, {"speed": 1}, "no option 'speed'; its options are: objective, edge_balance"),
        ("metis", 2, {"objective": "x"}, "unknown METIS objective 'x'; choose one of volume, cut"),
        ("metis", 2, {"edge_balance": 0.5}, "edge_balance must be at least 1, got 0.5"),
        ("edge-cut", 2, {"vertex_balance": 0.5}, "vertex_balance must be at least 1, got 0.5"),
        ("libra", 2, {"edge_balance": 0.9}, "edge_balance must be at least 1, got 0.9"),
        ("hdrf", 2, {"balance_weight": -1.0}, "balance_weight must be at least 0 and finite, got"),
        ("fennel", 2, {"passes": 0}, "passes must be at least 1, got 0; 1 is a single stream"),
        ("fennel", 2, {"edge_balance": 0.9}, "edge_balance must be at least 1, got 0.9"),
        ("2ps-l", 2, {"passes": 0}, "passes must be at least 1, got 0; 1 is a single stream"),
        ("hierarchical", 2, {"levels": "2x2"}, "levels 2x2 make 4 parts, but num_parts is 2; the"),
        ("hierarchical", 2, {"levels": "2x"}, "levels must be whole numbers such as 2x4, .*got"),
        ("hierarchical", 2, {"objective": "x"}, "unknown METIS objective 'x'; choose one of volu"),
        ("ne", 2, {"clone_balance": 0.5}, "clone_balance must be at least 1, got 0.5"),
        ("hep", 2, {"tau": -1.0}, "tau must be at least 0, got -1.0; 10 suits most graphs"),
    ],
)
def test_bad_requests_say_what_is_allowed(
    method: str, num_parts: int, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        assign(method, undirected(4, clique(range(4))), num_parts, **options)


def test_the_package_and_the_store_load_no_partitioner() -> None:
    program = (
        "import sys, distgnn.partition, distgnn.partition.orders;"
        "import distgnn.partition.directory.store;"
        "heavy = {'numba', 'pymetis', 'torch'} & set(sys.modules);"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
