"""Edges in blocks: those between two clusters of vertices stay together, and go to any part.

Where communities are few and degrees high, a vertex has neighbours in most parts, wherever its root
is. An edge that has to live beside a root of its ends then costs more rows than necessary. So the
links are cut into blocks instead, by clusters of vertices of one community and of similar degree.
A cluster has clones on the parts of its blocks. A part may hold the blocks among a few clusters
whose roots are elsewhere, as in a block design. The number of clusters grows with that of the parts
alone, and annealing tries a bounded number of moves, whatever the graph.
"""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from distgnn import _partitioner
from distgnn.datasets.graph import Graph
from distgnn.partition.arcs import Adjacency, Arcs
from distgnn.partition.assignment import Assignment
from distgnn.partition.roots import choose_roots
from distgnn.partition.stream import no_clones
from distgnn.partition.threads import available_threads, in_order

# Neighbouring parts of METIS that are taken together, so that few groups are left.
MOST_GROUPS = 8
# On Reddit's twin at 1/16, 4 parts, 50 and 75 ended with 2 and 7 % more rows.
BLOCKS_PER_PART = 34
# The clusters of a group have equal sums of this power of the degree: few hubs, many leaves.
TIER_POWER = 0.6
# Moves tried in a search, less on small graphs, and searches of which the best is kept.
MOVES = 3_000_000
MOVES_PER_LINK = 20
TRIES = 18
# If the best of the first few searches moves so many times the rows that are worth more, no more
# are made: on Reddit's twin at 1/16 that of 18 moved 0.97 to 1.0 times the rows of that of 4.
FIRST_TRIES, HOPELESS = 4, 1.05
# Largest part's edges over the mean, below what refinement keeps to, which needs room: where it had
# to take edges out of overfull parts, from 1.06, roots ended at 1.25 instead of 1.02.
LOAD_BALANCE = 1.04
# Largest part's clones over the mean, which refinement brings below its limit of 1.5; from 1.7 it
# could not. Clones beyond count so many times more; what ends further beyond is chosen last.
CLONE_BALANCE, CLONE_WEIGHT, CLONE_EXCESS = 1.55, 3.0, 0.03
# Price, in shares of a search's rows, of each mean of edges that its fullest part has above its
# share, and of each mean of clones above that limit. In 20 searches on Reddit's twin at 1/16, 4
# parts, refinement ended with some 3 and 0.3 of the rows more for these; with 16, 0.3 for clones
# let worse ones win.
EDGE_PRICE, CLONE_PRICE = 3.0, 0.6
# Vertices, at most, that rows are counted from.
MOST_COUNTED = 1 << 20
# Rows that annealing gives away at first and at last, in mean clusters times sqrt(num_parts).
HOT, COLD = 0.3, 0.002
# At first a clone is counted in full at this power of half the degree of its cluster, in place of
# one link: the first and the hundredth link to a part else cost the same, nothing. After this share
# of the sweeps it is counted as it is.
SOFT_POWER, SOFT_SHARE = 0.8, 0.7


class _Blocks(NamedTuple):
    """Links by the clusters of their ends."""

    size: NDArray[np.float64]
    """(num_clusters,) float64. Vertices of each cluster."""
    cluster: NDArray[np.int64]
    """(num_blocks, 2) int64. The clusters of each block."""
    ends: NDArray[np.int64]
    """(num_blocks, 2) int64. Ends of its links in each of them; 0 in the second if it is the
    first."""
    edges: NDArray[np.int64]
    """(num_blocks,) int64. Edges behind its links, at least 1."""


class _Sample(NamedTuple):
    """Some vertices, evenly spaced, with the clusters of their neighbours."""

    label: NDArray[np.int32]
    """(num_sampled,) int32. Cluster of each."""
    heads: NDArray[np.uint64]
    """(num_sampled, num_words) uint64. Set of the clusters that its out-edges lead to."""
    tails: NDArray[np.uint64]
    """(num_sampled, num_words) uint64. Set of the clusters that its in-edges come from."""


class _State(NamedTuple):
    """Parts on which blocks live, and results of that."""

    part: NDArray[np.int64]
    """(num_blocks,) int64."""
    ends: NDArray[np.int64]
    """(num_clusters, num_parts) int64. Ends of links of each cluster in each part."""
    load: NDArray[np.int64]
    """(num_parts,) int64. Edges."""
    clones: NDArray[np.float64]
    """(num_parts,) float64. Expected vertices with a link there."""
    all_clones: NDArray[np.float64]
    """(1,) float64. Those of all parts."""
    softness: NDArray[np.float64]
    """(num_clusters,) float64. Links per vertex for which a clone is counted nearly in full."""


