"""Moves that empty one slot: its units go to parts that hold their ends already."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from distgnn.partition.jit import compiled
from distgnn.partition.placement import Limits, Placement, find, move

NOWHERE = -1
# Potentials closer than this are equal but for rounding.
STEP = 1e-6
IMPOSSIBLE = 1 << 60


class Scratch(NamedTuple):
    """Work arrays; clean between calls where it says so."""

    mark: NDArray[np.int64]
    """(num_parts,) int64. The last stamp of each part: parts of the node in hand."""
    stamp: NDArray[np.int64]
    """(1,) int64."""
    head: NDArray[np.int64]
    """(num_parts,) int64. First incidence of the node in hand in each part, or -1."""
    following: NDArray[np.int32]
    """(2 * num_units,) int32. Next incidence in the same part, or -1."""
    target: NDArray[np.int32]
    """(2 * num_units,) int32. Where the unit of an incidence goes."""
    pending: NDArray[np.int64]
    """(num_parts,) int64. Edges that the move in hand adds to each part; clean: 0."""
    tally: NDArray[np.int64]
    """(num_parts,) int64. Edges whose other end is in each part; clean: 0."""
    order: NDArray[np.int64]
    """(num_parts,) int64. Parts of the node in hand, those with few units first."""


def scratch_of(placement: Placement) -> Scratch:
    """Make the work arrays for a placement.

    Args:
        placement: What will be changed.

    Returns:
        Clean arrays.
    """
    num_parts = placement.load.size
    per_part = [np.zeros(num_parts, np.int64) for _ in range(5)]
    mark, head, pending, tally, order = per_part
    following, target = (np.zeros(placement.unit.size, np.int32) for _ in range(2))
    return Scratch(mark, np.zeros(1, np.int64), head, following, target, pending, tally, order)


@compiled
def empty_slots(placement: Placement, scratch: Scratch, limits: Limits) -> int:
    """Try once to empty every paid slot of every node.

    A move is kept if fewer rows travel, or as many and the sum of the square roots of the slots'
    units falls: then small slots got smaller, and may be emptied later. No load passes its limit;
    nor do the clones over their mean, unless they did.

    Args:
        placement: Changed.
        scratch: Clean work arrays.
        limits: What no part may pass.

    Returns:
        Number of moves kept.
    """
    num_vertices = placement.used.size // 2
    num_moves = 0
    for vertex in range(num_vertices):
        for node in (vertex, vertex + num_vertices):
            if placement.used[node] > 1:
                num_moves += _empty_slots_of(placement, scratch, limits, node)
    return num_moves


@compiled
def crowding(placement: Placement) -> float:
    """Measure how unevenly clones are spread.

    Args:
        placement: Where the clones are.

    Returns:
        Clones of the fullest part over the mean.
    """
    return float(placement.clones.max() * placement.clones.size / placement.totals[1])


@compiled
def _empty_slots_of(placement: Placement, scratch: Scratch, limits: Limits, node: int) -> int:
    num_moves = 0
    num_slots = _list_by_part(placement, scratch, node)
    for i in range(num_slots):
        part = scratch.order[i]
        change = plan(placement, scratch, limits, node, part)
        if change <= 0 and _try_plan(placement, scratch, limits, part):
            num_moves += 1
            incidence = scratch.head[part]
            scratch.head[part] = -1
            while incidence >= 0:
                after = scratch.following[incidence]
                goal = scratch.target[incidence]
                scratch.following[incidence] = scratch.head[goal]
                scratch.head[goal] = incidence
                incidence = after
    return num_moves


@compiled
def _list_by_part(placement: Placement, scratch: Scratch, node: int) -> int:
    """Chain the node's units by part; order its paid slots, those with few units first."""
    begin, end = placement.first[node], placement.first[node] + placement.used[node]
    scratch.head[:] = -1
    for k in range(placement.start[node], placement.start[node + 1]):
        part = placement.part[placement.unit[k]]
        scratch.following[k] = scratch.head[part]
        scratch.head[part] = k
    for slot in range(begin + 1, end):
        part = placement.slot_part[slot]
        scratch.tally[part] = placement.slot_count[slot]
        k = slot - begin - 1
        while k > 0 and scratch.tally[part] < scratch.tally[scratch.order[k - 1]]:
            scratch.order[k] = scratch.order[k - 1]
            k -= 1
        scratch.order[k] = part
    scratch.tally[:] = 0
    return int(end - begin - 1)


