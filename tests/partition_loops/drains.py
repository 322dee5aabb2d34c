"""Roots moved, and edges taken out of overfull parts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from distgnn.partition.refine.placement import Limits, Placement
from distgnn.partition.refine.scratch import Scratch
from partition_loops.placement import (
    DUE_ROOT,
    DUE_SLOTS,
    crowding,
    find,
    has,
    most_crowding,
    move,
    move_root,
    twin,
    weight_of,
)
from partition_loops.plans import NOWHERE, list_by_part, plan

MOST_BEGUN = 8
MOST_AT_HOME = 8


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


def _is_torn(placement: Placement, vertex: int) -> bool:
    """Return whether the root's part holds few enough units to let a move to another pay."""
    at_home, away = 0, 0
    for node in range(vertex, placement.used.size, placement.num_vertices):
        begin = placement.first[node]
        at_home += placement.slot_count[begin]
        for slot in range(begin + 1, begin + placement.used[node]):
            away = max(away, placement.slot_count[slot])
    return away > 0 and at_home <= MOST_AT_HOME * away


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
        _make_all_due(placement, vertex)
        return True
    for i in range(num_moved):
        k = scratch.entry[i]
        node = vertex if k < placement.start[vertex + 1] else twin(placement, vertex)
        move(placement, node, k, home)
    move_root(placement, vertex, home)
    return False


def _make_all_due(placement: Placement, vertex: int) -> None:
    """Note that a vertex and its neighbours may move again."""
    for node in range(vertex, placement.used.size, placement.num_vertices):
        placement.is_due[node] = DUE_SLOTS | DUE_ROOT
        for k in range(placement.start[node], placement.start[node + 1]):
            placement.is_due[placement.neighbor[k]] = DUE_SLOTS | DUE_ROOT


def _is_due(placement: Placement, vertex: int) -> bool:
    """Return whether something changed at the vertex since its root was tried; it is tried now."""
    is_due = False
    for node in range(vertex, placement.used.size, placement.num_vertices):
        is_due |= (placement.is_due[node] & DUE_ROOT) != 0
        placement.is_due[node] &= DUE_SLOTS
    return is_due


def _empty_crowded(
    placement: Placement, scratch: Scratch, limits: Limits, bounds: tuple[int, int]
) -> None:
    """Empty slots in parts with too many clones, for up to bounds[0] slots each elsewhere.

    No more rows than bounds[1] are made in all.
    """
    slack, most_rows = bounds
    num_parts = placement.load.size
    for node in range(placement.used.size):
        begin = placement.first[node]
        for slot in range(begin + placement.used[node] - 1, begin, -1):
            part = placement.slot_part[slot]
            if placement.clones[part] * num_parts <= limits.clones * placement.totals[1]:
                continue
            list_by_part(placement, scratch, node)
            change = plan(placement, scratch, limits, (node, part, slack))
            rows = placement.totals[0] + change * placement.price
            if change <= slack and (change <= 0 or rows <= most_rows):
                _try_to_leave(placement, scratch, limits, (node, part))


def _try_to_leave(
    placement: Placement, scratch: Scratch, limits: Limits, which: tuple[int, int]
) -> None:
    """Move a slot's units as planned; undo it if other parts get too many clones."""
    node, part = which
    most, clones = most_crowding(placement, limits), placement.clones[part]
    for i in range(scratch.begin[part], scratch.end[part]):
        move(placement, node, scratch.entry[i], scratch.target[i])
    if placement.clones[part] < clones and crowding(placement) <= most:
        placement.is_due[node] = DUE_SLOTS | DUE_ROOT
        for i in range(scratch.begin[part], scratch.end[part]):
            placement.is_due[placement.neighbor[scratch.entry[i]]] = DUE_SLOTS | DUE_ROOT
        return
    for i in range(scratch.begin[part], scratch.end[part]):
        move(placement, node, scratch.entry[i], part)


def _drain_for_free(placement: Placement, limits: Limits) -> None:
    most = most_crowding(placement, limits)
    held, neighbor, load = placement.held, placement.neighbor, placement.load
    parts, mate, slot_part = placement.part, placement.mate, placement.slot_part
    for node in range(placement.used.size):
        for k in range(placement.start[node], placement.start[node + 1]):
            home, other = parts[k], neighbor[k]
            # Every unit once, at its first entry.
            if mate[k] < k or load[home] <= limits.load:
                continue
            best, best_load = NOWHERE, limits.load - weight_of(placement, k)
            begin = placement.first[node]
            for slot in range(begin, begin + placement.used[node]):
                part = slot_part[slot]
                is_there = (held[other, part >> 6] >> np.uint64(part & 63)) & np.uint64(1)
                if is_there and part != home and load[part] <= best_load:
                    best, best_load = part, load[part]
            if best != NOWHERE:
                most = _move_evenly(placement, limits, (node, k, best), most)


