"""METIS on the last graph of clusters, which is read into memory."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from distgnn.partition.arcs import Adjacency
from distgnn.partition.large.rows import RowFile
from distgnn.partition.methods.metis_library import part_graph

# Bytes that METIS takes, with the graph that it is given: measured.
_ENTRY_BYTES = 75
_VERTEX_BYTES = 100
_HEAVIEST = 1 << 16


def fits(rows: RowFile, memory_bytes: int) -> bool:
    """Return whether METIS can hold a graph.

    Args:
        rows: The graph.
        memory_bytes: Bytes that METIS may take.
    """
    return rows.num_entries <= _most_entries(rows, memory_bytes)


def part_rows(
    rows: RowFile,
    num_parts: int,
    *,
    own: NDArray[np.int64],
    seed: int,
    memory_bytes: int,
) -> NDArray[np.int32]:
    """Call METIS.

    If it cannot hold the graph, the lightest links are left out: between clusters that no
    propagation of labels could merge, they tell the least.

    Args:
        rows: The graph.
        num_parts: At least 2.
        own: (num_vertices,) int64. Size of each vertex: what parts balance.
        seed: At least 0.
        memory_bytes: Bytes that METIS may take.

    Returns:
        (num_vertices,) int32. Part of each vertex; parts may be empty.
    """
    links = heaviest_links(rows, _most_entries(rows, memory_bytes))
    return part_graph(links, num_parts, vertex_weight=own, seed=seed, objective="cut")


def _most_entries(rows: RowFile, memory_bytes: int) -> int:
    return max(memory_bytes - _VERTEX_BYTES * rows.num_vertices, 0) // _ENTRY_BYTES


def _least_weight(rows: RowFile, most_entries: int) -> int:
    """Smallest weight such that the links from it on fit."""
    if rows.num_entries <= most_entries:
        return 1
    counts = np.zeros(_HEAVIEST + 1, np.int64)
    for chunk in rows.chunks():
        counts += np.bincount(np.minimum(chunk.weight, _HEAVIEST), minlength=_HEAVIEST + 1)
    num_heavier = np.cumsum(counts[::-1])[::-1]
    return int(np.argmax(np.append(num_heavier, 0) <= most_entries))


def heaviest_links(rows: RowFile, most_entries: int) -> Adjacency:
    """Read a graph without its lightest links.

    Args:
        rows: The graph.
        most_entries: How many entries there may be; links of one weight are kept or left out
            together.

    Returns:
        The links from some weight on.
    """
    least = _least_weight(rows, most_entries)
    degree = rows.degree.read(0, rows.num_vertices).astype(np.int64)
    indices, weights = [], []
    for chunk in rows.chunks():
        is_kept = chunk.weight >= least
        indices.append(chunk.neighbour[is_kept])
        weights.append(chunk.weight[is_kept])
        if least > 1:
            kept = np.concatenate([[0], np.cumsum(is_kept)])[chunk.indptr]
            degree[chunk.first : chunk.first + kept.size - 1] = np.diff(kept)
    indptr = np.concatenate([[0], np.cumsum(degree)])
    return Adjacency(
        indptr,
        np.concatenate(indices).astype(np.int64) if indices else np.zeros(0, np.int64),
        np.concatenate(weights).astype(np.int64) if weights else np.zeros(0, np.int64),
    )
