"""Moves that empty one slot: its units go to parts that hold their ends already."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from distgnn.partition.jit import compiled
from distgnn.partition.moves import move
from distgnn.partition.placement import (
    DUE_ROOT,
    DUE_SLOTS,
    Limits,
    Placement,
    has,
)
from distgnn.partition.stream import WORD_BITS, contains

NOWHERE = -1
# Potentials closer than this are equal but for rounding.
STEP = 1e-6
IMPOSSIBLE = 1 << 60


class Scratch(NamedTuple):
    """Work arrays; clean between calls where it says so."""

    entry: NDArray[np.int64]
    """(twice the most entries of a node,) int64. Those of the node in hand, part by part."""
    begin: NDArray[np.int64]
    """(num_parts,) int64. Where the entries of each part begin."""
    end: NDArray[np.int64]
    """(num_parts,) int64. Where they end."""
    target: NDArray[np.int32]
    """(most entries of a node,) int32. Where the unit of an entry goes."""
    order: NDArray[np.int64]
    """(num_parts,) int64. Parts of the node in hand, those with few units first."""
    goals: NDArray[np.int64]
    """(num_parts,) int64. Its other parts, those with few edges first."""
    others: NDArray[np.uint64]
    """(num_words,) uint64. The same as a set."""
    shared: NDArray[np.uint64]
    """(num_words,) uint64. Set of the parts of all ends without a common part."""
    pending: NDArray[np.int64]
    """(num_parts,) int64. Edges that the move in hand adds to each part; clean: 0."""
    tally: NDArray[np.int64]
    """(num_parts,) int64. Edges whose other end is in each part; clean: 0."""


def scratch_of(placement: Placement) -> Scratch:
    """Make the work arrays for a placement.

    Args:
        placement: What will be changed.

    Returns:
        Clean arrays.
    """
    most = int(np.diff(placement.start).max(initial=0))
    num_parts, num_words = placement.load.size, placement.held.shape[1]
    begin, end, order, goals, pending, tally = (np.zeros(num_parts, np.int64) for _ in range(6))
    return Scratch(
        entry=np.zeros(2 * most, np.int64),
        begin=begin,
        end=end,
        target=np.zeros(most, np.int32),
        order=order,
        goals=goals,
        others=np.zeros(num_words, np.uint64),
        shared=np.zeros(num_words, np.uint64),
        pending=pending,
        tally=tally,
    )


@compiled
def empty_slots(placement: Placement, scratch: Scratch, limits: Limits) -> int:
    """Try once to empty every paid slot of every node that is due.

    A move is kept if fewer rows travel, or as many and the sum of the square roots of the slots'
    units falls: then small slots got smaller, and may be emptied later. No load passes its limit;
    nor do the clones over their mean, unless they did. A node is due until it was tried, and again
    once a move may have opened a way: one of its units moved or stayed behind alone, or a neighbour
    came to a part that it is on as well.

    Args:
        placement: Changed.
        scratch: Clean work arrays.
        limits: What no part may pass.

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
    """Try the parts that hold paid slots of the node now, each with the units it has now."""
    num_moves = 0
    num_slots = _order_slots(placement, scratch, node)
    _list_by_part(placement, scratch, node)
    for i in range(num_slots):
        part = scratch.order[i]
        change = _plan(placement, scratch, limits, (node, part))
        if change <= 0 and _try_plan(placement, scratch, limits, (node, part)):
            num_moves += 1
            _make_due(placement, scratch, node, part)
            if i + 1 < num_slots:
                _list_by_part(placement, scratch, node)
    return num_moves


@compiled
def _order_slots(placement: Placement, scratch: Scratch, node: int) -> int:
    """Order the parts of the node's paid slots, those with few units first."""
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


@compiled
def _list_by_part(placement: Placement, scratch: Scratch, node: int) -> None:
    """Sort the node's entries by part; those at the root's part are left out."""
    position = 0
    begin = placement.first[node]
    for slot in range(begin + 1, begin + placement.used[node]):
        part = placement.slot_part[slot]
        scratch.begin[part] = scratch.end[part] = position
        position += placement.slot_count[slot]
    home = placement.slot_part[begin]
    for k in range(placement.start[node], placement.start[node + 1]):
        part = placement.part[k]
        if part != home:
            scratch.entry[scratch.end[part]] = k
            scratch.end[part] += 1


