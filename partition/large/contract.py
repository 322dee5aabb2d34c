"""The graph of clusters: one vertex a cluster, edges between two clusters merged into one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from distgnn.partition.jit import compiled
from distgnn.partition.large.rows import RowChunk, RowFile, RowSlice
from distgnn.partition.large.sort_rows import (
    NUM_BLOCKS,
    PIECE_ENTRIES,
    Entries,
    block_shift,
    sort_rows,
)


def contract(
    rows: RowFile,
    label: NDArray[np.int32],
    num_clusters: int,
    folder: Path,
    *,
    memory_bytes: int,
) -> RowFile:
    """Merge the vertices of each cluster into one.

    Args:
        rows: The graph.
        label: (num_vertices,) int32. The cluster of each vertex.
        num_clusters: How many there are.
        folder: Where files are written: at most 16 bytes an entry of `rows`.
        memory_bytes: Bytes that sorting may take.

    Returns:
        The graph of clusters, with the weights of the edges between them.

    Raises:
        OSError: If the disk is full.
    """
    per_block = np.zeros(NUM_BLOCKS, np.int64)
    for piece in _pieces(rows):
        _count(piece.first, piece.indptr, label, num_clusters, per_block)
    return sort_rows(
        _pieces(rows),
        lambda piece: _between(rows.read(piece), label),
        per_block,
        num_clusters,
        folder,
        memory_bytes=memory_bytes,
        is_merged=True,
    )


def _pieces(rows: RowFile) -> Iterator[RowSlice]:
    """Slices of rows, those of a hub cut into several."""
    for first, indptr, begin in rows.slices(PIECE_ENTRIES):
        size = int(indptr[-1])
        if size <= PIECE_ENTRIES:
            yield RowSlice(first, indptr, begin)
            continue
        for done in range(0, size, PIECE_ENTRIES):
            some = np.array([0, min(PIECE_ENTRIES, size - done)])
            yield RowSlice(first, some, begin + done)


@compiled
def _count(
    first: int,
    indptr: NDArray[np.int64],
    label: NDArray[np.int32],
    num_clusters: int,
    per_block: NDArray[np.int64],
) -> None:
    shift = block_shift(num_clusters)
    for row in range(indptr.size - 1):
        per_block[label[first + row] >> shift] += indptr[row + 1] - indptr[row]


@compiled
def _between(chunk: RowChunk, label: NDArray[np.int32]) -> Entries:
    """Entries between clusters of the rows of a chunk."""
    size = chunk.neighbour.size
    found = Entries(np.empty(size, np.int32), np.empty(size, np.int32), np.empty(size, np.int32))
    count = 0
    for row in range(chunk.indptr.size - 1):
        own = label[chunk.first + row]
        for k in range(chunk.indptr[row], chunk.indptr[row + 1]):
            other = label[chunk.neighbour[k]]
            if own != other:
                found.row[count], found.column[count] = own, other
                found.weight[count] = chunk.weight[k]
                count += 1
    return Entries(found.row[:count], found.column[:count], found.weight[:count])
