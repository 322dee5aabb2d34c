"""2PS-L: a stream that clusters vertices, then one that scores two parts per edge."""

from __future__ import annotations

import heapq
import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from distgnn.datasets.errors import InputError
from distgnn.datasets.graph import Graph
from distgnn.partition.assignment import Assignment
from distgnn.partition.bits import contains, insert, no_clones
from distgnn.partition.jit import compiled
from distgnn.partition.roots import choose_roots
from distgnn.partition.stream import degrees, edge_cap, shuffled_links


class _Clusters(NamedTuple):
    """Clusters that the first phase leaves to the second."""

    cluster: NDArray[np.int64]
    """(num_vertices,) int64. Cluster of each vertex."""
    volume: NDArray[np.int64]
    """(num_vertices,) int64. Sum of the degrees in each cluster."""
    part: NDArray[np.int64]
    """(num_vertices,) int64. Part of each cluster."""


def assign(
    graph: Graph,
    num_parts: int,
    *,
    seed: int = 0,
    edge_balance: float = 1.05,
    passes: int = 1,
) -> Assignment:
    """Cluster the vertices, pack clusters into parts, and stream the edges.

    First phase: each edge may move one of its ends into the cluster of the other end. It moves the
    end whose cluster is smaller without it, while clusters stay below half the mean part's sum of
    degrees (volume). Then clusters go to parts, large ones first, each to the lightest part.

    Second phase: an edge inside the clusters of one part goes there. Then each other edge (u, v)
    goes to the better of the parts p of its two clusters, by the score

        g(u, p) + g(v, p) + s(u, p) + s(v, p)
        g(u, p) = 1 + d(v) / (d(u) + d(v)) if p has a clone of u, else 0

    s(u, p) is the share of the volume of u's cluster in that of both, if u's cluster is on p, else
    0. So the time does not depend on the number of parts. A full part passes an edge on to a part
    that the number of its end with the higher degree names. That one, if full, passes it on to the
    least loaded one.

    Args:
        graph: The graph.
        num_parts: At least 1.
        seed: Seed of the order of the edges.
        edge_balance: Largest part's edges over the mean, rounded up to whole edges.
        passes: Passes of the first phase, at least 1.

    Returns:
        The assignment.

    Raises:
        InputError: If edge_balance or passes is below 1.

    References:
        Mayer, Orujzade and Jacobsen, "Out-of-core edge partitioning at linear run-time", ICDE 2022.
    """
    cap = edge_cap(graph.num_edges, num_parts, edge_balance)
    if passes < 1:
        raise InputError(f"passes must be at least 1, got {passes}; 1 is a single stream")
    degree = degrees(graph)
    order = shuffled_links(graph, seed)
    # Half a part: every edge counts at both ends. Larger clusters do not pack evenly.
    most = max(math.ceil(graph.num_edges / num_parts), 1)
    cluster, volume = _cluster(graph.src, graph.dst, order, degree, (most, passes))
    clusters = _Clusters(cluster, volume, _pack(volume, num_parts))
    edge_part = _stream(graph.src, graph.dst, order, degree, clusters, (num_parts, cap))
    return Assignment(num_parts, edge_part, choose_roots(graph, edge_part, num_parts))


@compiled
def _cluster(
    src: NDArray[np.int64],
    dst: NDArray[np.int64],
    order: NDArray[np.int64],
    degree: NDArray[np.int64],
    limits: tuple[int, int],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Cluster the vertices; `limits` holds the largest volume and the number of passes."""
    most, passes = limits
    cluster = np.arange(degree.size)
    volume = degree.copy()
    for _ in range(passes):
        for edge in order:
            u, v = src[edge], dst[edge]
            if cluster[u] == cluster[v]:
                continue
            if max(volume[cluster[u]], volume[cluster[v]]) > most:
                continue
            if volume[cluster[u]] - degree[u] > volume[cluster[v]] - degree[v]:
                u, v = v, u
            if volume[cluster[v]] + degree[u] <= most:
                volume[cluster[u]] -= degree[u]
                volume[cluster[v]] += degree[u]
                cluster[u] = cluster[v]
    return cluster, volume


@compiled
def _pack(volume: NDArray[np.int64], num_parts: int) -> NDArray[np.int64]:
    """Give clusters, the largest first, to the part with the least volume."""
    part_of = np.zeros(volume.size, np.int64)
    lightest = [(np.int64(0), np.int64(part)) for part in range(num_parts)]
    for cluster in np.argsort(-volume, kind="mergesort"):
        load, part = heapq.heappop(lightest)
        part_of[cluster] = part
        heapq.heappush(lightest, (load + volume[cluster], part))
    return part_of


@compiled
def _stream(
    src: NDArray[np.int64],
    dst: NDArray[np.int64],
    order: NDArray[np.int64],
    degree: NDArray[np.int64],
    clusters: _Clusters,
    limits: tuple[int, int],
) -> NDArray[np.int32]:
    """Assign the edges in order; `limits` holds the number of parts and the cap of a part."""
    num_parts, cap = limits
    lives_on = no_clones(degree.size, num_parts)
    load = np.zeros(num_parts, np.int64)
    edge_part = np.full(src.size, -1, np.int32)
    for is_inside in (True, False):
        for edge in order:
            u, v = src[edge], dst[edge]
            one = clusters.part[clusters.cluster[u]]
            other = clusters.part[clusters.cluster[v]]
            if edge_part[edge] >= 0 or (is_inside and one != other):
                continue
            part = one
            if one != other:
                first = _score(lives_on, degree, clusters, (u, v), one)
                second = _score(lives_on, degree, clusters, (u, v), other)
                # On a tie both directions of a link go the same way.
                is_second = second > first or (second == first and other < one)
                part = other if is_second else one
            if load[part] >= cap:
                part = (u if degree[u] >= degree[v] else v) % num_parts
            if load[part] >= cap:
                part = np.argmin(load)
            edge_part[edge] = part
            load[part] += 1
            insert(lives_on[u], part)
            insert(lives_on[v], part)
    return edge_part


@compiled
def _score(
    lives_on: NDArray[np.uint64],
    degree: NDArray[np.int64],
    clusters: _Clusters,
    ends: tuple[int, int],
    part: int,
) -> float:
    u, v = ends
    share = degree[u] / (degree[u] + degree[v])
    one, other = clusters.volume[clusters.cluster[u]], clusters.volume[clusters.cluster[v]]
    score = 0.0
    if contains(lives_on[u], part):
        score += 2.0 - share
    if contains(lives_on[v], part):
        score += 1.0 + share
    if clusters.part[clusters.cluster[u]] == part:
        score += one / (one + other)
    if clusters.part[clusters.cluster[v]] == part:
        score += other / (one + other)
    return score
