"""Search for blocks that move fewer rows than a cover, in as little time as possible."""

from __future__ import annotations

import math
from copy import copy
from typing import TYPE_CHECKING

import numpy as np

from distgnn.partition.methods.blocks import place_in_blocks
from distgnn.partition.methods.candidates import (
    cheapest,
    excess_edges,
    halo_rows,
    is_even,
    refined_from,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from distgnn.partition.arcs import Adjacency, Arcs
    from distgnn.partition.assignment import Assignment
    from distgnn.partition.refine.balance import Balance
    from distgnn.partition.stopwatch import Stopwatch

# Rows of blocks over those of the refined cover up to which they are worth refining.
MOST_BLOCK_ROWS = 1.1
# Where a cover, unrefined, moves so many times the rows of a graph without communities, blocks that
# move so small a share of its rows ended below it whenever both were refined, and refinement takes
# longer than all else: Reddit's twin in 16 parts (0.61, 0.68), not attr-blogcatalog (0.85).
MANY_COVER_ROWS, FEW_BLOCK_ROWS = 1.4, 0.7


def fewest_rows_without_structure(num_vertices: int, num_parts: int) -> float:
    """Say how many rows a graph moves that is equally dense everywhere, if it is cut well.

    A part with 1 / num_parts of its edges has to have 1 / sqrt(num_parts) of its vertices. A cover
    that moves more than that makes little of the structure there is.

    Args:
        num_vertices: Number of vertices of the graph, those with edges.
        num_parts: At least 1.

    Returns:
        Rows read and written.
    """
    return 2.0 * num_vertices * (math.sqrt(num_parts) - 1.0)


class BlockSearch:
    """Edges in blocks, where the cover moves many rows; searched for once.

    Args:
        arcs: Arcs of the graph.
        adjacency: Graph that `adjacency_of` makes of the arcs.
        num_parts: Number of parts.
        balance: Balance to aim at.
        seed: Seed of the search.
        watch: Told of what was found.
    """

    def __init__(
        self,
        arcs: Arcs,
        adjacency: Adjacency,
        num_parts: int,
        balance: Balance,
        *,
        seed: int,
        watch: Stopwatch,
    ) -> None:
        self._arcs = arcs
        self._adjacency = adjacency
        self._balance = balance
        self._seed = seed
        self._watch = watch
        num_linked = int(np.count_nonzero(np.diff(adjacency.indptr)))
        self._fair = fewest_rows_without_structure(num_linked, num_parts)
        self._can_help = num_parts > 1 and adjacency.indices.size > 0
        self._blocks: Assignment | None = None
        self._has_replaced_cover = False

    def again(self) -> BlockSearch:
        """Return a search for the same graph that has found nothing yet."""
        other = copy(self)
        other._blocks, other._has_replaced_cover = None, False
        return other

    def instead_of(self, covered: Assignment) -> Assignment | None:
        """Refine blocks if they move so many fewer rows that the cover need not be refined."""
        if not self._can_help:
            return None
        rows = halo_rows(self._arcs, covered)
        if rows <= MANY_COVER_ROWS * self._fair:
            return None
        blocks = self._place(covered.root_part, covered.num_parts, FEW_BLOCK_ROWS * rows)
        if blocks is None or halo_rows(self._arcs, blocks) > FEW_BLOCK_ROWS * rows:
            return None
        refined = refined_from(self._arcs, blocks, self._balance, 0)
        has_excess = excess_edges(self._arcs, refined, self._balance.edges) > 0
        if has_excess or not is_even(refined, self._balance):
            return None
        self._has_replaced_cover = True
        self._watch.note(f"edges in blocks: {self._told(rows, blocks, refined)}")
        return refined

    def better_than(self, placed: Assignment, roots: NDArray[np.int32]) -> Assignment:
        """Try blocks where refinement left many rows, and return what moves fewer of them."""
        if self._has_replaced_cover or not self._can_help:
            return placed
        rows = halo_rows(self._arcs, placed)
        if rows <= self._fair:
            return placed
        blocks = self._place(roots, placed.num_parts, MOST_BLOCK_ROWS * rows)
        if blocks is None:
            self._watch.note("blocks tried in vain")
            return placed
        if halo_rows(self._arcs, blocks) > MOST_BLOCK_ROWS * rows:
            self._watch.note(f"blocks tried in vain: {self._told(rows, blocks)}")
            return placed
        refined = refined_from(self._arcs, blocks, self._balance, 0)
        best = placed
        if is_even(refined, self._balance) or not is_even(placed, self._balance):
            best = cheapest(self._arcs, (placed, refined), self._balance.edges)
        found = "edges in blocks" if best is refined else "blocks refined in vain"
        self._watch.note(f"{found}: {self._told(rows, blocks, refined)}")
        return best

    def _place(
        self, roots: NDArray[np.int32], num_parts: int, most_rows: float
    ) -> Assignment | None:
        if self._blocks is None:
            self._blocks = place_in_blocks(
                self._arcs,
                self._adjacency,
                roots,
                num_parts,
                seed=self._seed,
                most_rows=most_rows,
            )
        return self._blocks

    def _told(self, rows: int, blocks: Assignment, refined: Assignment | None = None) -> str:
        num_vertices = self._arcs.num_vertices
        told = (
            f"{rows / num_vertices:.2f} rows a vertex by cover, worth a try above "
            f"{self._fair / num_vertices:.2f}, {halo_rows(self._arcs, blocks) / num_vertices:.2f} "
            "by blocks"
        )
        if refined is None:
            return told
        return f"{told}, {halo_rows(self._arcs, refined) / num_vertices:.2f} when refined"
