from __future__ import annotations

import numpy as np
import pytest

from distgnn.datasets import Graph
from distgnn.partition import assign
from distgnn.partition.methods.links import links_of
from distgnn.partition.methods.spac import _paths
from distgnn.partition.quality import measure


def both_ways(num_vertices: int, pairs: list[tuple[int, int]]) -> Graph:
    src, dst = np.array(pairs + [(v, u) for u, v in pairs]).T
    return Graph(name="g", num_vertices=num_vertices, src=src, dst=dst)


def test_links_of_a_vertex_follow_each_other() -> None:
    # Links: 0 = (0, 1), 1 = (0, 2), 2 = (0, 3), 3 = (1, 2), 4 = (4, 4).
    graph = both_ways(6, [(0, 1), (0, 2), (0, 3), (1, 2), (4, 4)])
    paths = _paths(links_of(graph))
    found = [paths.indices[paths.indptr[k] : paths.indptr[k + 1]].tolist() for k in range(5)]
    assert found == [[1, 3], [0, 2, 3], [1], [0, 1], []]


@pytest.mark.parametrize(
    ("pairs", "num_parts", "optimum"),
    [
        pytest.param([(v, v + 1) for v in range(60)], 3, 4, id="path"),
        pytest.param([(0, v) for v in range(1, 41)], 4, 6, id="star"),
        pytest.param(
            [(8 * k + u, 8 * k + v) for k in range(8) for u in range(8) for v in range(u)],
            4,
            0,
            id="cliques",
        ),
    ],
)
def test_it_reaches_the_known_optimum(
    pairs: list[tuple[int, int]], num_parts: int, optimum: int
) -> None:
    graph = both_ways(64, pairs)
    assert measure(graph, assign("spac", graph, num_parts)).halo_rows == optimum


def test_self_loops_add_no_clones() -> None:
    ring = [(v, (v + 1) % 40) for v in range(40)]
    bare, looped = (
        measure(graph, assign("spac", graph, 4, edge_balance=1.2)).halo_rows
        for graph in (both_ways(40, ring), both_ways(40, ring + [(v, v) for v in range(40)]))
    )
    assert bare == looped == 8
