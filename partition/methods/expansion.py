"""Neighbour expansion: parts that grow one after another from a core."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from distgnn import _partitioner
from distgnn.datasets.errors import InputError
from distgnn.partition.halo import distinct_slots
from distgnn.partition.methods.links import Neighbors, incidence_of

UNPLACED = -1


class PartLimits(NamedTuple):
    """When a part is full."""

    num_parts: int
    """Number of parts."""
    share: int
    """Edges from which on a part does not begin at another seed."""
    edges: int
    """Most edges of a part."""
    clones: int = np.iinfo(np.int64).max
    """Clones at which a part stops to grow."""


def check_clone_balance(clone_balance: float) -> None:
    """Check a limit on the clones of a part.

    Args:
        clone_balance: Largest part over the mean.

    Raises:
        InputError: If it is below 1.
    """
    if not clone_balance >= 1.0:
        raise InputError(
            f"clone_balance must be at least 1, got {clone_balance}; 1 is perfect balance"
        )


def grow_balanced(
    links: Neighbors,
    is_core: NDArray[np.bool_],
    seeds: NDArray[np.int64],
    limits: PartLimits,
    *,
    clone_balance: float,
) -> NDArray[np.int32]:
    """Grow parts, and grow them again where clones came out of balance.

    The last parts gather what earlier ones left: few edges on many vertices. A second growth whose
    parts also stop at clone_balance times the mean clones of the first one spreads those.

    Args:
        links: The links of the graph.
        is_core: (num_vertices,) bool. Vertices that may join a core.
        seeds: (num_vertices,) int64. Vertices at which growth may begin, in order.
        limits: Limits of each part, without one on clones.
        clone_balance: Largest part's clones over the mean, at least 1.

    Returns:
        (num_links,) int32. Part of each link, as `grow` returns it.
    """
    link_part = grow(links, is_core, seeds, limits)
    num_clones = _num_clones(links, link_part, limits.num_parts)
    most_clones = num_clones.sum() / limits.num_parts * clone_balance
    if num_clones.max() <= most_clones:
        return link_part
    limits = limits._replace(clones=max(math.floor(most_clones), 1))
    return grow(links, is_core, seeds, limits)


def _num_clones(
    links: Neighbors, link_part: NDArray[np.int32], num_parts: int
) -> NDArray[np.int64]:
    """(num_parts,) vertices with a placed link on each part."""
    is_placed = link_part != UNPLACED
    ends = np.concatenate([links.low[is_placed], links.high[is_placed]])
    slots = distinct_slots(ends, np.tile(link_part[is_placed], 2), links.num_vertices)
    return np.bincount(slots.part, minlength=num_parts).astype(np.int64)


def grow(
    links: Neighbors, is_core: NDArray[np.bool_], seeds: NDArray[np.int64], limits: PartLimits
) -> NDArray[np.int32]:
    """Grow parts by neighbour expansion.

    A part is a core and its boundary: the neighbours of the core. It holds the links among them.
    The boundary vertex with the fewest unplaced links to the outside joins the core, and its
    neighbours join the boundary. This repeats until the part is full. Where the boundary is empty,
    growth continues from the next seed, unless the part has its share.

    Args:
        links: The links of the graph.
        is_core: (num_vertices,) bool. Vertices that may join a core; links between two others stay
            unplaced.
        seeds: (num_vertices,) int64. Vertices in the order in which growth may begin at them.
        limits: Limits of each part.

    Returns:
        (num_links,) int32. Part of each link; UNPLACED for self-loops, links between vertices
        outside all cores, and those that no part had room for.
    """
    incidence = incidence_of(links, is_core)
    link_part = np.full(links.low.size, UNPLACED, np.int32)
    begun_at = seeds[is_core[seeds]]
    _partitioner.grow_parts(incidence, links.weight, begun_at, limits, link_part)
    return link_part