@compiled
def _plan(placement: Placement, scratch: Scratch, limits: Limits, which: tuple[int, int]) -> int:
    """Find new parts for all units of a paid slot, where the fewest rows are added.

    Args:
        placement: Left as it is.
        scratch: Lists the node's entries; `target` is written.
        limits: What no part may pass.
        which: The node and the part.

    Returns:
        The change of the paid slots, at most, or IMPOSSIBLE.
    """
    node, part = which
    num_goals = _order_goals(placement, scratch, node, part)
    num_open, open_weight, emptied = _find_goals(placement, scratch, limits, (*which, num_goals))
    change = num_open - emptied
    if num_open > 0:
        best, gain = _new_part(placement, scratch, limits, (*which, num_open, open_weight))
        if gain == 0 and num_open > 1 and emptied > 1:
            best, gain = _fullest_part(placement, scratch, limits, (*which, open_weight))
        change = _close(placement, scratch, limits, (*which, best, open_weight, change - gain))
    for i in range(num_goals):
        scratch.pending[scratch.goals[i]] = 0
    return change


@compiled
def _find_goals(
    placement: Placement, scratch: Scratch, limits: Limits, which: tuple[int, int, int]
) -> tuple[int, int, int]:
    """Give each unit the first goal that holds its other end too and has room for it.

    Most time is spent here. Arrays have names of their own, since numba counts references to those
    that are taken out of a tuple or handed to a function.

    Returns:
        Units without a goal, their edges, and how many slots would be emptied, the node's included.
    """
    node, part, num_goals = which
    held, single, neighbor = placement.held, placement.single, placement.neighbor
    weight, load, pending = placement.weight, placement.load, scratch.pending
    entry, target, goals = scratch.entry, scratch.target, scratch.goals
    others, shared = scratch.others, scratch.shared
    num_words, part_word, part_bit = others.size, part >> 6, np.uint64(part & 63)
    shared[:] = ~np.uint64(0)
    num_open, open_weight, emptied = 0, 0, 1
    for i in range(scratch.begin[part], scratch.end[part]):
        k = entry[i]
        other = neighbor[k]
        if other != node:
            emptied += int((single[other, part_word] >> part_bit) & np.uint64(1))
        common = np.uint64(0)
        for word in range(num_words):
            common |= others[word] & held[other, word]
        edges = weight[k] if weight.size > 1 else weight[0]
        target[i] = NOWHERE
        if common != 0:
            for j in range(num_goals):
                goal = goals[j]
                is_there = (held[other, goal >> 6] >> np.uint64(goal & 63)) & np.uint64(1)
                if is_there and load[goal] + pending[goal] + edges <= limits.load:
                    pending[goal] += edges
                    target[i] = goal
                    break
        if target[i] == NOWHERE:
            num_open += 1
            open_weight += edges
            for word in range(num_words):
                shared[word] &= held[other, word]
    return num_open, open_weight, emptied


@compiled
def _order_goals(placement: Placement, scratch: Scratch, node: int, part: int) -> int:
    """List the node's other parts, those with few edges first."""
    for word in range(scratch.others.size):
        scratch.others[word] = placement.held[node, word]
    scratch.others[part >> 6] &= ~(np.uint64(1) << np.uint64(part & 63))
    num_goals = 0
    begin = placement.first[node]
    for slot in range(begin, begin + placement.used[node]):
        goal = placement.slot_part[slot]
        if goal == part:
            continue
        k = num_goals
        while k > 0 and (placement.load[goal], goal) < (
            placement.load[scratch.goals[k - 1]],
            scratch.goals[k - 1],
        ):
            scratch.goals[k] = scratch.goals[k - 1]
            k -= 1
        scratch.goals[k] = goal
        num_goals += 1
    return num_goals


