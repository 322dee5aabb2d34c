"""Where edges live, in a form that local search can change edge by edge.

A vertex is two nodes: node v reads (sources), node num_vertices + v writes (destinations). A unit
is a distinct (source, destination, part) with the number of parallel edges behind it; it joins one
node of each kind. A slot counts the units of a node in a part. The first slot of a node is its
root's part, which is free and may be empty; every other slot is a row that travels. Slots are
lists, at most one entry per unit of the node and one for its root: never vertices times parts.

Bytes: 24 per unit, 16 for the work arrays of its moves, 4 per edge, 8 per entry of a list (at most
two per unit and two per vertex); sorting takes 20 per edge for a while.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from distgnn.datasets.errors import InputError
from distgnn.datasets.graph import Graph
from distgnn.partition.assignment import Assignment
from distgnn.partition.jit import compiled

# Nodes and places in lists of units are int32, and there are two per vertex and per unit.
MOST_VERTICES = 2**30 - 1
MOST_EDGES = 2**31 - 1
MOST_UNITS = 2**30 - 1


class Placement(NamedTuple):
    """Units, slots and loads; everything but the first five arrays changes as units move."""

    source: NDArray[np.int32]
    """(num_units,) int32. Reading node of each unit."""
    destination: NDArray[np.int32]
    """(num_units,) int32. Writing node of each unit."""
    weight: NDArray[np.int32]
    """(num_units,) int32. Edges that each unit stands for."""
    start: NDArray[np.int64]
    """(2 * num_vertices + 1,) int64. Where the units of each node begin in `unit`."""
    unit: NDArray[np.int32]
    """(2 * num_units,) int32."""
    part: NDArray[np.int32]
    """(num_units,) int32."""
    first: NDArray[np.int64]
    """(2 * num_vertices + 1,) int64. The first slot of each node, which is the root's."""
    used: NDArray[np.int32]
    """(2 * num_vertices,) int32. Slots of each node, at least 1."""
    slot_part: NDArray[np.int32]
    """(num_entries,) int32. Part of each slot."""
    slot_count: NDArray[np.int32]
    """(num_entries,) int32. Units of each slot."""
    load: NDArray[np.int64]
    """(num_parts,) int64. Edges."""
    clones: NDArray[np.int64]
    """(num_parts,) int64. Roots and leaves."""
    roots: NDArray[np.int64]
    """(num_parts,) int64. Roots."""
    totals: NDArray[np.int64]
    """(2,) int64. Rows that travel (halo_rows); clones of all parts."""
    spread: NDArray[np.float64]
    """(1,) float64. Sum of the roots of the counts of paid slots: less is easier to empty."""


class Limits(NamedTuple):
    """What no part may pass."""

    load: int
    """Edges of a part."""
    clones: float
    """Clones of a part over the mean."""
    roots: int
    """Roots of a part."""


def placement_of(graph: Graph, assignment: Assignment) -> tuple[Placement, NDArray[np.int32]]:
    """Count the slots of an assignment.

    Args:
        graph: The graph.
        assignment: Its parts.

    Returns:
        placement: The same for any order of the graph's edges.
        unit_of_edge: (num_edges,) int32. The unit of each edge.

    Raises:
        InputError: If there are too many vertices, edges or units for int32.
    """
    check_numbers(vertices=graph.num_vertices, edges=graph.num_edges)
    num_vertices, num_parts = graph.num_vertices, assignment.num_parts
    src, dst = graph.src.astype(np.int32), graph.dst.astype(np.int32)
    order = np.arange(graph.num_edges, dtype=np.int32)
    for key, bound in ((assignment.edge_part, num_parts), (dst, num_vertices), (src, num_vertices)):
        order = _sorted(key, bound, order)
    src, dst, part = src[order], dst[order], assignment.edge_part[order]
    is_new = np.ones(order.size, np.bool_)
    is_new[1:] = (src[1:] != src[:-1]) | (dst[1:] != dst[:-1]) | (part[1:] != part[:-1])
    unit_of_edge = np.empty(order.size, np.int32)
    unit_of_edge[order] = np.cumsum(is_new, dtype=np.int32) - np.int32(1)
    example = np.flatnonzero(is_new)
    check_numbers(units=example.size)
    weight = np.diff(example, append=order.size).astype(np.int32)
    source, destination = src[example], dst[example] + np.int32(num_vertices)
    start, unit = _incidence(source, destination, 2 * num_vertices)
    room = np.minimum(np.diff(start) + 1, num_parts)
    first = np.concatenate([[0], np.cumsum(room)])
    roots = np.bincount(assignment.root_part, minlength=num_parts).astype(np.int64)
    placement = Placement(
        source=source,
        destination=destination,
        weight=weight,
        start=start,
        unit=unit,
        part=part[example],
        first=first,
        used=np.ones(2 * num_vertices, np.int32),
        slot_part=np.zeros(first[-1], np.int32),
        slot_count=np.zeros(first[-1], np.int32),
        load=np.zeros(num_parts, np.int64),
        clones=roots.copy(),
        roots=roots,
        totals=np.array([0, num_vertices], np.int64),
        spread=np.zeros(1),
    )
    placement.slot_part[first[:-1]] = np.tile(assignment.root_part, 2)
    _fill(placement)
    return placement, unit_of_edge


def check_numbers(*, vertices: int = 0, edges: int = 0, units: int = 0) -> None:
    """Check that refinement can number what it moves.

    Args:
        vertices: How many there are.
        edges: How many there are.
        units: How many there are.

    Raises:
        InputError: If there are too many of one for int32.
    """
    for count, most, name in (
        (vertices, MOST_VERTICES, "vertices"),
        (edges, MOST_EDGES, "edges"),
        (units, MOST_UNITS, "distinct edges"),
    ):
        if count > most:
            raise InputError(
                f"refinement cannot number {count} {name}, at most {most}; leave it out with "
                "--refine off"
            )


