"""Work arrays of the moves, made once for all passes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from distgnn.partition.refine.placement import Placement

# A slot has fewer units than 2 to the power of it.
MISS_BITS = 31


class Scratch(NamedTuple):
    """Work arrays; clean between calls where it says so."""

    entry: NDArray[np.int64]
    """(twice the most entries of a node,) int64. Those of the node in hand, part by part."""
    begin: NDArray[np.int64]
    """(num_parts,) int64. Where the entries of each part begin."""
    end: NDArray[np.int64]
    """(num_parts,) int64. Where they end."""
    target: NDArray[np.int32]
    """(most entries of a node,) int32. Where the unit of an entry goes."""
    order: NDArray[np.int64]
    """(num_parts,) int64. Parts of the node in hand, those with few units first."""
    goals: NDArray[np.int64]
    """(num_parts,) int64. Its other parts, those with few edges first."""
    others: NDArray[np.uint64]
    """(num_words,) uint64. The same as a set."""
    shared: NDArray[np.uint64]
    """(num_words,) uint64. Set of the new parts with room and all ends without a common part."""
    hopeful: NDArray[np.uint64]
    """(num_words,) uint64. Set of the parts that may take enough units without a common part."""
    misses: NDArray[np.uint64]
    """(MISS_BITS, num_words) uint64. Number of those units that each of these parts may still
    lack: the bits of a number per part, counted up to an overflow."""
    pending: NDArray[np.int64]
    """(num_parts,) int64. Edges that the move in hand adds to each part; clean: 0."""
    tally: NDArray[np.int64]
    """(num_parts,) int64. Edges whose other end is in each part; clean: 0."""
    root_step: NDArray[np.float64]
    """(most entries of a node + 1,) float64. The root of one more than k, less that of k."""


def scratch_of(placement: Placement) -> Scratch:
    """Make the work arrays for a placement.

    Args:
        placement: Placement that will be changed.

    Returns:
        Clean arrays.
    """
    most = int(np.diff(placement.start).max(initial=0))
    num_parts, num_words = placement.load.size, placement.held.shape[1]
    begin, end, order, goals, pending, tally = (np.zeros(num_parts, np.int64) for _ in range(6))
    return Scratch(
        entry=np.zeros(2 * most, np.int64),
        begin=begin,
        end=end,
        target=np.zeros(most, np.int32),
        order=order,
        goals=goals,
        others=np.zeros(num_words, np.uint64),
        shared=np.zeros(num_words, np.uint64),
        hopeful=np.zeros(num_words, np.uint64),
        misses=np.zeros((MISS_BITS, num_words), np.uint64),
        pending=pending,
        tally=tally,
        root_step=np.diff(np.sqrt(np.arange(most + 2.0))),
    )
