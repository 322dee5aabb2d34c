"""Order, hashes, caps and bit sets of partitioners that take edges one after another."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from distgnn.datasets.errors import InputError
from distgnn.datasets.graph import Graph
from distgnn.partition.jit import compiled

WORD_BITS = 64
# Constants of splitmix64 (Steele, Lea and Flood, OOPSLA 2014).
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


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
    key = _link_keys(graph.src, graph.dst, seed)
    return np.argsort(key, kind="stable").astype(np.int64)


def vertex_hashes(num_vertices: int, seed: int) -> NDArray[np.int64]:
    """Hash every vertex.

    Args:
        num_vertices: Number of vertices.
        seed: At least 0.

    Returns:
        (num_vertices,) int64, uniform in 0..2**63 - 1.
    """
    return _vertex_hashes(num_vertices, seed)


@compiled
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
    return _spill(edge_part.copy(), order, load, cap)


@compiled
def _spill(
    edge_part: NDArray[np.int32], order: NDArray[np.int64], load: NDArray[np.int64], cap: int
) -> NDArray[np.int32]:
    for k in range(order.size - 1, -1, -1):
        part = edge_part[order[k]]
        if load[part] > cap:
            target = np.argmin(load)
            edge_part[order[k]] = target
            load[part] -= 1
            load[target] += 1
    return edge_part


@compiled
def contains(parts: NDArray[np.uint64], part: int) -> bool:
    """Say whether a set of parts, (num_words,) uint64, holds a part."""
    return bool((parts[part // WORD_BITS] >> np.uint64(part % WORD_BITS)) & np.uint64(1))


@compiled
def insert(parts: NDArray[np.uint64], part: int) -> None:
    """Add a part to a set, (num_words,) uint64."""
    parts[part // WORD_BITS] |= np.uint64(1) << np.uint64(part % WORD_BITS)


@compiled
def insert_all(
    lives_on: NDArray[np.uint64], vertices: NDArray[np.int64], parts: NDArray[np.int32]
) -> None:
    """Add parts to sets.

    Args:
        lives_on: (num_vertices, num_words) uint64. Set of each vertex.
        vertices: (num_pairs,) int64.
        parts: (num_pairs,) int32. What to add to the set of each of those.
    """
    for k in range(vertices.size):
        insert(lives_on[vertices[k]], parts[k])


@compiled
def mix(value: np.uint64) -> np.uint64:
    """Scramble 64 bits, one to one."""
    value = value + _GOLDEN
    value = (value ^ (value >> np.uint64(30))) * _FIRST
    value = (value ^ (value >> np.uint64(27))) * _SECOND
    mixed: np.uint64 = value ^ (value >> np.uint64(31))
    return mixed


@compiled
def _vertex_hashes(num_vertices: int, seed: int) -> NDArray[np.int64]:
    start = mix(np.uint64(seed))
    hashes = np.empty(num_vertices, np.int64)
    for vertex in range(num_vertices):
        hashes[vertex] = np.int64(mix(start ^ np.uint64(vertex)) >> np.uint64(1))
    return hashes


@compiled
def _link_keys(src: NDArray[np.int64], dst: NDArray[np.int64], seed: int) -> NDArray[np.uint64]:
    """Hash both ends without regard to direction; the lowest bit is the direction."""
    start = mix(np.uint64(seed))
    keys = np.empty(src.size, np.uint64)
    for edge in range(src.size):
        low, high = min(src[edge], dst[edge]), max(src[edge], dst[edge])
        key = mix(mix(start ^ np.uint64(low)) ^ np.uint64(high))
        keys[edge] = (key << np.uint64(1)) | np.uint64(src[edge] > dst[edge])
    return keys
