"""Edges between parts: at the source or at the destination, whichever moves fewer rows.

For an ordered pair (i, j) of parts, the edges u -> v from a root on i to a root on j form a
bipartite graph. An edge either lives on j, and then u's row travels to j, or on i, and then the
partial of v travels from i. The fewest rows are a minimum vertex cover. The pairs are independent:
one bipartite graph of all slots (u, j) and (v, i) holds them all.

A minimum cover is rarely unique. Vertices that alternating paths reach from unmatched ones are
settled; the rest falls into components, each of which may be covered on either side. Every
component goes where it evens out the edges. The components of (i, j) and (j, i) that share slots
move together: a leaf then reads and writes, and there are fewer clones.

In a graph whose arcs all have a reverse, the cover of (j, i) is the transpose of that of (i, j). So
only one of the two is found, and an arc lives where its reverse does.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from distgnn import _partitioner
from distgnn.datasets.graph import Graph
from distgnn.partition.arcs import Arcs, arcs_of, edges_of_parts
from distgnn.partition.methods.cut_edges import Cover, CutEdges, cut_edges, minimum_cover
from distgnn.partition.threads import over_rows


def place_edges(
    graph: Graph, root_part: NDArray[np.int32], num_parts: int, *, edge_balance: float = 1.1
) -> NDArray[np.int32]:
    """Assign edges to parts so that the fewest rows travel for the given roots.

    Args:
        graph: The graph.
        root_part: (num_vertices,) int32. Part of each vertex's root.
        num_parts: Number of parts.
        edge_balance: Largest part over the mean. Above it, the two directions between a pair of
            parts are placed apart, which is more even, but makes more clones.

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
        arcs: Arcs of the graph.
        root_part: (num_vertices,) int32. Part of each vertex's root.
        num_parts: Number of parts.
        edge_balance: Largest part's edges over the mean, as for `place_edges`.

    Returns:
        (num_arcs,) int32.
    """
    arc_part = place_arcs(arcs, root_part, num_parts, edge_balance=edge_balance)
    if not arcs.is_symmetric:
        return arc_part
    load = edges_of_parts(arc_part, arcs.weight, num_parts)
    if load.max() > edge_balance * arcs.of_edge.size / num_parts:
        # Each direction by itself is easier to balance.
        apart = arcs._replace(mate=arcs.mate[:0])
        apart_part = place_arcs(apart, root_part, num_parts, edge_balance=edge_balance)
        if edges_of_parts(apart_part, arcs.weight, num_parts).max() < load.max():
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
        arcs: Arcs of the graph.
        root_part: (num_vertices,) int32. Part of each vertex's root.
        num_parts: Number of parts.
        edge_balance: Largest part's edges over the mean, as for `place_edges`, unless the
            graph is symmetric.
        load: (num_parts,) int64. Edges that parts have beside these; None if there are no others.

    Returns:
        (num_arcs,) int32.
    """
    return level_arcs(cover_arcs(arcs, root_part, num_parts), edge_balance=edge_balance, load=load)


class CoveredArcs(NamedTuple):
    """Arcs, and the covers of those between parts; these are not placed yet."""

    arcs: Arcs
    arc_part: NDArray[np.int32]
    """(num_arcs,) int32. Part of the source's root."""
    inner: NDArray[np.int64]
    """(num_parts,) int64. Edges inside each part."""
    cut: NDArray[np.int64]
    """(num_cut,) int64. The arcs between parts; one of two that go there and back if symmetric."""
    edges: CutEdges
    """The bipartite graph of these."""
    cover: Cover
    """Its minimum covers."""


def cover_arcs(arcs: Arcs, root_part: NDArray[np.int32], num_parts: int) -> CoveredArcs:
    """Find the minimum covers of the arcs between parts.

    Args:
        arcs: Arcs of the graph.
        root_part: (num_vertices,) int32. Part of each vertex's root.
        num_parts: Number of parts.

    Returns:
        All that does not depend on what parts hold besides.
    """
    arc_part = np.empty(arcs.head.size, np.int32)
    given = arcs.start, arcs.head, arcs.weight, root_part, arc_part, num_parts, arcs.is_symmetric
    found = over_rows(_partitioner.cut_arcs, arcs.start, *given)
    cut, source = (np.concatenate([each[at] for each in found]) for at in (0, 1))
    inner = np.sum([each[2] for each in found], axis=0)
    del found
    weight = arcs.weight[cut]
    if arcs.is_symmetric:
        weight += arcs.weight[arcs.mate[cut]]
    edges = cut_edges(source, arcs.head[cut], weight, root_part, num_parts)
    return CoveredArcs(arcs, arc_part, inner, cut, edges, minimum_cover(edges))


def level_arcs(
    covered: CoveredArcs, *, edge_balance: float, load: NDArray[np.int64] | None = None
) -> NDArray[np.int32]:
    """Place arcs by one of their minimum covers, so that parts have about as many edges.

    Args:
        covered: The arcs; its `arc_part` is what is returned.
        edge_balance: The same as for `place_arcs`.
        load: (num_parts,) int64. Edges that parts have beside these; None if there are no others.

    Returns:
        (num_arcs,) int32.
    """
    arcs, arc_part, inner, cut, edges, cover = covered
    if cut.size == 0:
        return arc_part
    if load is not None:
        inner = inner + load
    num_parts = inner.size
    best, best_load = np.zeros(0, np.int32), np.iinfo(np.int64).max
    for is_paired in (False,) if arcs.is_symmetric else (True, False):
        placed = _place(edges, cover, inner, is_paired=is_paired)
        largest = int((inner + edges_of_parts(placed, edges.multiplicity, num_parts)).max())
        if largest < best_load:
            best, best_load = placed, largest
        if largest <= edge_balance * arcs.of_edge.size / num_parts:
            break
    arc_part[cut] = best
    if arcs.is_symmetric:
        arc_part[arcs.mate[cut]] = best
    return arc_part


def _place(
    edges: CutEdges, cover: Cover, inner_load: NDArray[np.int64], *, is_paired: bool
) -> NDArray[np.int32]:
    """Part of each distinct edge, given the edges inside parts that each part has already."""
    load = inner_load.copy()
    placed, is_free = _partitioner.settled_edges(edges, cover, load)
    left_covered, right_covered = cover.is_left_covered.copy(), cover.is_right_covered.copy()
    if is_free.any():
        # A slot is one node whether its vertex is read or written there.
        component = _partitioner.free_components(edges, is_free, is_paired)
        placed[is_free] = _place_components(edges, is_free, component, load)
        _partitioner.cover_components(edges, placed, is_free, left_covered, right_covered)
    load[:] = inner_load
    is_open = _partitioner.covered_edges(edges, left_covered, right_covered, placed, load)
    source_part, destination_part = edges.source_part[is_open], edges.destination_part[is_open]
    placed[is_open] = _partitioner.level_items(
        source_part, destination_part, edges.multiplicity[is_open], load
    )
    return placed


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
    home[order] = _partitioner.level_items(
        np.minimum(one, other)[order], np.maximum(one, other)[order], weight[order], load
    )
    return home[component]
