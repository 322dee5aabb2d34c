"""Assignments of arcs that compete: refined, counted and chosen among."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from distgnn.partition import refine as refinement
from distgnn.partition.assignment import Assignment
from distgnn.partition.halo import distinct_slots

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from distgnn.partition.arcs import Arcs
    from distgnn.partition.balance import Balance


def refined_from(arcs: Arcs, placed: Assignment, balance: Balance, more_rows: int) -> Assignment:
    """Refine an assignment.

    Args:
        arcs: Of the graph.
        placed: Where to begin.
        balance: What to aim at.
        more_rows: Rows that balance of edges may cost.

    Returns:
        Another assignment of the arcs.
    """
    num_parts = placed.num_parts
    arc_part, root_part = refinement.refine_arcs(
        arcs,
        (placed.edge_part, placed.root_part),
        num_parts,
        edge_balance=balance.edges,
        more_rows=more_rows,
        training=balance.training,
    )
    return Assignment(num_parts, arc_part, root_part)


def cheapest(arcs: Arcs, found: Sequence[Assignment], edge_balance: float) -> Assignment:
    """Choose by edges above the limit in the fullest part, then by rows.

    Args:
        arcs: Of the graph.
        found: One or more assignments of them.
        edge_balance: Largest part's edges over the mean that is aimed at.

    Returns:
        One of those.
    """
    if len(found) == 1:
        return found[0]
    return min(found, key=lambda one: (excess_edges(arcs, one, edge_balance), halo_rows(arcs, one)))


def excess_edges(arcs: Arcs, placed: Assignment, edge_balance: float) -> int:
    """Count the edges above the limit in the fullest part.

    Args:
        arcs: Of the graph.
        placed: An assignment of the arcs.
        edge_balance: Largest part's edges over the mean.

    Returns:
        0 where the limit is kept.
    """
    num_parts = placed.num_parts
    largest = int(np.bincount(placed.edge_part, arcs.weight, minlength=num_parts).max())
    return max(largest - refinement.most_edges(arcs.of_edge.size, num_parts, edge_balance), 0)


def halo_rows(arcs: Arcs, placed: Assignment) -> int:
    """Count the rows that travel in a layer, raw ones and partial sums."""
    return rows_away(arcs.sources(), placed) + rows_away(arcs.head, placed)


def rows_away(ends: NDArray[np.int32], placed: Assignment) -> int:
    """Count the slots of these ends of the arcs that are away from their roots."""
    slots = distinct_slots(ends, placed.edge_part, placed.root_part.size)
    return slots.away_from(placed.root_part).vertex.size
