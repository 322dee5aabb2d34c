"""Edges as benchmarks take them: both directions of each, none twice, no self-loops."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

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
    first, second = src.astype(np.int64), dst.astype(np.int64)
    is_loop = first == second
    first, second = first[~is_loop], second[~is_loop]
    key = np.unique(np.concatenate([second * num_vertices + first, first * num_vertices + second]))
    dst, src = np.divmod(key, num_vertices)
    return src, dst
