"""Moves that take edges out of overfull parts, those that add the fewest rows first."""

from __future__ import annotations

from distgnn import _partitioner
from distgnn.partition.refine.passes import move_vertices
from distgnn.partition.refine.placement import Limits, Placement, crowding
from distgnn.partition.refine.scratch import Scratch

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
    while placement.load.max() > limits.load and _may_move(placement, limits):
        if has_moved:
            _partitioner.drain_for_free(placement, limits)
            move_vertices(placement, scratch, limits, price=1, most_rows=most_rows)
        if least == 0:
            num_rounds += 1
            if num_rounds > MOST_ROUNDS:
                break
            if not _partitioner.begin_elsewhere(placement, limits, most_rows):
                break
            least, has_moved = MOST_BEGUN, True
            continue
        has_moved = _partitioner.drain_by_slots(placement, scratch, limits, least, most_rows)
        least //= 2
    for price in PRICES:
        if crowding(placement) <= limits.clones or not _may_move(placement, limits):
            break
        # Beyond the first price every vertex adds a row.
        if price > 1 and placement.totals[0] >= most_rows:
            break
        _partitioner.empty_crowded(placement, scratch, limits, price - 1, most_rows)
        move_vertices(placement, scratch, limits, price=price, most_rows=most_rows)


def _may_move(placement: Placement, limits: Limits) -> bool:
    """Return whether something may move: a root, or an edge to a part with room.

    In a window of parts all may be full, and roots stay.
    """
    return limits.roots > 0 or int(placement.load.min()) < limits.load