def _drain_by_slots(
    placement: Placement, scratch: Scratch, limits: Limits, bounds: NDArray[np.int64]
) -> bool:
    """Make every slot that lets at least bounds[0] edges go, up to bounds[1] rows in all.

    Returns:
        Whether there was one.
    """
    has_moved = False
    for vertex in range(placement.num_vertices):
        for node in range(vertex, placement.used.size, placement.num_vertices):
            home = _fullest(placement, limits, node, bounds[0])
            if home != NOWHERE and (placement.totals[0] + placement.price <= bounds[1]):
                part = _roomy_part(placement, scratch, limits, (node, home, bounds[0]))
                if part != NOWHERE:
                    _move_to(placement, limits, node, (home, part))
                    has_moved = True
    return has_moved


def _begin_elsewhere(placement: Placement, limits: Limits, most_rows: int) -> bool:
    """Move a few units of one vertex out of each overfull part, to the part with the most room.

    Returns:
        Whether one moved.
    """
    nearest = np.full(placement.load.size, placement.used.size + MOST_BEGUN)
    node_of = np.full(placement.load.size, NOWHERE)
    for node in range(placement.used.size):
        begin = placement.first[node]
        for slot in range(begin, begin + placement.used[node]):
            part, count = placement.slot_part[slot], placement.slot_count[slot]
            distance = abs(count - MOST_BEGUN)
            if placement.load[part] > limits.load and count > 0 and distance < nearest[part]:
                nearest[part], node_of[part] = distance, node
    has_moved = False
    for part in range(placement.load.size):
        rows = placement.totals[0] + (MOST_BEGUN + 1) * placement.price
        if node_of[part] != NOWHERE and rows <= most_rows:
            goal = int(np.argmin(placement.load))
            has_moved |= _move_units(placement, limits, node_of[part], (part, goal))
    return has_moved


def _move_units(placement: Placement, limits: Limits, node: int, way: tuple[int, int]) -> bool:
    """Move a few of a node's units from an overfull part to another, while there is room.

    Returns:
        Whether one moved.
    """
    home, part = way
    most, num_moved = most_crowding(placement, limits), 0
    for k in range(placement.start[node], placement.start[node + 1]):
        if (
            placement.part[k] == home
            and num_moved < MOST_BEGUN
            and placement.load[home] > limits.load
            and placement.load[part] + weight_of(placement, k) <= limits.load
        ):
            most = _move_evenly(placement, limits, (node, k, part), most)
            num_moved += placement.part[k] == part
    return num_moved > 0


def _fullest(placement: Placement, limits: Limits, node: int, least: int) -> int:
    """Overfull part with at least so many units of the node, the fullest."""
    best, best_load = NOWHERE, limits.load
    begin = placement.first[node]
    for slot in range(begin, begin + placement.used[node]):
        part = placement.slot_part[slot]
        if placement.load[part] > best_load and placement.slot_count[slot] >= max(least, 1):
            best, best_load = part, placement.load[part]
    return best


def _roomy_part(
    placement: Placement, scratch: Scratch, limits: Limits, wish: tuple[int, int, int]
) -> int:
    """New part for the node that holds most of its neighbors at home, if there are enough."""
    node, home, least = wish
    for k in range(placement.start[node], placement.start[node + 1]):
        if placement.part[k] == home:
            other = placement.neighbor[k]
            begin = placement.first[other]
            for slot in range(begin, begin + placement.used[other]):
                scratch.tally[placement.slot_part[slot]] += weight_of(placement, k)
    best, best_gain = NOWHERE, max(least, 1) - 1
    most_clones = limits.clones * placement.totals[1] / placement.load.size
    for part in range(placement.load.size):
        gain = min(scratch.tally[part], limits.load - placement.load[part])
        if (
            gain > best_gain
            and not has(placement.held, node, part)
            and placement.clones[part] + 1 <= most_clones
        ):
            best, best_gain = part, gain
    scratch.tally[:] = 0
    return best


def _move_to(placement: Placement, limits: Limits, node: int, way: tuple[int, int]) -> None:
    """Move the node's units from one part to another that holds their other ends."""
    home, part = way
    most = most_crowding(placement, limits)
    for k in range(placement.start[node], placement.start[node + 1]):
        if (
            placement.part[k] == home
            and placement.load[home] > limits.load
            and placement.load[part] + weight_of(placement, k) <= limits.load
            and has(placement.held, placement.neighbor[k], part)
        ):
            most = _move_evenly(placement, limits, (node, k, part), most)


def _move_evenly(
    placement: Placement, limits: Limits, which: tuple[int, int, int], most: float
) -> float:
    """Move a unit to a part, unless that leaves the clones less even than `most_crowding` is.

    Returns:
        Result of `most_crowding` after it; counted again only where a clone came or went.
    """
    node, entry, part = which
    home, other = placement.part[entry], placement.neighbor[entry]
    num_clones, at_goal = placement.totals[1], placement.clones[part]
    move(placement, node, entry, part)
    if placement.totals[1] != num_clones or placement.clones[part] != at_goal:
        if crowding(placement) > most:
            move(placement, node, entry, home)
            return most
        most = most_crowding(placement, limits)
    placement.is_due[node] = placement.is_due[other] = DUE_SLOTS | DUE_ROOT
    return most
