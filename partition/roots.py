"""Roots for given edges: on the clone that saves the most rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from distgnn import _partitioner
from distgnn.datasets.graph import Graph
from distgnn.partition.halo import distinct_slots


def choose_roots(graph: Graph, edge_part: NDArray[np.int32], num_parts: int) -> NDArray[np.int32]:
    """Place each vertex's root where halo_rows is least for the given edges.

    A vertex that reads on R parts and writes on W moves |R| + |W| rows, less one for each role that
    the root's own part plays. On a part where it does both these are two, else one on any of its
    parts. Ties go to the part with the fewest roots, vertices with the least choice first. Vertices
    without edges then even out the roots.

    Args:
        graph: The graph.
        edge_part: (num_edges,) int32. Part of each edge.
        num_parts: Number of parts.

    Returns:
        (num_vertices,) int32. Part of each vertex's root.
    """
    num_vertices = graph.num_vertices
    vertices, parts = [], []
    for ends in (graph.src, graph.dst):
        slots = distinct_slots(ends, edge_part, num_vertices)
        vertices.append(slots.vertex)
        parts.append(slots.part)
    key, roles = np.unique(
        np.concatenate(vertices) * num_parts + np.concatenate(parts), return_counts=True
    )
    vertex = key // num_parts
    most_roles = np.zeros(num_vertices, np.int64)
    np.maximum.at(most_roles, vertex, roles)
    is_candidate = roles == most_roles[vertex]
    candidate = (key % num_parts).astype(np.int32)[is_candidate]
    num_candidates = np.bincount(vertex[is_candidate], minlength=num_vertices)
    start = np.concatenate([[0], np.cumsum(num_candidates)])
    order = np.argsort(num_candidates, kind="stable")
    # Those without candidates have no edges: they come last, to even out what the others left.
    order = np.roll(order, -int(np.count_nonzero(num_candidates == 0)))
    return _partitioner.spread_roots(order, start, candidate, num_parts)
