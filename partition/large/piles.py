"""Edges in piles on disk: appended to in any order, read whole."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distgnn.partition.halo import group_by_part

Records = NDArray[np.void]
"""(num_edges,) of the dtype that `record_of` makes: `src`, `dst` and perhaps `edge`."""


def record_of(num_vertices: int, *, has_position: bool) -> np.dtype[Any]:
    """Make the dtype of an edge in a pile.

    Args:
        num_vertices: Number of vertices of the graph.
        has_position: Whether an edge remembers its place in the source, for its weight.

    Returns:
        8 to 24 bytes.
    """
    end = np.dtype(np.int32 if num_vertices <= 1 << 31 else np.int64)
    fields = [("src", end), ("dst", end)]
    return np.dtype([*fields, ("edge", np.int64)] if has_position else fields)


class Piles:
    """Numbered files of records. Only what `commit` has seen is sure to last."""

    def __init__(self, folder: Path, name: str, dtype: np.dtype[Any]) -> None:
        """Name the piles; no file is touched.

        Args:
            folder: Where they are; it exists.
            name: Beginning of the names of their files.
            dtype: Type of the records.
        """
        self._folder = folder
        self._name = name
        self.dtype = dtype
        self._touched: set[int] = set()

    def path(self, pile: int) -> Path:
        """Name the file of a pile."""
        return self._folder / f"{self._name}-{pile:05d}"

    def size(self, pile: int) -> int:
        """Count the records of a pile."""
        path = self.path(pile)
        return path.stat().st_size // self.dtype.itemsize if path.exists() else 0

    def read(self, pile: int) -> Records:
        """Read a pile; there may be no file where there are no records."""
        path = self.path(pile)
        return np.fromfile(path, self.dtype) if path.exists() else np.empty(0, self.dtype)

    def append(self, pile: int, records: Records) -> None:
        """Add records to a pile."""
        if not records.size:
            return
        # Opened each time: there may be more piles than a process may have files open.
        with self.path(pile).open("ab", buffering=0) as file:
            waiting = np.ascontiguousarray(records).view(np.uint8).data
            while len(waiting):
                waiting = waiting[file.write(waiting) :]
        self._touched.add(pile)

    def scatter(self, number: NDArray[np.int32], records: Records, piles: Sequence[int]) -> None:
        """Add records to several piles.

        Args:
            number: (num_records,) int32. Which of `piles` each goes to.
            records: (num_records,) Those of a pile keep their order.
            piles: (num_piles,)
        """
        order, start = group_by_part(number, len(piles))
        self.deal(records[order], start, piles)

    def deal(self, grouped: Records, start: NDArray[np.int64], piles: Sequence[int]) -> None:
        """Add records to several piles, those of a pile one behind another.

        Args:
            grouped: (num_records,)
            start: (num_piles + 1,) int64. Where those of each of `piles` begin.
            piles: (num_piles,)
        """
        for k in np.flatnonzero(np.diff(start)).tolist():
            self.append(piles[k], grouped[start[k] : start[k + 1]])

    def commit(self) -> None:
        """Force what was added since the last time to disk."""
        for pile in sorted(self._touched):
            with self.path(pile).open("rb") as file:
                os.fsync(file.fileno())
        self._touched.clear()

    def cut_back(self, sizes: Sequence[int]) -> None:
        """Drop what an interrupted step added.

        Args:
            sizes: (num_piles,) records that each pile had before the step.
        """
        for pile, size in enumerate(sizes):
            path = self.path(pile)
            if path.exists() and path.stat().st_size != size * self.dtype.itemsize:
                os.truncate(path, size * self.dtype.itemsize)

    def keep_only(self, piles: Iterable[int]) -> None:
        """Remove the files of all other piles."""
        kept = {self.path(pile) for pile in piles}
        for path in self._folder.glob(f"{self._name}-[0-9]*"):
            if path not in kept:
                path.unlink()

    def remove(self, pile: int) -> None:
        """Remove a pile."""
        self.path(pile).unlink(missing_ok=True)
