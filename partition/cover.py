"""Edges between parts: at the source or at the destination, whichever moves fewer rows.

For an ordered pair (i, j) of parts, the edges u -> v from a root on i to a root on j form a
bipartite graph. An edge either lives on j, and then u's row travels to j, or on i, and then the
partial of v travels from i. The fewest rows are a minimum vertex cover. The pairs are independent:
one bipartite graph of all slots (u, j) and (v, i) holds them all.

A minimum cover is rarely unique. Vertices that alternating paths reach from unmatched ones are
settled; the rest falls into components, each of which may be covered on either side. Every
component goes where it evens out the edges. The components of (i, j) and (j, i) that share slots
move together: a leaf then reads and writes, and there are fewer clones.

In a graph whose arcs all have a reverse, the cover of (j, i) is the transpose of that of (i, j):
one of the two is found, and an arc lives where its reverse does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from distgnn.datasets.graph import Graph
from distgnn.partition.arcs import Arcs, arcs_of
from distgnn.partition.csr import order_by, pointers
from distgnn.partition.jit import compiled
from distgnn.partition.matching import (
    UNMATCHED,
    Bipartite,
    Matching,
    alternating_reach,
    maximum_matching,
)


@dataclass(frozen=True, eq=False)
class CutEdges:
    """Distinct edges between parts as one bipartite graph of slots."""

    left: NDArray[np.int32]
    """(num_distinct,) int32. Left slot (u, part of v) of each distinct edge u -> v."""
    right: NDArray[np.int32]
    """(num_distinct,) int32. Right slot (v, part of u)."""
    left_key: NDArray[np.int64]
    """(num_left,) int64, ascending. vertex * num_parts + part of each left slot."""
    right_key: NDArray[np.int64]
    """(num_right,) int64, ascending. The same of each right slot."""
    source_part: NDArray[np.int32]
    """(num_distinct,) int32. Part of the source's root."""
    destination_part: NDArray[np.int32]
    """(num_distinct,) int32. Part of the destination's root."""
    multiplicity: NDArray[np.int64]
    """(num_distinct,) int64. Parallel edges that each distinct edge stands for."""


@dataclass(frozen=True, eq=False)
class Cover:
    """Which slots every minimum cover holds, and which components may go either way."""

    is_left_covered: NDArray[np.bool_]
    """(num_left,) bool. In every minimum cover that alternating paths settle."""
    is_right_covered: NDArray[np.bool_]
    """(num_right,) bool. The same for right slots."""
    is_left_free: NDArray[np.bool_]
    """(num_left,) bool. Covered exactly if its component is covered on the left."""
    is_right_free: NDArray[np.bool_]
    """(num_right,) bool. Covered exactly if its component is covered on the right."""
    size: int
    """Slots of a minimum cover: rows that travel."""


def place_edges(
    graph: Graph, root_part: NDArray[np.int32], num_parts: int, *, edge_balance: float = 1.1
) -> NDArray[np.int32]:
    """Assign edges to parts so that the fewest rows travel for the given roots.

    Args:
        graph: The graph.
        root_part: (num_vertices,) int32. Part of each vertex's root.
        num_parts: Number of parts.
        edge_balance: Largest part over the mean above which components of the two directions
            between a pair of parts are placed apart: more even, but with more clones.

    Returns:
        (num_edges,) int32. The part of the source's or of the destination's root.

    References:
        Koenig, "Grafok es matrixok", 1931 (cover from matching); "SuperGCN", arXiv:2411.16025
        (pre- and post-aggregation by vertex cover).
    """
    arcs = arcs_of(graph)
    return place_evenly(arcs, root_part, num_parts, edge_balance=edge_balance)[arcs.of_edge]


def place_evenly(
    arcs: Arcs, root_part: NDArray[np.int32], num_parts: int, *, edge_balance: float
) -> NDArray[np.int32]:
    """Place arcs as `place_edges` does edges.

    Args:
        arcs: Of the graph.
        root_part: (num_vertices,) int32. Part of each vertex's root.
        num_parts: Number of parts.
        edge_balance: As for `place_edges`.

    Returns:
        (num_arcs,) int32.
    """
    arc_part = place_arcs(arcs, root_part, num_parts, edge_balance=edge_balance)
    if not arcs.is_symmetric:
        return arc_part
    load = _loads(arc_part, arcs.weight, num_parts)
    if load.max() > edge_balance * arcs.of_edge.size / num_parts:
        # Each direction by itself is easier to balance.
        apart = arcs._replace(mate=arcs.mate[:0])
        apart_part = place_arcs(apart, root_part, num_parts, edge_balance=edge_balance)
        if _loads(apart_part, arcs.weight, num_parts).max() < load.max():
            return apart_part
    return arc_part


