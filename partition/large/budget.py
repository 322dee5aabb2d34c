"""Estimates of the memory, disk and time that partitioning from disk takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import scipy.sparse as sp
from numpy.typing import NDArray

from distgnn.datasets.errors import InputError
from distgnn.partition.groups import ROUNDS
from distgnn.partition.large import covers, ordering, windows, writing
from distgnn.partition.large.source import GraphOnDisk
from distgnn.partition.quality import PAIR_BYTES
from distgnn.partition.refine import placement
from distgnn.partition.threads import MOST_THREADS, affordable_threads, available_threads

# The interpreter, the libraries and the compiled code.
FIXED_BYTES = 360 << 20
# Per vertex: its part, three counts, its place, who is there, a local id; and what sorting takes.
VERTEX_BYTES = 32
# Of these, what a pile that is covered, and a part that is written, have of their own.
PILE_VERTEX_BYTES, PART_VERTEX_BYTES = 5, 6
# Reading a slice: two buffers, its records, grouped.
CHUNK_BYTES = 60
MOST_CHUNK_EDGES = 1 << 22
# More take longer: what is sorted no longer fits into caches.
MOST_PILE_EDGES, FEW_PILE_EDGES = 1 << 20, 1 << 16
_PILES_IN_MEMORY = 3
# Largest part over the mean: what is to fit has to fit for it.
SPARE = 1.1
# While a part is ordered or written.
_PART_EDGE_BYTES = max(writing.BYTES_PER_EDGE, ordering.BYTES_PER_EDGE, CHUNK_BYTES)
# In a finished part: both directions and positions; two row pointers, an id and two degrees.
STORED_EDGE_BYTES = 16
STORED_CLONE_BYTES = 40
# While the choice of roots sorts edges by vertex.
ROOTS_EDGE_BYTES = 24
# Clones over vertices, on the safe side; known only at the end.
CLONES_GUESS = 3.0
# Roots of the largest part over the mean: parts share edges more evenly than vertices.
ROOTS_GUESS = 2.0
# Seconds of one core of 2.6 GHz, measured with the twin of ogbn-papers100M at 1/64 to 1/4.
ROOTS_EDGE_S = 0.6e-6
COVER_EDGE_S = 0.6e-6
# Of an edge each time that it is in a window of so many. In larger ones, what is read lies in
# slower memory: 1.3e-6 in windows of 1.3 million edges, 1.5e-6 of 4.2 and 1.9e-6 of 16 million.
REFINE_EDGE_S = 1.15e-6
REFINE_EDGES = 1 << 19
REFINE_GROWTH = 0.14
OTHER_EDGE_S = 0.5e-6
# Features: read from end to end and dealt, 2 million rows of 512 bytes in 1.4 to 3.6 s.
DEAL_BYTE_S = 3e-9
# Share of the edges that lie between parts, as long as they have not been counted.
CUT_GUESS = 0.3


@dataclass(frozen=True)
class Budget:
    """Numbers of edges to hold at a time."""

    free_bytes: int
    """Bytes beside the tables of vertices."""
    chunk_edges: int
    """Edges of a slice of the source."""
    pile_edges: int
    """Edges of a pile of pairs of parts."""
    window_edges: int
    """Edges between parts that are refined together."""


def least_bytes(source: GraphOnDisk, num_parts: int) -> int:
    """Say how much memory is needed at least: the tables of vertices and one part.

    Args:
        source: Source to partition.
        num_parts: Number of parts.

    Returns:
        Bytes.
    """
    # Two parts at a time are refined; of their edges, those inside them stay on disk.
    return _tables_bytes(source, num_parts) + _part_bytes(source, num_parts)


def budget_of(source: GraphOnDisk, num_parts: int, memory_bytes: int) -> Budget:
    """Divide the memory.

    Args:
        source: Source to partition.
        num_parts: Number of parts.
        memory_bytes: Bytes that all may take together.

    Returns:
        Numbers of edges that fit.

    Raises:
        InputError: If the tables of the vertices and one part do not fit.
    """
    least = least_bytes(source, num_parts)
    if memory_bytes < least:
        is_for_pairs = PAIR_BYTES * num_parts**2 > _part_bytes(source, num_parts)
        raise InputError(
            f"{memory_bytes / 2**30:.2f} GiB of memory are not enough for {num_parts} parts of "
            f"{source.edges.num_vertices} vertices and {source.edges.num_edges} edges, which take "
            f"{least / 2**30:.2f} GiB; allow more memory or ask for "
            f"{'fewer' if is_for_pairs else 'more'} parts"
        )
    free = memory_bytes - _tables_bytes(source, num_parts)
    return Budget(
        free_bytes=free,
        chunk_edges=max(min(free // CHUNK_BYTES, MOST_CHUNK_EDGES), 1),
        pile_edges=_pile_edges(source, free),
        window_edges=min(free // windows.BYTES_PER_EDGE, _most_window_edges(source)),
    )


def largest_pile(free_bytes: int) -> int:
    """Say how many edges a pile may hold.

    Args:
        free_bytes: Bytes beside the tables of vertices.

    Returns:
        At least 1.
    """
    return max(min(free_bytes // covers.BYTES_PER_EDGE, MOST_PILE_EDGES), 1)


def _pile_edges(source: GraphOnDisk, free_bytes: int) -> int:
    """Say how many edges piles may hold so that covers of two are found while one is placed.

    Those of few edges are no smaller for that: pairs of parts that do not fit into one are split.
    """
    each = free_bytes // _PILES_IN_MEMORY - PILE_VERTEX_BYTES * source.edges.num_vertices
    few = min(FEW_PILE_EDGES, largest_pile(free_bytes))
    return max(min(each // covers.BYTES_PER_EDGE, MOST_PILE_EDGES), few)


def piles_at_once(source: GraphOnDisk, free_bytes: int, pile_edges: int) -> int:
    """Say of how many piles covers are found at a time; what comes of them is the same.

    Args:
        source: The graph.
        free_bytes: Bytes beside the tables of vertices.
        pile_edges: Edges of the largest pile. One of a hub may have more than was planned.

    Returns:
        At least 1.
    """
    pile_bytes = pile_edges * covers.BYTES_PER_EDGE + PILE_VERTEX_BYTES * source.edges.num_vertices
    # One more is being placed.
    return affordable_threads(available_threads(), pile_bytes, free_bytes - pile_bytes)


def parts_at_once(source: GraphOnDisk, free_bytes: int, part_edges: int) -> int:
    """Say how many parts are ordered, or written, at a time; what comes of them is the same.

    Args:
        source: The graph.
        free_bytes: Bytes beside the tables of vertices.
        part_edges: Edges of the largest part, as many as are held.

    Returns:
        At least 1.
    """
    beside = PART_VERTEX_BYTES * source.edges.num_vertices + part_edges * _PART_EDGE_BYTES
    if source.features is not None or source.has_edge_values:
        # Rows of a slice, those before, and a copy as they are written.
        beside += 3 * writing.SLICE_BYTES
    return affordable_threads(available_threads(), beside, free_bytes)


def _part_bytes(source: GraphOnDisk, num_parts: int) -> int:
    """Bytes of the largest part while it is ordered or written."""
    one_part = int(SPARE * source.edges.num_edges / num_parts) + 1
    return one_part * _PART_EDGE_BYTES


def _most_window_edges(source: GraphOnDisk) -> int:
    """Say how many edges refinement can number, whose ends are at most twice as many vertices."""
    if source.edges.num_vertices <= placement.MOST_VERTICES:
        return placement.MOST_UNITS
    return min(placement.MOST_VERTICES // 2, placement.MOST_UNITS)


def disk_bytes(source: GraphOnDisk, record_bytes: int, num_parts: int) -> int:
    """Estimate the disk that the piles and the partition take together.

    Args:
        source: Source to partition.
        record_bytes: Bytes of an edge in a pile.
        num_parts: Number of parts.

    Returns:
        Bytes, on the safe side.
    """
    edges, vertices = source.edges.num_edges, source.edges.num_vertices
    stored = STORED_EDGE_BYTES + 4 * (source.edge_weight is not None) + 4 * source.num_edge_features
    # Types and degrees in their relation; while these are written anew, they are there twice more.
    stored += 16 * (source.edge_type is not None)
    # A part's features leave their piles when they are written, so those of some are there twice.
    twice = min(ROOTS_GUESS * MOST_THREADS / num_parts, 1)
    features = 4 * _dense_features(source) * (1 + twice)
    per_vertex = STORED_CLONE_BYTES * CLONES_GUESS + features
    parts = int(edges * (SPARE * record_bytes + stored) + vertices * per_vertex)
    return max(parts + _data_bytes(source), ROOTS_EDGE_BYTES * edges)


def seconds(
    num_edges: int, num_cut: int, window_edges: int, *, is_rooted: bool, deal_bytes: int
) -> float:
    """Estimate the time that is left.

    Args:
        num_edges: Number of edges of the graph.
        num_cut: Edges between parts.
        window_edges: Number of these that are refined at once.
        is_rooted: Whether the roots have been chosen.
        deal_bytes: Features that are not dealt to the parts yet.

    Returns:
        Seconds, good to a factor of two or so.
    """
    rounds = 1 if num_cut <= window_edges else ROUNDS
    other = OTHER_EDGE_S + (0.0 if is_rooted else ROOTS_EDGE_S)
    growth: float = max(min(num_cut, window_edges) / REFINE_EDGES, 1.0) ** REFINE_GROWTH
    cut = num_cut * (COVER_EDGE_S + REFINE_EDGE_S * growth * rounds)
    return num_edges * other + cut + deal_bytes * DEAL_BYTE_S


def _tables_bytes(source: GraphOnDisk, num_parts: int) -> int:
    vertices = VERTEX_BYTES * source.edges.num_vertices + _data_bytes(source)
    return FIXED_BYTES + vertices + PAIR_BYTES * num_parts**2


def _dense_features(source: GraphOnDisk) -> int:
    return 0 if source.features is None else source.features.num_columns


def _data_bytes(source: GraphOnDisk) -> int:
    """Labels, masks, ids, types and sparse features, which are mapped as a whole."""
    vertices = source.vertices
    arrays: list[NDArray[Any] | None] = [
        vertices.labels,
        vertices.train_mask,
        vertices.val_mask,
        vertices.test_mask,
        vertices.vertex_id,
        vertices.vertex_type,
    ]
    sparse = vertices.features
    if isinstance(sparse, sp.csr_matrix):
        arrays += [sparse.indptr, sparse.indices, sparse.data]
    return sum(array.nbytes for array in arrays if array is not None)
