"""Passes that empty slots and wander."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from distgnn.partition.refine.placement import Limits, Placement
from distgnn.partition.refine.scratch import Scratch
from partition_loops.placement import DUE_ROOT, DUE_SLOTS, crowding, find, has, most_crowding, move
from partition_loops.plans import NOWHERE, list_by_part, plan
from partition_loops.sets import contains

STEP = 1e-6
MOST_UNITS = 16


def empty_slots(placement: Placement, scratch: Scratch, limits: Limits) -> int:
    """Try once to empty every paid slot of every node that is due.

    A move is kept if fewer rows travel. It is also kept if as many travel, and the sum of the
    square roots of the slots' units falls: then small slots got smaller, and may be emptied later.
    No load passes its limit; nor do the clones over their mean, unless they did before.

    A node is due until it was tried. It is due again once a move may have opened a way. Then one of
    its units moved or stayed behind alone, or a neighbour came to a part that it is on as well.

    Args:
        placement: Changed.
        scratch: Clean work arrays.
        limits: Limits that no part may exceed.

    Returns:
        Number of moves kept.
    """
    num_moves = 0
    for vertex in range(placement.num_vertices):
        for node in range(vertex, placement.used.size, placement.num_vertices):
            if placement.used[node] > 1 and placement.is_due[node] & DUE_SLOTS:
                placement.is_due[node] &= DUE_ROOT
                num_moves += _empty_slots_of(placement, scratch, limits, node)
    return num_moves


def _empty_slots_of(placement: Placement, scratch: Scratch, limits: Limits, node: int) -> int:
    """Try the parts that hold paid slots of the node now, each with the units it has now."""
    num_moves = 0
    num_slots = order_slots(placement, scratch, node)
    list_by_part(placement, scratch, node)
    for i in range(num_slots):
        part = scratch.order[i]
        change = plan(placement, scratch, limits, (node, part, 0))
        if change == 0 and _added_spread(placement, scratch, node, part) >= -STEP:
            continue
        if change <= 0 and try_plan(placement, scratch, limits, (node, part)):
            num_moves += 1
            _make_due(placement, scratch, node, part)
            if i + 1 < num_slots:
                list_by_part(placement, scratch, node)
    return num_moves


def order_slots(placement: Placement, scratch: Scratch, node: int) -> int:
    """Order the parts of the node's paid slots, those with few units first.

    Args:
        placement: Where the slots are.
        scratch: `order` is written.
        node: A node.

    Returns:
        How many there are.
    """
    begin, end = placement.first[node], placement.first[node] + placement.used[node]
    for slot in range(begin + 1, end):
        part = placement.slot_part[slot]
        scratch.tally[part] = placement.slot_count[slot]
        k = slot - begin - 1
        while k > 0 and scratch.tally[part] < scratch.tally[scratch.order[k - 1]]:
            scratch.order[k] = scratch.order[k - 1]
            k -= 1
        scratch.order[k] = part
    for slot in range(begin + 1, end):
        scratch.tally[placement.slot_part[slot]] = 0
    return int(end - begin - 1)


def _added_spread(placement: Placement, scratch: Scratch, node: int, part: int) -> float:
    """Sum up the change of the roots of the slots' units that a plan brings about."""
    added = -math.sqrt(scratch.end[part] - scratch.begin[part])
    for i in range(scratch.begin[part], scratch.end[part]):
        other, goal = placement.neighbor[scratch.entry[i]], scratch.target[i]
        scratch.tally[goal] += 1
        if other != node:
            added += _added_at(placement, scratch, other, (part, goal))
    for i in range(scratch.begin[part], scratch.end[part]):
        goal = scratch.target[i]
        slot = find(placement, node, goal)
        if slot != placement.first[node] and scratch.tally[goal] > 0:
            count = placement.slot_count[slot] if slot != NOWHERE else 0
            added += math.sqrt(count + scratch.tally[goal]) - math.sqrt(count)
        scratch.tally[goal] = 0
    return added


