"""Assignments of arcs that compete: refined, counted and chosen among."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from distgnn import _partitioner
from distgnn.partition.arcs import edges_of_parts, take_parts
from distgnn.partition.assignment import Assignment
from distgnn.partition.refine import refinement
from distgnn.partition.stream import no_clones
from distgnn.partition.threads import over_items, over_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from distgnn.partition.arcs import Arcs
    from distgnn.partition.refine.balance import Balance


def refined_from(
    arcs: Arcs, placed: Assignment, balance: Balance, more_rows: int, *, seed: int = 0
) -> Assignment:
    """Refine an assignment.

    Args:
        arcs: Arcs of the graph.
        placed: Where to begin.
        balance: Balance to aim at.
        more_rows: Rows that balance of edges may cost.
        seed: Seed of the moves that save nothing by themselves.

    Returns:
        Another assignment of the arcs.
    """
    num_parts = placed.num_parts
    arc_part, root_part = refinement.refine_arcs(
        arcs,
        (placed.edge_part, placed.root_part),
        num_parts,
        edge_balance=balance.edges,
        vertex_balance=balance.vertices,
        more_rows=more_rows,
        training=balance.training,
        seed=seed,
    )
    return Assignment(num_parts, arc_part, root_part)


def polished(arcs: Arcs, placed: Assignment, balance: Balance, times: int) -> Assignment:
    """Refine again and again, with another seed each time, from the best that was found.

    Args:
        arcs: Arcs of the graph.
        placed: Where to begin.
        balance: Balance to aim at.
        times: How often.

    Returns:
        `placed`, or another assignment of the arcs.
    """
    if placed.num_parts == 1 or arcs.head.size == 0:
        return placed
    for seed in range(1, times + 1):
        refined = refined_from(arcs, placed, balance, 0, seed=seed)
        placed = cheapest(arcs, (placed, refined), balance.edges)
    return placed


def cheapest(arcs: Arcs, found: Sequence[Assignment], edge_balance: float) -> Assignment:
    """Choose by edges above the limit in the fullest part, then by rows.

    Clones of the fullest part above their limit, over the mean, add as much to the rows.

    Args:
        arcs: Arcs of the graph.
        found: One or more assignments of them.
        edge_balance: Largest part's edges over the mean that is aimed at.

    Returns:
        One of those.
    """
    if len(found) == 1:
        return found[0]

    def cost(one: Assignment) -> tuple[int, float]:
        beyond = max(_crowding(arcs, one) - refinement.CLONE_BALANCE, 0.0)
        return excess_edges(arcs, one, edge_balance), halo_rows(arcs, one) * (1.0 + beyond)

    return min(found, key=cost)


def is_even(placed: Assignment, balance: Balance) -> bool:
    """Return whether no part has more roots than is aimed at, or than the mean rounded up."""
    num_parts, num_vertices = placed.num_parts, placed.root_part.size
    most = max(
        math.floor(balance.vertices * num_vertices / num_parts), -(-num_vertices // num_parts)
    )
    return _most_roots(placed) <= most


def keeps_balances(arcs: Arcs, found: Assignment, balance: Balance, than: Assignment) -> bool:
    """Return whether roots and clones are as even as is aimed at, or as those of another one.

    Args:
        arcs: Arcs of the graph.
        found: An assignment of them.
        balance: Balance to aim at.
        than: Another assignment.
    """
    roots_are_even = is_even(found, balance) or _most_roots(found) <= _most_roots(than)
    return roots_are_even and _crowding(arcs, found) <= max(
        refinement.CLONE_BALANCE, _crowding(arcs, than)
    )


def _most_roots(placed: Assignment) -> int:
    return int(np.bincount(placed.root_part, minlength=1).max())


def _crowding(arcs: Arcs, placed: Assignment) -> float:
    """Clones of the fullest part over the mean."""
    clones = clones_of_parts(arcs, placed)
    return float(clones.max() / clones.mean())


def clones_of_parts(arcs: Arcs, placed: Assignment) -> NDArray[np.int64]:
    """Count clones.

    Args:
        arcs: Arcs of the graph.
        placed: An assignment of the arcs.

    Returns:
        (num_parts,) int64. Roots and leaves of each part.
    """
    is_there = no_clones(arcs.num_vertices, placed.num_parts)
    given = arcs.start, arcs.head, placed.edge_part, placed.root_part, is_there, placed.num_parts
    clones: NDArray[np.int64] = np.sum(
        over_rows(_partitioner.count_clones, arcs.start, *given), axis=0
    )
    return clones


def excess_edges(arcs: Arcs, placed: Assignment, edge_balance: float) -> int:
    """Count the edges above the limit in the fullest part.

    Args:
        arcs: Arcs of the graph.
        placed: An assignment of the arcs.
        edge_balance: Largest part's edges over the mean.

    Returns:
        0 where the limit is kept.
    """
    num_parts = placed.num_parts
    largest = int(edges_of_parts(placed.edge_part, arcs.weight, num_parts).max())
    return max(largest - refinement.most_edges(arcs.of_edge.size, num_parts, edge_balance), 0)


def halo_rows(arcs: Arcs, placed: Assignment) -> int:
    """Count the rows that travel in a layer, raw ones and partial sums."""
    is_written = no_clones(arcs.num_vertices, placed.num_parts)
    given = arcs.head, placed.edge_part, placed.root_part, is_written
    written = over_items(_partitioner.rows_written, arcs.head.size, *given)
    return rows_read(arcs, placed) + sum(written)


def at_destination(arcs: Arcs, placed: Assignment) -> Assignment:
    """Move every arc to the root of its head, as an edge cut has them."""
    return Assignment(placed.num_parts, take_parts(placed.root_part, arcs.head), placed.root_part)


def rows_read(arcs: Arcs, placed: Assignment) -> int:
    """Count the raw rows that travel in a layer: parts where a vertex is a source, but its own."""
    given = arcs.start, placed.edge_part, placed.root_part, placed.num_parts
    return sum(over_rows(_partitioner.rows_read, arcs.start, *given))