def place_arcs(
    arcs: Arcs,
    root_part: NDArray[np.int32],
    num_parts: int,
    *,
    edge_balance: float,
    load: NDArray[np.int64] | None = None,
) -> NDArray[np.int32]:
    """Place arcs as `place_edges` does edges, those of a symmetric graph beside their reverses.

    Args:
        arcs: Of the graph.
        root_part: (num_vertices,) int32. Part of each vertex's root.
        num_parts: Number of parts.
        edge_balance: As for `place_edges`, unless the graph is symmetric.
        load: (num_parts,) int64. Edges that parts have beside these; None if there are no others.

    Returns:
        (num_arcs,) int32.
    """
    source = arcs.sources()
    arc_part, head_part = root_part[source], root_part[arcs.head]
    weight = arcs.weight
    is_cut = arc_part != head_part
    inner = _loads(arc_part[~is_cut], weight[~is_cut], num_parts)
    if load is not None:
        inner += load
    if arcs.is_symmetric:
        is_cut = arc_part < head_part
        weight = arcs.both_ways()
    cut = np.flatnonzero(is_cut)
    if cut.size == 0:
        return arc_part
    edges = cut_edges(source[cut], arcs.head[cut], weight[cut], root_part, num_parts)
    cover = minimum_cover(edges)
    best, best_load = np.zeros(0, np.int32), np.iinfo(np.int64).max
    for is_paired in (False,) if arcs.is_symmetric else (True, False):
        placed = _place(edges, cover, inner, is_paired=is_paired)
        largest = int((inner + _loads(placed, edges.multiplicity, num_parts)).max())
        if largest < best_load:
            best, best_load = placed, largest
        if largest <= edge_balance * arcs.of_edge.size / num_parts:
            break
    arc_part[cut] = best
    if arcs.is_symmetric:
        arc_part[arcs.mate[cut]] = best
    return arc_part


def cut_edges(
    src: NDArray[np.int32],
    dst: NDArray[np.int32],
    multiplicity: NDArray[np.int32],
    root_part: NDArray[np.int32],
    num_parts: int,
) -> CutEdges:
    """Build the bipartite graph of the edges between parts.

    Args:
        src: (num_distinct,) Ascending sources of distinct edges whose ends have roots on different
            parts.
        dst: (num_distinct,) Their destinations.
        multiplicity: (num_distinct,) Edges that each stands for.
        root_part: (num_vertices,) int32.
        num_parts: Number of parts.

    Returns:
        The edges and their slots.
    """
    source_part, destination_part = root_part[src], root_part[dst]
    left, left_key = _number_slots(src, destination_part, num_parts)
    by_destination = order_by(dst, root_part.size)
    in_order, right_key = _number_slots(dst[by_destination], source_part[by_destination], num_parts)
    right = np.empty_like(in_order)
    right[by_destination] = in_order
    return CutEdges(
        left=left,
        right=right,
        left_key=left_key,
        right_key=right_key,
        source_part=source_part,
        destination_part=destination_part,
        multiplicity=multiplicity.astype(np.int64),
    )


@compiled
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


def minimum_cover(edges: CutEdges) -> Cover:
    """Find the minimum vertex covers of the bipartite graph of cut edges.

    Args:
        edges: The graph.

    Returns:
        The settled slots and the free ones.
    """
    num_left, num_right = edges.left_key.size, edges.right_key.size
    forward = _bipartite(edges.left, edges.right, num_left, num_right)
    backward = _bipartite(edges.right, edges.left, num_right, num_left)
    matching = maximum_matching(forward)
    # Koenig from the left: a reached right slot is covered, a reached left slot is not.
    left_out, right_in = alternating_reach(forward, matching)
    right_out, left_in = alternating_reach(backward, Matching(matching.right, matching.left))
    return Cover(
        is_left_covered=left_in,
        is_right_covered=right_in,
        is_left_free=~(left_in | left_out),
        is_right_free=~(right_in | right_out),
        size=int(np.count_nonzero(matching.left != UNMATCHED)),
    )


