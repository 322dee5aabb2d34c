"""One look at all edges: degrees, and how many edges lie between each pair of parts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distgnn.datasets.edge_file import EdgeFile
from distgnn.partition.jit import compiled
from distgnn.partition.large.clock import Progress, StageProgress
from distgnn.partition.large.work import WorkFolder
from distgnn.partition.threads import available_threads, in_order

_MOST_INT32 = np.iinfo(np.int32).max
_PARTS_IN_16_BITS = 1 << 16


@dataclass(frozen=True, eq=False)
class Counts:
    """Counts of edges that the tables of vertices need, and sizes of piles."""

    out_degree: NDArray[np.integer[Any]]
    """(num_vertices,) int32, or int64 where there are more edges than that."""
    in_degree: NDArray[np.integer[Any]]
    """(num_vertices,) the same."""
    self_loops: NDArray[np.integer[Any]]
    """(num_vertices,) the same."""
    between: NDArray[np.int64]
    """(num_parts, num_parts) int64. Edges from roots on one part to roots on another."""


def save_counts(work: WorkFolder, counts: Counts) -> None:
    """Keep the counts; `between` is saved last, so that it says that all are there."""
    for name in ("out_degree", "in_degree", "self_loops", "between"):
        work.save(name, getattr(counts, name))


def count(
    edges: EdgeFile,
    root_part: NDArray[np.int32],
    num_parts: int,
    *,
    chunk_edges: int,
    progress: Progress | None,
) -> Counts:
    """Count edges by their ends.

    Args:
        edges: On disk.
        root_part: (num_vertices,) int32. Part of each vertex's root.
        num_parts: How many there are.
        chunk_edges: Edges to read at a time.
        progress: Called with one line of text now and then.

    Returns:
        The counts.
    """
    dtype = np.int32 if edges.num_edges <= _MOST_INT32 else np.int64
    out_degree, in_degree, self_loops = (np.zeros(edges.num_vertices, dtype) for _ in range(3))
    between = np.zeros((num_parts, num_parts), np.int64)
    part = narrow(root_part, num_parts)
    clock = StageProgress("counting", "edges", edges.num_edges, progress)
    for _, src, dst in edges.chunks(chunk_edges):
        # Either half waits for memory about as long as the other; no two write to one table.
        halves = (
            partial(_count_ends, src, dst, out_degree, in_degree),
            partial(_count_pairs, src, dst, part, self_loops, between),
        )
        with in_order(lambda half: half(), halves, min(available_threads(), 2)) as counted:
            list(counted)
        clock.add(src.size)
    clock.end()
    return Counts(out_degree, in_degree, self_loops, between)


def narrow(root_part: NDArray[np.int32], num_parts: int) -> NDArray[np.integer[Any]]:
    """Make a table of parts that takes half the memory, of which caches hold twice as much.

    Args:
        root_part: (num_vertices,) int32.
        num_parts: How many there are.

    Returns:
        (num_vertices,) uint16; the same table where there are too many parts for that.
    """
    return root_part.astype(np.uint16) if num_parts <= _PARTS_IN_16_BITS else root_part


@compiled
def _count_ends(
    src: NDArray[np.integer[Any]],
    dst: NDArray[np.integer[Any]],
    out_degree: NDArray[np.integer[Any]],
    in_degree: NDArray[np.integer[Any]],
) -> None:
    for k in range(src.size):
        out_degree[src[k]] += 1
        in_degree[dst[k]] += 1


@compiled
def _count_pairs(
    src: NDArray[np.integer[Any]],
    dst: NDArray[np.integer[Any]],
    part: NDArray[np.integer[Any]],
    self_loops: NDArray[np.integer[Any]],
    between: NDArray[np.int64],
) -> None:
    for k in range(src.size):
        between[part[src[k]], part[dst[k]]] += 1
        if src[k] == dst[k]:
            self_loops[src[k]] += 1
