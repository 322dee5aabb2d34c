"""Candidates are compared by the same measures as the whole partition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distgnn.datasets import Graph
from distgnn.partition.arcs import edges_of_parts, split_arcs_of
from distgnn.partition.assignment import Assignment
from distgnn.partition.methods.candidates import (
    excess_edges,
    halo_rows,
    is_even,
    keeps_balances,
    rows_read,
)
from distgnn.partition.quality import measure
from distgnn.partition.refine.balance import Balance


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


@pytest.mark.parametrize(
    ("roots", "balance", "expected"),
    [
        ([3, 2, 2], 1.0, True),  # the mean rounded up
        ([4, 2, 1], 1.25, False),
        ([4, 2, 1], 1.8, True),
    ],
)
def test_roots_are_even_up_to_the_limit_or_the_mean_rounded_up(
    roots: list[int], balance: float, expected: bool
) -> None:
    root_part = np.repeat(np.arange(3, dtype=np.int32), roots)
    placed = Assignment(3, np.zeros(0, np.int32), root_part)
    assert is_even(placed, Balance(1.05, balance)) == expected


def test_another_assignment_may_be_as_uneven_as_the_one_before() -> None:
    # A path of seven vertices in two parts, whose mean of roots is 3.5.
    edge = np.arange(6)
    graph = Graph(name="path", num_vertices=7, src=edge, dst=edge + 1)
    arcs, arc_part = split_arcs_of(graph, np.zeros(6, np.int32))

    def placed(num_first: int, arc_part: np.ndarray = arc_part) -> Assignment:
        return Assignment(2, arc_part, (np.arange(7) >= num_first).astype(np.int32))

    narrow, wide = Balance(1.05, 1.0), Balance(1.05, 2.0)
    assert keeps_balances(arcs, placed(4), narrow, placed(4))
    assert keeps_balances(arcs, placed(5), narrow, placed(5))
    assert not keeps_balances(arcs, placed(6), narrow, placed(5))
    # With all edges in the first part, it has seven clones, and the other its roots.
    assert not keeps_balances(arcs, placed(6), wide, placed(3))
    assert keeps_balances(arcs, placed(6), wide, placed(6))
