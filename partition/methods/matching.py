"""Maximum matching of a bipartite graph, and what alternating paths reach from it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from distgnn.partition.jit import compiled

UNMATCHED = -1


class Bipartite(NamedTuple):
    """Left and right vertices and the edges between them, as CSR by left vertex."""

    indptr: NDArray[np.int64]
    """(num_left + 1,) int64."""
    indices: NDArray[np.int32]
    """(num_edges,) int32. Right neighbours."""
    num_right: int
    """Number of right vertices."""


class Matching(NamedTuple):
    """Edges without common ends, from both sides."""

    left: NDArray[np.int32]
    """(num_left,) int32. The right partner, or UNMATCHED."""
    right: NDArray[np.int32]
    """(num_right,) int32. The left partner, or UNMATCHED."""


class _Search(NamedTuple):
    distance: NDArray[np.int32]
    """(num_left,) int32. Alternating distance from an unmatched left vertex; -1 when closed."""
    next_edge: NDArray[np.int64]
    """(num_left,) int64. First edge that no path of this phase has tried."""
    stack: NDArray[np.int32]
    """(num_left,) int32. Left vertices of the path in progress; also the queue of the layers."""


@compiled
def maximum_matching(graph: Bipartite) -> Matching:
    """Match as many left vertices to right neighbours as possible, by Hopcroft-Karp.

    Each phase finds a maximal set of disjoint shortest augmenting paths: one breadth-first search
    for the distances, then depth-first searches with an explicit stack.

    Args:
        graph: The bipartite graph.

    Returns:
        A maximum matching.

    References:
        Hopcroft and Karp, "An n^(5/2) algorithm for maximum matchings in bipartite graphs",
        SIAM J. Computing 1973.
    """
    num_left = graph.indptr.size - 1
    matching = Matching(
        np.full(num_left, UNMATCHED, np.int32), np.full(graph.num_right, UNMATCHED, np.int32)
    )
    search = _Search(
        np.empty(num_left, np.int32), np.empty(num_left, np.int64), np.empty(num_left, np.int32)
    )
    _match_greedily(graph, matching)
    while _layer(graph, matching, search):
        search.next_edge[:] = graph.indptr[:-1]
        for root in range(num_left):
            if matching.left[root] == UNMATCHED:
                _augment(root, graph, matching, search)
    return matching


@compiled
def alternating_reach(
    graph: Bipartite, matching: Matching
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Find what alternating paths reach from the unmatched left vertices.

    The result is the same for every maximum matching of the graph.

    Args:
        graph: The bipartite graph.
        matching: A maximum matching of it.

    Returns:
        is_left_reached: (num_left,) bool.
        is_right_reached: (num_right,) bool.
    """
    is_left_reached = matching.left == UNMATCHED
    is_right_reached = np.zeros(matching.right.size, np.bool_)
    queue = np.empty(matching.left.size, np.int32)
    tail = 0
    for left in range(matching.left.size):
        if is_left_reached[left]:
            queue[tail] = left
            tail += 1
    head = 0
    while head < tail:
        left = queue[head]
        head += 1
        for k in range(graph.indptr[left], graph.indptr[left + 1]):
            right = graph.indices[k]
            if not is_right_reached[right]:
                is_right_reached[right] = True
                partner = matching.right[right]
                if not is_left_reached[partner]:
                    is_left_reached[partner] = True
                    queue[tail] = partner
                    tail += 1
    return is_left_reached, is_right_reached


@compiled
def _match_greedily(graph: Bipartite, matching: Matching) -> None:
    """Match left vertices, those with few neighbours first, to their rarest free neighbour."""
    right_degree = np.zeros(matching.right.size, np.int64)
    for right in graph.indices:
        right_degree[right] += 1
    for left in np.argsort(graph.indptr[1:] - graph.indptr[:-1], kind="mergesort"):
        best = UNMATCHED
        for k in range(graph.indptr[left], graph.indptr[left + 1]):
            right = graph.indices[k]
            if matching.right[right] == UNMATCHED and (
                best == UNMATCHED or right_degree[right] < right_degree[best]
            ):
                best = right
        if best != UNMATCHED:
            matching.left[left] = best
            matching.right[best] = left


@compiled
def _layer(graph: Bipartite, matching: Matching, search: _Search) -> bool:
    """Set alternating distances from the unmatched left vertices; tell if a path augments."""
    distance, queue = search.distance, search.stack
    tail = 0
    for left in range(distance.size):
        distance[left] = -1
        if matching.left[left] == UNMATCHED:
            distance[left] = 0
            queue[tail] = left
            tail += 1
    head = 0
    shortest = -1
    while head < tail:
        left = queue[head]
        head += 1
        if shortest >= 0 and distance[left] >= shortest:
            break
        for k in range(graph.indptr[left], graph.indptr[left + 1]):
            partner = matching.right[graph.indices[k]]
            if partner == UNMATCHED:
                # Layers beyond the first free right vertex belong to later phases.
                shortest = distance[left] + 1
            elif distance[partner] < 0:
                distance[partner] = distance[left] + 1
                queue[tail] = partner
                tail += 1
    return shortest >= 0


@compiled
def _augment(root: int, graph: Bipartite, matching: Matching, search: _Search) -> None:
    """Flip one shortest augmenting path from an unmatched left vertex, if one is left."""
    distance, next_edge, stack = search.distance, search.next_edge, search.stack
    stack[0] = root
    depth = 1
    while depth > 0:
        left = stack[depth - 1]
        if next_edge[left] == graph.indptr[left + 1]:
            distance[left] = -1
            depth -= 1
            continue
        partner = matching.right[graph.indices[next_edge[left]]]
        next_edge[left] += 1
        if partner == UNMATCHED:
            while depth > 0:
                depth -= 1
                left = stack[depth]
                right = graph.indices[next_edge[left] - 1]
                matching.left[left] = right
                matching.right[right] = left
                # A path of this phase may not cross this one again.
                distance[left] = -1
        elif distance[partner] == distance[left] + 1:
            stack[depth] = partner
            depth += 1
