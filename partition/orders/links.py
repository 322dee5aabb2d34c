"""Links: roots of a part that share edges there, whatever the direction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distgnn import _partitioner
from distgnn.datasets.graph import Graph
from distgnn.partition.assignment import Assignment


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
        """Number the roots of each part.

        Args:
            graph: The graph.
            assignment: Its edges' and roots' parts.
            vertex_at: (num_vertices,) int64. The roots of part 0, then those of part 1, ...
            start: (num_parts + 1,) int64. Where the roots of each part begin.
        """
        self._ends: tuple[NDArray[Any], NDArray[Any]] = graph.src, graph.dst
        self._assignment, self._start = assignment, start
        self._number = np.empty(graph.num_vertices, np.int32)
        self._number[vertex_at] = np.arange(graph.num_vertices) - np.repeat(
            start[:-1], np.diff(start)
        )
        # Found here, as parts may be asked for on several threads.
        self._edges, self._edge_start = assignment.edges_by_part

    def of(self, part: int) -> Links:
        """Collect those of a part, whose vertices are numbered as they stand in `vertex_at`."""
        edges: NDArray[Any] = self._edges[self._edge_start[part] : self._edge_start[part + 1]]
        owner = self._assignment.root_part
        src, dst = _partitioner.inner_edges(edges, *self._ends, owner, self._number, part)
        return link(src, dst, int(self._start[part + 1] - self._start[part]))


def link(src: NDArray[np.int32], dst: NDArray[np.int32], num_vertices: int) -> Links:
    """Join the ends of edges.

    Args:
        src: (num_edges,) int32, strided or not.
        dst: (num_edges,) int32. No edge is a loop.
        num_vertices: More than any vertex.

    Returns:
        A link for each edge; where every edge has its reverse, one for the two.
    """
    src, dst = np.ascontiguousarray(src, np.int32), np.ascontiguousarray(dst, np.int32)
    if _partitioner.has_reverses(src, dst):
        is_upward = src < dst
        src, dst = src[is_upward], dst[is_upward]
    return Links(*_partitioner.link_ends(src, dst, num_vertices))
