"""Slots: the distinct (vertex, part) pairs that a set of edges touches.

A reading leaf is a slot of the edges' sources, a writing leaf one of their destinations, where the
part is not the root's. Quality, root placement and build all count the same slots, here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distgnn import _partitioner
from distgnn.datasets.distinct import distinct
from distgnn.partition.threads import (
    item_bounds,
    over_bounds,
    over_items,
    places_of,
    threads_for,
)

# Bytes of the keys of a sort, per pair: a table that takes no more is worth its memory.
_BYTES_OF_KEYS = 16


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
    """Mark pairs in a table of all slots: many times faster than to sort them."""
    is_slot = np.zeros(num_slots, np.bool_)
    pairs = np.ascontiguousarray(vertex), np.ascontiguousarray(part)
    marks = is_slot.view(np.uint8)
    over_items(_partitioner.mark_slots, vertex.size, *pairs, num_vertices, marks)
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
    part = np.ascontiguousarray(part, np.int32)
    bounds = item_bounds(part.size, threads_for(part.size))
    start, places = places_of(over_bounds(_counts, bounds, part, num_parts))
    order = np.empty(part.size, np.int32 if part.size <= np.iinfo(np.int32).max else np.int64)
    over_bounds(_partitioner.group_items, bounds, part, order, own=places)
    return order, start


def counts_by_part(part: NDArray[np.int32], num_parts: int) -> NDArray[np.int64]:
    """Count the items of each part.

    Args:
        part: (num_items,) int32 in [0, num_parts).
        num_parts: Number of parts.

    Returns:
        (num_parts,) int64.
    """
    counts: NDArray[np.int64] = np.sum(over_items(_counts, part.size, part, num_parts), axis=0)
    return counts


def _counts(first: int, last: int, part: NDArray[np.int32], num_parts: int) -> NDArray[np.int64]:
    return np.diff(_partitioner.starts_of(part[first:last], num_parts))
