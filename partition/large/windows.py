"""Refinement in windows: all edges between parts that live on a few parts, moved among these.

An edge whose ends have their roots on the same part stays, for it costs no row anywhere. So a
window holds only the edges between parts. They tell exactly which rows each part of the window
reads and writes. Parts outside are left alone, so a move saves as many rows of the whole as it
saves in the window.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from distgnn.partition.arcs import split_arcs_of
from distgnn.partition.large.local import local_graph
from distgnn.partition.large.piles import Records
from distgnn.partition.refine.placement import Limits, Placement, placement_of
from distgnn.partition.refine.refinement import (
    CLONE_BALANCE,
    LEAST_SAVING_BY_WANDERING,
    improve,
)

# A placement with its work arrays, a graph, and the records.
BYTES_PER_EDGE = 170
MOST_CLONES = 0.95 * CLONE_BALANCE
"""Clones of a part over their mean, up to which it takes in more.

Less than the balance that is aimed at, since the mean falls in later windows.
"""
# Where a part is in more windows than one, passes may end sooner. On a 64th of papers' twin windows
# took a quarter more time with 0.002, for 1 % fewer rows.
_LEAST_BY_WANDERING = 0.004


@dataclass(frozen=True, eq=False)
class Window:
    """Edges that are refined together."""

    parts: NDArray[np.int64]
    """(num_in_window,) int64, ascending."""
    records: Records
    """(num_edges,) edges between parts."""
    edge_part: NDArray[np.int32]
    """(num_edges,) int32. Which of `parts` each edge lives on, by its number there."""


@dataclass(frozen=True, eq=False)
class WindowFacts:
    """Facts about all parts that a window needs."""

    root_part: NDArray[np.int32]
    """(num_vertices,) int32. Part of each vertex's root."""
    inner: NDArray[np.int64]
    """(num_parts,) int64. Edges inside each part."""


def clones_of(records: Records, part: int, root_part: NDArray[np.int32]) -> tuple[int, int]:
    """Count leaves.

    Args:
        records: The edges between parts that live on a part.
        part: Its number.
        root_part: (num_vertices,) int32.

    Returns:
        leaves: Vertices whose roots are elsewhere.
        rows: Reading leaves and writing leaves.
    """
    is_leaf = np.zeros((2, root_part.size), np.bool_)
    for row, ends in zip(is_leaf, (records["src"], records["dst"]), strict=True):
        row[ends[root_part[ends] != part]] = True
    rows = int(np.count_nonzero(is_leaf))
    np.logical_or(is_leaf[0], is_leaf[1], out=is_leaf[0])
    return int(np.count_nonzero(is_leaf[0])), rows


def refine_window(
    window: Window,
    whole: WindowFacts,
    clones: NDArray[np.int64],
    *,
    most_edges: int,
    more_rows: int,
) -> tuple[NDArray[np.int32], NDArray[np.int64], int]:
    """Move edges among the parts of a window.

    Args:
        window: The edges.
        whole: Facts about all parts.
        clones: (num_parts,) int64. Clones of all parts.
        most_edges: Number of edges that a part may hold.
        more_rows: Number of rows that may be added if parts hold too many edges or clones.

    Returns:
        edge_part: (num_edges,) int32. Part of each edge after the moves, as in the window.
        clones: (num_in_window,) int64. Clones of its parts after the moves.
        rows: Number of rows that are saved.
    """
    if not window.records.size:
        return window.edge_part, clones[window.parts], 0
    placement, arc_of_edge = _placement(window, whole)
    placement.load[:-1] += whole.inner[window.parts]
    # No part outside has room, and none is too full.
    placement.load[-1] = most_edges
    placement.clones[:-1] = clones[window.parts]
    # Crowding is clones over their mean: keep the mean of all parts.
    placement.clones[-1] = 0
    placement.totals[1] = round(clones.mean() * placement.clones.size)
    before = int(placement.totals[0])
    # Roots stay: their edges inside a part are not here.
    limits = Limits(most_edges, MOST_CLONES, 0)
    holds_all = window.parts.size == whole.inner.size
    least = LEAST_SAVING_BY_WANDERING if holds_all else _LEAST_BY_WANDERING
    improve(placement, limits, before + more_rows, least_by_wandering=least)
    saved = before - int(placement.totals[0])
    return placement.part[arc_of_edge], placement.clones[:-1].copy(), saved


def _placement(window: Window, whole: WindowFacts) -> tuple[Placement, NDArray[np.int32]]:
    """Count slots, with one more part that stands for all others: the roots that are there."""
    outside = window.parts.size
    number = np.full(whole.inner.size, outside, np.int32)
    number[window.parts] = np.arange(outside, dtype=np.int32)
    graph, vertices = local_graph(window.records, whole.root_part.size)
    arcs, arc_part = split_arcs_of(graph, window.edge_part)
    placement = placement_of(arcs, arc_part, number[whole.root_part[vertices]], outside + 1)
    return placement, arcs.of_edge
