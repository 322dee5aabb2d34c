"""Edges between parts by minimum vertex cover, a pile of pairs of parts at a time."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from distgnn.datasets.distinct import distinct
from distgnn.partition.arcs import arcs_of
from distgnn.partition.large.clock import Progress, StageProgress
from distgnn.partition.large.local import local_graph
from distgnn.partition.large.piles import Piles, Records
from distgnn.partition.large.split import PileMap
from distgnn.partition.large.work import WorkFolder
from distgnn.partition.methods.cover import CoveredArcs, cover_arcs, level_arcs
from distgnn.partition.threads import in_order

# Sorting three times, with what goes with it.
BYTES_PER_EDGE = 150


def cover(
    work: WorkFolder,
    plan: PileMap,
    root_part: NDArray[np.int32],
    *,
    piles: Piles,
    placed: Piles,
    threads: int = 1,
    progress: Progress | None,
) -> None:
    """Place the edges of the piles between parts, each at the root of one of its ends.

    Records under `covered` the number of steps that are done, the edges placed on each part, and
    the rows that would travel with every edge at its destination's root.

    Args:
        work: Work folder of the partitioning.
        plan: Contents of the piles.
        root_part: (num_vertices,) int32. Part of each vertex's root.
        piles: The edges; piles that are done with are removed.
        placed: Where to; pile p is of part p. What an interrupted step added is dropped.
        threads: Piles whose covers are found at a time, while those of another one are placed.
        progress: Called with one line of text now and then.
    """
    num_parts = plan.num_parts
    inner = np.array([piles.size(part) for part in range(num_parts)])
    if work["covered"] is None:
        work.record(covered=[0, [0] * num_parts, 0])
    done, sizes, rows = work["covered"]
    placed.cut_back(sizes)
    left = [sum(piles.size(pile) for pile in step) for step in plan.steps[done:]]
    clock = StageProgress("placing", "edges between parts", sum(sizes) + sum(left), progress)
    clock.skip(sum(sizes))

    def find(pile: int) -> _CoveredPile | None:
        records = piles.read(pile)
        return _covered(records, root_part, num_parts) if records.size else None

    waiting = [pile for step in plan.steps[done:] for pile in step]
    with in_order(find, waiting, threads) as covered:
        for number, step in enumerate(plan.steps[done:], done + 1):
            for pile in plan.steps[number - 2] if number > 1 else ():
                piles.remove(pile)
            load = inner + sizes
            rows += _place_step(islice(covered, len(step)), load, placed=placed)
            placed.commit()
            sizes = (load - inner).tolist()
            work.record(covered=[number, sizes, rows])
            clock.add(left[number - done - 1])
    for step in plan.steps[-1:]:
        for pile in step:
            piles.remove(pile)
    clock.end()


class _CoveredPile(NamedTuple):
    """The edges of a pile with their covers."""

    records: Records
    arcs: CoveredArcs
    slots: NDArray[np.int64]
    """(num_arcs,) int64. The row that travels for each arc at its destination's root."""


def _covered(records: Records, root_part: NDArray[np.int32], num_parts: int) -> _CoveredPile:
    """Find the covers of the edges of a pile."""
    graph, vertices = local_graph(records, root_part.size)
    arcs, roots = arcs_of(graph), root_part[vertices]
    slots = vertices[arcs.sources()] * num_parts + roots[arcs.head]
    return _CoveredPile(records, cover_arcs(arcs, roots, num_parts), slots)


def _place_step(
    covered: Iterable[_CoveredPile | None], load: NDArray[np.int64], *, placed: Piles
) -> int:
    """Place the edges of some piles; add them to the loads. Return their rows at destinations."""
    num_parts = load.size
    at_destination = np.zeros(0, np.int64)
    for pile in covered:
        if pile is None:
            continue
        records, arcs, slots = pile
        # Whole components even out the loads of all piles; refinement does the rest.
        part = level_arcs(arcs, edge_balance=np.inf, load=load)[arcs.arcs.of_edge]
        load += np.bincount(part, minlength=num_parts)
        placed.scatter(part, records, range(num_parts))
        # Pieces of a pair may have sources in common.
        at_destination = distinct(np.concatenate([at_destination, slots]))
        # Gone before the next covers are found, for which all memory may be needed.
        del pile, records, arcs, slots, part
    return int(at_destination.size)
