"""Maximum matching of a bipartite graph, and what alternating paths reach from it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from distgnn import _partitioner

UNMATCHED = -1


class Bipartite(NamedTuple):
    """Left and right vertices and the edges between them, as CSR by left vertex."""

    indptr: NDArray[np.int64]
    """(num_left + 1,) int64."""
    indices: NDArray[np.int32]
    """(num_edges,) int32. Right neighbours."""
    num_right: int
    """Number of right vertices."""


class Matching(NamedTuple):
    """Edges without common ends, from both sides."""

    left: NDArray[np.int32]
    """(num_left,) int32. The right partner, or UNMATCHED."""
    right: NDArray[np.int32]
    """(num_right,) int32. The left partner, or UNMATCHED."""


def maximum_matching(graph: Bipartite) -> Matching:
    """Match as many left vertices to right neighbours as possible, by Hopcroft-Karp.

    Each phase finds a maximal set of disjoint shortest augmenting paths: one breadth-first search
    for the distances, then depth-first searches with an explicit stack.

    Args:
        graph: The bipartite graph.

    Returns:
        A maximum matching.

    References:
        Hopcroft and Karp, "An n^(5/2) algorithm for maximum matchings in bipartite graphs",
        SIAM J. Computing 1973.
    """
    return Matching(*_partitioner.maximum_matching(graph))


def alternating_reach(
    graph: Bipartite, matching: Matching
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Find what alternating paths reach from the unmatched left vertices.

    The result is the same for every maximum matching of the graph.

    Args:
        graph: The bipartite graph.
        matching: A maximum matching of it.

    Returns:
        is_left_reached: (num_left,) bool.
        is_right_reached: (num_right,) bool.
    """
    return _partitioner.alternating_reach(graph, matching.left, matching.right)
