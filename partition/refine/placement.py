"""Parts on which edges live, in a form that local search can change edge by edge.

A unit is an arc, with the number of parallel edges behind it, in one part. It has two ends, an
entry at each of its two nodes. If all edges of a graph have a reverse in the same part, a node is a
vertex, and an edge and its reverse are one unit. Otherwise a vertex is two nodes: node v reads
(sources), node num_vertices + v writes (destinations).

A slot counts the units of a node in a part. The first slot of a node is its root's part, which is
free and may be empty. Every other slot is paid: rows travel for it. Slots are lists, with at most
one entry per unit of the node and one for its root, never vertices times parts. Beside them are
sets of parts, one bit each.

Bytes: 24 per unit (32 if they differ in edges), 8 per slot there may be, 24 and 16 per 64 parts
(bits) a node.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from distgnn import _partitioner
from distgnn.datasets.errors import InputError
from distgnn.partition.arcs import Arcs
from distgnn.partition.stream import no_clones
from distgnn.partition.threads import even_bounds, over_bounds, over_items, threads_for

# Nodes and entries are int32, and there are two per vertex and per unit.
MOST_VERTICES = 2**30 - 1
MOST_UNITS = 2**30 - 1


class Placement(NamedTuple):
    """Entries, slots and loads; what follows `weight` changes as units move."""

    num_vertices: int
    """Vertices of the graph."""
    price: int
    """Rows of a paid slot: 2 where nodes are vertices, 1 where they are the two roles of those."""
    start: NDArray[np.int64]
    """(num_nodes + 1,) int64. Where the entries of each node begin."""
    neighbor: NDArray[np.int32]
    """(num_entries,) int32. Node at the other end of the unit."""
    mate: NDArray[np.int32]
    """(num_entries,) int32. The unit's other entry; a loop of a node has one, its own mate."""
    weight: NDArray[np.int32]
    """(num_entries,) int32. Edges that the unit stands for; (1,) if all do for as many."""
    part: NDArray[np.int32]
    """(num_entries,) int32. Part of the unit."""
    first: NDArray[np.int64]
    """(num_nodes + 1,) int64. The first slot of each node, which is the root's."""
    used: NDArray[np.int32]
    """(num_nodes,) int32. Slots of each node, at least 1."""
    slot_part: NDArray[np.int32]
    """(num_slots,) int32. Part of each slot."""
    slot_count: NDArray[np.int32]
    """(num_slots,) int32. Units of each slot."""
    held: NDArray[np.uint64]
    """(num_nodes, num_words) uint64. Set of the parts of each node's slots, the free one's too."""
    single: NDArray[np.uint64]
    """(num_nodes, num_words) uint64. Set of the parts of its paid slots with one unit."""
    load: NDArray[np.int64]
    """(num_parts,) int64. Edges."""
    clones: NDArray[np.int64]
    """(num_parts,) int64. Roots and leaves."""
    roots: NDArray[np.int64]
    """(num_parts,) int64. Roots."""
    training: NDArray[np.int32]
    """(num_vertices,) int32. What each root adds to the next; empty where nothing is to be even."""
    trained: NDArray[np.int64]
    """(num_parts,) int64. Training roots, a root as often as there are splits with it."""
    totals: NDArray[np.int64]
    """(2,) int64. Rows that travel (halo_rows); clones of all parts."""
    is_due: NDArray[np.uint8]
    """(num_nodes,) uint8. Bits, 1 of slots and 2 of roots not tried since something changed."""


# Of the bits of is_due, one for slots and one for the root.
_ALL_DUE = 3


class Limits(NamedTuple):
    """Limits that no part may exceed."""

    load: int
    """Edges of a part."""
    clones: float
    """Clones of a part over the mean."""
    roots: int
    """Roots of a part."""
    trained: int = 0
    """Training roots of a part, where they are to be even."""


