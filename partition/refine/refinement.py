"""Refinement of any assignment: the same edges and roots, moved where fewer rows travel."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from distgnn.datasets.errors import InputError
from distgnn.datasets.graph import Graph
from distgnn.partition.arcs import Arcs, split_arcs_of
from distgnn.partition.assignment import Assignment, random_numbers
from distgnn.partition.refine.balance import most_training
from distgnn.partition.refine.drain import drain
from distgnn.partition.refine.passes import empty_slots, move_vertices, wander
from distgnn.partition.refine.placement import Limits, Placement, placement_of
from distgnn.partition.refine.scratch import Scratch, scratch_of
from distgnn.partition.stopwatch import Stopwatch

EDGE_BALANCE = 1.05
CLONE_BALANCE = 1.5
VERTEX_BALANCE = 1.25
MAX_PASSES = 12
# A pass that saves a smaller share of the rows is the last. On Reddit's twin at 1/4, 16 parts,
# 0.003 took a ninth more time and left 0.3 % fewer rows, at 1/16 0.5 % more, elsewhere as many.
LEAST_SAVING = 0.006
# Passes that wander save less each and are cheaper; on products' twin at 1/16, 16 parts, 0.001
# saved half a percent more rows in another third of their time.
LEAST_SAVING_BY_WANDERING = 0.002
# Moves of roots that save a smaller share of them are the last.
LEAST_SAVING_BY_ROOTS = 0.001


def refine(
    graph: Graph,
    assignment: Assignment,
    *,
    edge_balance: float = EDGE_BALANCE,
    clone_balance: float = CLONE_BALANCE,
    more_rows: int = 0,
) -> Assignment:
    """Move edges, a slot at a time, and roots, so that fewer rows travel.

    Each pass first drains parts that hold too many edges, then tries to empty every slot that rows
    travel for. Once that saves little, passes also make moves that save nothing by themselves. The
    outcome depends neither on the order of the edges nor on the number of threads.

    Args:
        graph: The graph.
        assignment: Where its edges and roots live.
        edge_balance: Largest part's edges over the mean, rounded up to whole edges.
        clone_balance: Largest part's clones over the mean.
        more_rows: How many rows may be added if parts hold too many edges.

    Returns:
        An assignment with at most as many rows (plus `more_rows`), within the balances where the
        given one was.

    Raises:
        InputError: If a balance is below 1, or the assignment is of another graph.

    References:
        Fiduccia and Mattheyses, "A linear-time heuristic for improving network partitions",
        DAC 1982 (moves and their gains).
    """
    for name, value in (("edge_balance", edge_balance), ("clone_balance", clone_balance)):
        if not value >= 1.0:
            raise InputError(f"{name} must be at least 1, got {value}; 1 is perfect balance")
    assignment.check_graph(graph)
    if assignment.num_parts == 1 or graph.num_edges == 0:
        return assignment
    arcs, arc_part = split_arcs_of(graph, assignment.edge_part)
    refined, root_part = refine_arcs(
        arcs,
        (arc_part, assignment.root_part),
        assignment.num_parts,
        edge_balance=edge_balance,
        clone_balance=clone_balance,
        more_rows=more_rows,
    )
    return Assignment(assignment.num_parts, refined[arcs.of_edge], root_part)


def refine_arcs(
    arcs: Arcs,
    parts: tuple[NDArray[np.int32], NDArray[np.int32]],
    num_parts: int,
    *,
    edge_balance: float = EDGE_BALANCE,
    clone_balance: float = CLONE_BALANCE,
    vertex_balance: float = VERTEX_BALANCE,
    more_rows: int = 0,
    training: NDArray[np.int32] | None = None,
    seed: int = 0,
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Refine as `refine` does, arcs instead of edges.

    Args:
        arcs: Arcs of the graph, at least one.
        parts: (num_arcs,) and (num_vertices,) int32. Parts of the arcs and of the roots.
        num_parts: At least 2.
        edge_balance: Largest part's edges over the mean, as for `refine`.
        clone_balance: The same.
        vertex_balance: Largest part's roots over the mean up to which roots move there.
        more_rows: How many rows may be added, as for `refine`.
        training: (num_vertices,) int32. Splits that each vertex is trained on in, if no part is to
            get more of these roots than its share; None if that does not matter.
        seed: Seed of the moves that save nothing by themselves.

    Returns:
        New parts of the arcs and of the roots.
    """
    num_vertices, num_edges = arcs.num_vertices, arcs.of_edge.size
    placement = placement_of(arcs, *parts, num_parts, training)
    limits = Limits(
        load=most_edges(num_edges, num_parts, edge_balance),
        clones=clone_balance,
        roots=math.floor(min(vertex_balance * num_vertices / num_parts, num_vertices)),
        trained=0 if training is None else most_training(training, num_parts),
    )
    improve(placement, limits, int(placement.totals[0]) + more_rows, seed)
    root_part = placement.slot_part[placement.first[:num_vertices]]
    return placement.part[: arcs.head.size], root_part


