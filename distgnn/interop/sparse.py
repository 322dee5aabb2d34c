"""Graphs from scipy's sparse matrices and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse

from distgnn.datasets.errors import InputError
from distgnn.interop.arrays import from_numpy

if TYPE_CHECKING:
    from distgnn.datasets.graph import Graph


def from_scipy(adjacency: Any, *, name: str = "memory", **arrays: Any) -> Graph:
    """Build a graph from an adjacency matrix, whose stored entry (i, j) is an edge from i to j.

    Args:
        adjacency: (num_vertices, num_vertices), any scipy sparse matrix or array. Entries other
            than 1 are edge weights.
        name: Name of the graph in reports.
        arrays: Arrays of `from_numpy`.

    Returns:
        The graph, with its edges in the order of the matrix.

    Raises:
        InputError: If the matrix is not sparse and square, or arrays contradict each other.
    """
    is_square = scipy.sparse.issparse(adjacency) and adjacency.shape[0] == adjacency.shape[1]
    if not is_square:
        shown = getattr(adjacency, "shape", type(adjacency).__name__)
        raise InputError(
            f"an adjacency matrix is a square sparse matrix of scipy, got {shown}; pass one, or "
            "pass edges to from_numpy"
        )
    coo = adjacency.tocoo()
    weight = None if bool((coo.data == 1).all()) else coo.data
    given = {"edge_weight": weight, "num_vertices": coo.shape[0], **arrays}
    return from_numpy(np.stack([coo.row, coo.col]), name=name, **given)


def to_scipy(graph: Graph) -> scipy.sparse.csr_matrix:
    """Return the adjacency matrix of a graph.

    Args:
        graph: The graph.

    Returns:
        (num_vertices, num_vertices) float32 CSR; entry (i, j) is the weight of the edge from i to
        j, or 1, added up over parallel edges.
    """
    weight = graph.edge_weight
    data = np.ones(graph.num_edges, np.float32) if weight is None else weight
    shape = (graph.num_vertices, graph.num_vertices)
    return scipy.sparse.coo_matrix((data, (graph.src, graph.dst)), shape=shape).tocsr()
