"""Edges that many models do not want: self-loops, and edges that are there twice."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from distgnn.datasets.graph import Graph


def drop_self_loops(graph: Graph) -> Graph:
    """Return the graph without edges from a vertex to itself.

    Args:
        graph: Graph, which stays as it is.
    """
    return _with_edges(graph, graph.src != graph.dst)


def deduplicate(graph: Graph) -> Graph:
    """Return the graph with one edge of those that have the same ends and the same type.

    The first one stays, with its weight and its features. The order of edges stays, too.

    Args:
        graph: Graph, which stays as it is.
    """
    kind = 0 if graph.edge_type is None else graph.edge_type
    num_relations = max(graph.num_relations, 1)
    key = (graph.src.astype(np.int64) * graph.num_vertices + graph.dst) * num_relations + kind
    is_first = np.zeros(graph.num_edges, bool)
    is_first[np.unique(key, return_index=True)[1]] = True
    return _with_edges(graph, is_first)


def _with_edges(graph: Graph, is_kept: NDArray[np.bool_]) -> Graph:
    def kept(values: NDArray[Any] | None) -> Any:
        return None if values is None else values[is_kept]

    return replace(
        graph,
        src=kept(graph.src),
        dst=kept(graph.dst),
        edge_weight=kept(graph.edge_weight),
        edge_features=kept(graph.edge_features),
        edge_type=kept(graph.edge_type),
    )
