"""Clusters by label propagation: a vertex joins the cluster that most of its edges lead to."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from distgnn import _partitioner
from distgnn.partition.large.rows import RowFile

# More passes make fewer clusters; what METIS and the moves make of them is no better.
_PASSES = 2
_FREE = -1


class Clusters(NamedTuple):
    """Vertices in clusters.

    Attributes:
        label: (num_vertices,) int32. A vertex of the cluster.
        size: (num_vertices,) int64. Sum of the sizes of a cluster's vertices, by label.
        own: (num_vertices,) int64. Size of each vertex.
    """

    label: NDArray[np.int32]
    size: NDArray[np.int64]
    own: NDArray[np.int64]


def cluster(rows: RowFile, own: NDArray[np.int64], *, most: int, seed: int) -> NDArray[np.int32]:
    """Cluster the vertices of a graph.

    Vertices are visited in the order of their numbers, a few times. Each joins the cluster that the
    largest weight of its edges leads to, among those with room for it. Ties go to the label with
    the larger hash. In the end some vertices are alone: their neighbours' clusters are full, or
    they have no neighbours. These share clusters with others that would have joined the same one.

    Args:
        rows: The graph.
        own: (num_vertices,) int64. Size of each vertex, at least 1.
        most: Size up to which a cluster takes in vertices.
        seed: At least 0. Decides ties.

    Returns:
        (num_vertices,) int32. The cluster of each vertex, named by one of its vertices.

    References:
        Meyerhenke, Sanders and Schulz, "Partitioning complex networks via size-constrained
        clustering", SEA 2014; Akhremtsev, Sanders and Schulz, "(Semi-)external algorithms for graph
        partitioning and clustering", ALENEX 2015; Gottesbueren, Heuer, Sanders, Schulz and
        Seemaier, "Deep multilevel graph partitioning", ESA 2021 (for vertices that are alone).
    """
    clusters = Clusters(np.arange(own.size, dtype=np.int32), own.copy(), own)
    for _ in range(_PASSES):
        num_moves = 0
        for chunk in rows.chunks():
            num_moves += _partitioner.join_clusters(chunk, clusters, most, seed % 2**64)
        if num_moves == 0:
            break
    # The last cluster of each favourite, and behind all labels that of the vertices without edges.
    bins = np.full(own.size + 1, _FREE, np.int32)
    for chunk in rows.chunks():
        _partitioner.gather_alone(chunk, clusters, most, bins)
    return clusters.label