def _bipartite(
    row: NDArray[np.int32], column: NDArray[np.int32], num_rows: int, num_columns: int
) -> Bipartite:
    return Bipartite(pointers(row, num_rows), column[order_by(row, num_rows)], num_columns)


def _place(
    edges: CutEdges, cover: Cover, inner_load: NDArray[np.int64], *, is_paired: bool
) -> NDArray[np.int32]:
    """Part of each distinct edge, given the edges inside parts that each part has already."""
    source_part, destination_part = edges.source_part, edges.destination_part
    left_covered = cover.is_left_covered[edges.left]
    right_covered = cover.is_right_covered[edges.right]
    left_free, right_free = cover.is_left_free[edges.left], cover.is_right_free[edges.right]
    is_settled = (left_covered ^ right_covered) & ~left_free & ~right_free
    is_free = left_free & right_free

    placed = np.where(left_covered, destination_part, source_part)
    load = inner_load + _loads(placed, edges.multiplicity * is_settled, inner_load.size)
    if is_free.any():
        component = _components(edges, is_free, is_paired=is_paired)
        placed[is_free] = _place_components(edges, is_free, component, load)

    # A free slot is covered exactly if its component's edges live away from its root.
    left_home = np.full(edges.left_key.size, -1, np.int32)
    right_home = np.full(edges.right_key.size, -1, np.int32)
    left_home[edges.left[is_free]] = placed[is_free]
    right_home[edges.right[is_free]] = placed[is_free]
    left_covered |= left_home[edges.left] == destination_part
    right_covered |= right_home[edges.right] == source_part
    assert (left_covered | right_covered).all()

    placed = np.where(left_covered, destination_part, source_part)
    both = left_covered & right_covered
    load = inner_load + _loads(placed, edges.multiplicity * ~both, inner_load.size)
    placed[both] = _level(source_part[both], destination_part[both], edges.multiplicity[both], load)
    return placed


def _loads(
    part: NDArray[np.int32], weight: NDArray[np.integer[Any]], num_parts: int
) -> NDArray[np.int64]:
    return np.bincount(part, weights=weight, minlength=num_parts).astype(np.int64)


def _components(
    edges: CutEdges, is_free: NDArray[np.bool_], *, is_paired: bool
) -> NDArray[np.int64]:
    """(num_free,) component of each free edge, 0, 1, 2, ..."""
    first, second = edges.left_key, edges.right_key
    if is_paired:
        # A slot is one node whether its vertex is read or written there.
        keys = np.unique(np.concatenate([first, second]))
        first, second = np.searchsorted(keys, first), np.searchsorted(keys, second)
    else:
        first, second = np.arange(first.size), first.size + np.arange(second.size)
    num_nodes = int(max(first[-1], second[-1])) + 1
    one, other = first[edges.left[is_free]], second[edges.right[is_free]]
    links = sp.coo_matrix((np.ones(one.size, np.int8), (one, other)), shape=(num_nodes,) * 2)
    _, label = connected_components(links, directed=False)
    # Nodes without a free edge are components, too.
    is_used = np.zeros(num_nodes, np.bool_)
    is_used[label[one]] = True
    component: NDArray[np.int64] = np.cumsum(is_used)[label[one]] - 1
    return component


def _place_components(
    edges: CutEdges,
    is_free: NDArray[np.bool_],
    component: NDArray[np.int64],
    load: NDArray[np.int64],
) -> NDArray[np.int32]:
    """Part of each free edge: one of its two for a whole component, large components first."""
    example = np.empty(int(component.max()) + 1, np.int64)
    example[component] = np.arange(component.size)
    weight = np.bincount(component, weights=edges.multiplicity[is_free]).astype(np.int64)
    one, other = edges.source_part[is_free][example], edges.destination_part[is_free][example]
    order = np.argsort(-weight, kind="stable")
    home = np.empty(order.size, np.int32)
    home[order] = _level(
        np.minimum(one, other)[order], np.maximum(one, other)[order], weight[order], load
    )
    return home[component]


@compiled
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
