"""Changes of what a source holds: self-loops, edges that are there twice, numbers as classes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from distgnn.datasets.errors import InputError

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


def labels_as_values(graph: Graph) -> Graph:
    """Return the graph with classes as values to be learned, so that class 3 is the number 3.

    Labels that are values already stay, and so do those of several columns of 0 and 1.

    Args:
        graph: Graph, which stays as it is.

    Raises:
        InputError: If the classes have names.
    """
    if graph.labels is None or graph.labels.ndim == 2:
        return graph
    if graph.class_names is not None:
        raise InputError(
            f"the classes of {graph.name!r} have names, such as {graph.class_names[0]!r}, but "
            "--task regression learns numbers; leave --task out to learn classes"
        )
    labels = np.where(graph.labels < 0, np.nan, graph.labels).astype(np.float32)
    return replace(graph, labels=labels, metric="")


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