def place_in_blocks(
    arcs: Arcs,
    adjacency: Adjacency,
    roots: NDArray[np.int32],
    num_parts: int,
    *,
    seed: int,
    most_rows: float = math.inf,
) -> Assignment | None:
    """Place arcs by blocks, and roots where the arcs are.

    Args:
        arcs: Arcs of the graph, at least one that is no loop.
        adjacency: Graph that `adjacency_of` makes of the arcs.
        roots: (num_vertices,) int32. Parts of METIS, neighbouring ones numbered in a row; clusters
            are made of them.
        num_parts: At least 2.
        seed: Seed of the search.
        most_rows: Number of rows that may travel if blocks are to be worth it.

    Returns:
        An assignment of the arcs, or None if the first searches leave no hope of so few rows. It
        depends neither on the order of the edges nor on the number of threads.

    References:
        Kirkpatrick, Gelatt and Vecchi, "Optimization by simulated annealing", Science 1983.
    """
    label = _clusters(adjacency, roots, num_parts)
    num_clusters = int(label.max()) + 1
    blocks = _blocks_of(adjacency, label, num_clusters)
    sample = _sample_of(arcs, label, num_clusters)
    search = partial(_search, blocks, sample, num_parts, seed)
    with in_order(search, range(FIRST_TRIES), available_threads()) as first:
        found = list(first)
    counted = sample.label.size / label.size
    if min(each.rows for each in found) > HOPELESS * most_rows * counted:
        return None
    with in_order(search, range(FIRST_TRIES, TRIES), available_threads()) as others:
        part_of = min([*found, *others], key=lambda each: each.price).part_of
    arc_part = _partitioner.spread_blocks(arcs.start, arcs.head, label, part_of)
    source, head = arcs.sources().astype(np.int64), arcs.head.astype(np.int64)
    graph = Graph(name="arcs", num_vertices=arcs.num_vertices, src=source, dst=head)
    return Assignment(num_parts, arc_part, choose_roots(graph, arc_part, num_parts))


def _clusters(adjacency: Adjacency, roots: NDArray[np.int32], num_parts: int) -> NDArray[np.int32]:
    """(num_vertices,) cluster of each vertex: a group of parts, and in it a tier of degrees."""
    num_groups = min(num_parts, MOST_GROUPS)
    num_tiers = max(round(math.sqrt(2 * BLOCKS_PER_PART * num_parts) / num_groups), 1)
    group = roots.astype(np.int64) * num_groups // num_parts
    degree = np.diff(adjacency.indptr)
    share = np.maximum(degree, 1) ** TIER_POWER
    label = np.zeros(roots.size, np.int32)
    for number in range(num_groups):
        members = np.flatnonzero(group == number)
        members = members[np.argsort(degree[members], kind="stable")]
        running = np.cumsum(share[members])
        middle = (running - share[members] / 2) / running[-1:]
        label[members] = num_tiers * number + (num_tiers * middle).astype(np.int32)
    return label


def _blocks_of(adjacency: Adjacency, label: NDArray[np.int32], num_clusters: int) -> _Blocks:
    # Links and edges between clusters, each link at both of its ends.
    ends, edges = np.zeros((2, num_clusters, num_clusters), np.int64)
    _partitioner.count_blocks(adjacency.whole(), label, ends, edges)
    one, other = np.nonzero(np.triu(ends))
    is_inner = one == other
    # Inside a cluster every link is met at both of its ends.
    return _Blocks(
        size=np.bincount(label, minlength=num_clusters).astype(np.float64),
        cluster=np.stack([one, other], axis=1),
        ends=np.stack([ends[one, other], np.where(is_inner, 0, ends[one, other])], axis=1),
        edges=np.where(is_inner, edges[one, other] // 2, edges[one, other]),
    )


def _sample_of(arcs: Arcs, label: NDArray[np.int32], num_clusters: int) -> _Sample:
    step = -(-label.size // MOST_COUNTED)
    own = label[::step].copy()
    heads, tails = no_clones(own.size, num_clusters), no_clones(own.size, num_clusters)
    _partitioner.note_clusters(arcs.start, arcs.head, label, step, heads, tails)
    return _Sample(own, heads, tails)


class _Found(NamedTuple):
    """Result of a search."""

    price: tuple[float, float]
    """Price of clones that refinement could not mend, then that of rows and balance."""
    rows: int
    """Rows of the sampled vertices."""
    part_of: NDArray[np.int32]
    """(num_clusters, num_clusters) Part of the block of two clusters."""


def _search(blocks: _Blocks, sample: _Sample, num_parts: int, seed: int, number: int) -> _Found:
    num_blocks, num_clusters = blocks.edges.size, blocks.size.size
    order = np.argsort(-blocks.edges, kind="stable")
    state = _State(
        part=np.zeros(num_blocks, np.int64),
        ends=np.zeros((num_clusters, num_parts), np.int64),
        load=np.zeros(num_parts, np.int64),
        clones=np.zeros(num_parts),
        all_clones=np.zeros(1),
        softness=np.ones(num_clusters),
    )
    _partitioner.begin_blocks(blocks, state, order)
    num_links = int(blocks.ends.sum()) // 2
    sweeps = max(min(MOVES, MOVES_PER_LINK * num_links) // num_blocks, 1)
    most_load = LOAD_BALANCE * float(blocks.edges.sum()) / num_parts
    start = np.random.SeedSequence(seed, spawn_key=(number,)).generate_state(1, np.uint64)[0]
    schedule = HOT, COLD, SOFT_POWER, SOFT_SHARE, CLONE_BALANCE, CLONE_WEIGHT
    _partitioner.anneal_blocks(blocks, state, most_load, sweeps, int(start), schedule)
    part_of = np.zeros((num_clusters, num_clusters), np.int32)
    part_of[blocks.cluster[:, 0], blocks.cluster[:, 1]] = state.part
    part_of[blocks.cluster[:, 1], blocks.cluster[:, 0]] = state.part
    edges, clones = (
        float(held.max()) * num_parts / float(held.sum()) for held in (state.load, state.clones)
    )
    excess = max(clones - CLONE_BALANCE, 0.0)
    cost = 1 + EDGE_PRICE * (edges - 1) + CLONE_PRICE * excess
    rows = _partitioner.count_rows(*sample, part_of, num_parts)
    return _Found((max(excess - CLONE_EXCESS, 0.0), rows * cost), rows, part_of)
