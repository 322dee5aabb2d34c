"""Trial whether Mt-KaHyPar, whose objective can be the rows that travel, finds fewer of them."""

from __future__ import annotations

from contextlib import contextmanager
from itertools import takewhile
from threading import Event
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from distgnn.partition.assignment import Assignment
from distgnn.partition.methods.candidates import (
    cheapest,
    halo_rows,
    is_even,
    keeps_balances,
    polished,
    refined_from,
)
from distgnn.partition.methods.cover import place_arcs
from distgnn.partition.methods.library_process import LibraryFailedError
from distgnn.partition.methods.mtkahypar_library import Hypergraph, is_installed, part_hypergraph
from distgnn.partition.methods.options import BEST
from distgnn.partition.refine.balance import Balance, rebalanced
from distgnn.partition.refine.refinement import most_edges
from distgnn.partition.threads import available_threads, in_order

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distgnn.partition.arcs import Adjacency, Arcs
    from distgnn.partition.stopwatch import Stopwatch

# Edges, and vertices, up to which the best quality tries it, and either times parts: the process
# takes half a kilobyte an edge, and more with many parts.
MOST_EDGES, MOST_WORK = 3 * 10**6, 1 << 26
# The same up to which other qualities but the fast one try it, too, in a second or two, and the
# best one also cuts anew: where cycles begin decides where they end.
QUICK_EDGES, QUICK_WORK = 80_000, 1 << 21
# Edges from which on the best quality has fewer cycles, and how many: the first ones save the most.
LARGE_EDGES, LARGE_CYCLES = 10**6, 3
# Cycles of the best quality and of others, at most. One that saves a smaller share of the rows is
# in vain, and so many of these are the last.
MOST_CYCLES, FEW_CYCLES, LEAST_SAVING, MOST_VAIN = 12, 2, 0.001, 3
# Shares of the roots in what parts balance, in turn. With 0.5 alone, all cycles were in vain on one
# of six graphs, with 0.3 alone rows were 1 to 2 % more on the other five.
ROOT_SHARES = (0.5, 0.3)
# How far beyond its share of the limits a part may grow at first, for all and for the best quality.
# With more, a cycle saves more, and more of it is lost again as parts are evened out.
SLACK, MOST_SLACK = 0.05, 0.1
# Steps of the seed with which the best quality cuts anew, and the largest part's weight over the
# mean.
NEW_SEEDS, NEW_BALANCE = (0, 1), 1.03
# Refinements after each cycle.
_REFINEMENTS = 2
# The mean weight of a node, and the largest weight of all. Mt-KaHyPar adds up weights, and what all
# parts may weigh, in 32 bits; where limits are wide, the weight is taken for this share of them.
_MEAN_WEIGHT, _ALL_WEIGHT, _LEAST_SHARE = 1000, 1 << 30, 0.6
ANY_EDGES = 1e30
"""A balance of edges that any assignment keeps."""


class _Task(NamedTuple):
    """The same from cycle to cycle."""

    arcs: Arcs
    adjacency: Adjacency
    balance: Balance
    num_parts: int
    slots: Hypergraph


def fewer_by_hypergraph(
    arcs: Arcs,
    placed: Assignment,
    balance: Balance,
    *,
    adjacency: Adjacency,
    seed: int,
    quality: str,
    watch: Stopwatch,
) -> Assignment:
    """Have Mt-KaHyPar improve an assignment as parts of the hypergraph of `slots_of`.

    Its objective is the rows that travel, of edges and roots that may live on any part, where METIS
    sees cut edges. A cycle coarsens the hypergraph within the parts, and moves nodes by local
    search and flows on the way back. It balances one weight. So a part may grow little in a cycle,
    and after each, roots leave overfull parts, and all is refined.

    Args:
        arcs: Arcs of the graph.
        placed: An assignment of them.
        balance: Balance to aim at.
        adjacency: Graph that `adjacency_of` makes of the arcs.
        seed: Seed of Mt-KaHyPar.
        quality: BEST for more cycles, on more graphs, and on small ones also from other cuts.
        watch: Told of what was found.

    Returns:
        `placed`, or another assignment of the arcs. Its edges, roots and clones are within their
        limits, or no less even than those of `placed`.

    References:
        Catalyurek and Aykanat, "A fine-grain hypergraph model for 2D decomposition of sparse
        matrices", IPDPS 2001; Schlag, Schulz, Seemaier and Strash, "Scalable edge partitioning",
        ALENEX 2019.
    """
    num_parts, num_edges = placed.num_parts, arcs.of_edge.size
    size = max(num_edges, arcs.num_vertices)
    is_quick = size <= QUICK_EDGES and size * num_parts <= QUICK_WORK
    is_small = num_edges > 0 and size <= MOST_EDGES and size * num_parts <= MOST_WORK
    is_wanted = is_small and (is_quick or quality == BEST)
    if not is_wanted or num_parts == 1 or not is_installed() or halo_rows(arcs, placed) == 0:
        return placed
    best, most, slack = placed, FEW_CYCLES, SLACK
    if quality == BEST:
        most, slack = MOST_CYCLES if size <= LARGE_EDGES else LARGE_CYCLES, MOST_SLACK
    try:
        task = _Task(arcs, adjacency, balance, num_parts, slots_of(arcs))
        for improved, told in _cycles(task, placed, seed, most=most, slack=slack):
            best = improved
            watch.note(told)
        if quality != BEST or not is_quick:
            return best

        is_over = Event()  # An interrupt ends all threads after the cycle that they are in.

        def cut_anew(step: int) -> list[tuple[Assignment, str]]:
            begun = _settled(task, _cut(task, None, seed + step))
            cycles = _cycles(task, begun, seed + step, most=most, slack=slack)
            return list(takewhile(lambda _: not is_over.is_set(), cycles))

        with in_order(cut_anew, NEW_SEEDS, available_threads()) as each_found, _setting(is_over):
            for found in each_found:
                for _, told in found:
                    watch.note(f"{told}, from another cut")
                if keeps_balances(arcs, found[-1][0], balance, placed):
                    best = cheapest(arcs, (best, found[-1][0]), balance.edges)
    except (LibraryFailedError, MemoryError) as error:
        why = str(error) or "memory was refused"
        watch.note(f"no more parts by Mt-KaHyPar, those so far are kept: {why}")
    return best


