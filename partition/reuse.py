"""Model of how often a row that was fetched is used again before it leaves the cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from distgnn import _partitioner
from distgnn.datasets.errors import InputError
from distgnn.partition.directory.files import REMEDY
from distgnn.partition.directory.layout import check_below

if TYPE_CHECKING:
    from distgnn.partition.build import Part

CACHE_BYTES = 1 << 20
"""Bytes of the level-2 cache of a core."""
FLOAT_BYTES = 4
# Beyond this many edges a sample is counted: as many stretches as make it up, evenly spread.
MAX_EDGES = 1 << 24
STRETCH_EDGES = 1 << 18


def row_reuse(part: Part, width: int) -> float:
    """Estimate how often a source row is read per fetch into the cache, when in-edges are summed.

    Rows are walked as they are numbered, and the cache is emptied whenever it is full. So the edges
    fall into windows that read as many different sources as rows fit. A source is fetched once in
    each window that reads it. 1 means that no row is ever used again.

    Of two orders of a graph the one with more reuse has the faster sums of rows that are wide, and
    that no larger cache holds. Nothing is known here of walk orders, which take rows otherwise.

    Args:
        part: The part.
        width: Width of the rows, in float32.

    Returns:
        Edges over fetches, at least 1; 1 without edges.

    Raises:
        InputError: If the part is damaged: an edge that is looked at begins outside its rows.
    """
    num_rows = max(CACHE_BYTES // (FLOAT_BYTES * width), 1)
    size = part.num_edges if part.num_edges <= MAX_EDGES else STRETCH_EDGES
    num_stretches = min(part.num_edges, MAX_EDGES) // max(size, 1)
    start = np.linspace(0, part.num_edges - size, num_stretches).astype(np.int64)
    try:
        for begin in start.tolist():
            check_below("indices", part.indices[begin : begin + size], part.num_clones)
    except InputError as error:
        raise InputError(f"part {part.part} is damaged: {error}; {REMEDY}") from error
    fetches = count_fetches(
        start,
        start + size,
        np.asarray(part.indices),
        num_sources=part.num_clones,
        num_rows=num_rows,
    )
    return num_stretches * size / fetches if fetches else 1.0


def count_fetches(
    begin: NDArray[np.int64],
    end: NDArray[np.int64],
    indices: NDArray[np.int32],
    *,
    num_sources: int,
    num_rows: int,
) -> int:
    """Count what the model of `row_reuse` fetches.

    Args:
        begin: (num_runs,) int64. First edge of each run of edges, in the order of the walk.
        end: (num_runs,) int64. One past its last edge.
        indices: (num_edges,) int32. Source of each edge.
        num_sources: More than any source.
        num_rows: Rows that the cache holds, at least 1.

    Returns:
        Fetches.
    """
    return _partitioner.count_fetches(begin, end, indices, num_sources, num_rows)
