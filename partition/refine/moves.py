"""The two changes of a placement, a unit's part and a root's, and what they do to the counts."""

from __future__ import annotations

from distgnn.partition.jit import compiled
from distgnn.partition.refine.placement import Placement, drop, has, is_at_twin, put, weight_of


@compiled
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


@compiled
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


@compiled
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


@compiled
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


@compiled
def _note_single(placement: Placement, node: int, slot: int) -> None:
    if placement.slot_count[slot] == 1:
        put(placement.single, node, placement.slot_part[slot])
    elif placement.slot_count[slot] == 2:
        drop(placement.single, node, placement.slot_part[slot])


@compiled
def _drop_slot(placement: Placement, node: int, slot: int) -> None:
    """Take a paid slot off the list; the last one moves there."""
    drop(placement.held, node, placement.slot_part[slot])
    drop(placement.single, node, placement.slot_part[slot])
    placement.used[node] -= 1
    last = placement.first[node] + placement.used[node]
    placement.slot_part[slot] = placement.slot_part[last]
    placement.slot_count[slot] = placement.slot_count[last]


@compiled
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


@compiled
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
