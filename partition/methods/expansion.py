"""Neighbour expansion: parts that grow one after another from a core."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from distgnn.datasets.errors import InputError
from distgnn.partition.halo import distinct_slots
from distgnn.partition.jit import compiled
from distgnn.partition.methods.links import Incidence, Neighbors, incidence_of

UNPLACED = -1
_NOBODY = -1


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


class _Growth(NamedTuple):
    """State of the part that grows, and what earlier ones left."""

    live: NDArray[np.int64]
    """(num_vertices,) int64. End of the links of each vertex that may still be unplaced."""
    part_of: NDArray[np.int32]
    """(num_vertices,) int32. Last part that each vertex joined."""
    link_part: NDArray[np.int32]
    """(num_links,) int32."""
    head: NDArray[np.int32]
    """(largest degree + 1,) int32. First vertex of the queue with each number of links outside."""
    after: NDArray[np.int32]
    """(num_vertices,) int32. Next vertex with that number."""
    before: NDArray[np.int32]
    """(num_vertices,) int32."""
    outside: NDArray[np.int32]
    """(num_vertices,) int32. Links outside of each vertex in the queue; -1 of all others."""
    counter: NDArray[np.int64]
    """(3,) int64. Edges and clones of the part; a number below which the queue is empty."""


_EDGES, _CLONES, _LOWEST = range(3)


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
    num_vertices = is_core.size
    largest = int(np.diff(incidence.start).max(initial=0))
    growth = _Growth(
        live=incidence.start[1:].copy(),
        part_of=np.full(num_vertices, _NOBODY, np.int32),
        link_part=np.full(links.low.size, UNPLACED, np.int32),
        head=np.full(largest + 1, _NOBODY, np.int32),
        after=np.empty(num_vertices, np.int32),
        before=np.empty(num_vertices, np.int32),
        outside=np.full(num_vertices, -1, np.int32),
        counter=np.zeros(3, np.int64),
    )
    _grow_all(incidence, growth, links.weight, seeds[is_core[seeds]], limits)
    return growth.link_part


@compiled
def _grow_all(
    incidence: Incidence,
    growth: _Growth,
    weight: NDArray[np.int64],
    seeds: NDArray[np.int64],
    limits: PartLimits,
) -> None:
    members = np.empty(growth.part_of.size, np.int64)
    first = 0
    for part in range(limits.num_parts):
        growth.counter[:] = 0
        num_members = 0
        while first < seeds.size and growth.live[seeds[first]] == incidence.start[seeds[first]]:
            first += 1
        seed = first
        is_full = False
        while not is_full:
            vertex = _pop(growth)
            if vertex < 0:
                if growth.counter[_EDGES] >= limits.share:
                    break
                while seed < seeds.size and not _can_begin(incidence, growth, seeds[seed], part):
                    seed += 1
                if seed == seeds.size:
                    break
                vertex = seeds[seed]
                is_full = not _join(incidence, growth, weight, (vertex, part), limits)
                members[num_members] = vertex
                num_members += 1
                if growth.outside[vertex] < 0:
                    continue
                _remove(growth, vertex)
            for k in range(incidence.start[vertex], growth.live[vertex]):
                other = incidence.neighbor[k]
                if is_full:
                    break
                if growth.part_of[other] != part:
                    members[num_members] = other
                    num_members += 1
                    is_full = not _join(incidence, growth, weight, (other, part), limits)
                # Vertices outside all cores have no list in which they would find the link.
                if not is_full and growth.link_part[incidence.link[k]] == UNPLACED:
                    is_full = not _place(growth, weight, incidence.link[k], part, limits.edges)
            if not is_full:
                growth.live[vertex] = incidence.start[vertex]
            is_full = is_full or growth.counter[_CLONES] >= limits.clones
        for k in range(num_members):
            growth.outside[members[k]] = -1
        growth.head[:] = _NOBODY


@compiled
def _can_begin(incidence: Incidence, growth: _Growth, vertex: int, part: int) -> bool:
    return bool(growth.part_of[vertex] != part and growth.live[vertex] > incidence.start[vertex])


@compiled
def _join(
    incidence: Incidence,
    growth: _Growth,
    weight: NDArray[np.int64],
    who: tuple[int, int],
    limits: PartLimits,
) -> bool:
    """Put a vertex into the boundary of a part, and the links to the part's vertices into it.

    Returns:
        Whether there was room for all of them.
    """
    vertex, part = who
    growth.part_of[vertex] = part
    growth.counter[_CLONES] += 1
    kept = incidence.start[vertex]
    is_fitting = True
    for k in range(incidence.start[vertex], growth.live[vertex]):
        other, link = incidence.neighbor[k], incidence.link[k]
        if growth.link_part[link] != UNPLACED:
            continue
        if is_fitting and growth.part_of[other] == part:
            is_fitting = _place(growth, weight, link, part, limits.edges)
            if is_fitting:
                if growth.outside[other] > 0:
                    _remove_link(growth, other)
                continue
        incidence.neighbor[kept] = other
        incidence.link[kept] = link
        kept += 1
    growth.live[vertex] = kept
    if kept > incidence.start[vertex]:
        _insert(growth, vertex, kept - incidence.start[vertex])
    return is_fitting


@compiled
def _place(
    growth: _Growth, weight: NDArray[np.int64], link: int, part: int, most_edges: int
) -> bool:
    if growth.counter[_EDGES] + weight[link] > most_edges:
        return False
    growth.counter[_EDGES] += weight[link]
    growth.link_part[link] = part
    return True


@compiled
def _insert(growth: _Growth, vertex: int, outside: int) -> None:
    following = growth.head[outside]
    growth.outside[vertex] = outside
    growth.after[vertex] = following
    growth.before[vertex] = _NOBODY
    if following >= 0:
        growth.before[following] = vertex
    growth.head[outside] = vertex
    growth.counter[_LOWEST] = min(growth.counter[_LOWEST], outside)


@compiled
def _remove(growth: _Growth, vertex: int) -> None:
    before, after = growth.before[vertex], growth.after[vertex]
    if before >= 0:
        growth.after[before] = after
    else:
        growth.head[growth.outside[vertex]] = after
    if after >= 0:
        growth.before[after] = before
    growth.outside[vertex] = -1


@compiled
def _remove_link(growth: _Growth, vertex: int) -> None:
    """Count one link less to the outside."""
    outside = growth.outside[vertex] - 1
    _remove(growth, vertex)
    if outside > 0:
        _insert(growth, vertex, outside)


@compiled
def _pop(growth: _Growth) -> int:
    """Take the boundary vertex with the fewest links outside; -1 if there is none."""
    lowest = growth.counter[_LOWEST]
    while lowest < growth.head.size and growth.head[lowest] < 0:
        lowest += 1
    growth.counter[_LOWEST] = lowest
    if lowest == growth.head.size:
        return -1
    vertex = growth.head[lowest]
    _remove(growth, vertex)
    return int(vertex)