@compiled
def _sorted(key: NDArray[np.int32], bound: int, order: NDArray[np.int32]) -> NDArray[np.int32]:
    """Sort items stably by a key in [0, bound), by counting."""
    position = np.zeros(bound + 1, np.int64)
    for k in key:
        position[k + 1] += 1
    position = np.cumsum(position)
    ordered = np.empty_like(order)
    for item in order:
        ordered[position[key[item]]] = item
        position[key[item]] += 1
    return ordered


@compiled
def _incidence(
    source: NDArray[np.int32], destination: NDArray[np.int32], num_nodes: int
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """List the units of each node, in their order."""
    start = np.zeros(num_nodes + 1, np.int64)
    for u in range(source.size):
        start[source[u] + 1] += 1
        start[destination[u] + 1] += 1
    start = np.cumsum(start)
    position = start.copy()
    unit = np.empty(2 * source.size, np.int32)
    for u in range(source.size):
        for node in (source[u], destination[u]):
            unit[position[node]] = u
            position[node] += 1
    return start, unit


@compiled
def _fill(placement: Placement) -> None:
    for u in range(placement.part.size):
        part = placement.part[u]
        _enter(placement, placement.source[u], part)
        _enter(placement, placement.destination[u], part)
        placement.load[part] += placement.weight[u]


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
def twin(placement: Placement, node: int) -> int:
    """Get the other node of the same vertex.

    Args:
        placement: Where the nodes are.
        node: A node.

    Returns:
        The writing node of a reading one, and the other way round.
    """
    num_vertices = placement.used.size // 2
    return node + num_vertices if node < num_vertices else node - num_vertices


@compiled
def move(placement: Placement, unit: int, part: int) -> None:
    """Move a unit to another part, and count anew.

    Args:
        placement: Changed.
        unit: The unit.
        part: Its new part.
    """
    home = placement.part[unit]
    source, destination = placement.source[unit], placement.destination[unit]
    # Leave before entering: a node has no more room for slots than units.
    _leave(placement, source, home)
    _leave(placement, destination, home)
    _enter(placement, source, part)
    _enter(placement, destination, part)
    placement.load[home] -= placement.weight[unit]
    placement.load[part] += placement.weight[unit]
    placement.part[unit] = part


@compiled
def _enter(placement: Placement, node: int, part: int) -> None:
    slot = find(placement, node, part)
    begin = placement.first[node]
    if slot < 0:
        slot = begin + placement.used[node]
        placement.used[node] += 1
        placement.slot_part[slot] = part
        placement.slot_count[slot] = 0
        placement.totals[0] += 1
        if find(placement, twin(placement, node), part) < 0:
            placement.clones[part] += 1
            placement.totals[1] += 1
    count = placement.slot_count[slot]
    placement.slot_count[slot] = count + 1
    if slot > begin:
        placement.spread[0] += math.sqrt(count + 1.0) - math.sqrt(count)


@compiled
def _leave(placement: Placement, node: int, part: int) -> None:
    slot = find(placement, node, part)
    begin = placement.first[node]
    count = placement.slot_count[slot]
    placement.slot_count[slot] = count - 1
    if slot == begin:
        return
    placement.spread[0] += math.sqrt(count - 1.0) - math.sqrt(count)
    if count == 1:
        placement.used[node] -= 1
        last = begin + placement.used[node]
        placement.slot_part[slot] = placement.slot_part[last]
        placement.slot_count[slot] = placement.slot_count[last]
        placement.totals[0] -= 1
        if find(placement, twin(placement, node), part) < 0:
            placement.clones[part] -= 1
            placement.totals[1] -= 1


@compiled
def move_root(placement: Placement, vertex: int, part: int) -> None:
    """Move a root to another part, and count anew.

    Args:
        placement: Changed.
        vertex: The vertex.
        part: Its new part.
    """
    num_vertices = placement.used.size // 2
    home = placement.slot_part[placement.first[vertex]]
    placement.roots[home] -= 1
    placement.roots[part] += 1
    is_leaving = is_new = True
    for node in (vertex, vertex + num_vertices):
        is_leaving &= placement.slot_count[placement.first[node]] == 0
        is_new &= find(placement, node, part) < 0
        _move_free_slot(placement, node, part)
    placement.clones[home] -= is_leaving
    placement.clones[part] += is_new
    placement.totals[1] += int(is_new) - int(is_leaving)


@compiled
def _move_free_slot(placement: Placement, node: int, part: int) -> None:
    """Make the node's slot in a part, which may be new, the free one."""
    begin = placement.first[node]
    home, count = placement.slot_part[begin], placement.slot_count[begin]
    slot = find(placement, node, part)
    placement.slot_count[begin] = 0
    if slot >= 0:
        placement.slot_count[begin] = placement.slot_count[slot]
        placement.spread[0] -= math.sqrt(placement.slot_count[slot])
        placement.totals[0] -= 1
        placement.used[node] -= 1
        last = begin + placement.used[node]
        placement.slot_part[slot] = placement.slot_part[last]
        placement.slot_count[slot] = placement.slot_count[last]
    placement.slot_part[begin] = part
    if count > 0:
        last = begin + placement.used[node]
        placement.used[node] += 1
        placement.slot_part[last] = home
        placement.slot_count[last] = count
        placement.spread[0] += math.sqrt(count)
        placement.totals[0] += 1
