"""Counts of slots, and the two changes of a placement."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from distgnn.partition.refine.placement import Limits, Placement

DUE_SLOTS, DUE_ROOT = 1, 2


def _are_together(
    first: int, last: int, mate: NDArray[np.int32], arc_part: NDArray[np.int32]
) -> bool:
    """Return whether every arc of a range is in the part of its mate."""
    num_together = 0
    for arc in range(first, last):
        num_together += arc_part[mate[arc]] == arc_part[arc]
    return num_together == last - first


def _apart(
    start: NDArray[np.int64], head: NDArray[np.int32]
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]]:
    """Give each arc an entry at its reading node, and one at its writing node."""
    num_vertices, num_arcs = start.size - 1, head.size
    starts = np.zeros(2 * num_vertices + 1, np.int64)
    starts[: num_vertices + 1] = start
    for vertex in head:
        starts[num_vertices + vertex + 1] += 1
    for vertex in range(num_vertices):
        starts[num_vertices + vertex + 1] += starts[num_vertices + vertex]
    position = starts[num_vertices:].copy()
    neighbor, mate = np.empty(2 * num_arcs, np.int32), np.empty(2 * num_arcs, np.int32)
    for vertex in range(num_vertices):
        for k in range(start[vertex], start[vertex + 1]):
            back = position[head[k]]
            position[head[k]] = back + 1
            neighbor[k], mate[k] = num_vertices + head[k], back
            neighbor[back], mate[back] = vertex, k
    return starts, neighbor, mate


def _fill(first: int, last: int, placement: Placement, root_part: NDArray[np.int32]) -> None:
    """Count the units of each slot: the root's first, the others in the order of the entries."""
    tally = np.zeros(placement.load.size, np.int32)
    for node in range(first, last):
        root = root_part[node % placement.num_vertices]
        begin = placement.first[node]
        placement.slot_part[begin] = root
        put(placement.held, node, root)
        for k in range(placement.start[node], placement.start[node + 1]):
            part = placement.part[k]
            tally[part] += 1
            if not has(placement.held, node, part):
                put(placement.held, node, part)
                placement.slot_part[begin + placement.used[node]] = part
                placement.used[node] += 1
            if k <= placement.mate[k]:
                placement.load[part] += weight_of(placement, k)
        for slot in range(begin, begin + placement.used[node]):
            part = placement.slot_part[slot]
            placement.slot_count[slot] = tally[part]
            tally[part] = 0
            if slot > begin:
                placement.totals[0] += placement.price
                if placement.slot_count[slot] == 1:
                    put(placement.single, node, part)
                # The reading nodes come first.
                if node < placement.num_vertices or not is_at_twin(placement, node, part):
                    placement.clones[part] += 1
                    placement.totals[1] += 1


def has(sets: NDArray[np.uint64], node: int, part: int) -> bool:
    """Return whether a node's set holds a part; a view of its row would cost more than that."""
    return bool((sets[node, part >> 6] >> np.uint64(part & 63)) & np.uint64(1))


def put(sets: NDArray[np.uint64], node: int, part: int) -> None:
    """Add a part to a node's set."""
    sets[node, part >> 6] |= np.uint64(1) << np.uint64(part & 63)


def drop(sets: NDArray[np.uint64], node: int, part: int) -> None:
    """Take a part out of a node's set."""
    sets[node, part >> 6] &= ~(np.uint64(1) << np.uint64(part & 63))


def weight_of(placement: Placement, entry: int) -> int:
    """Get the number of edges of an entry's unit."""
    return int(placement.weight[entry if placement.weight.size > 1 else 0])


def twin(placement: Placement, node: int) -> int:
    """Get the other node of the same vertex.

    Args:
        placement: Where the nodes are.
        node: A node.

    Returns:
        The writing node of a reading one, and the other way round; -1 where nodes are vertices.
    """
    if placement.price == 2:
        return -1
    num_vertices = placement.num_vertices
    return node + num_vertices if node < num_vertices else node - num_vertices


def is_at_twin(placement: Placement, node: int, part: int) -> bool:
    """Return whether the other node of the same vertex has a slot in a part."""
    other = twin(placement, node)
    return other >= 0 and has(placement.held, other, part)


def crowding(placement: Placement) -> float:
    """Measure how unevenly clones are spread.

    Args:
        placement: Where the clones are.

    Returns:
        Clones of the fullest part over the mean.
    """
    return float(placement.clones.max() * placement.clones.size / placement.totals[1])


def most_crowding(placement: Placement, limits: Limits) -> float:
    """Say how unevenly a move may leave the clones: within the limit, or no worse than they are.

    Args:
        placement: Where the clones are.
        limits: Limits that no part may exceed.

    Returns:
        Clones of the fullest part over the mean.
    """
    return max(crowding(placement), limits.clones)


