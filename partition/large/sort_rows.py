"""Entries of a graph, in any order, sorted on disk into rows.

An entry is packed into 64 bits: row, column and, in the bits that are left, its weight. Entries are
thrown into buckets of consecutive rows; a bucket at a time is sorted and its equal entries merged.
The outcome does not depend on the order in which entries come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from distgnn import _partitioner
from distgnn.datasets.buckets import Buckets
from distgnn.datasets.edge_file import EdgeFile
from distgnn.datasets.errors import InputError
from distgnn.datasets.flat_array import FlatWriter
from distgnn.partition.jit import compiled
from distgnn.partition.large.rows import FILES, RowFile
from distgnn.partition.threads import available_threads, in_order

MOST_VERTICES = 2**31 - 1
_BITS = 63
NUM_BLOCKS = 1 << 16
"""Blocks of rows, each of which goes into one bucket."""
_MOST_BUCKETS = 512
# Bytes an entry while a bucket is sorted: itself, its column and its weight.
_SORTING_BYTES = 20
# Pieces, and then buckets, in memory: two that are worked on at a time, and one that is written.
_MOST_THREADS, _IN_MEMORY = 2, 3
PIECE_ENTRIES = 1 << 20
"""Entries that are thrown into buckets at a time: about 28 MiB."""

Piece = TypeVar("Piece")


class Entries(NamedTuple):
    """Entries in any order.

    Attributes:
        row: (num_entries,) int32.
        column: (num_entries,) int32.
        weight: (num_entries,) int32, at least 1.
    """

    row: NDArray[np.int32]
    column: NDArray[np.int32]
    weight: NDArray[np.int32]


def rows_of_edges(edges: EdgeFile, folder: Path, *, memory_bytes: int) -> RowFile:
    """Sort the edges of a graph into rows, each edge at both of its ends.

    Args:
        edges: The edges of a directed graph; directions are forgotten, parallel edges kept.
        folder: Where files are written: at most 24 bytes an edge while it works, 8 in the end.
        memory_bytes: Bytes that sorting may take.

    Returns:
        The rows.

    Raises:
        InputError: If there are more than 2**31 - 1 vertices.
        OSError: If the disk is full.
    """
    if edges.num_vertices > MOST_VERTICES:
        raise InputError(
            f"the graph has {edges.num_vertices} vertices, but partitioning from disk takes at "
            f"most {MOST_VERTICES}; leave out those without edges"
        )

    def count(start: int) -> NDArray[np.int64]:
        per_block = np.zeros(NUM_BLOCKS, np.int64)
        for end in edges.read(start, start + PIECE_ENTRIES):
            _count(end, edges.num_vertices, per_block)
        return per_block

    starts = range(0, edges.num_edges, PIECE_ENTRIES)
    per_block = np.zeros(NUM_BLOCKS, np.int64)
    with in_order(count, starts, _threads()) as counted:
        for counts in counted:
            per_block += counts
    return sort_rows(
        range(0, edges.num_edges, PIECE_ENTRIES // 2),
        lambda start: _both_ways(*edges.read(start, start + PIECE_ENTRIES // 2)),
        per_block,
        edges.num_vertices,
        folder,
        memory_bytes=memory_bytes,
    )


def _threads() -> int:
    return min(available_threads(), _MOST_THREADS)


def sort_rows(
    pieces: Iterable[Piece],
    entries_of: Callable[[Piece], Entries],
    per_block: NDArray[np.int64],
    num_rows: int,
    folder: Path,
    *,
    memory_bytes: int,
    is_merged: bool = False,
) -> RowFile:
    """Sort entries into rows.

    Args:
        pieces: Pieces of the entries, in any order.
        entries_of: Makes the entries of a piece; called on several threads at a time.
        per_block: (NUM_BLOCKS,) int64. About how many entries each block of rows will have, see
            `block_shift`; it balances the buckets.
        num_rows: At most `MOST_VERTICES`; columns are as many.
        folder: Where files are written: at most 8 bytes an entry besides the rows.
        memory_bytes: Bytes that sorting may take.
        is_merged: Whether equal entries become one, with the sum of their weights. Otherwise all
            weights must be 1.

    Returns:
        The rows.

    Raises:
        OSError: If the disk is full.
    """
    bucket_of_block, first_row = _buckets(
        per_block, num_rows, memory_bytes // (_IN_MEMORY * _SORTING_BYTES)
    )
    num_buckets = first_row.size - 1
    weight_bits = _BITS - (num_rows**2 - 1).bit_length()
    with ExitStack() as stack:
        buckets = stack.enter_context(Buckets(folder, num_buckets, np.dtype(np.int64)))

        def pack(piece: Piece) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
            counts = np.zeros(num_buckets, np.int64)
            packing = num_rows, weight_bits
            return _pack(entries_of(piece), packing, bucket_of_block, counts), counts

        with in_order(pack, pieces, _threads()) as packed:
            for values, counts in packed:
                buckets.append(values, counts)
        degrees, columns, *weights = (
            stack.enter_context(FlatWriter(folder / name, np.dtype(np.int32)))
            for name in (FILES if is_merged else FILES[:2])
        )

        def sort(bucket: int) -> tuple[NDArray[np.int32], ...]:
            packed = buckets.take(bucket)
            _partitioner.sort_numbers(packed)
            degree = np.zeros(first_row[bucket + 1] - first_row[bucket], np.int32)
            packing = num_rows, weight_bits
            return degree, *_unpack(packed, packing, first_row[bucket], degree, is_merged)

        with in_order(sort, range(num_buckets), _threads()) as found:
            for arrays in found:
                # Without weights the last of them is all ones.
                for writer, array in zip((degrees, columns, *weights), arrays, strict=False):
                    writer.append(array)
    return RowFile(degrees.written, columns.written, weights[0].written if is_merged else None)


def _buckets(
    per_block: NDArray[np.int64], num_rows: int, most: int
) -> tuple[NDArray[np.uint16], NDArray[np.int64]]:
    """Bucket of each block, and the first row of each bucket with the number of rows behind."""
    total = int(per_block.sum())
    most = max(most, -(-total // _MOST_BUCKETS), 1)
    bucket = (np.cumsum(per_block) - per_block) // most
    _, bucket = np.unique(bucket, return_inverse=True)
    first_block = np.searchsorted(bucket, np.arange(int(bucket[-1]) + 2))
    first_row = np.minimum(first_block << block_shift(num_rows), num_rows)
    return bucket.astype(np.uint16), first_row


@compiled
def block_shift(num_rows: int) -> int:
    """Bits of a row's number that tell its place in its block; the others are the block."""
    shift = 0
    while (num_rows - 1) >> shift >= NUM_BLOCKS:
        shift += 1
    return shift


