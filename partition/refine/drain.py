"""Moves that take edges out of overfull parts, those that add the fewest rows first."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from distgnn.partition.jit import borrow, compiled
from distgnn.partition.refine.move_vertices import move_vertices
from distgnn.partition.refine.moves import move
from distgnn.partition.refine.placement import (
    DUE_ROOT,
    DUE_SLOTS,
    Limits,
    Placement,
    crowding,
    has,
    most_crowding,
    weight_of,
)
from distgnn.partition.refine.slot_plan import NOWHERE, Scratch, list_by_part, plan

# Units of one vertex that begin in a part where none of their ends lives, and how often.
MOST_BEGUN, MOST_ROUNDS = 8, 16
# Rows that a vertex may add when it leaves a part with too many clones, and one.
PRICES = (1, 2, 4, 8, 16)


def drain(placement: Placement, scratch: Scratch, limits: Limits, most_rows: int) -> None:
    """Move edges out of parts above the limit, then vertices out of parts with too many clones.

    First those whose ends both live in a part with room: they add no row. Then a new slot is made
    where it lets many edges go, and ever fewer edges per slot. Where no end lives in a part with
    room, a few edges at one vertex begin there; others follow as before.

    Args:
        placement: Changed.
        scratch: Clean work arrays.
        limits: Limits that no part may exceed; a part above its own may keep its load.
        most_rows: No slot is made that would pass these rows in all.
    """
    least = int(placement.slot_count.max(initial=0))
    has_moved, num_rounds = True, 0
    while placement.load.max() > limits.load:
        if has_moved:
            _drain_for_free(placement, limits)
            move_vertices(placement, scratch, limits, (1, most_rows))
        if least == 0:
            num_rounds += 1
            if num_rounds > MOST_ROUNDS or not _begin_elsewhere(placement, limits, most_rows):
                break
            least, has_moved = MOST_BEGUN, True
            continue
        has_moved = _drain_by_slots(placement, scratch, limits, np.array([least, most_rows]))
        least //= 2
    for price in PRICES:
        # Beyond the first price every vertex adds a row.
        if crowding(placement) <= limits.clones or (price > 1 and placement.totals[0] >= most_rows):
            break
        _empty_crowded(placement, scratch, limits, (price - 1, most_rows))
        move_vertices(placement, scratch, limits, (price, most_rows))


@compiled
def _empty_crowded(
    placement: Placement, scratch: Scratch, limits: Limits, bounds: tuple[int, int]
) -> None:
    """Empty slots in parts with too many clones, for up to bounds[0] slots each elsewhere.

    No more rows than bounds[1] are made in all.
    """
    placement, scratch = borrow(placement), borrow(scratch)
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


@compiled
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


@compiled
def _drain_for_free(placement: Placement, limits: Limits) -> None:
    placement = borrow(placement)
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


@compiled
def _drain_by_slots(
    placement: Placement, scratch: Scratch, limits: Limits, bounds: NDArray[np.int64]
) -> bool:
    """Make every slot that lets at least bounds[0] edges go, up to bounds[1] rows in all.

    Returns:
        Whether there was one.
    """
    placement, scratch = borrow(placement), borrow(scratch)
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


@compiled
def _begin_elsewhere(placement: Placement, limits: Limits, most_rows: int) -> bool:
    """Move a few units of one vertex out of each overfull part, to the part with the most room.

    Returns:
        Whether one moved.
    """
    placement = borrow(placement)
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


@compiled
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


@compiled
def _fullest(placement: Placement, limits: Limits, node: int, least: int) -> int:
    """Overfull part with at least so many units of the node, the fullest."""
    best, best_load = NOWHERE, limits.load
    begin = placement.first[node]
    for slot in range(begin, begin + placement.used[node]):
        part = placement.slot_part[slot]
        if placement.load[part] > best_load and placement.slot_count[slot] >= max(least, 1):
            best, best_load = part, placement.load[part]
    return best


@compiled
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


@compiled
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


@compiled
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
