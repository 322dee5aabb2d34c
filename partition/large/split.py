"""Edges into piles: those inside a part, which stay, and those between parts, by pairs of parts.

The edges between two parts, of both directions, are in one pile, because their vertex cover is
found at once. A pile holds several pairs, as many as fit into memory. A pair that does not fit is
split by its end on the lower part. Covers of the pieces are a cover, if not always the smallest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distgnn.partition.halo import group_by_part
from distgnn.partition.jit import compiled
from distgnn.partition.large.clock import Progress, StageProgress
from distgnn.partition.large.counts import narrow
from distgnn.partition.large.piles import Piles, Records
from distgnn.partition.large.source import GraphOnDisk
from distgnn.partition.threads import available_threads, in_order

# Their slices are appended by the caller's thread; more were not measured.
_MOST_THREADS = 2


@dataclass(frozen=True, eq=False)
class PileMap:
    """Distribution of edges among piles. Piles 0 .. num_parts - 1 are of edges inside a part."""

    first: NDArray[np.int32]
    """(num_parts, num_parts) int32, symmetric. First pile of each pair; on the diagonal its own."""
    pieces: NDArray[np.int32]
    """(num_parts, num_parts) int32, symmetric. Piles of each pair."""
    steps: tuple[range, ...]
    """The piles of edges between parts, those of a pair together."""

    @property
    def num_parts(self) -> int:
        """Number of parts."""
        return int(self.first.shape[0])

    @property
    def num_piles(self) -> int:
        """Number of piles of both kinds."""
        return self.steps[-1].stop if self.steps else self.num_parts


def plan(between: NDArray[np.int64], most_edges: int) -> PileMap:
    """Fill piles with pairs of parts, in the order of the parts.

    Args:
        between: (num_parts, num_parts) int64. Edges from roots on one part to roots on another.
        most_edges: Number of edges that a pile may hold.

    Returns:
        The plan.
    """
    num_parts = between.shape[0]
    both = between + between.T
    first = np.diag(np.arange(num_parts, dtype=np.int32))
    pieces = np.ones((num_parts, num_parts), np.int32)
    steps: list[range] = []
    held = most_edges + 1
    for one, other in zip(*np.triu_indices(num_parts, 1), strict=True):
        size = int(both[one, other])
        if size == 0:
            continue
        if held + size > most_edges:
            begin = steps[-1].stop if steps else num_parts
            num_pieces = -(-size // most_edges)
            steps.append(range(begin, begin + num_pieces))
            pieces[one, other] = pieces[other, one] = num_pieces
            # Nothing joins a pair that has several piles.
            held = size if num_pieces == 1 else most_edges
        else:
            held += size
        first[one, other] = first[other, one] = steps[-1].start
    return PileMap(first, pieces, tuple(steps))


def split(
    source: GraphOnDisk,
    root_part: NDArray[np.int32],
    plan: PileMap,
    piles: Piles,
    *,
    chunk_edges: int,
    progress: Progress | None,
) -> None:
    """Write every edge into its pile; those of a pile keep their order.

    Args:
        source: Source to partition.
        root_part: (num_vertices,) int32. Part of each vertex's root.
        plan: Which pile.
        piles: Empty ones.
        chunk_edges: Edges to hold at a time.
        progress: Called with one line of text now and then.
    """
    clock = StageProgress("sorting", "edges", source.edges.num_edges, progress)
    part = narrow(root_part, plan.num_parts)
    threads = min(available_threads(), _MOST_THREADS)
    # Each thread has a slice in hand, and one more is written.
    size = max(chunk_edges // (threads + 1), 1)

    def group(start: int) -> tuple[Records, NDArray[np.int64]]:
        src, dst = source.edges.read(start, start + size)
        records = np.empty(src.size, piles.dtype)
        records["src"] = src
        records["dst"] = dst
        if "edge" in (piles.dtype.names or ()):
            records["edge"] = np.arange(start, start + src.size)
        order, begin = group_by_part(
            _piles_of(src, dst, part, plan.first, plan.pieces), plan.num_piles
        )
        return records[order], begin

    with in_order(group, range(0, source.edges.num_edges, size), threads) as grouped:
        for records, begin in grouped:
            piles.deal(records, begin, range(plan.num_piles))
            clock.add(records.size)
    piles.commit()
    clock.end()


@compiled
def _piles_of(
    src: NDArray[np.integer[Any]],
    dst: NDArray[np.integer[Any]],
    part: NDArray[np.integer[Any]],
    first: NDArray[np.int32],
    pieces: NDArray[np.int32],
) -> NDArray[np.int32]:
    pile_of = np.empty(src.size, np.int32)
    for k in range(src.size):
        one, other = part[src[k]], part[dst[k]]
        pile_of[k] = first[one, other]
        # Few pairs have several; a division takes longer than all the rest.
        if pieces[one, other] > 1:
            low = src[k] if one < other else dst[k]
            pile_of[k] += low % pieces[one, other]
    return pile_of
