"""Numbers 0, 1, 2, ... for ids that are any integers, in memory of the vertices alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from distgnn.datasets.distinct import distinct

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from distgnn.datasets.flat_array import FlatArray

_AT_ONCE = 1 << 22
# A table by id is worth its memory up to this many ids that are not in use for each that is.
_SPARSE = 4


def distinct_ids(arrays: Sequence[FlatArray]) -> NDArray[np.int64]:
    """Find all ids in use.

    Args:
        arrays: int64, on disk.

    Returns:
        (num_ids,) int64, ascending.
    """
    found = np.zeros(0, np.int64)
    waiting: list[NDArray[np.int64]] = []
    num_waiting = 0
    for ids in _slices(arrays):
        waiting.append(distinct(ids))
        num_waiting += waiting[-1].size
        # Merged when as many wait as are found: each id takes part in a few merges only.
        if num_waiting > found.size + _AT_ONCE:
            found = distinct(np.concatenate([found, *waiting]))
            waiting, num_waiting = [], 0
    return distinct(np.concatenate([found, *waiting]))


class Numbering:
    """Map from ids to their positions in a list."""

    def __init__(self, ids: NDArray[np.int64]) -> None:
        """Prepare.

        Args:
            ids: (num_ids,) int64, each once; id k gets the number of its position.
        """
        least, most = (int(ids.min()), int(ids.max())) if ids.size else (0, -1)
        self._ids = ids
        self._number: NDArray[Any] | None = None
        self._order: NDArray[np.int64] | None = None
        if least >= 0 and most < _SPARSE * max(ids.size, 1):
            self._number = np.full(most + 1, -1, np.int64)
            self._number[ids] = np.arange(ids.size)
        elif (ids[1:] < ids[:-1]).any():
            self._order = np.argsort(ids)
            self._ids = ids[self._order]

    def numbers(self, wanted: NDArray[np.int64]) -> NDArray[np.int64]:
        """Look up ids.

        Args:
            wanted: (num_wanted,) int64.

        Returns:
            (num_wanted,) int64. The number of each, -1 for an id that is not in the list.
        """
        if self._number is not None:
            is_inside = (wanted >= 0) & (wanted < self._number.size)
            inside = np.where(is_inside, wanted, 0)
            return np.where(is_inside, self._number[inside] if self._number.size else -1, -1)
        position = np.minimum(np.searchsorted(self._ids, wanted), self._ids.size - 1)
        number = position if self._order is None else self._order[position]
        return np.where(self._ids[position] == wanted, number, -1)


def _slices(arrays: Sequence[FlatArray]) -> Iterator[NDArray[np.int64]]:
    for array in arrays:
        for start in range(0, array.size, _AT_ONCE):
            yield array.read(start, min(start + _AT_ONCE, array.size))
