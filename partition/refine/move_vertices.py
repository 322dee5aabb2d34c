"""Moves of roots, together with the edges of the vertex that lived there."""

from __future__ import annotations

from distgnn.partition.jit import borrow, compiled
from distgnn.partition.refine.moves import find, move, move_root
from distgnn.partition.refine.placement import (
    DUE_ROOT,
    DUE_SLOTS,
    Limits,
    Placement,
    crowding,
    has,
    most_crowding,
    twin,
    weight_of,
)
from distgnn.partition.refine.slot_plan import NOWHERE, Scratch

# Units at the root's part over those at another beyond which moving a root was seldom worth trying.
MOST_AT_HOME = 8


@compiled
def move_vertices(
    placement: Placement, scratch: Scratch, limits: Limits, bounds: tuple[int, int]
) -> int:
    """Try once to move every root, and the edges beside it, to the part of most of its neighbors.

    Args:
        placement: Changed.
        scratch: Clean work arrays.
        limits: Limits that no part may exceed.
        bounds: A price and the most rows in all. With price 0 a move must save rows. Otherwise only
            vertices of overfull and crowded parts move, and each may add fewer rows than the price.

    Returns:
        Number of vertices moved.
    """
    placement, scratch = borrow(placement), borrow(scratch)
    price, most_rows = bounds
    num_moves = 0
    for vertex in range(placement.num_vertices):
        home = placement.slot_part[placement.first[vertex]]
        if price > 0:
            is_crowded = placement.clones[home] * placement.load.size > (
                limits.clones * placement.totals[1]
            )
            if placement.load[home] <= limits.load and not is_crowded:
                continue
        elif not (_is_due(placement, vertex) and _is_torn(placement, vertex)):
            continue
        goal = _goal(placement, scratch, limits, vertex)
        if goal != NOWHERE:
            change = _change(placement, vertex, goal)
            if change < price and placement.totals[0] + max(change, 0) <= most_rows:
                num_moves += _try_move(placement, scratch, limits, (vertex, goal))
    return num_moves


@compiled
def _is_torn(placement: Placement, vertex: int) -> bool:
    """Tell whether the root's part holds few enough units to let a move to another pay."""
    at_home, away = 0, 0
    for node in range(vertex, placement.used.size, placement.num_vertices):
        begin = placement.first[node]
        at_home += placement.slot_count[begin]
        for slot in range(begin + 1, begin + placement.used[node]):
            away = max(away, placement.slot_count[slot])
    return away > 0 and at_home <= MOST_AT_HOME * away


@compiled
def _goal(placement: Placement, scratch: Scratch, limits: Limits, vertex: int) -> int:
    """Part, with room for them, of most of the neighbors at the root's part; and of most edges."""
    home = placement.slot_part[placement.first[vertex]]
    # Edges from the vertex to itself go wherever its root goes.
    of_loops = 0
    for node in range(vertex, placement.used.size, placement.num_vertices):
        begin = placement.first[node]
        for slot in range(begin, begin + placement.used[node]):
            scratch.tally[placement.slot_part[slot]] += placement.slot_count[slot]
        for k in range(placement.start[node], placement.start[node + 1]):
            if placement.part[k] == home:
                other = placement.neighbor[k]
                is_loop = other in (node, twin(placement, node))
                if is_loop and node == vertex:  # the other node has an entry for it, too
                    of_loops += weight_of(placement, k)
                begin = placement.first[other]
                for slot in range(begin, begin + placement.used[other]):
                    scratch.tally[placement.slot_part[slot]] += 1
                    if not is_loop:
                        scratch.pending[placement.slot_part[slot]] += weight_of(placement, k)
    best, most = NOWHERE, 0
    training = placement.training[vertex] if placement.training.size > 0 else 0
    for part in range(scratch.tally.size):
        if (
            part != home
            and scratch.tally[part] > most
            and placement.load[part] + scratch.pending[part] + of_loops <= limits.load
            and placement.roots[part] < limits.roots
            and (training == 0 or placement.trained[part] + training <= limits.trained)
        ):
            best, most = part, scratch.tally[part]
    scratch.tally[:] = 0
    scratch.pending[:] = 0
    return best


@compiled
def _change(placement: Placement, vertex: int, goal: int) -> int:
    """Rows added if the root moves with the edges at home whose other ends are at the goal."""
    home = placement.slot_part[placement.first[vertex]]
    change = 0
    for node in range(vertex, placement.used.size, placement.num_vertices):
        if has(placement.held, node, goal):
            change -= 1
        is_staying = False
        for k in range(placement.start[node], placement.start[node + 1]):
            if placement.part[k] != home:
                continue
            other = placement.neighbor[k]
            if other not in (node, twin(placement, node)) and not has(placement.held, other, goal):
                is_staying = True
            elif other != node:
                slot = find(placement, other, home)
                if slot > placement.first[other] and placement.slot_count[slot] == 1:
                    change -= 1
        change += is_staying
    return change * placement.price


@compiled
def _try_move(placement: Placement, scratch: Scratch, limits: Limits, way: tuple[int, int]) -> bool:
    """Move a vertex to a part; undo it if the clones get uneven."""
    vertex, goal = way
    home = placement.slot_part[placement.first[vertex]]
    most = most_crowding(placement, limits)
    move_root(placement, vertex, goal)
    num_moved = 0
    for node in range(vertex, placement.used.size, placement.num_vertices):
        for k in range(placement.start[node], placement.start[node + 1]):
            if placement.part[k] == home and has(placement.held, placement.neighbor[k], goal):
                scratch.entry[num_moved] = k
                num_moved += 1
                move(placement, node, k, goal)
    if crowding(placement) <= most:
        _make_due(placement, vertex)
        return True
    for i in range(num_moved):
        k = scratch.entry[i]
        node = vertex if k < placement.start[vertex + 1] else twin(placement, vertex)
        move(placement, node, k, home)
    move_root(placement, vertex, home)
    return False


@compiled
def _make_due(placement: Placement, vertex: int) -> None:
    """Note that a vertex and its neighbours may move again."""
    for node in range(vertex, placement.used.size, placement.num_vertices):
        placement.is_due[node] = DUE_SLOTS | DUE_ROOT
        for k in range(placement.start[node], placement.start[node + 1]):
            placement.is_due[placement.neighbor[k]] = DUE_SLOTS | DUE_ROOT


@compiled
def _is_due(placement: Placement, vertex: int) -> bool:
    """Tell whether something changed at the vertex since its root was tried; it is tried now."""
    is_due = False
    for node in range(vertex, placement.used.size, placement.num_vertices):
        is_due |= (placement.is_due[node] & DUE_ROOT) != 0
        placement.is_due[node] &= DUE_SLOTS
    return is_due
