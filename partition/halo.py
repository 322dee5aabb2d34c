"""Slots: the distinct (vertex, part) pairs that a set of edges touches.

A reading leaf is a slot of the edges' sources, a writing leaf one of their destinations, where the
part is not the root's. Quality, root placement and build all count the same slots, here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distgnn.datasets.distinct import distinct
from distgnn.partition.csr import order_by, pointers

# Bytes of the keys of a sort, per pair: a table that takes no more is worth its memory.
_BYTES_OF_KEYS = 16
# Pairs whose keys are made at a time.
_CHUNK = 1 << 20


@dataclass(frozen=True, eq=False)
class Slots:
    """Distinct (vertex, part) pairs, sorted by part, then vertex."""

    vertex: NDArray[np.int64]
    """(num_slots,) int64."""
    part: NDArray[np.int64]
    """(num_slots,) int64."""

    def away_from(self, root_part: NDArray[np.int32]) -> Slots:
        """Keep the slots that are not at their vertex's root, which are the ones rows travel for.

        Args:
            root_part: (num_vertices,) int32.

        Returns:
            The leaves among the slots, in the same order.
        """
        is_leaf = root_part[self.vertex] != self.part
        return Slots(self.vertex[is_leaf], self.part[is_leaf])


def distinct_slots(
    vertex: NDArray[np.integer[Any]], part: NDArray[np.int32], num_vertices: int
) -> Slots:
    """Reduce (vertex, part) pairs to the distinct ones.

    Args:
        vertex: (num_pairs,) int32 or int64.
        part: (num_pairs,) int32.
        num_vertices: More than any vertex; num_vertices times the number of parts fits int64.

    Returns:
        The pairs without repetition, sorted by part, then vertex.
    """
    num_slots = (int(part.max(initial=-1)) + 1) * num_vertices
    if num_slots <= _BYTES_OF_KEYS * vertex.size:
        key = _marked(vertex, part, num_vertices, num_slots)
    else:
        key = distinct(part.astype(np.int64) * num_vertices + vertex)
    return Slots(key % num_vertices, key // num_vertices)


def _marked(
    vertex: NDArray[np.integer[Any]], part: NDArray[np.int32], num_vertices: int, num_slots: int
) -> NDArray[np.int64]:
    """Mark pairs in a table of all slots: several times faster than to sort them."""
    is_slot = np.zeros(num_slots, np.bool_)
    for begin in range(0, vertex.size, _CHUNK):
        some = slice(begin, begin + _CHUNK)
        is_slot[part[some].astype(np.int64) * num_vertices + vertex[some]] = True
    return np.flatnonzero(is_slot)


def group_by_part(
    part: NDArray[np.int32], num_parts: int
) -> tuple[NDArray[np.integer[Any]], NDArray[np.int64]]:
    """Order items by part, keeping the order inside a part.

    Args:
        part: (num_items,) int32 in [0, num_parts).
        num_parts: Number of parts.

    Returns:
        order: (num_items,) int32, or int64 if that is too small: the items of part 0, then those
            of part 1, ...
        start: (num_parts + 1,) int64, where each part begins in `order`.
    """
    return order_by(part, num_parts), pointers(part, num_parts)
