"""Libra, DistGNN's greedy vertex-cut, with a cap on the edges of a part."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distgnn.datasets.graph import Graph
from distgnn.partition.assignment import Assignment, random_numbers
from distgnn.partition.bits import insert, no_clones
from distgnn.partition.jit import compiled
from distgnn.partition.roots import choose_roots
from distgnn.partition.stream import WORD_BITS, degrees, edge_cap


def assign(
    graph: Graph, num_parts: int, *, seed: int = 0, edge_balance: float = 1.05
) -> Assignment:
    """Assign edges one after another to the least loaded part that their ends live on already.

    This is a part of both ends, else one of the end with the lower degree, so that hubs are split.
    Else it is one of the other end, else any. Roots go where the fewest rows travel.

    Unlike DistGNN, edges come in shuffled order, and no part exceeds `edge_balance` times the mean.
    Files are usually sorted by source, and in that order one part takes several times its share.

    Args:
        graph: The graph.
        num_parts: At least 1.
        seed: Seed of the order.
        edge_balance: Largest part's edges over the mean, rounded up to whole edges.

    Returns:
        The assignment.

    Raises:
        InputError: If edge_balance is below 1.

    References:
        Xie, Yan, Li and Zhang, "Distributed power-law graph computing: theoretical and empirical
        analysis", NIPS 2014; Md et al., "DistGNN", SC 2021, section 5.1.
    """
    cap = edge_cap(graph.num_edges, num_parts, edge_balance)
    order = random_numbers(seed).permutation(graph.num_edges)
    limits = np.array([num_parts, cap])
    edge_part = stream_edges(graph.src, graph.dst, order, degrees(graph), limits)
    return Assignment(num_parts, edge_part, choose_roots(graph, edge_part, num_parts))


@compiled
def stream_edges(
    src: NDArray[np.integer[Any]],
    dst: NDArray[np.integer[Any]],
    order: NDArray[np.int64],
    degree: NDArray[np.int64],
    limits: NDArray[np.int64],
) -> NDArray[np.int32]:
    """Assign edges, which may be held in less memory than a graph takes.

    Args:
        src: (num_edges,) int32 or int64.
        dst: (num_edges,) of the same type.
        order: (num_edges,) int64. Edges, as they come.
        degree: (num_vertices,) int64. Edges at each vertex, in and out.
        limits: (2,) int64. The number of parts, and the cap of a part.

    Returns:
        (num_edges,) int32. Part of each edge.
    """
    num_parts, cap = limits
    lives_on = no_clones(degree.size, num_parts)
    everywhere = np.full(lives_on.shape[1], ~np.uint64(0))
    if num_parts % WORD_BITS:
        everywhere[-1] = (np.uint64(1) << np.uint64(num_parts % WORD_BITS)) - np.uint64(1)
    load = np.zeros(num_parts, np.int64)
    edge_part = np.empty(src.size, np.int32)
    for edge in order:
        u, v = src[edge], dst[edge]
        low, high = (u, v) if degree[u] <= degree[v] else (v, u)
        part = _least_loaded(lives_on[u], lives_on[v], load, cap)
        if part < 0:
            part = _least_loaded(lives_on[low], everywhere, load, cap)
        if part < 0:
            part = _least_loaded(lives_on[high], everywhere, load, cap)
        if part < 0:
            part = int(np.argmin(load))
        edge_part[edge] = part
        load[part] += 1
        insert(lives_on[u], part)
        insert(lives_on[v], part)
    return edge_part


@compiled
def _least_loaded(
    one: NDArray[np.uint64], other: NDArray[np.uint64], load: NDArray[np.int64], cap: int
) -> int:
    """Least loaded part below the cap whose bit both sets have, the lowest if equal, or -1."""
    best = -1
    for word in range(one.size):
        bits = one[word] & other[word]
        while bits:
            rest = bits & (bits - np.uint64(1))
            # The lowest set bit alone is a power of two, exact in float64.
            part = word * WORD_BITS + int(math.log2(float(bits ^ rest)))
            if load[part] < cap and (best < 0 or load[part] < load[best]):
                best = part
            bits = rest
    return best
