"""Trial whether Mt-KaHyPar, whose objective can be the rows that travel, finds fewer of them."""

from __future__ import annotations

import math
from contextlib import contextmanager
from itertools import takewhile
from threading import Event
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distgnn.partition import groups
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
from distgnn.partition.methods.library_process import LibraryFailedError, ended_together
from distgnn.partition.methods.mtkahypar_library import Hypergraph, is_installed, part_hypergraph
from distgnn.partition.methods.options import BEST
from distgnn.partition.refine.balance import Balance, rebalanced
from distgnn.partition.refine.refinement import most_edges
from distgnn.partition.threads import available_threads, in_order

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from distgnn.partition.arcs import Adjacency, Arcs
    from distgnn.partition.stopwatch import Stopwatch

# Edges, and vertices, up to which the best quality tries it: the processes take half a kilobyte an
# edge between them. Parts are bounded, since edges are counted from each of them to each other.
MOST_EDGES, MOST_PARTS = 3 * 10**6, 1024
# Nodes times parts of a window, the parts that a cycle improves at a time, and its nodes over those
# of windows that are as large as each other. In the same CPU seconds more cycles of small windows
# save about what fewer of all parts do, but end earlier.
WINDOW_WORK, WINDOW_SLACK = 3 * 10**7, 1.05
# The same, and either times parts, up to which other qualities but the fast one try it, too, in a
# second or two, and the best one also cuts anew: where cycles begin decides where they end.
QUICK_EDGES, QUICK_WORK = 80_000, 1 << 21
# Edges from which on the best quality has fewer cycles, and how many: the first ones save the most.
LARGE_EDGES, LARGE_CYCLES = 10**6, 6
# Cycles of the best quality and of others, at most. One that saves a smaller share of the rows is
# in vain, and so many of these are the last.
MOST_CYCLES, FEW_CYCLES, LEAST_SAVING, MOST_VAIN = 20, 2, 0.001, 3
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
    search and flows on the way back. Where that is too much for all parts at once, it does so for
    windows of them, side by side, and for others the next time. It balances one weight. So a part
    may grow little in a cycle, and after each, roots leave overfull parts, and all is refined.

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
    is_small = num_edges > 0 and size <= MOST_EDGES
    is_wanted = is_small and (is_quick or (quality == BEST and num_parts <= MOST_PARTS))
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

        threads = available_threads()
        with (
            in_order(cut_anew, NEW_SEEDS, threads) as each_found,
            _setting(is_over),
            ended_together(),
        ):
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
    vain, rounds = 0, _rounds(task, best, most)
    for step in range(most):
        root_share, windows = ROOT_SHARES[step % len(ROOT_SHARES)], rounds[step % len(rounds)]
        cut = _cut(task, best, seed + step, windows=windows, root_share=root_share, slack=slack)
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


def _rounds(task: _Task, begun: Assignment, most: int) -> list[list[list[int]]]:
    """Choose the parts that a cycle improves at a time: all at once where that is not too much.

    Args:
        task: The graph.
        begun: The assignment that is improved.
        most: Number of cycles.

    Returns:
        Windows of the first cycle, of the second one and so on, and then from the first one again.
    """
    arcs, num_parts = task.arcs, task.num_parts
    size, root_part = task.slots.num_nodes, begun.root_part.astype(np.int64)
    # Nodes times parts of a window are the square of its share, of all nodes times all parts.
    share = min(math.sqrt(WINDOW_WORK / (size * num_parts)), 1.0)
    width = max(math.ceil(num_parts / math.ceil(1.0 / share)), 2)
    if width >= num_parts:
        return [[list(range(num_parts))]]
    pairs = root_part[arcs.sources()] * num_parts + root_part[arcs.head]
    between = np.bincount(pairs, minlength=num_parts**2).reshape(num_parts, num_parts)
    sizes = np.bincount(np.concatenate([begun.edge_part, begun.root_part]), minlength=num_parts)
    # Any two parts fit.
    most_nodes = max(int(WINDOW_SLACK * size * width / num_parts), int(np.sort(sizes)[-2:].sum()))
    return groups.apart(groups.windows(between, sizes, most_nodes, most_parts=width, rounds=most))


def _cut(
    task: _Task,
    begun: Assignment | None,
    seed: int,
    *,
    windows: Sequence[Sequence[int]] = (),
    root_share: float = ROOT_SHARES[-1],
    slack: float = 0.0,
) -> Assignment:
    """Have Mt-KaHyPar improve an assignment by one cycle, or cut without any.

    Args:
        task: The graph.
        begun: The assignment, or None.
        seed: Seed of Mt-KaHyPar.
        windows: Parts that are improved at a time; at least one, unless there is no assignment.
        root_share: Share of the roots in what parts balance.
        slack: How far beyond its share of the limits a part may grow.
    """
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
        most = np.full(num_parts, np.ceil(NEW_BALANCE * weight.sum() / num_parts))
        parts = part_hypergraph(
            task.slots, num_parts, weight=weight, most=most, begun=None, seed=seed
        )
    else:
        parts = np.concatenate([begun.edge_part, begun.root_part])
        edges = np.bincount(begun.edge_part, of_edges, num_parts)
        roots = np.bincount(begun.root_part, of_roots, num_parts)
        edges, roots = (np.minimum(each + slack, 1.0) for each in (edges, roots))
        most = scale * ((1.0 - root_share) * edges + root_share * roots)
        # A part that holds more already may keep it.
        most = np.ceil(np.maximum(most, np.bincount(parts, weight, num_parts)))

        def improved(window: Sequence[int]) -> tuple[NDArray[np.intp], NDArray[np.int32]]:
            """Improve the parts of a window, and return its nodes and their parts."""
            inside, number = np.full(num_parts, -1, np.int32), np.array(window, np.int32)
            inside[number] = np.arange(number.size)
            nodes = np.flatnonzero(inside[parts] >= 0)
            slots, begun = among(task.slots, nodes), inside[parts[nodes]]
            if slots.start.size > 1:
                begun = part_hypergraph(
                    slots,
                    number.size,
                    weight=weight[nodes],
                    most=most[number],
                    begun=begun,
                    seed=seed,
                )
            return nodes, number[begun]

        threads = min(len(windows), available_threads())
        with in_order(improved, windows, threads) as each_found, ended_together():
            improvements = list(each_found)
        for nodes, found in improvements:
            parts[nodes] = found
    return Assignment(num_parts, parts[:num_arcs], parts[num_arcs:])


def among(slots: Hypergraph, nodes: NDArray[np.intp]) -> Hypergraph:
    """Keep some nodes, and the nets that join at least two of them.

    With all nodes of some parts, moves among these parts save as many rows here as in the whole:
    what a net touches of other parts stays the same.

    Args:
        slots: The whole.
        nodes: (num_kept,) intp. Nodes that are kept, ascending.

    Returns:
        A hypergraph of these, numbered in this order.
    """
    if nodes.size == slots.num_nodes:
        return slots
    number = np.full(slots.num_nodes, -1, np.int32)
    number[nodes] = np.arange(nodes.size, dtype=np.int32)
    pins = number[slots.pins]
    is_kept = pins >= 0
    sizes = np.add.reduceat(is_kept, slots.start[:-1], dtype=np.int64)
    is_net = sizes > 1
    is_kept &= np.repeat(is_net, np.diff(slots.start))
    return Hypergraph(
        num_nodes=nodes.size,
        start=np.concatenate([[0], np.cumsum(sizes[is_net])]),
        pins=pins[is_kept],
    )


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