def placement_of(
    arcs: Arcs,
    arc_part: NDArray[np.int32],
    root_part: NDArray[np.int32],
    num_parts: int,
    training: NDArray[np.int32] | None = None,
) -> Placement:
    """Count the slots of an assignment.

    Args:
        arcs: Arcs of the graph.
        arc_part: (num_arcs,) int32. Their parts; entry k stays that of arc k.
        root_part: (num_vertices,) int32.
        num_parts: At least 1.
        training: (num_vertices,) int32. Splits that each vertex is trained on in; None if parts
            need not share them evenly.

    Returns:
        The placement.

    Raises:
        InputError: If there are too many vertices or units for int32.
    """
    num_vertices = arcs.num_vertices
    check_numbers(vertices=num_vertices, units=arcs.head.size)
    # Units have room in int32, and arcs are as many, whatever numbers their edges need.
    mate = arcs.mate.astype(np.int32, copy=False)
    if arcs.is_symmetric and all(over_items(_partitioner.are_together, mate.size, mate, arc_part)):
        price, start, neighbor = 2, arcs.start, arcs.head
        part = arc_part.copy()
        weight = arcs.both_ways()
    else:
        price = 1
        start, neighbor, mate = _partitioner.arcs_apart(arcs.start, arcs.head)
        part, weight = np.tile(arc_part, 2), np.tile(arcs.weight, 2)
        part[mate[: arc_part.size]] = arc_part
        weight[mate[: arc_part.size]] = arcs.weight
    if weight.size and weight.min() == weight.max():
        weight = weight[:1].copy()
    num_nodes = start.size - 1
    room = np.minimum(np.diff(start) + 1, num_parts)
    first = np.concatenate([[0], np.cumsum(room)])
    roots = np.bincount(root_part, minlength=num_parts).astype(np.int64)
    if training is None:
        training, trained = np.zeros(0, np.int32), np.zeros(num_parts, np.int64)
    else:
        trained = np.bincount(root_part, training, minlength=num_parts).astype(np.int64)
    placement = Placement(
        num_vertices=num_vertices,
        price=price,
        start=start,
        neighbor=neighbor,
        mate=mate,
        weight=weight.astype(np.int32, copy=False),
        part=part,
        first=first,
        used=np.ones(num_nodes, np.int32),
        slot_part=np.zeros(first[-1], np.int32),
        slot_count=np.zeros(first[-1], np.int32),
        held=no_clones(num_nodes, num_parts),
        single=no_clones(num_nodes, num_parts),
        load=np.zeros(num_parts, np.int64),
        clones=roots.copy(),
        roots=roots,
        training=training,
        trained=trained,
        totals=np.array([0, num_vertices], np.int64),
        is_due=np.full(num_nodes, _ALL_DUE, np.uint8),
    )
    # Writing nodes ask those that read, which come first.
    _fill(placement, root_part, 0, num_vertices)
    _fill(placement, root_part, num_vertices, num_nodes)
    return placement


def _fill(placement: Placement, root_part: NDArray[np.int32], first: int, last: int) -> None:
    """Count the slots of a range of nodes on several threads, each with counts of its own."""
    if first == last:
        return
    counted = ("load", "clones", "totals")
    threads = threads_for(int(placement.start[last] - placement.start[first]))

    def fill(begin: int, end: int) -> list[NDArray[np.int64]]:
        counts = [np.zeros_like(getattr(placement, name)) for name in counted]
        own = placement._replace(**dict(zip(counted, counts, strict=True)))
        _partitioner.fill_placement(begin, end, own, root_part)
        return counts

    for counts in over_bounds(fill, even_bounds(placement.start, first, last, threads)):
        for name, count in zip(counted, counts, strict=True):
            getattr(placement, name)[:] += count


def check_numbers(*, vertices: int = 0, units: int = 0) -> None:
    """Check that refinement can number what it moves.

    Args:
        vertices: How many there are.
        units: How many there are.

    Raises:
        InputError: If there are too many of one for int32.
    """
    for count, most, name in (
        (vertices, MOST_VERTICES, "vertices"),
        (units, MOST_UNITS, "distinct edges"),
    ):
        if count > most:
            raise InputError(
                f"refinement cannot number {count} {name}, at most {most}; leave it out with "
                "--refine off"
            )


def crowding(placement: Placement) -> float:
    """Measure how unevenly clones are spread.

    Args:
        placement: Where the clones are.

    Returns:
        Clones of the fullest part over the mean.
    """
    return float(placement.clones.max() * placement.clones.size / placement.totals[1])
