"""Passes over all slots or roots, each of which keeps the moves that pay."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from distgnn import _partitioner
from distgnn.partition.refine.placement import Limits, Placement
from distgnn.partition.refine.scratch import Scratch

# Nodes of a block. With all nodes shuffled at once, what a move reads comes from slow memory: on a
# window of 8 million entries a pass took 1.5 times as long, and left as many rows but for 0.1 %.
_SHUFFLED = 1 << 14


def empty_slots(placement: Placement, scratch: Scratch, limits: Limits) -> int:
    """Try once to empty every paid slot of every node that is due.

    The units of a slot go to parts that hold their ends already. A move is kept if fewer rows
    travel. It is also kept if as many travel, and the sum of the square roots of the slots' units
    falls: then small slots got smaller, and may be emptied later. No load passes its limit; nor do
    the clones over their mean, unless they did before.

    A node is due until it was tried. It is due again once a move may have opened a way. Then one of
    its units moved or stayed behind alone, or a neighbour came to a part that it is on as well.

    Args:
        placement: Changed.
        scratch: Clean work arrays.
        limits: Limits that no part may exceed.

    Returns:
        Number of moves kept.
    """
    return _partitioner.empty_slots(placement, scratch, limits)


def wander(
    placement: Placement, scratch: Scratch, limits: Limits, generator: np.random.Generator
) -> None:
    """Try once to empty every small paid slot, also where as many rows travel afterwards.

    `empty_slots` ends where all moves that save nothing make small slots larger. From there many
    placements with as many rows are a few such moves away, and some of them can be improved. Blocks
    of nodes, and the nodes of each, are taken in random order: in the same one, passes would undo
    each other's moves.

    Args:
        placement: Changed; never to more rows.
        scratch: Clean work arrays.
        limits: Limits that no part may exceed, unless it did before.
        generator: Source of the random order.

    References:
        Selman, Levesque and Mitchell, "A new method for solving hard satisfiability problems",
        AAAI 1992 (sideways moves).
    """
    order = _shuffled(np.flatnonzero(placement.used > 1), generator)
    _partitioner.wander(placement, scratch, limits, order)


def _shuffled(nodes: NDArray[np.int64], generator: np.random.Generator) -> NDArray[np.int64]:
    """Return nodes in random order, those of a block one after another."""
    num_in_blocks = nodes.size // _SHUFFLED * _SHUFFLED
    blocks = generator.permutation(nodes[:num_in_blocks].reshape(-1, _SHUFFLED))
    rest = generator.permutation(nodes[num_in_blocks:])
    return np.concatenate([generator.permuted(blocks, axis=1).ravel(), rest])


def move_vertices(
    placement: Placement, scratch: Scratch, limits: Limits, *, price: int, most_rows: int
) -> int:
    """Try once to move every root, and the edges beside it, to the part of most of its neighbors.

    Args:
        placement: Changed.
        scratch: Clean work arrays.
        limits: Limits that no part may exceed.
        price: With 0 a move must save rows. Otherwise only vertices of overfull and crowded parts
            move, and each may add fewer rows than the price.
        most_rows: Most rows in all.

    Returns:
        Number of vertices moved.
    """
    return _partitioner.move_vertices(placement, scratch, limits, price, most_rows)
