"""Moves of roots, together with the edges of the vertex that lived there."""

from __future__ import annotations

from distgnn.partition.empty_slots import NOWHERE, Scratch, crowding
from distgnn.partition.jit import compiled
from distgnn.partition.placement import Limits, Placement, find, move, move_root, twin

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
        limits: What no part may pass.
        bounds: A price and the most rows in all. With price 0 a move must save rows; otherwise only
            vertices of overfull and crowded parts move, and each may add fewer rows than the price.

    Returns:
        Number of vertices moved.
    """
    num_vertices = placement.used.size // 2
    price, most_rows = bounds
    num_moves = 0
    for vertex in range(num_vertices):
        home = placement.slot_part[placement.first[vertex]]
        if price > 0:
            is_crowded = placement.clones[home] * placement.load.size > (
                limits.clones * placement.totals[1]
            )
            if placement.load[home] <= limits.load and not is_crowded:
                continue
        elif not _is_torn(placement, vertex):
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
    for node in (vertex, twin(placement, vertex)):
        begin = placement.first[node]
        at_home += placement.slot_count[begin]
        for slot in range(begin + 1, begin + placement.used[node]):
            away = max(away, placement.slot_count[slot])
    return away > 0 and at_home <= MOST_AT_HOME * away


@compiled
def _goal(placement: Placement, scratch: Scratch, limits: Limits, vertex: int) -> int:
    """Part, with room for them, of most of the neighbors at the root's part; and of most edges."""
    home = placement.slot_part[placement.first[vertex]]
    for node in (vertex, twin(placement, vertex)):
        begin = placement.first[node]
        for slot in range(begin, begin + placement.used[node]):
            scratch.tally[placement.slot_part[slot]] += placement.slot_count[slot]
        for k in range(placement.start[node], placement.start[node + 1]):
            unit = placement.unit[k]
            if placement.part[unit] == home:
                other = placement.source[unit] + placement.destination[unit] - node
                begin = placement.first[other]
                for slot in range(begin, begin + placement.used[other]):
                    scratch.tally[placement.slot_part[slot]] += 1
                    scratch.pending[placement.slot_part[slot]] += placement.weight[unit]
    best, most = NOWHERE, 0
    for part in range(scratch.tally.size):
        if (
            part != home
            and scratch.tally[part] > most
            and placement.load[part] + scratch.pending[part] <= limits.load
            and placement.roots[part] < limits.roots
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
    for node in (vertex, twin(placement, vertex)):
        if find(placement, node, goal) >= 0:
            change -= 1
        is_staying = False
        for k in range(placement.start[node], placement.start[node + 1]):
            unit = placement.unit[k]
            if placement.part[unit] != home:
                continue
            other = placement.source[unit] + placement.destination[unit] - node
            if other != twin(placement, node) and find(placement, other, goal) < 0:
                is_staying = True
            else:
                slot = find(placement, other, home)
                if slot > placement.first[other] and placement.slot_count[slot] == 1:
                    change -= 1
        change += is_staying
    return change


@compiled
def _try_move(placement: Placement, scratch: Scratch, limits: Limits, way: tuple[int, int]) -> bool:
    """Move a vertex to a part; undo it if the clones get uneven."""
    vertex, goal = way
    home = placement.slot_part[placement.first[vertex]]
    most = max(crowding(placement), limits.clones)
    move_root(placement, vertex, goal)
    for node in (vertex, twin(placement, vertex)):
        for k in range(placement.start[node], placement.start[node + 1]):
            unit = placement.unit[k]
            other = placement.source[unit] + placement.destination[unit] - node
            is_moving = placement.part[unit] == home and find(placement, other, goal) >= 0
            scratch.target[k] = home if is_moving else NOWHERE
            if is_moving:
                move(placement, unit, goal)
    if crowding(placement) <= most:
        return True
    for node in (vertex, twin(placement, vertex)):
        for k in range(placement.start[node], placement.start[node + 1]):
            if scratch.target[k] == home:
                move(placement, placement.unit[k], home)
    move_root(placement, vertex, home)
    return False
