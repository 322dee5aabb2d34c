"""Clusters by label propagation: a vertex joins the cluster that most of its edges lead to."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from distgnn.partition.bits import mix
from distgnn.partition.jit import compiled
from distgnn.partition.large.rows import RowChunk, RowFile

# More passes make fewer clusters; what METIS and the moves make of them is no better.
_PASSES = 2
_FREE = -1
# An odd number without structure (Knuth's multiplicative hashing, 64 bits).
_SPREAD = np.uint64(0x9E3779B97F4A7C15)


class _Clusters(NamedTuple):
    """Vertices in clusters.

    Attributes:
        label: (num_vertices,) int32. A vertex of the cluster.
        size: (num_vertices,) int64. Sum of the sizes of a cluster's vertices, by label.
        own: (num_vertices,) int64. Size of each vertex.
    """

    label: NDArray[np.int32]
    size: NDArray[np.int64]
    own: NDArray[np.int64]


class _Table(NamedTuple):
    """Sums by label: open addressing in a power of two of slots.

    Attributes:
        label: (num_slots,) int32, `_FREE` between two rows.
        total: (num_slots,) int64.
        taken: (num_slots,) int64. Slots in use, in the order in which they were taken.
    """

    label: NDArray[np.int32]
    total: NDArray[np.int64]
    taken: NDArray[np.int64]


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
    clusters = _Clusters(np.arange(own.size, dtype=np.int32), own.copy(), own)
    table = _table(1 << 10)
    for _ in range(_PASSES):
        num_moves = 0
        for chunk in rows.chunks():
            widest = int(np.diff(chunk.indptr).max())
            if 2 * widest > table.label.size:
                table = _table(1 << (2 * widest).bit_length())
            num_moves += _visit(chunk, clusters, table, most, seed)
        if num_moves == 0:
            break
    bins = np.full(own.size + 1, _FREE, np.int32)
    for chunk in rows.chunks():
        _gather(chunk, clusters, table, most, bins)
    return clusters.label


def _table(num_slots: int) -> _Table:
    empty = np.zeros(num_slots, np.int64)
    return _Table(np.full(num_slots, _FREE, np.int32), empty, empty.copy())


@compiled
def _visit(chunk: RowChunk, clusters: _Clusters, table: _Table, most: int, seed: int) -> int:
    """Let each vertex of some rows join a cluster; return how many changed theirs."""
    start = mix(np.uint64(seed))
    num_moves = 0
    for row in range(chunk.indptr.size - 1):
        num_taken = _tally(chunk, row, clusters.label, table)
        vertex = chunk.first + row
        current = clusters.label[vertex]
        best, heaviest, highest = current, np.int64(0), np.uint64(0)
        for k in range(num_taken):
            slot = table.taken[k]
            label, total = table.label[slot], table.total[slot]
            table.label[slot] = _FREE
            if total < heaviest:
                continue
            if label != current and clusters.size[label] + clusters.own[vertex] > most:
                continue
            rank = mix(start ^ np.uint64(label))
            if total > heaviest or rank > highest:
                best, heaviest, highest = label, total, rank
        if best != current:
            clusters.size[current] -= clusters.own[vertex]
            clusters.size[best] += clusters.own[vertex]
            clusters.label[vertex] = best
            num_moves += 1
    return num_moves


@compiled
def _tally(chunk: RowChunk, row: int, label: NDArray[np.int32], table: _Table) -> int:
    """Sum the weights of a row by the labels of its neighbours; return how many those are."""
    begin, end = chunk.indptr[row], chunk.indptr[row + 1]
    mask = 1
    while mask < 2 * (end - begin):
        mask *= 2
    mask -= 1
    num_taken = 0
    for k in range(begin, end):
        wanted = label[chunk.neighbour[k]]
        slot = np.int64((np.uint64(wanted) * _SPREAD) >> np.uint64(32)) & mask
        while table.label[slot] != wanted and table.label[slot] != _FREE:
            slot = (slot + 1) & mask
        if table.label[slot] == _FREE:
            table.label[slot] = wanted
            table.total[slot] = 0
            table.taken[num_taken] = slot
            num_taken += 1
        table.total[slot] += chunk.weight[k]
    return num_taken


@compiled
def _gather(
    chunk: RowChunk, clusters: _Clusters, table: _Table, most: int, bins: NDArray[np.int32]
) -> None:
    """Let vertices that are still alone share a cluster with others of the same favourite.

    `bins` has the last such cluster of each favourite, behind all labels that of the vertices
    without edges.
    """
    for row in range(chunk.indptr.size - 1):
        vertex = chunk.first + row
        own = clusters.own[vertex]
        if clusters.label[vertex] != vertex or clusters.size[vertex] != own:
            continue
        favourite, heaviest = np.int64(bins.size - 1), np.int64(0)
        for k in range(_tally(chunk, row, clusters.label, table)):
            slot = table.taken[k]
            label, total = np.int64(table.label[slot]), table.total[slot]
            table.label[slot] = _FREE
            if total > heaviest or (total == heaviest and label < favourite):
                favourite, heaviest = label, total
        home = bins[favourite]
        if home == _FREE or clusters.size[home] + own > most:
            bins[favourite] = vertex
            continue
        clusters.label[vertex] = home
        clusters.size[home] += own
        clusters.size[vertex] -= own