@contextmanager
def _setting(event: Event) -> Iterator[None]:
    """Set an event at the end."""
    try:
        yield
    finally:
        event.set()


def _cycles(
    task: _Task, best: Assignment, seed: int, *, most: int, slack: float
) -> Iterator[tuple[Assignment, str]]:
    """Improve an assignment again and again, with less slack where that was in vain.

    Yields:
        The best so far, and a line about it.
    """
    vain = 0
    for step in range(most):
        root_share = ROOT_SHARES[step % len(ROOT_SHARES)]
        cut = _cut(task, best, seed + step, root_share=root_share, slack=slack)
        found = _settled(task, cut)
        rows, before = (halo_rows(task.arcs, each) for each in (found, best))
        better = best
        if keeps_balances(task.arcs, found, task.balance, best):
            better = cheapest(task.arcs, (best, found), task.balance.edges)
        told = " in vain" if better is best else ""
        yield better, f"cycle of Mt-KaHyPar{told}: {rows} rows after {before}"
        if better is best or rows > (1.0 - LEAST_SAVING) * before:
            vain, slack = vain + 1, slack / 2.0
        if vain == MOST_VAIN:
            return
        best = better


def _cut(
    task: _Task,
    begun: Assignment | None,
    seed: int,
    *,
    root_share: float = ROOT_SHARES[-1],
    slack: float = 0.0,
) -> Assignment:
    """Have Mt-KaHyPar improve an assignment by one cycle, or cut without any."""
    arcs, num_parts, balance = task.arcs, task.num_parts, task.balance
    num_arcs, num_vertices = arcs.head.size, arcs.num_vertices
    # Shares of what a part may hold at most.
    of_edges = arcs.weight / most_edges(arcs.of_edge.size, num_parts, balance.edges)
    of_roots = np.full(num_vertices, num_parts / (balance.vertices * num_vertices))
    shares = np.concatenate([(1.0 - root_share) * of_edges, root_share * of_roots])
    all_weight = min(_MEAN_WEIGHT * shares.size, _ALL_WEIGHT)
    scale = all_weight / max(shares.sum(), _LEAST_SHARE * num_parts)
    weight = np.maximum(np.rint(scale * shares), 1.0)
    if begun is None:
        parts, most = None, np.full(num_parts, NEW_BALANCE * weight.sum() / num_parts)
    else:
        parts = np.concatenate([begun.edge_part, begun.root_part])
        edges = np.bincount(begun.edge_part, of_edges, num_parts)
        roots = np.bincount(begun.root_part, of_roots, num_parts)
        edges, roots = (np.minimum(each + slack, 1.0) for each in (edges, roots))
        most = scale * ((1.0 - root_share) * edges + root_share * roots)
        # A part that holds more already may keep it.
        most = np.maximum(most, np.bincount(parts, weight, num_parts))
    found = part_hypergraph(
        task.slots, num_parts, weight=weight, most=np.ceil(most), begun=parts, seed=seed
    )
    return Assignment(num_parts, found[:num_arcs], found[num_arcs:])


def _settled(task: _Task, cut: Assignment) -> Assignment:
    """Move roots out of overfull parts, cover the edges at these again, and refine."""
    arcs, balance, num_parts = task.arcs, task.balance, task.num_parts
    if not is_even(cut, balance):
        roots = cut.root_part
        # Refinement drains edges at a lower price.
        of_roots = Balance(edges=ANY_EDGES, vertices=balance.vertices)
        even = rebalanced(task.adjacency, roots, of_roots, np.zeros(num_parts))
        has_moved = even != roots
        at_moved = np.repeat(has_moved, np.diff(arcs.start)) | has_moved[arcs.head]
        covered = place_arcs(arcs, even, num_parts, edge_balance=balance.edges)
        cut = Assignment(num_parts, np.where(at_moved, covered, cut.edge_part), even)
    refined = refined_from(arcs, cut, balance, halo_rows(arcs, cut))
    return polished(arcs, refined, balance, _REFINEMENTS)


def slots_of(arcs: Arcs) -> Hypergraph:
    """Make a hypergraph whose nets touch one part more than rows travel for them.

    A node is an arc or a root. A net joins a root and the arcs out of its vertex, which read it,
    another the root and the arcs into it, which write it.

    Args:
        arcs: Arcs of a graph.

    Returns:
        The hypergraph: nodes of arcs, then those of roots. Nets of one node are left out.
    """
    num_vertices, num_arcs = arcs.num_vertices, arcs.head.size
    vertices = np.arange(num_vertices, dtype=np.int64)
    pins = np.arange(num_arcs + num_vertices, dtype=np.int32)
    net = np.concatenate([arcs.sources(), vertices, arcs.head, vertices])
    net[pins.size :] += num_vertices
    order = np.argsort(net, kind="stable")
    sizes = np.bincount(net, minlength=2 * num_vertices)
    is_net = sizes > 1
    return Hypergraph(
        num_nodes=pins.size,
        start=np.concatenate([[0], np.cumsum(sizes[is_net])]),
        pins=np.tile(pins, 2)[order][np.repeat(is_net, sizes)],
    )
