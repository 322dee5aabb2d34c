"""Blocks of links, and the annealing that gives them parts."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from distgnn.partition.arcs import Adjacency
from distgnn.partition.methods.blocks import (
    CLONE_BALANCE,
    CLONE_WEIGHT,
    COLD,
    HOT,
    SOFT_POWER,
    SOFT_SHARE,
    _Blocks,
    _Sample,
    _State,
)
from partition_loops.sets import contains, insert, mix


def _count(
    adjacency: Adjacency, label: NDArray[np.int32], num_clusters: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(num_clusters, num_clusters) links and edges, each link at both of its ends."""
    links = np.zeros((num_clusters, num_clusters), np.int64)
    edges = np.zeros((num_clusters, num_clusters), np.int64)
    for vertex in range(label.size):
        one = label[vertex]
        for k in range(adjacency.indptr[vertex], adjacency.indptr[vertex + 1]):
            other = label[adjacency.indices[k]]
            links[one, other] += 1
            edges[one, other] += adjacency.weight[k]
    return links, edges


def _spread(
    start: NDArray[np.int64],
    head: NDArray[np.int32],
    label: NDArray[np.int32],
    part_of: NDArray[np.int32],
) -> NDArray[np.int32]:
    """(num_arcs,) part of each arc's block."""
    arc_part = np.empty(head.size, np.int32)
    for vertex in range(label.size):
        for k in range(start[vertex], start[vertex + 1]):
            arc_part[k] = part_of[label[vertex], label[head[k]]]
    return arc_part


def _note_clusters(
    start: NDArray[np.int64],
    head: NDArray[np.int32],
    label: NDArray[np.int32],
    step: int,
    sets: tuple[NDArray[np.uint64], NDArray[np.uint64]],
) -> None:
    heads, tails = sets
    for vertex in range(label.size):
        for k in range(start[vertex], start[vertex + 1]):
            if vertex % step == 0:
                insert(heads[vertex // step], label[head[k]])
            if head[k] % step == 0:
                insert(tails[head[k] // step], label[vertex])


def _count_rows(sample: _Sample, part_of: NDArray[np.int32], num_parts: int) -> int:
    """Count the rows of the sampled vertices, each with its root where that saves the most."""
    rows = 0
    reads, writes = np.zeros(num_parts, np.bool_), np.zeros(num_parts, np.bool_)
    for vertex in range(sample.label.size):
        reads[:], writes[:] = False, False
        for cluster in range(part_of.shape[0]):
            part = part_of[sample.label[vertex], cluster]
            reads[part] |= contains(sample.heads[vertex], cluster)
            writes[part] |= contains(sample.tails[vertex], cluster)
        most_roles = 0
        for part in range(num_parts):
            roles = int(reads[part]) + int(writes[part])
            rows += roles
            most_roles = max(most_roles, roles)
        rows -= most_roles
    return rows


def _begin(blocks: _Blocks, state: _State, order: NDArray[np.int64]) -> None:
    """Give every block, in order, to the part with the fewest edges."""
    for block in order:
        part = np.argmin(state.load)
        state.part[block] = part
        state.load[part] += blocks.edges[block]
        for side in range(2):
            state.ends[blocks.cluster[block, side], part] += blocks.ends[block, side]


def _anneal(blocks: _Blocks, state: _State, most_load: float, how: tuple[int, np.uint64]) -> None:
    """Move blocks, ever less where that adds clones."""
    sweeps, start = how
    num_blocks, num_parts = blocks.edges.size, state.load.size
    unit = blocks.size.mean() * math.sqrt(num_parts)
    links = state.ends.sum(axis=1) / np.maximum(blocks.size, 1.0)
    bits = start
    for sweep in range(sweeps):
        heat = HOT * unit * (COLD / HOT) ** (sweep / sweeps)
        power = SOFT_POWER * max(1.0 - sweep / (SOFT_SHARE * sweeps), 0.0)
        for cluster in range(links.size):
            state.softness[cluster] = max((links[cluster] / 2) ** power, 1.0)
        _count_clones(blocks, state)
        for _ in range(num_blocks):
            bits = mix(bits)
            block = _below(bits, num_blocks)
            bits = mix(bits)
            goal = _below(bits, num_parts)
            bits = mix(bits)
            chance = float(bits >> np.uint64(11)) / 2.0**53
            if goal != state.part[block]:
                _try(blocks, state, (block, goal), (most_load, -heat * math.log(1.0 - chance)))


def _below(bits: np.uint64, bound: int) -> int:
    return int(((bits >> np.uint64(32)) * np.uint64(bound)) >> np.uint64(32))


def _count_clones(blocks: _Blocks, state: _State) -> None:
    state.clones[:] = 0.0
    for cluster in range(blocks.size.size):
        for part in range(state.load.size):
            state.clones[part] += _present(blocks.size[cluster], state.ends[cluster, part], 1.0)
    state.all_clones[0] = state.clones.sum()


def _present(size: float, ends: int, softness: float) -> float:
    """Expect so many vertices of a cluster to have a link, if the ends fall at random."""
    return size * (1.0 - math.exp(-ends / (size * softness))) if ends > 0 else 0.0


def _try(blocks: _Blocks, state: _State, way: tuple[int, int], bounds: tuple[float, float]) -> None:
    """Move a block to a part unless that is overfull then, or adds more clones than allowed.

    Clones of a part beyond their limit count more.
    """
    (block, goal), (most_load, most_added) = way, bounds
    home, edges = state.part[block], blocks.edges[block]
    load = state.load[goal] + edges
    if load > most_load and load >= state.load[home]:
        return
    added, left, came = 0.0, 0.0, 0.0
    for side in range(2):
        ends, cluster = blocks.ends[block, side], blocks.cluster[block, side]
        if ends > 0:
            size, softness = blocks.size[cluster], state.softness[cluster]
            here, there = state.ends[cluster, home], state.ends[cluster, goal]
            added += _present(size, here - ends, softness) - _present(size, here, softness)
            added += _present(size, there + ends, softness) - _present(size, there, softness)
            left += _present(size, here - ends, 1.0) - _present(size, here, 1.0)
            came += _present(size, there + ends, 1.0) - _present(size, there, 1.0)
    limit = CLONE_BALANCE * state.all_clones[0] / state.clones.size
    at_home, at_goal = state.clones[home] - limit, state.clones[goal] - limit
    beyond = max(at_home + left, 0.0) - max(at_home, 0.0)
    beyond += max(at_goal + came, 0.0) - max(at_goal, 0.0)
    added += CLONE_WEIGHT * beyond
    if added > most_added:
        return
    state.part[block] = goal
    state.load[home] -= edges
    state.load[goal] += edges
    state.clones[home] += left
    state.clones[goal] += came
    state.all_clones[0] += left + came
    for side in range(2):
        cluster, ends = blocks.cluster[block, side], blocks.ends[block, side]
        state.ends[cluster, home] -= ends
        state.ends[cluster, goal] += ends


def count_blocks(
    adjacency: Adjacency,
    label: NDArray[np.int32],
    ends: NDArray[np.int64],
    edges: NDArray[np.int64],
) -> None:
    ends[:], edges[:] = _count(adjacency, label, ends.shape[0])
