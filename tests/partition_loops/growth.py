"""Parts that grow, and streams of edges."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from distgnn.partition.methods.expansion import UNPLACED, PartLimits
from distgnn.partition.methods.links import Incidence
from partition_loops.sets import contains, insert

_NOBODY = -1


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


def _can_begin(incidence: Incidence, growth: _Growth, vertex: int, part: int) -> bool:
    return bool(growth.part_of[vertex] != part and growth.live[vertex] > incidence.start[vertex])


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


def _place(
    growth: _Growth, weight: NDArray[np.int64], link: int, part: int, most_edges: int
) -> bool:
    if growth.counter[_EDGES] + weight[link] > most_edges:
        return False
    growth.counter[_EDGES] += weight[link]
    growth.link_part[link] = part
    return True


def _insert(growth: _Growth, vertex: int, outside: int) -> None:
    following = growth.head[outside]
    growth.outside[vertex] = outside
    growth.after[vertex] = following
    growth.before[vertex] = _NOBODY
    if following >= 0:
        growth.before[following] = vertex
    growth.head[outside] = vertex
    growth.counter[_LOWEST] = min(growth.counter[_LOWEST], outside)


def _remove(growth: _Growth, vertex: int) -> None:
    before, after = growth.before[vertex], growth.after[vertex]
    if before >= 0:
        growth.after[before] = after
    else:
        growth.head[growth.outside[vertex]] = after
    if after >= 0:
        growth.before[after] = before
    growth.outside[vertex] = -1


def _remove_link(growth: _Growth, vertex: int) -> None:
    """Count one link less to the outside."""
    outside = growth.outside[vertex] - 1
    _remove(growth, vertex)
    if outside > 0:
        _insert(growth, vertex, outside)


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


def _incidence(
    low: NDArray[np.int64], high: NDArray[np.int64], is_listed: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]:
    start = np.zeros(is_listed.size + 1, np.int64)
    for k in range(low.size):
        if low[k] != high[k]:
            start[low[k] + 1] += is_listed[low[k]]
            start[high[k] + 1] += is_listed[high[k]]
    start = np.cumsum(start)
    place = start[:-1].copy()
    neighbor = np.empty(start[-1], np.int32)
    link = np.empty(start[-1], np.int64)
    # Twice: a vertex's lower neighbours come before its higher ones.
    for is_first in (True, False):
        for k in range(low.size):
            vertex, other = (high[k], low[k]) if is_first else (low[k], high[k])
            if vertex != other and is_listed[vertex]:
                neighbor[place[vertex]] = other
                link[place[vertex]] = k
                place[vertex] += 1
    return start, neighbor, link


def _stream(
    src: NDArray[np.int64],
    dst: NDArray[np.int64],
    order: NDArray[np.int64],
    degree: NDArray[np.int64],
    edge_part: NDArray[np.int32],
    state: tuple[NDArray[np.uint64], NDArray[np.int64]],
    limits: tuple[int, float],
) -> None:
    lives_on, load = state
    cap, balance_weight = limits
    most = load.max()
    last, part = np.int64(-1), -1
    for edge in order:
        u, v = src[edge], dst[edge]
        is_same = last >= 0 and (
            (u == src[last] and v == dst[last]) or (u == dst[last] and v == src[last])
        )
        if not is_same or load[part] >= cap:
            weight = balance_weight / (1.0 + most - load.min())
            share = degree[u] / (degree[u] + degree[v])
            part, best = -1, -1.0
            for p in range(load.size):
                if load[p] >= cap:
                    continue
                score = weight * (most - load[p])
                if contains(lives_on[u], p):
                    score += 2.0 - share
                if contains(lives_on[v], p):
                    score += 1.0 + share
                if score > best:
                    part, best = p, score
        last = edge
        edge_part[edge] = part
        load[part] += 1
        most = max(most, load[part])
        insert(lives_on[u], part)
        insert(lives_on[v], part)


def grow_parts(
    incidence: Incidence,
    weight: NDArray[np.int64],
    seeds: NDArray[np.int64],
    limits: PartLimits,
    link_part: NDArray[np.int32],
) -> None:
    num_vertices = incidence.start.size - 1
    largest = int(np.diff(incidence.start).max(initial=0))
    growth = _Growth(
        live=incidence.start[1:].copy(),
        part_of=np.full(num_vertices, _NOBODY, np.int32),
        link_part=link_part,
        head=np.full(largest + 1, _NOBODY, np.int32),
        after=np.empty(num_vertices, np.int32),
        before=np.empty(num_vertices, np.int32),
        outside=np.full(num_vertices, -1, np.int32),
        counter=np.zeros(3, np.int64),
    )
    _grow_all(incidence, growth, weight, seeds, limits)
