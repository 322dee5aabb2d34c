"""Plans to empty a slot."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from distgnn.partition.refine.placement import Limits, Placement
from distgnn.partition.refine.scratch import Scratch
from distgnn.partition.stream import WORD_BITS
from partition_loops.placement import has
from partition_loops.sets import contains

NOWHERE = -1
GIVEN_UP = -1
IMPOSSIBLE = 1 << 60


def list_by_part(placement: Placement, scratch: Scratch, node: int) -> None:
    """Sort the node's entries by part; those at the root's part are left out.

    Args:
        placement: Where the entries are.
        scratch: Lists them.
        node: A node.
    """
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


def plan(
    placement: Placement, scratch: Scratch, limits: Limits, which: tuple[int, int, int]
) -> int:
    """Find new parts for all units of a paid slot, where the fewest rows are added.

    Args:
        placement: Left as it is.
        scratch: Lists the node's entries; `target` is written.
        limits: Limits that no part may exceed.
        which: The node, the part, and up to how many added slots are of interest.

    Returns:
        The change of the paid slots, at most, or IMPOSSIBLE.
    """
    node, part, slack = which
    num_goals = _order_goals(placement, scratch, node, part)
    emptied = _count_emptied(placement, scratch, node, part)
    num_bits = _hope(placement, scratch, limits, (node, part, emptied + slack))
    which_goals = (node, part, num_goals, emptied + slack, num_bits)
    num_open, open_weight = _find_goals(placement, scratch, limits, which_goals)
    change = num_open - emptied
    if num_open == GIVEN_UP:
        change = IMPOSSIBLE
    elif num_open > 0:
        best, gain = _new_part(placement, scratch, limits, (num_open, open_weight))
        if gain == 0 and num_open > 1 and emptied + slack > 1:
            best, gain = _fullest_part(placement, scratch, limits, (node, part, open_weight))
        state = (node, part, best, change - gain)
        change = _close(placement, scratch, limits, state)
    for i in range(num_goals):
        scratch.pending[scratch.goals[i]] = 0
    return change


def _count_emptied(placement: Placement, scratch: Scratch, node: int, part: int) -> int:
    """Count the slots that are emptied if all units of one leave it: the ends' and its own."""
    # Names of their own, since numba counts references to arrays that are taken out of a tuple.
    single, neighbor, entry = placement.single, placement.neighbor, scratch.entry
    word, bit = part >> 6, np.uint64(part & 63)
    emptied = 1
    for i in range(scratch.begin[part], scratch.end[part]):
        other = neighbor[entry[i]]
        if other != node:
            emptied += int((single[other, word] >> bit) & np.uint64(1))
    return emptied


def _hope(
    placement: Placement, scratch: Scratch, limits: Limits, which: tuple[int, int, int]
) -> int:
    """Begin to count which new parts may pay: those that lack few open units.

    Fewer than the slots that are emptied, and those that may be added.

    Returns:
        The bits that are counted with.
    """
    node, part, emptied = which
    for word in range(scratch.hopeful.size):
        hopeful = np.uint64(0)
        for candidate in range(WORD_BITS * word, min(WORD_BITS * (word + 1), scratch.order.size)):
            if candidate != part and placement.load[candidate] < limits.load:
                hopeful |= np.uint64(1) << np.uint64(candidate & 63)
        scratch.hopeful[word] = hopeful & ~placement.held[node, word]
    num_bits = 0
    while 1 << num_bits < emptied:
        num_bits += 1
    for bit in range(num_bits):
        is_set = ((1 << num_bits) - emptied) >> bit & 1
        scratch.misses[bit, :] = ~np.uint64(0) if is_set else np.uint64(0)
    return num_bits


def _find_goals(
    placement: Placement, scratch: Scratch, limits: Limits, which: tuple[int, int, int, int, int]
) -> tuple[int, int]:
    """Give each unit the first goal that holds its other end too and has room for it.

    Most time is spent here. It ends as soon as no new part can take enough of the units without a
    goal. It also ends if the root's part has no room for all, and no new part holds all their ends.

    Returns:
        Units without a goal, or GIVEN_UP, and their edges.
    """
    node, part, num_goals, emptied, num_bits = which
    held, neighbor, weight = placement.held, placement.neighbor, placement.weight
    load, pending, misses = placement.load, scratch.pending, scratch.misses
    entry, target, goals = scratch.entry, scratch.target, scratch.goals
    others, shared, hopeful = scratch.others, scratch.shared, scratch.hopeful
    room = limits.load - load[placement.slot_part[placement.first[node]]]
    shared[:] = hopeful
    num_open, open_weight = 0, 0
    for i in range(scratch.begin[part], scratch.end[part]):
        k = entry[i]
        other = neighbor[k]
        edges = weight[k] if weight.size > 1 else weight[0]
        target[i] = NOWHERE
        common = np.uint64(0)
        for word in range(others.size):
            common |= others[word] & held[other, word]
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
            is_shared = False
            for word in range(others.size):
                shared[word] &= held[other, word]
                is_shared |= shared[word] != 0
            if open_weight > room and not is_shared:
                return GIVEN_UP, 0
            is_hopeful = _lacks(hopeful, misses, held, (other, num_bits))
            if num_open > emptied and not is_hopeful:
                return GIVEN_UP, 0
    return num_open, open_weight


def _lacks(
    hopeful: NDArray[np.uint64],
    misses: NDArray[np.uint64],
    held: NDArray[np.uint64],
    which: tuple[int, int],
) -> bool:
    """Count an open unit whose other end is not in all hopeful parts; tell if one is left."""
    other, num_bits = which
    is_left = False
    for word in range(hopeful.size):
        lacking = hopeful[word] & ~held[other, word]
        for bit in range(num_bits):
            if lacking == 0:
                break
            carry = misses[bit, word] & lacking
            misses[bit, word] ^= lacking
            lacking = carry
        hopeful[word] &= ~lacking
        is_left |= hopeful[word] != 0
    return is_left


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


def _new_part(
    placement: Placement, scratch: Scratch, limits: Limits, state: tuple[int, int]
) -> tuple[int, int]:
    """Find the least loaded part that holds the ends of all open units; tell what it saves."""
    num_open, open_weight = state
    best, best_load = NOWHERE, limits.load - open_weight + 1
    for word in range(scratch.shared.size):
        if scratch.shared[word] != 0:
            for candidate in range(
                WORD_BITS * word, min(WORD_BITS * (word + 1), placement.load.size)
            ):
                if placement.load[candidate] < best_load and contains(scratch.shared, candidate):
                    best, best_load = candidate, placement.load[candidate]
    return best, (num_open - 1 if best != NOWHERE else 0)


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


def _close(
    placement: Placement, scratch: Scratch, limits: Limits, state: tuple[int, int, int, int]
) -> int:
    """Place the units without a common part: together in one new part, or beside the root."""
    node, part, best, change = state
    fallback = placement.slot_part[placement.first[node]]
    left_over = 0
    for i in range(scratch.begin[part], scratch.end[part]):
        if scratch.target[i] == NOWHERE:
            other = placement.neighbor[scratch.entry[i]]
            is_there = best != NOWHERE and has(placement.held, other, best)
            scratch.target[i] = best if is_there else fallback
            weight = placement.weight
            if not is_there:
                left_over += weight[scratch.entry[i]] if weight.size > 1 else weight[0]
    load = placement.load[fallback] + scratch.pending[fallback]
    return change if left_over == 0 or load + left_over <= limits.load else IMPOSSIBLE
