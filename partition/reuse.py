"""How often a row that was fetched is used again before it leaves the cache: a simple model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from distgnn.partition.jit import compiled

if TYPE_CHECKING:
    from distgnn.partition.build import Part

CACHE_BYTES = 1 << 20
"""Of the level-2 cache of a core."""
FLOAT_BYTES = 4
# Beyond this many edges a sample is counted: as many stretches as make it up, evenly spread.
MAX_EDGES = 1 << 24
STRETCH_EDGES = 1 << 18


def row_reuse(part: Part, width: int) -> float:
    """Estimate how often a source row is read per fetch into the cache, when in-edges are summed.

    Rows are walked as they are numbered, and the cache is emptied whenever it is full: the edges
    fall into windows that read as many different sources as rows fit, each of which is fetched once
    in each window that reads it. 1 means that no row is ever used again.

    Of two orders of a graph the one with more reuse has the faster sums of rows that are wide, and
    that no larger cache holds. Nothing is known here of plans, which walk rows in another order.

    Args:
        part: The part.
        width: Of the rows, in float32.

    Returns:
        Edges over fetches, at least 1; 1 without edges.
    """
    num_rows = max(CACHE_BYTES // (FLOAT_BYTES * width), 1)
    size = part.num_edges if part.num_edges <= MAX_EDGES else STRETCH_EDGES
    num_stretches = min(part.num_edges, MAX_EDGES) // max(size, 1)
    start = np.linspace(0, part.num_edges - size, num_stretches).astype(np.int64)
    fetches = _count_fetches(np.asarray(part.indices), start, size, part.num_clones, num_rows)
    return num_stretches * size / fetches if fetches else 1.0


@compiled
def _count_fetches(
    indices: NDArray[np.int32], start: NDArray[np.int64], size: int, num_clones: int, num_rows: int
) -> int:
    window_of = np.full(num_clones, -1, np.int64)
    fetches, window, num_held = 0, 0, 0
    for begin in start:
        window += 1
        num_held = 0
        for k in range(begin, begin + size):
            source = indices[k]
            if window_of[source] == window:
                continue
            if num_held == num_rows:
                window += 1
                num_held = 0
            window_of[source] = window
            num_held += 1
            fetches += 1
    return fetches
