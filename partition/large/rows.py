"""An undirected graph on disk: the neighbours of one vertex after another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from distgnn.datasets.flat_array import FlatArray, open_flat

CHUNK_ENTRIES = 1 << 21
"""Entries of a slice, unless a single row has more: 16 MiB with their weights."""
FILES = ("degree.npy", "neighbour.npy", "weight.npy")
"""Files of rows; the first is completed last, so that where it is, all are."""
_DEGREES_AT_ONCE = 1 << 20


class RowSlice(NamedTuple):
    """Which rows to read.

    Attributes:
        first: Vertex of the first row.
        indptr: (num_rows + 1,) int64, from 0.
        begin: Its first entry in the files.
    """

    first: int
    indptr: NDArray[np.int64]
    begin: int


class RowChunk(NamedTuple):
    """Some rows.

    Attributes:
        first: Vertex of the first row.
        indptr: (num_rows + 1,) int64, from 0.
        neighbour: (num_entries,) int32, ascending in a row.
        weight: (num_entries,) int32. Edges that each entry stands for.
    """

    first: int
    indptr: NDArray[np.int64]
    neighbour: NDArray[np.int32]
    weight: NDArray[np.int32]


@dataclass(frozen=True)
class RowFile:
    """Neighbours of all vertices on disk: each edge is an entry in two rows, self-loops are none.

    Attributes:
        degree: (num_vertices,) int32. Entries of each row.
        neighbour: (num_entries,) int32, ascending in a row.
        weight: (num_entries,) int32. Edges that each entry stands for; None if that is 1, and then
            neighbours may repeat.
    """

    degree: FlatArray
    neighbour: FlatArray
    weight: FlatArray | None

    @property
    def num_vertices(self) -> int:
        """Number of rows."""
        return self.degree.size

    @property
    def num_entries(self) -> int:
        """Entries of all rows."""
        return self.neighbour.size

    def chunks(self, num_entries: int = CHUNK_ENTRIES) -> Iterator[RowChunk]:
        """Read all rows in order.

        Args:
            num_entries: Most entries of a slice with more than one row.

        Yields:
            Rows, at least one; their arrays are buffers of the next chunk too.

        Raises:
            InputError: If a file has become shorter.
        """
        neighbour, weight = np.empty(0, np.int32), np.empty(0, np.int32)
        for rows in self.slices(num_entries):
            count = int(rows.indptr[-1])
            if count > neighbour.size:
                neighbour, weight = np.empty(count, np.int32), np.ones(count, np.int32)
            yield self._read(rows, neighbour[:count], weight[:count])

    def read(self, rows: RowSlice) -> RowChunk:
        """Read some rows into arrays of their own; several threads may at a time.

        Args:
            rows: Which ones.

        Returns:
            The rows.

        Raises:
            InputError: If a file has become shorter.
        """
        count = int(rows.indptr[-1])
        return self._read(rows, np.empty(count, np.int32), np.ones(count, np.int32))

    def _read(
        self, rows: RowSlice, neighbour: NDArray[np.int32], weight: NDArray[np.int32]
    ) -> RowChunk:
        end = rows.begin + neighbour.size
        self.neighbour.read(rows.begin, end, neighbour)
        if self.weight is not None:
            self.weight.read(rows.begin, end, weight)
        return RowChunk(rows.first, rows.indptr, neighbour, weight)

    def slices(self, num_entries: int) -> Iterator[RowSlice]:
        """Cut all rows into slices, in order.

        Args:
            num_entries: Most entries of a slice with more than one row.

        Yields:
            Slices of at least one row.

        Raises:
            InputError: If the file of degrees has become shorter.
        """
        done = 0
        for first in range(0, self.num_vertices, _DEGREES_AT_ONCE):
            last = min(first + _DEGREES_AT_ONCE, self.num_vertices)
            indptr = np.zeros(last - first + 1, np.int64)
            np.cumsum(self.degree.read(first, last), out=indptr[1:])
            begin = 0
            while begin < last - first:
                end = int(np.searchsorted(indptr, indptr[begin] + num_entries, side="right")) - 1
                end = max(end, begin + 1)
                rows = RowSlice(first + begin, indptr[begin : end + 1] - indptr[begin], done)
                yield rows
                done += int(rows.indptr[-1])
                begin = end


def open_rows(folder: Path, *, is_weighted: bool) -> RowFile | None:
    """Open the rows in a folder.

    Args:
        folder: Where `sort_rows` wrote them.
        is_weighted: Whether it merged equal entries, so that they have weights.

    Returns:
        The rows; None if they are not complete.

    Raises:
        InputError: If a file is damaged.
    """
    paths = [folder / name for name in (FILES if is_weighted else FILES[:2])]
    if not all(path.exists() for path in paths):
        return None
    degree, neighbour, *weight = (open_flat(path)[0] for path in paths)
    return RowFile(degree, neighbour, weight[0] if weight else None)
