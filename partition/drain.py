"""Moves that take edges out of overfull parts, those that add the fewest rows first."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from distgnn.partition.empty_slots import NOWHERE, Scratch, crowding
from distgnn.partition.jit import compiled
from distgnn.partition.move_vertices import move_vertices
from distgnn.partition.placement import Limits, Placement, find, move

# Rows that a vertex may add when it leaves a part with too many clones, and one.
MAX_PRICE = 16


def drain(placement: Placement, scratch: Scratch, limits: Limits, most_rows: int) -> None:
    """Move edges out of parts above the limit, then vertices out of parts with too many clones.

    First those whose ends both live in a part with room: they add no row. Then a new slot is made
    where it lets many edges go, and ever fewer edges per slot.

    Args:
        placement: Changed.
        scratch: Clean work arrays.
        limits: What no part may pass; a part that does may keep its load.
        most_rows: No slot is made that would pass these rows in all.
    """
    least = int(placement.load.max())
    while placement.load.max() > limits.load:
        _drain_for_free(placement, scratch, limits)
        move_vertices(placement, scratch, limits, (1, most_rows))
        if least == 0:
            break
        _drain_by_slots(placement, scratch, limits, np.array([least, most_rows]))
        least //= 2
    for price in range(1, MAX_PRICE + 1):
        if crowding(placement) <= limits.clones:
            break
        move_vertices(placement, scratch, limits, (price, most_rows))


@compiled
def _drain_for_free(placement: Placement, scratch: Scratch, limits: Limits) -> None:
    for unit in range(placement.part.size):
        home = placement.part[unit]
        if placement.load[home] <= limits.load:
            continue
        source, destination = placement.source[unit], placement.destination[unit]
        _mark(placement, scratch, source)
        best, best_load = NOWHERE, limits.load - placement.weight[unit]
        begin = placement.first[destination]
        for slot in range(begin, begin + placement.used[destination]):
            part = placement.slot_part[slot]
            if (
                part != home
                and scratch.mark[part] == scratch.stamp[0]
                and placement.load[part] <= best_load
            ):
                best, best_load = part, placement.load[part]
        if best != NOWHERE:
            _move_evenly(placement, limits, unit, best)


@compiled
def _mark(placement: Placement, scratch: Scratch, node: int) -> None:
    scratch.stamp[0] += 1
    begin = placement.first[node]
    for slot in range(begin, begin + placement.used[node]):
        scratch.mark[placement.slot_part[slot]] = scratch.stamp[0]


@compiled
def _drain_by_slots(
    placement: Placement, scratch: Scratch, limits: Limits, bounds: NDArray[np.int64]
) -> None:
    """Make every slot that lets at least bounds[0] edges go, up to bounds[1] rows in all."""
    num_vertices = placement.used.size // 2
    for vertex in range(num_vertices):
        for node in (vertex, vertex + num_vertices):
            home = _fullest(placement, limits, node, bounds[0])
            if home != NOWHERE and placement.totals[0] < bounds[1]:
                part = _roomy_part(placement, scratch, limits, (node, home, bounds[0]))
                if part != NOWHERE:
                    _move_to(placement, limits, node, (home, part))


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
    _mark(placement, scratch, node)
    for k in range(placement.start[node], placement.start[node + 1]):
        unit = placement.unit[k]
        if placement.part[unit] == home:
            other = placement.source[unit] + placement.destination[unit] - node
            begin = placement.first[other]
            for slot in range(begin, begin + placement.used[other]):
                scratch.tally[placement.slot_part[slot]] += placement.weight[unit]
    best, best_gain = NOWHERE, max(least, 1) - 1
    most_clones = limits.clones * placement.totals[1] / placement.load.size
    for part in range(placement.load.size):
        gain = min(scratch.tally[part], limits.load - placement.load[part])
        if (
            gain > best_gain
            and scratch.mark[part] != scratch.stamp[0]
            and placement.clones[part] + 1 <= most_clones
        ):
            best, best_gain = part, gain
    scratch.tally[:] = 0
    return best


@compiled
def _move_to(placement: Placement, limits: Limits, node: int, way: tuple[int, int]) -> None:
    """Move the node's units from one part to another that holds their other ends."""
    home, part = way
    for k in range(placement.start[node], placement.start[node + 1]):
        unit = placement.unit[k]
        other = placement.source[unit] + placement.destination[unit] - node
        if (
            placement.part[unit] == home
            and placement.load[home] > limits.load
            and placement.load[part] + placement.weight[unit] <= limits.load
            and find(placement, other, part) >= 0
        ):
            _move_evenly(placement, limits, unit, part)


@compiled
def _move_evenly(placement: Placement, limits: Limits, unit: int, part: int) -> None:
    """Move a unit, unless that leaves the clones less even than they may be."""
    home, most = placement.part[unit], max(crowding(placement), limits.clones)
    move(placement, unit, part)
    if crowding(placement) > most:
        move(placement, unit, home)