def find(placement: Placement, node: int, part: int) -> int:
    """Find the slot of a node in a part.

    Args:
        placement: Where the slots are.
        node: A node.
        part: A part.

    Returns:
        The slot, or -1. The root's is found even while it is empty.
    """
    begin = placement.first[node]
    for slot in range(begin, begin + placement.used[node]):
        if placement.slot_part[slot] == part:
            return slot
    return -1


def move(placement: Placement, node: int, entry: int, part: int) -> None:
    """Move a unit to another part, and update the counts.

    Args:
        placement: Changed.
        node: A node of the unit.
        entry: The unit's entry there.
        part: Its new part.
    """
    home, other, mate = placement.part[entry], placement.neighbor[entry], placement.mate[entry]
    # Leave before entering: a node has no more room for slots than units.
    _leave(placement, node, home)
    if mate != entry:
        _leave(placement, other, home)
        _enter(placement, other, part)
    _enter(placement, node, part)
    weight = weight_of(placement, entry)
    placement.load[home] -= weight
    placement.load[part] += weight
    placement.part[entry] = part
    placement.part[mate] = part


def _enter(placement: Placement, node: int, part: int) -> None:
    begin = placement.first[node]
    if has(placement.held, node, part):
        slot = find(placement, node, part)
    else:
        slot = begin + placement.used[node]
        placement.used[node] += 1
        placement.slot_part[slot] = part
        placement.slot_count[slot] = 0
        put(placement.held, node, part)
        placement.totals[0] += placement.price
        if not is_at_twin(placement, node, part):
            placement.clones[part] += 1
            placement.totals[1] += 1
    count = placement.slot_count[slot] + 1
    placement.slot_count[slot] = count
    if slot > begin:
        _note_single(placement, node, slot)


def _leave(placement: Placement, node: int, part: int) -> None:
    slot = find(placement, node, part)
    begin = placement.first[node]
    count = placement.slot_count[slot] - 1
    placement.slot_count[slot] = count
    if slot == begin:
        return
    if count == 0:
        _drop_slot(placement, node, slot)
        placement.totals[0] -= placement.price
        if not is_at_twin(placement, node, part):
            placement.clones[part] -= 1
            placement.totals[1] -= 1
    else:
        _note_single(placement, node, slot)


def _note_single(placement: Placement, node: int, slot: int) -> None:
    if placement.slot_count[slot] == 1:
        put(placement.single, node, placement.slot_part[slot])
    elif placement.slot_count[slot] == 2:
        drop(placement.single, node, placement.slot_part[slot])


def _drop_slot(placement: Placement, node: int, slot: int) -> None:
    """Take a paid slot off the list; the last one moves there."""
    drop(placement.held, node, placement.slot_part[slot])
    drop(placement.single, node, placement.slot_part[slot])
    placement.used[node] -= 1
    last = placement.first[node] + placement.used[node]
    placement.slot_part[slot] = placement.slot_part[last]
    placement.slot_count[slot] = placement.slot_count[last]


def move_root(placement: Placement, vertex: int, part: int) -> None:
    """Move a root to another part, and update the counts.

    Args:
        placement: Changed.
        vertex: The vertex.
        part: Its new part.
    """
    home = placement.slot_part[placement.first[vertex]]
    placement.roots[home] -= 1
    placement.roots[part] += 1
    if placement.training.size > 0:
        placement.trained[home] -= placement.training[vertex]
        placement.trained[part] += placement.training[vertex]
    is_leaving = is_new = True
    for node in range(vertex, placement.used.size, placement.num_vertices):
        is_leaving &= placement.slot_count[placement.first[node]] == 0
        is_new &= not has(placement.held, node, part)
        _move_free_slot(placement, node, part)
    placement.clones[home] -= is_leaving
    placement.clones[part] += is_new
    placement.totals[1] += int(is_new) - int(is_leaving)


def _move_free_slot(placement: Placement, node: int, part: int) -> None:
    """Make the node's slot in a part, which may be new, the free one."""
    begin = placement.first[node]
    home, count = placement.slot_part[begin], placement.slot_count[begin]
    placement.slot_count[begin] = 0
    if has(placement.held, node, part):
        slot = find(placement, node, part)
        placement.slot_count[begin] = placement.slot_count[slot]
        placement.totals[0] -= placement.price
        _drop_slot(placement, node, slot)
    placement.slot_part[begin] = part
    put(placement.held, node, part)
    drop(placement.held, node, home)
    if count > 0:
        last = begin + placement.used[node]
        placement.used[node] += 1
        placement.slot_part[last] = home
        placement.slot_count[last] = count
        put(placement.held, node, home)
        _note_single(placement, node, last)
        placement.totals[0] += placement.price
