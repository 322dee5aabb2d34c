"""The edges between parts as one bipartite graph of slots, and its minimum vertex covers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from distgnn import _partitioner
from distgnn.partition.csr import order_by, pointers
from distgnn.partition.methods.matching import (
    UNMATCHED,
    Bipartite,
    Matching,
    alternating_reach,
    maximum_matching,
)


class CutEdges(NamedTuple):
    """Distinct edges between parts as one bipartite graph of slots."""

    left: NDArray[np.int32]
    """(num_distinct,) int32. Left slot (u, part of v) of each distinct edge u -> v."""
    right: NDArray[np.int32]
    """(num_distinct,) int32. Right slot (v, part of u)."""
    left_key: NDArray[np.int64]
    """(num_left,) int64, ascending. vertex * num_parts + part of each left slot."""
    right_key: NDArray[np.int64]
    """(num_right,) int64, ascending. The same of each right slot."""
    source_part: NDArray[np.int32]
    """(num_distinct,) int32. Part of the source's root."""
    destination_part: NDArray[np.int32]
    """(num_distinct,) int32. Part of the destination's root."""
    multiplicity: NDArray[np.int64]
    """(num_distinct,) int64. Parallel edges that each distinct edge stands for."""


class Cover(NamedTuple):
    """Slots that every minimum cover holds, and components that may go either way."""

    is_left_covered: NDArray[np.bool_]
    """(num_left,) bool. In every minimum cover that alternating paths settle."""
    is_right_covered: NDArray[np.bool_]
    """(num_right,) bool. The same for right slots."""
    is_left_free: NDArray[np.bool_]
    """(num_left,) bool. Covered exactly if its component is covered on the left."""
    is_right_free: NDArray[np.bool_]
    """(num_right,) bool. Covered exactly if its component is covered on the right."""
    size: int
    """Slots of a minimum cover: rows that travel."""


def cut_edges(
    src: NDArray[np.int32],
    dst: NDArray[np.int32],
    multiplicity: NDArray[np.int32],
    root_part: NDArray[np.int32],
    num_parts: int,
) -> CutEdges:
    """Build the bipartite graph of the edges between parts.

    Args:
        src: (num_distinct,) Ascending sources of distinct edges whose ends have roots on different
            parts.
        dst: (num_distinct,) Their destinations.
        multiplicity: (num_distinct,) Edges that each stands for.
        root_part: (num_vertices,) int32.
        num_parts: Number of parts.

    Returns:
        The edges and their slots.
    """
    source_part, destination_part = root_part[src], root_part[dst]
    left, left_key = _partitioner.number_slots(src, destination_part, num_parts)
    by_destination = order_by(dst, root_part.size)
    in_order, right_key = _partitioner.number_slots(
        dst[by_destination], source_part[by_destination], num_parts
    )
    right = np.empty_like(in_order)
    right[by_destination] = in_order
    return CutEdges(
        left=left,
        right=right,
        left_key=left_key,
        right_key=right_key,
        source_part=source_part,
        destination_part=destination_part,
        multiplicity=multiplicity.astype(np.int64),
    )


def minimum_cover(edges: CutEdges) -> Cover:
    """Find the minimum vertex covers of the bipartite graph of cut edges.

    Args:
        edges: The graph.

    Returns:
        The settled slots and the free ones.
    """
    num_left, num_right = edges.left_key.size, edges.right_key.size
    forward = _bipartite(edges.left, edges.right, num_left, num_right)
    backward = _bipartite(edges.right, edges.left, num_right, num_left)
    matching = maximum_matching(forward)
    # Koenig from the left: a reached right slot is covered, a reached left slot is not.
    left_out, right_in = alternating_reach(forward, matching)
    right_out, left_in = alternating_reach(backward, Matching(matching.right, matching.left))
    return Cover(
        is_left_covered=left_in,
        is_right_covered=right_in,
        is_left_free=~(left_in | left_out),
        is_right_free=~(right_in | right_out),
        size=int(np.count_nonzero(matching.left != UNMATCHED)),
    )


def _bipartite(
    row: NDArray[np.int32], column: NDArray[np.int32], num_rows: int, num_columns: int
) -> Bipartite:
    return Bipartite(pointers(row, num_rows), column[order_by(row, num_rows)], num_columns)
