"""Uniformly random edges: the baseline that every other method must beat."""

from __future__ import annotations

import numpy as np

from distgnn.datasets.graph import Graph
from distgnn.partition.assignment import Assignment, random_numbers
from distgnn.partition.roots import choose_roots


def assign(graph: Graph, num_parts: int, *, seed: int = 0) -> Assignment:
    """Assign each edge to a part drawn at random, and roots where the fewest rows travel.

    Args:
        graph: The graph.
        num_parts: At least 1.
        seed: Seed of the draw.

    Returns:
        The assignment.
    """
    generator = random_numbers(seed)
    edge_part = generator.integers(num_parts, size=graph.num_edges, dtype=np.int32)
    return Assignment(num_parts, edge_part, choose_roots(graph, edge_part, num_parts))
