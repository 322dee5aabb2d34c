"""The ends of a part's edges: roots first, then the leaves that take part in a role."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from distgnn.kernels.tensors import own

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from distgnn.partition.directory.store import Part


class Rows(NamedTuple):
    """The rows of a block, among the clones of a part: those from start to stop that are kept."""

    start: int
    stop: int
    kept: NDArray[np.bool_] | None  # among start..stop; dropped rows hold no edges


class Columns(NamedTuple):
    """The columns of a block, likewise, and their numbers there."""

    start: int
    stop: int
    renumbered: NDArray[np.int32] | None
    is_all: bool  # nothing else is there, so nothing is dropped
    global_id: Tensor | None


class Ends:
    """One end of the edges: roots first, then the leaves that take part in that role.

    Args:
        part: Any part.
        takes_part: (num_leaves,) bool.
    """

    def __init__(self, part: Part, takes_part: NDArray[np.bool_]) -> None:
        self._num_roots = part.num_roots
        self._takes_part = takes_part
        self._renumbered = (np.cumsum(takes_part) - 1).astype(np.int32)
        self._root_id = _unless_ascending(part.global_id[: part.num_roots])
        self._leaf_id = _unless_ascending(part.global_id[part.num_roots :][takes_part])

    def rows(self, is_leaf: bool) -> Rows:
        """Return the rows of a block whose targets are leaves, or roots."""
        if not is_leaf:
            return Rows(0, self._num_roots, None)
        return Rows(self._num_roots, self._num_roots + len(self._takes_part), self._takes_part)

    def columns(self, is_leaf: bool) -> Columns:
        """Return the columns of a block whose sources are leaves, or roots."""
        if not is_leaf:
            is_all = len(self._takes_part) == 0
            return Columns(0, self._num_roots, None, is_all, self._root_id)
        stop = self._num_roots + len(self._takes_part)
        return Columns(self._num_roots, stop, self._renumbered, False, self._leaf_id)


def _unless_ascending(ids: NDArray[np.int64]) -> Tensor | None:
    return None if np.all(ids[1:] > ids[:-1]) else own(ids, np.int64)


def select(
    indptr: NDArray[np.int64], indices: NDArray[np.int32], rows: Rows, columns: Columns
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.bool_] | slice]:
    """Return the block's indptr and indices, and which of the rows' edges it keeps."""
    first, last = int(indptr[rows.start]), int(indptr[rows.stop])
    found = np.asarray(indices[first:last])
    block_indptr = indptr[rows.start : rows.stop + 1] - first
    if columns.is_all:
        return block_indptr, found, slice(None)
    if columns.start == columns.stop:
        kept = np.zeros(found.size, dtype=bool)
        block_indptr = np.zeros_like(block_indptr)
    else:
        kept = (found >= columns.start) & (found < columns.stop)
        running = np.zeros(found.size + 1, np.int64)
        np.cumsum(kept, out=running[1:])
        block_indptr = running[block_indptr]
    if rows.kept is not None:
        block_indptr = np.concatenate([block_indptr[:1], block_indptr[1:][rows.kept]])
    picked = found[kept] - np.int32(columns.start)
    if columns.renumbered is not None:
        picked = columns.renumbered[picked]
    return block_indptr, picked, kept
