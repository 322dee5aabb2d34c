"""Edges as benchmarks take them: both directions of each, none twice, no self-loops."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np

from distgnn.datasets.distinct import is_first

if TYPE_CHECKING:
    from numpy.typing import NDArray


def simple_edges(
    src: NDArray[Any], dst: NDArray[Any], num_vertices: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return both directions of every edge, once, without self-loops.

    Args:
        src: (num_edges,) int, each below num_vertices.
        dst: (num_edges,) int, likewise.
        num_vertices: Number of vertices of the graph.

    Returns:
        Sources and destinations, each int64, sorted by destination, then source.
    """
    is_link = src != dst
    ends = (src, dst) if is_link.all() else (src[is_link], dst[is_link])
    # Both directions of a hundred million edges, filled in place.
    key = np.empty((2, ends[0].size), np.int64)
    for row, (head, tail) in zip(key, (ends[::-1], ends), strict=True):
        np.multiply(head, num_vertices, out=row, dtype=np.int64)
        np.add(row, tail, out=row, dtype=np.int64)
    del ends, head, tail, row
    # Side by side; then a sort that finds the two ascending runs merges them.
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(np.ndarray.sort, key))
    key = key.reshape(-1)
    key.sort(kind="stable")
    key = key[is_first(key)]
    dst, src = np.divmod(key, num_vertices)
    return src, dst
