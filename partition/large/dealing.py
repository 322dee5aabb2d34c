"""Rows of features, dealt to the parts: one reading of their file from its beginning to its end.

Unless the file stays in memory, a part that picks the rows of its roots from it waits for the disk
at nearly every one. Dealt rows lie in piles. A pile holds roots that follow each other in a part,
no more than fit into memory at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from distgnn.datasets.errors import InputError
from distgnn.partition.large.clock import Progress, StageProgress
from distgnn.partition.large.piles import Piles
from distgnn.partition.large.source import Table
from distgnn.partition.structure import VertexTables

# Largest bytes of a pile as float32, which is held whole; and least bytes in hand for dealing.
PILE_BYTES = 32 << 20
# Appended to a pile at a time, on average and where memory allows, so that disks that seek can keep
# up. On one that does not, 1 GB took 10 s into 1024 piles with 32 KiB, 11 s with this and 15 s with
# four times as much, most of it to force one pile after another to disk.
APPEND_BYTES = 1 << 17
# For a row in hand, beside its values: its pile, its place among the others, and their sorting.
_INDEX_BYTES = 32


class Dealt:
    """Features in piles, in ascending order of the vertices inside each."""

    def __init__(self, features: Table, tables: VertexTables, folder: Path) -> None:
        """Plan the piles; no file is touched.

        Args:
            features: (num_vertices, num_columns) on disk.
            tables: Where each vertex's root is.
            folder: Where the piles are; it exists.
        """
        self._features, self._tables, self._folder = features, tables, folder
        self._row_bytes = features.num_columns * features.narrow_dtype.itemsize
        rows = max(PILE_BYTES // (4 * features.num_columns), 1)
        start = np.asarray(tables.root_start, np.int64)
        piles_of = -(-np.diff(start) // rows)
        self._first = np.concatenate([[0], np.cumsum(piles_of)])
        part = np.repeat(np.arange(piles_of.size), piles_of)
        in_part = np.arange(part.size) - self._first[part]
        # Where each begins among the places of roots; one more at the end.
        self._start = np.append(start[part] + in_part * rows, start[-1])
        self._piles = Piles(folder, "features", np.dtype((np.void, self._row_bytes)))

    def deal(self, most_bytes: int, progress: Progress | None) -> None:
        """Read all features and write each row to its pile, again if that was interrupted.

        Args:
            most_bytes: In hand at a time, if that is no less than a pile.
            progress: Called with one line of text now and then.

        Raises:
            InputError: If the file cannot be read any more or a value is not finite.
            OSError: If the disk is full.
        """
        features, num_piles = self._features, self._start.size - 1
        # The rows as read, the same narrower or grouped by piles, and whether values are finite.
        in_hand = features.num_columns * (features.dtype.itemsize + 1) + self._row_bytes
        step = max(most_bytes, PILE_BYTES) // (in_hand + _INDEX_BYTES)
        step = max(min(step, num_piles * APPEND_BYTES // self._row_bytes), 1)
        self._piles.keep_only(())
        clock = StageProgress("dealing features", "rows", features.num_rows, progress)
        for begin in range(0, features.num_rows, step):
            end = min(begin + step, features.num_rows)
            place = self._tables.place[begin:end]
            pile = (np.searchsorted(self._start, place, side="right") - 1).astype(np.int32)
            rows = features.read_run(begin, end).view(self._piles.dtype).reshape(-1)
            self._piles.scatter(pile, rows, range(num_piles))
            clock.add(end - begin)
        self._piles.commit()
        clock.end()

    def rows(self, part: int) -> Iterator[NDArray[np.float32]]:
        """Read the features of a part.

        Args:
            part: Which.

        Yields:
            (num_rows, num_columns) float32, some of its roots after others, in their order.

        Raises:
            InputError: If a pile is not there as it was written.
        """
        for pile in range(self._first[part], self._first[part + 1]):
            vertices = self._tables.vertex_at[self._start[pile] : self._start[pile + 1]]
            records = self._piles.read(pile)
            if records.size != vertices.size:
                raise InputError(
                    f"{str(self._piles.path(pile))!r} holds {records.size} of {vertices.size} rows "
                    f"of features of part {part}; remove the folder {str(self._folder)!r} to start "
                    "again"
                )
            rows = np.empty((vertices.size, self._features.num_columns), np.float32)
            # Those of a pile came in the order of the vertices.
            rows[np.argsort(vertices)] = records.view(self._features.narrow_dtype).reshape(
                rows.shape
            )
            yield rows

    def remove(self, part: int) -> None:
        """Remove the piles of a part."""
        for pile in range(self._first[part], self._first[part + 1]):
            self._piles.remove(pile)
