"""Candidates are compared by the same measures as the whole partition."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from distgnn.datasets import Graph
from distgnn.partition.arcs import edges_of_parts, split_arcs_of
from distgnn.partition.assignment import Assignment
from distgnn.partition.methods.candidates import excess_edges, halo_rows, rows_read
from distgnn.partition.quality import measure


@settings(max_examples=100)
@given(
    seed=st.integers(0, 2**32),
    num_vertices=st.integers(1, 30),
    num_edges=st.integers(1, 200),
    num_parts=st.sampled_from([1, 2, 5, 64, 65, 130]),
)
def test_arcs_count_the_rows_and_edges_that_the_quality_counts(
    seed: int, num_vertices: int, num_edges: int, num_parts: int
) -> None:
    generator = np.random.default_rng(seed)
    src, dst = generator.integers(0, num_vertices, (2, num_edges))
    graph = Graph(name="drawn", num_vertices=num_vertices, src=src, dst=dst)
    edge_part = generator.integers(0, num_parts, num_edges).astype(np.int32)
    root_part = generator.integers(0, num_parts, num_vertices).astype(np.int32)
    arcs, arc_part = split_arcs_of(graph, edge_part)
    placed = Assignment(num_parts, arc_part, root_part)
    quality = measure(graph, Assignment(num_parts, edge_part, root_part))
    assert halo_rows(arcs, placed) == quality.halo_rows
    assert rows_read(arcs, placed) == quality.read_rows.sum()
    assert np.array_equal(edges_of_parts(arc_part, arcs.weight, num_parts), quality.num_edges)
    mean = -(-num_edges // num_parts)
    assert excess_edges(arcs, placed, 1.0) == max(int(quality.num_edges.max()) - mean, 0)