@compiled
def _count(end: NDArray[Any], num_rows: int, per_block: NDArray[np.int64]) -> None:
    shift = block_shift(num_rows)
    for k in range(end.size):
        per_block[end[k] >> shift] += 1


@compiled
def _both_ways(src: NDArray[np.integer[Any]], dst: NDArray[np.integer[Any]]) -> Entries:
    """Each edge as an entry in two rows; self-loops are left out."""
    size = 2 * src.size
    found = Entries(np.empty(size, np.int32), np.empty(size, np.int32), np.ones(size, np.int32))
    count = 0
    for k in range(src.size):
        if src[k] != dst[k]:
            found.row[count], found.column[count] = src[k], dst[k]
            found.row[count + 1], found.column[count + 1] = dst[k], src[k]
            count += 2
    return Entries(found.row[:count], found.column[:count], found.weight[:count])


@compiled
def _pack(
    entries: Entries,
    packing: tuple[int, int],
    bucket_of_block: NDArray[np.uint16],
    counts: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Pack entries, those of a bucket next to each other; `counts` becomes how many each has."""
    num_rows, weight_bits = packing
    shift = block_shift(num_rows)
    heaviest = (1 << weight_bits) - 1
    counts[:] = 0
    for k in range(entries.row.size):
        # An edge that is too heavy for its bits becomes several entries; a division takes time.
        is_one = entries.weight[k] <= heaviest
        copies = 1 if is_one else (entries.weight[k] + heaviest - 1) // heaviest
        counts[bucket_of_block[entries.row[k] >> shift]] += copies
    place = np.cumsum(counts) - counts
    packed = np.empty(counts.sum(), np.int64)
    for k in range(entries.row.size):
        bucket = bucket_of_block[entries.row[k] >> shift]
        key = np.int64(entries.row[k]) * num_rows + entries.column[k]
        weight = entries.weight[k]
        while weight > 0:
            packed[place[bucket]] = (key << weight_bits) | min(weight, heaviest)
            place[bucket] += 1
            weight -= heaviest
    return packed


@compiled
def _unpack(
    packed: NDArray[np.int64],
    packing: tuple[int, int],
    first_row: int,
    degree: NDArray[np.int32],
    is_merged: bool,
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Columns and weights of sorted entries; `degree` becomes the entries of each row."""
    num_rows, weight_bits = packing
    column, weight = np.empty(packed.size, np.int32), np.empty(packed.size, np.int32)
    row, begin, last, size = first_row, first_row * num_rows, np.int64(-1), 0
    for k in range(packed.size):
        key = packed[k] >> weight_bits
        heavy = packed[k] & ((1 << weight_bits) - 1)
        if is_merged and key == last:
            weight[size - 1] += heavy
            continue
        while key >= begin + num_rows:
            begin += num_rows
            row += 1
        degree[row - first_row] += 1
        column[size], weight[size] = key - begin, heavy
        last = key
        size += 1
    return column[:size], weight[:size]
