"""Arcs: the distinct ordered pairs of vertices that edges join, sorted by counting.

METIS, the cover and refinement work on arcs, which are made once. They depend on the edges of the
graph, not on their order. Bytes for a while: 16 per edge and, on each
thread, 8 per vertex; kept: 4 per edge and 12 per arc.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distgnn import _partitioner
from distgnn.datasets.errors import InputError
from distgnn.datasets.graph import Graph
from distgnn.partition.threads import (
    even_bounds,
    in_order,
    item_bounds,
    over_bounds,
    over_items,
    places_of,
    threads_for,
)

_MOST_INT32 = 2**31 - 1


class Arcs(NamedTuple):
    """Distinct (source, head), by source, then head; of several parts, distinct by part as well."""

    start: NDArray[np.int64]
    """(num_vertices + 1,) int64. Where the arcs of each source begin."""
    head: NDArray[np.int32]
    """(num_arcs,) int32. Destination of each arc."""
    weight: NDArray[np.int32]
    """(num_arcs,) int32. Edges behind each arc."""
    mate: NDArray[np.int32]
    """(num_arcs,) int32. The arc that goes back, a loop's is itself; empty if one has none."""
    of_edge: NDArray[np.int32]
    """(num_edges,) int32, or int64 where there are too many. The arc of each edge."""

    @property
    def num_vertices(self) -> int:
        """Number of vertices."""
        return int(self.start.size - 1)

    @property
    def is_symmetric(self) -> bool:
        """Whether there is an arc back for each."""
        return self.mate.size == self.head.size

    def sources(self) -> NDArray[np.int32]:
        """Return (num_arcs,) int32: the source of each arc."""
        return np.repeat(np.arange(self.num_vertices, dtype=np.int32), np.diff(self.start))

    def is_isolated(self) -> NDArray[np.bool_]:
        """Return (num_vertices,) bool: whether a vertex has no edge, not even a loop."""
        is_isolated: NDArray[np.bool_] = np.diff(self.start) == 0
        if not self.is_symmetric:
            is_isolated[self.head] = False
        return is_isolated

    def both_ways(self) -> NDArray[np.int32]:
        """Return (num_arcs,) int32: the edges behind each arc and its mate, if that is another."""
        return self.both_ways_and_loops()[0]

    def both_ways_and_loops(self) -> tuple[NDArray[np.int32], int]:
        """Return what `both_ways` returns, and how many arcs are loops."""
        is_simple = self.head.size == self.of_edge.size
        both = np.empty_like(self.weight)
        given = self.weight, self.mate, is_simple, both
        return both, sum(over_items(_partitioner.with_mates, both.size, *given))

    def lean(self) -> Arcs:
        """Return arcs without what `whole` finds again: heads, mates, weights that are all one."""
        is_simple = self.head.size == self.of_edge.size
        weight = self.weight[:0].copy() if is_simple else self.weight
        return self._replace(head=self.head[:0].copy(), mate=self.mate[:0].copy(), weight=weight)

    def whole(self, head: NDArray[np.int32]) -> Arcs:
        """Return the arcs, all distinct, that `lean` was called for.

        Args:
            head: (num_arcs,) int32. Their heads.
        """
        is_simple = head.size == self.of_edge.size
        weight = np.ones(head.size, np.int32) if is_simple else self.weight
        mate = _mates(self.start, head, self.of_edge.dtype)
        return self._replace(head=head, mate=mate, weight=weight)

    def parts(self, edge_part: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return (num_arcs,) int32: the part of each arc, if the edges of an arc share theirs.

        Args:
            edge_part: (num_edges,) int32.
        """
        arc_part = np.zeros(self.head.size, np.int32)
        arc_part[self.of_edge] = edge_part
        return arc_part


def arcs_of(graph: Graph, edge_part: NDArray[np.int32] | None = None) -> Arcs:
    """Merge parallel edges.

    Args:
        graph: Any graph.
        edge_part: (num_edges,) int32. If given, only edges of one part are merged.

    Returns:
        Its arcs.

    Raises:
        InputError: If there are too many vertices for int32.
    """
    if graph.num_vertices > _MOST_INT32:
        raise InputError(
            f"graph {graph.name!r} has {graph.num_vertices} vertices, but at most {_MOST_INT32} "
            "are partitioned; leave out those without edges"
        )
    numbers = np.int32 if graph.num_edges <= _MOST_INT32 else np.int64
    order = np.zeros(0, np.int64) if edge_part is None else _order(edge_part)
    # Of each edge its source and its number.
    by_destination = np.empty(2 * graph.num_edges, numbers)
    threads = _threads(graph.num_edges, graph.num_vertices)
    bounds = item_bounds(graph.num_edges, threads)
    counts = over_bounds(_partitioner.count_heads, bounds, graph.dst, order, graph.num_vertices)
    by_head, places = places_of(counts)
    given = graph.src, graph.dst, order, by_destination
    over_bounds(_partitioner.sort_by_head, bounds, *given, own=places)
    del given, counts, places
    bounds = even_bounds(by_head, 0, graph.num_vertices, threads)
    counts = over_bounds(_partitioner.count_sources, bounds, by_head, by_destination)
    start, places = places_of(counts)
    head, edge = (np.empty(graph.num_edges, kind) for kind in (np.int32, numbers))
    sorted_twice = by_head, by_destination, head, edge
    over_bounds(_partitioner.sort_by_source, bounds, *sorted_twice, own=places)
    del by_head, by_destination, sorted_twice, counts, places
    part = np.zeros(0, np.int32) if edge_part is None else edge_part
    start, head, weight, of_edge = _merged(start, head, edge, part)
    del edge
    return Arcs(start, head, weight, _mates(start, head, numbers), of_edge)


def _threads(num_edges: int, num_vertices: int) -> int:
    """Count the threads that pay although each has a counter for every vertex."""
    return max(min(threads_for(num_edges), num_edges // max(num_vertices, 1)), 1)


def starts_of_both(
    one: NDArray[Any], other: NDArray[Any], num_vertices: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Count both ends of edges.

    Args:
        one: (num_edges,) int32 or int64. One end of each edge.
        other: (num_edges,) The other end.
        num_vertices: More than any of them.

    Returns:
        (num_vertices + 1,) int64 for each end: where the edges of each vertex begin.
    """
    with in_order(
        lambda ends: _partitioner.starts_of(ends, num_vertices),
        (one, other),
        threads_for(one.size),
    ) as found:
        first, second = found
    return first, second


def _merged(
    start: NDArray[np.int64],
    head: NDArray[np.int32],
    edge: NDArray[np.integer[Any]],
    part: NDArray[np.int32],
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32], NDArray[Any]]:
    """Keep one of equal heads, and parts if there are any, of each vertex.

    Args:
        start: (num_vertices + 1,) int64. Where the edges of each source begin.
        head: (num_edges,) int32. Ascending for each source; written over.
        edge: (num_edges,) Numbers of the edges.
        part: (num_edges,) int32 by number, or empty.

    Returns:
        The first arc of each source, the arcs' heads and weights, and the arc of each edge.
    """
    bounds = even_bounds(start, 0, start.size - 1, threads_for(head.size))
    counts = over_bounds(_partitioner.count_arcs, bounds, start, head, edge, part)
    first_arc = [0, *accumulate(counts)]
    num_arcs = first_arc[-1]
    arc_start, of_edge = np.empty_like(start), np.empty_like(edge)
    # Where all are distinct every head stays where it is.
    arc_head = head if num_arcs == head.size else np.empty(num_arcs, np.int32)
    weight = np.empty(num_arcs, np.int32)
    given = start, head, edge, part, arc_start, arc_head, weight, of_edge
    over_bounds(_partitioner.merge_arcs, bounds, *given, own=first_arc[:-1])
    arc_start[-1] = num_arcs
    return arc_start, arc_head, weight, of_edge


