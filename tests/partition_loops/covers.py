"""Edges placed by a minimum vertex cover."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from distgnn.partition.methods.cut_edges import Cover, CutEdges
from distgnn.partition.methods.matching import UNMATCHED, Bipartite, Matching


class _Search(NamedTuple):
    distance: NDArray[np.int32]
    """(num_left,) int32. Alternating distance from an unmatched left vertex; -1 when closed."""
    next_edge: NDArray[np.int64]
    """(num_left,) int64. First edge that no path of this phase has tried."""
    stack: NDArray[np.int32]
    """(num_left,) int32. Left vertices of the path in progress; also the queue of the layers."""


def _cut_arcs(
    ends: tuple[int, int],
    graph: tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]],
    root_part: NDArray[np.int32],
    arc_part: NDArray[np.int32],
    num_parts: int,
    *,
    one_way: bool,
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]:
    """Find the arcs between parts of a range; of two there and back, `one_way` finds one.

    Returns:
        (num_cut,) the arcs; (num_cut,) their sources; (num_parts,) the edges inside parts. Arcs get
        the part of their source's root.
    """
    start, head, weight = graph
    cut, source, load = [], [], np.zeros(num_parts, np.int64)
    for vertex in range(*ends):
        part = root_part[vertex]
        for arc in range(start[vertex], start[vertex + 1]):
            other = root_part[head[arc]]
            arc_part[arc] = part
            if other == part:
                load[part] += weight[arc]
            elif part < other or not one_way:
                cut.append(arc)
                source.append(vertex)
    return np.array(cut, np.int64), np.array(source, np.int32), load


def _settled(
    edges: CutEdges, cover: Cover, load: NDArray[np.int64]
) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """Place the edges with one covered end, and add them to `load`; tell which are free."""
    placed = np.empty(edges.left.size, np.int32)
    is_free = np.empty(edges.left.size, np.bool_)
    for edge in range(placed.size):
        left, right = edges.left[edge], edges.right[edge]
        at_left, at_right = cover.is_left_covered[left], cover.is_right_covered[right]
        left_free, right_free = cover.is_left_free[left], cover.is_right_free[right]
        is_free[edge] = left_free and right_free
        placed[edge] = edges.destination_part[edge] if at_left else edges.source_part[edge]
        if at_left != at_right and not left_free and not right_free:
            load[placed[edge]] += edges.multiplicity[edge]
    return placed, is_free


def _free_components(
    edges: CutEdges, is_free: NDArray[np.bool_], *, is_paired: bool
) -> NDArray[np.int64]:
    """(num_free,) component of each free edge, numbered in the order of the first nodes."""
    if is_paired:
        # A slot is one node whether its vertex is read or written there.
        keys = np.unique(np.concatenate([edges.left_key, edges.right_key]))
        first, second = (np.searchsorted(keys, each) for each in (edges.left_key, edges.right_key))
    else:
        first = np.arange(edges.left_key.size)
        second = first.size + np.arange(edges.right_key.size)
    num_nodes = int(max(first[-1], second[-1])) + 1
    one, other = first[edges.left[is_free]], second[edges.right[is_free]]
    links = sp.coo_matrix((np.ones(one.size, np.int8), (one, other)), shape=(num_nodes,) * 2)
    _, label = connected_components(links, directed=False)
    # Nodes without a free edge are components, too.
    is_used = np.zeros(num_nodes, np.bool_)
    is_used[label[one]] = True
    component: NDArray[np.int64] = np.cumsum(is_used)[label[one]] - 1
    return component


def _cover_components(
    edges: CutEdges,
    free: tuple[NDArray[np.int32], NDArray[np.bool_]],
    left_covered: NDArray[np.bool_],
    right_covered: NDArray[np.bool_],
) -> None:
    """Cover free slots: exactly those whose component's edges live away from their roots."""
    placed, is_free = free
    for edge in range(placed.size):
        if is_free[edge]:
            left_covered[edges.left[edge]] = placed[edge] == edges.destination_part[edge]
            right_covered[edges.right[edge]] = placed[edge] == edges.source_part[edge]


def _covered(
    edges: CutEdges,
    covered: tuple[NDArray[np.bool_], NDArray[np.bool_]],
    placed: NDArray[np.int32],
    load: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Place each edge away from its covered end; add it to `load`.

    Returns:
        The edges with both ends covered, which may live at either and are not in `load`.
    """
    is_left_covered, is_right_covered = covered
    open_edges = np.empty(placed.size, np.int64)
    num_open = 0
    for edge in range(placed.size):
        at_left = is_left_covered[edges.left[edge]]
        if at_left and is_right_covered[edges.right[edge]]:
            open_edges[num_open] = edge
            num_open += 1
            continue
        assert at_left or is_right_covered[edges.right[edge]]
        placed[edge] = edges.destination_part[edge] if at_left else edges.source_part[edge]
        load[placed[edge]] += edges.multiplicity[edge]
    found: NDArray[np.int64] = open_edges[:num_open].copy()
    return found


def _level(
    first: NDArray[np.int32],
    second: NDArray[np.int32],
    weight: NDArray[np.int64],
    load: NDArray[np.int64],
) -> NDArray[np.int32]:
    """Give each item to the lighter of its two parts, in order; `load` is updated."""
    chosen = np.empty_like(first)
    for k in range(first.size):
        chosen[k] = first[k] if load[first[k]] <= load[second[k]] else second[k]
        load[chosen[k]] += weight[k]
    return chosen


def _number_slots(
    vertex: NDArray[np.int32], part: NDArray[np.int32], num_parts: int
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Number the distinct (vertex, part), vertices ascending; return their keys as well."""
    slot, key = np.empty(vertex.size, np.int32), np.empty(vertex.size, np.int64)
    number, last = np.zeros(num_parts, np.int32), np.full(num_parts, -1, np.int64)
    found = np.empty(num_parts, np.int64)
    num_slots, begin = 0, 0
    while begin < vertex.size:
        end, num_found = begin, 0
        while end < vertex.size and vertex[end] == vertex[begin]:
            if last[part[end]] != vertex[begin]:
                last[part[end]] = vertex[begin]
                found[num_found] = part[end]
                num_found += 1
            end += 1
        found[:num_found].sort()
        for i in range(num_found):
            number[found[i]] = num_slots
            key[num_slots] = np.int64(vertex[begin]) * num_parts + found[i]
            num_slots += 1
        for k in range(begin, end):
            slot[k] = number[part[k]]
        begin = end
    return slot, key[:num_slots].copy()


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