def _added_at(placement: Placement, scratch: Scratch, node: int, way: tuple[int, int]) -> float:
    """The same at the other end of one unit, which leaves a slot for another."""
    part, goal = way
    begin = placement.first[node]
    home = placement.slot_part[begin]
    at_part, at_goal = 0, 0
    for slot in range(begin + 1, begin + placement.used[node]):
        if placement.slot_part[slot] == goal:
            at_goal = placement.slot_count[slot]
        elif placement.slot_part[slot] == part:
            at_part = placement.slot_count[slot]
    added = scratch.root_step[at_goal] if goal != home else 0.0
    return added - (scratch.root_step[at_part - 1] if part != home else 0.0)


def try_plan(
    placement: Placement,
    scratch: Scratch,
    limits: Limits,
    which: tuple[int, int],
) -> bool:
    """Move the units of a part that are in hand as planned; undo it if that does not pay.

    Args:
        placement: Changed.
        scratch: With the plan.
        limits: Limits that no part may exceed, unless it did before.
        which: The node and the part.

    Returns:
        Whether they moved.
    """
    node, part = which
    rows = placement.totals[0]
    most = most_crowding(placement, limits)
    for i in range(scratch.begin[part], scratch.end[part]):
        move(placement, node, scratch.entry[i], scratch.target[i])
    if placement.totals[0] <= rows and crowding(placement) <= most:
        return True
    for i in range(scratch.begin[part], scratch.end[part]):
        move(placement, node, scratch.entry[i], part)
    return False


def _make_due(placement: Placement, scratch: Scratch, node: int, part: int) -> None:
    """Note to whom the move of a slot's units may have opened a way."""
    placement.is_due[node] = DUE_SLOTS | DUE_ROOT
    gained = NOWHERE
    for i in range(scratch.begin[part], scratch.end[part]):
        other, goal = placement.neighbor[scratch.entry[i]], scratch.target[i]
        placement.is_due[other] = DUE_SLOTS | DUE_ROOT
        if not contains(scratch.others, goal):
            gained = goal
        if has(placement.single, other, goal):
            _make_visitors_due(placement, other, goal)
        if has(placement.single, other, part):
            _make_last_due(placement, other, part)
    if gained != NOWHERE:
        _make_visitors_due(placement, node, gained)


def _make_visitors_due(placement: Placement, node: int, part: int) -> None:
    """A node came to a part: units may come from elsewhere whose other end is there already."""
    held, neighbor, parts = placement.held, placement.neighbor, placement.part
    word, bit = part >> 6, np.uint64(part & 63)
    for k in range(placement.start[node], placement.start[node + 1]):
        if parts[k] != part and (held[neighbor[k], word] >> bit) & np.uint64(1):
            placement.is_due[neighbor[k]] |= DUE_SLOTS


def _make_last_due(placement: Placement, node: int, part: int) -> None:
    """A node has one unit left in a part: it may leave from its other end."""
    for k in range(placement.start[node], placement.start[node + 1]):
        if placement.part[k] == part:
            placement.is_due[placement.neighbor[k]] |= DUE_SLOTS
            return


def _wander(
    placement: Placement, scratch: Scratch, limits: Limits, order: NDArray[np.int64]
) -> None:
    for node in order:
        num_slots = order_slots(placement, scratch, node)
        is_listed = False
        for i in range(num_slots):
            part = scratch.order[i]
            if placement.slot_count[find(placement, node, part)] > MOST_UNITS:
                continue
            if not is_listed:
                list_by_part(placement, scratch, node)
                is_listed = True
            change = plan(placement, scratch, limits, (node, part, 0))
            if change <= 0 and try_plan(placement, scratch, limits, (node, part)):
                _make_ends_due(placement, scratch, node, part)
                is_listed = False


def _make_ends_due(placement: Placement, scratch: Scratch, node: int, part: int) -> None:
    """Note that the ends of a slot's units may move again, and their roots."""
    placement.is_due[node] = DUE_SLOTS | DUE_ROOT
    for i in range(scratch.begin[part], scratch.end[part]):
        placement.is_due[placement.neighbor[scratch.entry[i]]] = DUE_SLOTS | DUE_ROOT
