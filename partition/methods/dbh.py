"""Degree-based hashing: every edge at the hash of its end with the lower degree."""

from __future__ import annotations

import numpy as np

from distgnn.datasets.graph import Graph
from distgnn.partition.assignment import Assignment
from distgnn.partition.roots import choose_roots
from distgnn.partition.stream import degrees, edge_cap, shuffled_links, spill, vertex_hashes


def assign(
    graph: Graph, num_parts: int, *, seed: int = 0, edge_balance: float = 1.05
) -> Assignment:
    """Assign each edge to part hash(w) mod num_parts, w its end with the lower degree.

    All edges of a vertex whose neighbours have higher degrees stay together; hubs are cut. Each
    edge is placed without a look at the others. Only where chance, or a vertex with very many
    parallel edges, overfills a part do edges move on to the least loaded one.

    Args:
        graph: The graph.
        num_parts: At least 1.
        seed: Seed of the hash.
        edge_balance: Largest part's edges over the mean, rounded up to whole edges.

    Returns:
        The assignment.

    Raises:
        InputError: If edge_balance is below 1.

    References:
        Xie, Yan, Li and Zhang, "Distributed power-law graph computing: theoretical and empirical
        analysis", NIPS 2014.
    """
    cap = edge_cap(graph.num_edges, num_parts, edge_balance)
    degree = degrees(graph)
    part_of = (vertex_hashes(graph.num_vertices, seed) % num_parts).astype(np.int32)
    low, high = np.minimum(graph.src, graph.dst), np.maximum(graph.src, graph.dst)
    edge_part = part_of[np.where(degree[low] <= degree[high], low, high)]
    edge_part = spill(edge_part, shuffled_links(graph, seed), num_parts, cap)
    return Assignment(num_parts, edge_part, choose_roots(graph, edge_part, num_parts))
