"""Edges by row and by column, sorted by counting: a few bytes an edge, no keys, no comparisons."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from distgnn import _partitioner


class Csr(NamedTuple):
    """Edges by row.

    Attributes:
        indptr: (num_rows + 1,) int64.
        indices: (num_edges,) int32. Columns.
        values: (num_edges,) One of each edge, or None.
    """

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    values: NDArray[Any] | None


def pointers(row: NDArray[Any], num_rows: int) -> NDArray[np.int64]:
    """Return (num_rows + 1,) int64: where each row's edges begin once they are sorted by row.

    Args:
        row: (num_edges,) Any integers below num_rows.
        num_rows: How many there are.

    Raises:
        ValueError: If a row is beyond them.
    """
    if row.size and not 0 <= row.min() <= row.max() < num_rows:
        raise ValueError(f"rows must be from 0 to {num_rows - 1}, got {row.min()} to {row.max()}")
    kind = np.int32 if row.dtype == np.int32 else np.int64
    return _partitioner.starts_of(np.ascontiguousarray(row, kind), num_rows)


def order_by(row: NDArray[Any], num_rows: int) -> NDArray[np.integer[Any]]:
    """Return (num_edges,) positions that sort edges by row; those of a row keep their order.

    Args:
        row: (num_edges,) Any integers below num_rows.
        num_rows: How many there are.
    """
    # The edges of a matrix with a row for each edge and a column for each row, by column.
    # Pointers as wide as columns where they fit: SciPy else makes both alike, in another copy.
    numbers = np.int32 if row.size <= np.iinfo(np.int32).max else np.int64
    one_each = Csr(np.arange(row.size + 1, dtype=numbers), row.astype(np.int32, copy=False), None)
    # Without the int32 of `transposed`: these are edges, of which there may be more.
    positions: NDArray[np.integer[Any]] = _by_column(one_each, num_rows).indices
    return positions


def transposed(csr: Csr, num_columns: int) -> Csr:
    """Turn edges by row into edges by column; those of a column come by ascending row.

    Args:
        csr: Edges by row, in any order inside a row. Edges that are equal keep their order.
        num_columns: Columns it has.

    Returns:
        The same edges; its rows are the columns.
    """
    by_column = _by_column(csr, num_columns)
    return Csr(
        by_column.indptr.astype(np.int64, copy=False),
        by_column.indices.astype(np.int32, copy=False),
        None if csr.values is None else by_column.data,
    )


def _by_column(csr: Csr, num_columns: int) -> sp.csc_matrix:
    """Sort by column; the rows are int64 where int32 cannot hold them."""
    # Zeros that are only read take no memory.
    values = np.zeros(csr.indices.size, np.int8) if csr.values is None else csr.values
    shape = (csr.indptr.size - 1, num_columns)
    return sp.csr_matrix((values, csr.indices, csr.indptr), shape, copy=False).tocsc()