def is_symmetric(start: NDArray[np.int64], head: NDArray[np.int32]) -> bool:
    """Return whether edges are their own transpose, with parallel ones counted.

    Args:
        start: (num_vertices + 1,) int64. Where the edges of each vertex begin.
        head: (num_edges,) int32. Their other ends, ascending for each vertex.
    """
    numbers = np.int32 if head.size <= _MOST_INT32 else np.int64
    return _mates(start, head, numbers).size == head.size


def _mates(start: NDArray[np.int64], head: NDArray[np.int32], kind: Any) -> NDArray[Any]:
    """(num_arcs,) of a kind of integers: the arc back of each; empty if one has none."""
    mate = np.empty(head.size, kind)
    bounds = even_bounds(start, 0, start.size - 1, _threads(head.size, start.size - 1))
    if not all(over_bounds(_partitioner.pair_arcs, bounds, start, head, mate)):
        mate = mate[:0].copy()
    return mate


def split_arcs_of(graph: Graph, edge_part: NDArray[np.int32]) -> tuple[Arcs, NDArray[np.int32]]:
    """Merge parallel edges of one part.

    Args:
        graph: Any graph.
        edge_part: (num_edges,) int32.

    Returns:
        arcs: The arcs.
        arc_part: (num_arcs,) int32. Their parts.
    """
    arcs = arcs_of(graph)
    arc_part = arcs.parts(edge_part)
    if arcs.head.size < graph.num_edges and not np.array_equal(arc_part[arcs.of_edge], edge_part):
        arcs = arcs_of(graph, edge_part)
        arc_part = arcs.parts(edge_part)
    return arcs, arc_part