def refine_after(
    graph: Graph,
    assignment: Assignment,
    *,
    edge_balance: float | None,
    progress: Callable[[str], None] | None,
) -> Assignment:
    """Refine as a step of its own, after a method or a user's own parts.

    A balance that is asked for is worth rows; the default one is not, so that no rows are added.

    Args:
        graph: The graph.
        assignment: Where its edges and roots live.
        edge_balance: Largest part's edges over the mean; None for EDGE_BALANCE.
        progress: Called with one line of text at the end, and another if a part is above the
            balance.

    Returns:
        The refined assignment.

    Raises:
        InputError: If the balance is below 1, or the assignment is of another graph.
    """
    watch = Stopwatch(progress)
    cap = EDGE_BALANCE if edge_balance is None else edge_balance
    refined = refine(graph, assignment, edge_balance=cap)
    most = most_edges(graph.num_edges, refined.num_parts, cap)
    if edge_balance is not None and _fullest(refined) > most:
        # An edge has two ends, so that no more rows than these can be added.
        refined = refine(graph, refined, edge_balance=cap, more_rows=2 * graph.num_edges)
    watch.note("refined")
    if progress is not None and _fullest(refined) > most:
        advice = "; --imbalance pays with rows for balance" if edge_balance is None else ""
        progress(
            f"the fullest part holds {_fullest(refined)} edges, above the {most} that a balance of "
            f"{cap} allows{advice}"
        )
    return refined


def _fullest(assignment: Assignment) -> int:
    """Count the edges of the fullest part."""
    return int(np.bincount(assignment.edge_part, minlength=1).max())


def most_edges(num_edges: int, num_parts: int, edge_balance: float) -> int:
    """Say how many edges a part may hold.

    Args:
        num_edges: Number of edges of the graph.
        num_parts: At least 1.
        edge_balance: Largest part's edges over the mean.

    Returns:
        Whole edges, at least the mean rounded up.
    """
    mean = num_edges / num_parts
    return max(math.ceil(mean), math.floor(min(edge_balance * mean, num_edges)))


def improve(
    placement: Placement,
    limits: Limits,
    most_rows: int,
    seed: int = 0,
    *,
    least_by_wandering: float = LEAST_SAVING_BY_WANDERING,
) -> None:
    """Run passes until one saves little, then others that also make moves without a saving.

    Args:
        placement: Changed.
        limits: Limits of all parts; without roots, none of these moves.
        most_rows: No more rows than these are made where parts hold too many edges.
        seed: Seed of the moves that save nothing by themselves.
        least_by_wandering: Share of the rows that a pass with such moves saves, unless it is the
            last.
    """
    scratch = scratch_of(placement)
    steps: tuple[tuple[Callable[[Placement, Scratch, Limits], object], float], ...] = (
        (empty_slots, LEAST_SAVING),
        (partial(wander, generator=random_numbers(seed)), least_by_wandering),
    )
    for step, least_saving in steps:
        has_moving_roots = limits.roots > 0
        for _ in range(MAX_PASSES):
            drain(placement, scratch, limits, most_rows)
            rows = int(placement.totals[0])
            step(placement, scratch, limits)
            if has_moving_roots:
                before = int(placement.totals[0])
                move_vertices(placement, scratch, limits, price=0, most_rows=most_rows)
                saving = before - int(placement.totals[0])
                has_moving_roots = saving > LEAST_SAVING_BY_ROOTS * before
            if rows - placement.totals[0] <= least_saving * rows:
                break
        # Later passes may spend on balance the rows that they save, and so never end with more.
        most_rows = int(placement.totals[0])
