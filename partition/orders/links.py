"""Links: roots of a part that share edges there, whatever the direction."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from distgnn.datasets.graph import Graph
from distgnn.partition.assignment import Assignment
from distgnn.partition.halo import group_by_part
from distgnn.partition.jit import compiled


@dataclass(frozen=True, eq=False)
class Links:
    """Neighbours of each vertex. A link stands at both of its ends; loops are none."""

    indptr: NDArray[np.int64]
    """(num_vertices + 1,) int64."""
    indices: NDArray[np.int32]
    """(num_ends,) int32. Parallel edges are as many links."""

    @property
    def num_vertices(self) -> int:
        """Number of vertices."""
        return self.indptr.size - 1


class RootLinks:
    """The links of each part: edges that live where both of their ends have their roots."""

    def __init__(
        self,
        graph: Graph,
        assignment: Assignment,
        vertex_at: NDArray[np.int64],
        start: NDArray[np.int64],
    ) -> None:
        """Find these edges.

        Args:
            graph: The graph.
            assignment: Its edges' and roots' parts.
            vertex_at: (num_vertices,) int64. The roots of part 0, then those of part 1, ...
            start: (num_parts + 1,) int64. Where the roots of each part begin.
        """
        self._graph, self._start = graph, start
        self._number = np.empty(graph.num_vertices, np.int32)
        self._number[vertex_at] = np.arange(graph.num_vertices) - np.repeat(
            start[:-1], np.diff(start)
        )
        edge_part, root_part = assignment.edge_part, assignment.root_part
        is_link = (root_part[graph.src] == edge_part) & (root_part[graph.dst] == edge_part)
        edges = np.flatnonzero(is_link & (graph.src != graph.dst))
        by_part, self._edge_start = group_by_part(edge_part[edges], assignment.num_parts)
        self._edges = edges[by_part]

    def of(self, part: int) -> Links:
        """Collect those of a part, whose vertices are numbered as they stand in `vertex_at`."""
        own = self._edges[self._edge_start[part] : self._edge_start[part + 1]]
        src, dst = self._number[self._graph.src[own]], self._number[self._graph.dst[own]]
        return link(src, dst, int(self._start[part + 1] - self._start[part]))


def link(src: NDArray[np.int32], dst: NDArray[np.int32], num_vertices: int) -> Links:
    """Join the ends of edges.

    Args:
        src: (num_edges,) int32.
        dst: (num_edges,) int32. No edge is a loop.
        num_vertices: More than any vertex.

    Returns:
        A link for each edge; where every edge has its reverse, one for the two.
    """
    if _is_symmetric(src, dst):
        is_upward = src < dst
        src, dst = src[is_upward], dst[is_upward]
    return Links(*_link(src, dst, num_vertices))


@compiled
def _is_symmetric(src: NDArray[np.int32], dst: NDArray[np.int32]) -> bool:
    """Return whether edges and their reverses have equal sums of hashes; errors do no harm.

    The hash is the mixing step of SplitMix64.
    """
    difference = np.uint64(0)
    for k in range(src.size):
        for is_reverse in range(2):
            low, high = (dst[k], src[k]) if is_reverse else (src[k], dst[k])
            mixed = np.uint64(high) << np.uint64(32) | np.uint64(low)
            mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            mixed ^= mixed >> np.uint64(31)
            difference += ~mixed + np.uint64(1) if is_reverse else mixed
    return bool(difference == np.uint64(0))


@compiled
def _link(
    src: NDArray[np.int32], dst: NDArray[np.int32], num_vertices: int
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Sort both ends of all edges by counting."""
    indptr = np.zeros(num_vertices + 1, np.int64)
    for k in range(src.size):
        indptr[src[k] + 1] += 1
        indptr[dst[k] + 1] += 1
    for vertex in range(num_vertices):
        indptr[vertex + 1] += indptr[vertex]
    position = indptr[:-1].copy()
    indices = np.empty(indptr[-1], np.int32)
    for k in range(src.size):
        indices[position[src[k]]] = dst[k]
        position[src[k]] += 1
        indices[position[dst[k]]] = src[k]
        position[dst[k]] += 1
    return indptr, indices
