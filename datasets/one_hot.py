"""Features for vertices that have none: a column of its own for each."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from distgnn.datasets.graph import Graph


def add_one_hot(graph: Graph) -> Graph:
    """Return the graph with a one-hot column for each vertex without features.

    A vertex has none if its row is empty or all zeros; in a graph without features no vertex has
    any. A layer then learns a row of its weight for each of these vertices.

    Args:
        graph: Any graph.

    Returns:
        The same graph if every vertex has features. Else features are sparse, (num_vertices,
        num_features + vertices without any), the new columns last and in the order of vertices.

    References:
        Kipf and Welling, "Semi-Supervised Classification with Graph Convolutional Networks", ICLR
        2017, section 5.1, where NELL's relation vertices get such columns.
    """
    missing = np.flatnonzero(~_has_features(graph))
    if missing.size == 0:
        return graph
    ones = np.ones(missing.size, dtype=np.float32)
    shape = (graph.num_vertices, missing.size)
    own = scipy.sparse.csr_matrix((ones, (missing, np.arange(missing.size))), shape)
    if graph.features is None:
        return replace(graph, features=own)
    given = scipy.sparse.csr_matrix(graph.features, dtype=np.float32)
    return replace(graph, features=scipy.sparse.hstack([given, own], format="csr"))


def _has_features(graph: Graph) -> NDArray[np.bool_]:
    """Return for each vertex whether its row has an entry that is not zero."""
    features: Any = graph.features
    if features is None:
        return np.zeros(graph.num_vertices, dtype=bool)
    if not scipy.sparse.issparse(features):
        filled: NDArray[np.bool_] = np.asarray(features.any(axis=1))
        return filled
    has = np.zeros(graph.num_vertices, dtype=bool)
    row = np.repeat(np.arange(graph.num_vertices), np.diff(features.indptr))
    has[row[features.data != 0]] = True
    return has