class Adjacency(NamedTuple):
    """Undirected simple graph as CSR; parallel edges are weights."""

    indptr: NDArray[np.int64]
    """(num_vertices + 1,) int64."""
    indices: NDArray[np.int32]
    """(num_links,) int32. Neighbours."""
    weight: NDArray[np.int32]
    """(num_links,) int32, int64 between clusters. Edges of the graph, of either direction, behind
    each link."""

    def lean(self, numbers: Any) -> Adjacency:
        """Return the same for a library: one weight where all are alike, `whole` finds the others.

        Args:
            numbers: Integers of the neighbours.
        """
        is_even = self.weight.size > 0 and not np.any(self.weight != self.weight[0])
        weight = self.weight[:1].copy() if is_even else self.weight
        return Adjacency(self.indptr, self.indices.astype(numbers, copy=False), weight)

    def whole(self) -> Adjacency:
        """Return the adjacency that `lean` was called for; itself if it is whole."""
        weight, size = self.weight, self.indices.size
        if weight.size < size:
            weight = np.full(size, weight[0], np.int32)
        return Adjacency(self.indptr, self.indices.astype(np.int32, copy=False), weight)


def adjacency_of(arcs: Arcs) -> Adjacency:
    """Make the simple undirected graph that METIS takes.

    Args:
        arcs: Arcs of any graph, all distinct.

    Returns:
        Its adjacency without loops; parallel and opposite edges are merged into weights.
    """
    if not arcs.is_symmetric:
        return Adjacency(*_partitioner.both_ways(arcs.start, arcs.head, arcs.weight))
    weight, num_loops = arcs.both_ways_and_loops()
    if not num_loops:
        return Adjacency(arcs.start, arcs.head, weight)
    is_link = arcs.mate != np.arange(arcs.head.size, dtype=arcs.mate.dtype)
    running = np.concatenate([[0], np.cumsum(is_link)])
    return Adjacency(running[arcs.start], arcs.head[is_link], weight[is_link])


def undirected(graph: Graph) -> Adjacency:
    """Make the simple undirected graph that METIS takes.

    Args:
        graph: Any graph.

    Returns:
        Its adjacency without self-loops; parallel and opposite edges are merged into weights.
    """
    return adjacency_of(arcs_of(graph))


def take_parts(parts: NDArray[np.int32], index: NDArray[Any]) -> NDArray[np.int32]:
    """Return the parts at indices, on several threads where there are many.

    Args:
        parts: (num_items,) int32.
        index: (num_indices,) int32, or int64 where there are too many.

    Returns:
        (num_indices,) int32.
    """
    taken = np.empty(index.size, np.int32)
    over_items(_partitioner.take_parts, index.size, parts, index, taken)
    return taken


def edges_of_parts(
    part: NDArray[np.int32], weight: NDArray[Any], num_parts: int
) -> NDArray[np.int64]:
    """Count the edges of each part.

    Args:
        part: (num_arcs,) int32. Of each arc.
        weight: (num_arcs,) int32 or int64. Edges behind each arc.
        num_parts: More than any part.

    Returns:
        (num_parts,) int64.
    """
    given = part, weight, num_parts
    counts = over_items(_partitioner.edges_of_parts, part.size, *given)
    edges: NDArray[np.int64] = np.sum(counts, axis=0)
    return edges


def _order(key: NDArray[np.int32]) -> NDArray[np.int64]:
    narrow = key.astype(np.uint16) if key.max(initial=0) < 1 << 16 else key
    return np.argsort(narrow, kind="stable")
