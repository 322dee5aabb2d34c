"""Arcs: the distinct ordered pairs of vertices that edges join, sorted by counting.

METIS, the cover and refinement work on arcs, which are made once. They depend on the edges of the
graph, not on their order. Bytes for a while: 20 per edge; kept: 4 per edge and 12 per arc.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distgnn import _partitioner
from distgnn.datasets.errors import InputError
from distgnn.datasets.graph import Graph
from distgnn.partition.threads import available_threads, even_bounds, in_order

_MOST_INT32 = 2**31 - 1
# From so many edges on several threads pay.
_MANY_EDGES = 1 << 20


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
        is_simple = self.head.size == self.of_edge.size
        return _partitioner.with_mates(self.weight, self.mate, is_simple)

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
    # Columns of a table of edges are strided; those of a narrow graph are wide for a while, in
    # which little else is there yet.
    src, dst = (np.ascontiguousarray(ends, np.int64) for ends in (graph.src, graph.dst))
    by_head = _partitioner.starts_of(dst, graph.num_vertices)
    start = _partitioner.starts_of(src, graph.num_vertices)
    source, number = (np.empty(graph.num_edges, kind) for kind in (np.int32, numbers))
    _on_threads(_partitioner.sort_by_head, by_head, src, dst, order, by_head, source, number)
    del src, dst
    head, edge = np.empty_like(source), np.empty_like(number)
    _on_threads(_partitioner.sort_by_source, start, by_head, source, number, start, head, edge)
    del by_head, source, number
    of_edge = np.empty(graph.num_edges, numbers)
    part = np.zeros(0, np.int32) if edge_part is None else edge_part
    weight = _partitioner.merge_arcs(start, head, edge, part, of_edge)
    del edge
    head = head[: weight.size].copy()
    return Arcs(start, head, weight, _mates(start, head, numbers), of_edge)


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
    if not all(_on_threads(_partitioner.pair_arcs, start, start, head, mate)):
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
    weight = arcs.both_ways()
    is_link = arcs.mate != np.arange(arcs.head.size, dtype=arcs.mate.dtype)
    if is_link.all():
        return Adjacency(arcs.start, arcs.head, weight)
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


def take_parts(parts: NDArray[np.int32], index: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the parts at indices, on several threads where there are many.

    Args:
        parts: (num_items,) int32.
        index: (num_indices,) int32, or int64 where there are too many.

    Returns:
        (num_indices,) int32.
    """
    taken = np.empty(index.size, np.int32)
    threads = available_threads() if index.size >= _MANY_EDGES else 1
    bounds = (index.size * np.arange(threads + 1) // threads).tolist()
    with in_order(
        lambda each: _partitioner.take_parts(*each, parts, index, taken), pairwise(bounds), threads
    ) as done:
        list(done)
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
    return _partitioner.edges_of_parts(part, weight, num_parts)


def _on_threads(work: Callable[..., object], start: NDArray[np.int64], *given: object) -> list[Any]:
    """Call work(first, last, ...) for ranges of vertices with about as many edges each.

    Every range looks at all edges and writes what is of its own vertices, so that no result depends
    on how many there are. What takes the time is to write all over memory.

    Args:
        work: Function to call.
        start: (num_vertices + 1,) int64. Where the edges of each vertex begin.
        given: Its other arguments.

    Returns:
        Result of each call.
    """
    threads = available_threads() if start[-1] >= _MANY_EDGES else 1
    ranges = pairwise(even_bounds(start, 0, start.size - 1, threads))
    with in_order(lambda each: work(*each, *given), ranges, threads) as returned:
        return list(returned)


def _order(key: NDArray[np.int32]) -> NDArray[np.int64]:
    narrow = key.astype(np.uint16) if key.max(initial=0) < 1 << 16 else key
    return np.argsort(narrow, kind="stable")