@compiled
def _new_part(
    placement: Placement, scratch: Scratch, limits: Limits, state: tuple[int, int, int, int]
) -> tuple[int, int]:
    """Find the least loaded part that holds the ends of all open units; tell what it saves."""
    node, _, num_open, open_weight = state
    best, best_load = NOWHERE, limits.load - open_weight + 1
    for word in range(scratch.shared.size):
        # What the node is on does not count: the part that is to be emptied, or full ones.
        if (scratch.shared[word] & ~placement.held[node, word]) != 0:
            for candidate in range(
                WORD_BITS * word, min(WORD_BITS * (word + 1), placement.load.size)
            ):
                if (
                    placement.load[candidate] < best_load
                    and contains(scratch.shared, candidate)
                    and not has(placement.held, node, candidate)
                ):
                    best, best_load = candidate, placement.load[candidate]
    return best, (num_open - 1 if best != NOWHERE else 0)


@compiled
def _fullest_part(
    placement: Placement, scratch: Scratch, limits: Limits, state: tuple[int, int, int]
) -> tuple[int, int]:
    """Find a part without the node that holds most ends of open units; tell what it saves."""
    node, part, open_weight = state
    for i in range(scratch.begin[part], scratch.end[part]):
        if scratch.target[i] == NOWHERE:
            other = placement.neighbor[scratch.entry[i]]
            begin = placement.first[other]
            for slot in range(begin, begin + placement.used[other]):
                scratch.tally[placement.slot_part[slot]] += 1
    best, gain = NOWHERE, 0
    for candidate in range(scratch.tally.size):
        if (
            scratch.tally[candidate] > gain + 1
            and not has(placement.held, node, candidate)
            and placement.load[candidate] + open_weight <= limits.load
        ):
            best, gain = candidate, scratch.tally[candidate] - 1
    scratch.tally[:] = 0
    return best, gain


@compiled
def _close(
    placement: Placement, scratch: Scratch, limits: Limits, state: tuple[int, int, int, int, int]
) -> int:
    """Place the units without a common part: together in one new part, or beside the root."""
    node, part, best, open_weight, change = state
    fallback = placement.slot_part[placement.first[node]]
    if placement.load[fallback] + scratch.pending[fallback] + open_weight > limits.load:
        return IMPOSSIBLE
    for i in range(scratch.begin[part], scratch.end[part]):
        if scratch.target[i] == NOWHERE:
            other = placement.neighbor[scratch.entry[i]]
            is_there = best != NOWHERE and has(placement.held, other, best)
            scratch.target[i] = best if is_there else fallback
    return change


@compiled
def _try_plan(
    placement: Placement, scratch: Scratch, limits: Limits, which: tuple[int, int]
) -> bool:
    """Move the units of a part that are in hand as planned; undo it if that does not pay."""
    node, part = which
    rows, spread = placement.totals[0], placement.spread[0]
    most = max(crowding(placement), limits.clones)
    for i in range(scratch.begin[part], scratch.end[part]):
        move(placement, node, scratch.entry[i], scratch.target[i])
    is_better = placement.totals[0] < rows or (
        placement.totals[0] == rows and placement.spread[0] < spread - STEP
    )
    if is_better and crowding(placement) <= most:
        return True
    for i in range(scratch.begin[part], scratch.end[part]):
        move(placement, node, scratch.entry[i], part)
    return False


@compiled
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


@compiled
def _make_visitors_due(placement: Placement, node: int, part: int) -> None:
    """A node came to a part: units may come from elsewhere whose other end is there already."""
    held, neighbor, parts = placement.held, placement.neighbor, placement.part
    word, bit = part >> 6, np.uint64(part & 63)
    for k in range(placement.start[node], placement.start[node + 1]):
        if parts[k] != part and (held[neighbor[k], word] >> bit) & np.uint64(1):
            placement.is_due[neighbor[k]] |= DUE_SLOTS


@compiled
def _make_last_due(placement: Placement, node: int, part: int) -> None:
    """A node has one unit left in a part: it may leave from its other end."""
    for k in range(placement.start[node], placement.start[node + 1]):
        if placement.part[k] == part:
            placement.is_due[placement.neighbor[k]] |= DUE_SLOTS
            return
