"""Moves between placements of as many rows, until one is met from which fewer can be reached."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from distgnn.partition.jit import borrow, compiled
from distgnn.partition.refine.empty_slots import order_slots, try_plan
from distgnn.partition.refine.moves import find
from distgnn.partition.refine.placement import DUE_ROOT, DUE_SLOTS, Limits, Placement
from distgnn.partition.refine.slot_plan import Scratch, list_by_part, plan

# Units of a slot beyond which moving them was seldom free, and takes the most time.
MOST_UNITS = 16


def wander(
    placement: Placement, scratch: Scratch, limits: Limits, generator: np.random.Generator
) -> None:
    """Try once to empty every small paid slot, also where as many rows travel afterwards.

    `empty_slots` ends where all moves that save nothing make small slots larger. From there many
    placements with as many rows are a few such moves away, and some of them can be improved. Nodes
    are taken in random order: in the same one, passes would undo each other's moves.

    Args:
        placement: Changed; never to more rows.
        scratch: Clean work arrays.
        limits: Limits that no part may exceed, unless it did before.
        generator: Source of the random order.

    References:
        Selman, Levesque and Mitchell, "A new method for solving hard satisfiability problems",
        AAAI 1992 (sideways moves).
    """
    order = generator.permutation(np.flatnonzero(placement.used > 1))
    _wander(placement, scratch, limits, order)


@compiled
def _wander(
    placement: Placement, scratch: Scratch, limits: Limits, order: NDArray[np.int64]
) -> None:
    placement, scratch = borrow(placement), borrow(scratch)
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
                _make_due(placement, scratch, node, part)
                is_listed = False


@compiled
def _make_due(placement: Placement, scratch: Scratch, node: int, part: int) -> None:
    """Note that the ends of a slot's units may move again, and their roots."""
    placement.is_due[node] = DUE_SLOTS | DUE_ROOT
    for i in range(scratch.begin[part], scratch.end[part]):
        placement.is_due[placement.neighbor[scratch.entry[i]]] = DUE_SLOTS | DUE_ROOT
