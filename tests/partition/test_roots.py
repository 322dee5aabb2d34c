from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from distgnn.datasets import Graph
from distgnn.partition.assignment import Assignment
from distgnn.partition.quality import measure
from distgnn.partition.roots import choose_roots


@pytest.mark.parametrize("seed", range(15))
def test_no_placement_of_roots_moves_fewer_rows(seed: int) -> None:
    generator = np.random.default_rng(seed)
    src, dst = generator.integers(0, 5, (2, 10))
    graph = Graph(name="g", num_vertices=5, src=src, dst=dst)
    edge_part = generator.integers(0, 3, 10).astype(np.int32)
    chosen = choose_roots(graph, edge_part, 3)
    best = min(
        measure(graph, Assignment(3, edge_part, np.array(roots, np.int32))).halo_rows
        for roots in product(range(3), repeat=5)
    )
    assert measure(graph, Assignment(3, edge_part, chosen)).halo_rows == best


def test_a_root_prefers_the_part_where_it_reads_and_writes() -> None:
    graph = Graph(name="g", num_vertices=3, src=np.array([0, 0, 1]), dst=np.array([1, 2, 0]))
    # Vertex 0 has edges out on parts 0 and 1 and one in on part 1.
    roots = choose_roots(graph, np.array([0, 1, 1], np.int32), 2)
    assert roots[0] == 1


def test_isolated_vertices_go_to_the_lightest_parts() -> None:
    graph = Graph(name="g", num_vertices=9, src=np.array([0, 1, 2]), dst=np.array([1, 2, 0]))
    roots = choose_roots(graph, np.zeros(3, np.int32), 3)
    assert np.array_equal(roots[:3], [0, 0, 0])
    assert np.array_equal(np.bincount(roots), [3, 3, 3])
