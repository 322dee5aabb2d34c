"""Order, hashes, caps and bit sets of partitioners that take edges one after another."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from distgnn import _partitioner
from distgnn.datasets.errors import InputError
from distgnn.datasets.graph import Graph

WORD_BITS = 64


def edge_cap(num_edges: int, num_parts: int, edge_balance: float) -> int:
    """Most edges of a part.

    Args:
        num_edges: Edges of the graph.
        num_parts: Number of parts.
        edge_balance: Largest part over the mean, at least 1.

    Returns:
        edge_balance times the mean, and at least the mean rounded up.

    Raises:
        InputError: If edge_balance is below 1.
    """
    if not edge_balance >= 1.0:
        raise InputError(
            f"edge_balance must be at least 1, got {edge_balance}; 1 is perfect balance"
        )
    mean = num_edges / num_parts
    # Infinity is a way to say that there is no cap.
    return max(math.ceil(mean), math.floor(min(edge_balance * mean, num_edges)))


def degrees(graph: Graph) -> NDArray[np.int64]:
    """Count the edges at each vertex, in and out; a self-loop counts twice.

    Args:
        graph: The graph.

    Returns:
        (num_vertices,) int64.
    """
    degree = np.bincount(graph.src, minlength=graph.num_vertices)
    degree += np.bincount(graph.dst, minlength=graph.num_vertices)
    return degree.astype(np.int64)


def shuffled_links(graph: Graph, seed: int) -> NDArray[np.int64]:
    """Order edges at random, all edges between the same two vertices next to each other.

    The order depends on the ends of the edges and on the seed, not on the order of the file. Files
    are usually sorted by source, and a stream in that order fills one part after another.

    Args:
        graph: The graph.
        seed: At least 0.

    Returns:
        (num_edges,) int64. Positions of the edges.
    """
    src, dst = np.ascontiguousarray(graph.src), np.ascontiguousarray(graph.dst)
    key = _partitioner.link_keys(src, dst, seed)
    return np.argsort(key, kind="stable").astype(np.int64)


def vertex_hashes(num_vertices: int, seed: int) -> NDArray[np.int64]:
    """Hash every vertex.

    Args:
        num_vertices: Number of vertices.
        seed: At least 0.

    Returns:
        (num_vertices,) int64, uniform in 0..2**63 - 1.
    """
    return _partitioner.vertex_hashes(num_vertices, seed)


def no_clones(num_vertices: int, num_parts: int) -> NDArray[np.uint64]:
    """Make one empty set of parts per vertex.

    Args:
        num_vertices: Number of vertices.
        num_parts: Number of parts.

    Returns:
        (num_vertices, num_words) uint64, one bit per part.
    """
    return np.zeros((num_vertices, (num_parts + WORD_BITS - 1) // WORD_BITS), np.uint64)


def spill(
    edge_part: NDArray[np.int32], order: NDArray[np.int64], num_parts: int, cap: int
) -> NDArray[np.int32]:
    """Move the edges that come last in overfull parts to the least loaded ones.

    Args:
        edge_part: (num_edges,) int32. Part of each edge.
        order: (num_edges,) int64. Order of the edges.
        num_parts: Number of parts.
        cap: Most edges of a part, at least the mean.

    Returns:
        (num_edges,) int32. The same parts, but for the edges that moved.
    """
    load = np.bincount(edge_part, minlength=num_parts).astype(np.int64)
    if load.max() <= cap:
        return edge_part
    spilt: NDArray[np.int32] = edge_part.copy()
    _partitioner.spill_edges(spilt, order, load, cap)
    return spilt
