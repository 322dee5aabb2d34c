"""Links: the pairs of vertices that edges join, whatever their direction and number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from distgnn import _partitioner
from distgnn.datasets.graph import Graph


@dataclass(frozen=True, eq=False)
class Neighbors:
    """The links of a graph, sorted by (low, high), self-loops included."""

    num_vertices: int
    """Number of vertices of the graph."""
    low: NDArray[np.int64]
    """(num_links,) int64. End with the lower number."""
    high: NDArray[np.int64]
    """(num_links,) int64. The other end; the same of a self-loop."""
    weight: NDArray[np.int64]
    """(num_links,) int64. Edges behind each link."""
    edge: NDArray[np.int64]
    """(num_edges,) int64. The edges, link by link."""

    def to_edges(self, link_part: NDArray[np.int32]) -> NDArray[np.int32]:
        """Give each edge the part of its link.

        Args:
            link_part: (num_links,) int32.

        Returns:
            (num_edges,) int32.
        """
        edge_part = np.empty(self.edge.size, np.int32)
        edge_part[self.edge] = np.repeat(link_part, self.weight)
        return edge_part


class Incidence(NamedTuple):
    """Links at each vertex."""

    start: NDArray[np.int64]
    """(num_vertices + 1,) int64. Where each vertex's links begin."""
    neighbor: NDArray[np.int32]
    """(num_entries,) int32. Other end of each link."""
    link: NDArray[np.int64]
    """(num_entries,) int64."""


def links_of(graph: Graph) -> Neighbors:
    """Merge parallel and opposite edges.

    Args:
        graph: The graph; the order of its edges changes nothing but `edge`.

    Returns:
        Its links.
    """
    key = np.minimum(graph.src, graph.dst, dtype=np.int64)  # Ends may be narrow, products not.
    key *= graph.num_vertices
    key += np.maximum(graph.src, graph.dst)
    edge = np.argsort(key, kind="stable")
    key = key[edge]
    is_first = np.ones(key.size, bool)
    np.not_equal(key[1:], key[:-1], out=is_first[1:])
    first = np.flatnonzero(is_first)
    key = key[first]
    return Neighbors(
        num_vertices=graph.num_vertices,
        low=key // graph.num_vertices,
        high=key % graph.num_vertices,
        weight=np.diff(first, append=graph.num_edges),
        edge=edge,
    )


def incidence_of(links: Neighbors, is_listed: NDArray[np.bool_]) -> Incidence:
    """List the links at some vertices, self-loops apart.

    Args:
        links: The links.
        is_listed: (num_vertices,) bool. The others get no list.

    Returns:
        The links at each vertex, by the number of the other end.
    """
    return Incidence(*_partitioner.incident_links(links.low, links.high, is_listed))