@compiled
def plan(placement: Placement, scratch: Scratch, limits: Limits, node: int, part: int) -> int:
    """Find new parts for all units of a node in a part, where the fewest rows are added.

    Args:
        placement: Left as it is.
        scratch: `head` and `following` list the node's units in the part; `target` is written.
        limits: What no part may pass.
        node: The node.
        part: Where it has a paid slot.

    Returns:
        The change of the rows that travel, at most, or IMPOSSIBLE.
    """
    fallback = _mark_parts(placement, scratch, node, part)
    change, num_open = -1, 0
    k = scratch.head[part]
    while k >= 0:
        unit = placement.unit[k]
        other = placement.source[unit] + placement.destination[unit] - node
        slot = find(placement, other, part)
        if slot > placement.first[other] and placement.slot_count[slot] == 1:
            change -= 1
        goal = _common_part(placement, scratch, limits, other, unit)
        scratch.target[k] = goal
        if goal == NOWHERE:
            num_open += placement.weight[unit]
            change += 1
            _count_parts(placement, scratch, other)
        else:
            scratch.pending[goal] += placement.weight[unit]
        k = scratch.following[k]
    if num_open > 0:
        change = _close(placement, scratch, limits, (node, part, fallback, num_open, change))
    scratch.pending[:] = 0
    return change


@compiled
def _mark_parts(placement: Placement, scratch: Scratch, node: int, part: int) -> int:
    """Mark the node's other parts; return the root's."""
    scratch.stamp[0] += 1
    begin = placement.first[node]
    for slot in range(begin, begin + placement.used[node]):
        if placement.slot_part[slot] != part:
            scratch.mark[placement.slot_part[slot]] = scratch.stamp[0]
    return int(placement.slot_part[begin])


@compiled
def _common_part(
    placement: Placement, scratch: Scratch, limits: Limits, other: int, unit: int
) -> int:
    """Least loaded marked part that holds the other end too and has room for the unit."""
    best, best_load = NOWHERE, limits.load - placement.weight[unit]
    begin = placement.first[other]
    for slot in range(begin, begin + placement.used[other]):
        part = placement.slot_part[slot]
        if scratch.mark[part] == scratch.stamp[0]:
            load = placement.load[part] + scratch.pending[part]
            if load < best_load or (load == best_load and best == NOWHERE):
                best, best_load = part, load
    return best


@compiled
def _count_parts(placement: Placement, scratch: Scratch, other: int) -> None:
    begin = placement.first[other]
    for slot in range(begin, begin + placement.used[other]):
        scratch.tally[placement.slot_part[slot]] += 1


@compiled
def _close(
    placement: Placement,
    scratch: Scratch,
    limits: Limits,
    state: tuple[int, int, int, int, int],
) -> int:
    """Place the units without a common part: together in one new part, or beside the root."""
    node, part, fallback, num_open, change = state
    best, gain = NOWHERE, 0
    for candidate in range(scratch.tally.size):
        if (
            candidate != part
            and scratch.mark[candidate] != scratch.stamp[0]
            and scratch.tally[candidate] > gain + 1
            and placement.load[candidate] + num_open <= limits.load
        ):
            best, gain = candidate, scratch.tally[candidate] - 1
    scratch.tally[:] = 0
    if placement.load[fallback] + scratch.pending[fallback] + num_open > limits.load:
        return IMPOSSIBLE
    k = scratch.head[part]
    while k >= 0:
        if scratch.target[k] == NOWHERE:
            unit = placement.unit[k]
            other = placement.source[unit] + placement.destination[unit] - node
            is_there = best != NOWHERE and find(placement, other, best) >= 0
            scratch.target[k] = best if is_there else fallback
        k = scratch.following[k]
    return change - gain


@compiled
def _try_plan(placement: Placement, scratch: Scratch, limits: Limits, part: int) -> bool:
    """Move the units of a part that are in hand as planned; undo it if that does not pay."""
    rows, spread = placement.totals[0], placement.spread[0]
    most = max(crowding(placement), limits.clones)
    k = scratch.head[part]
    while k >= 0:
        move(placement, placement.unit[k], scratch.target[k])
        k = scratch.following[k]
    is_better = placement.totals[0] < rows or (
        placement.totals[0] == rows and placement.spread[0] < spread - STEP
    )
    if is_better and crowding(placement) <= most:
        return True
    k = scratch.head[part]
    while k >= 0:
        move(placement, placement.unit[k], part)
        k = scratch.following[k]
    return False
