"""Trial whether parts of the hypergraph of all slots move fewer rows than those of METIS."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from distgnn.partition.assignment import Assignment
from distgnn.partition.methods.candidates import (
    cheapest,
    halo_rows,
    is_even,
    polished,
    refined_from,
)
from distgnn.partition.methods.cover import place_arcs
from distgnn.partition.methods.library_process import LibraryFailedError
from distgnn.partition.methods.mtkahypar_library import Hypergraph, is_installed, part_hypergraph
from distgnn.partition.methods.starts import QUICK_WORK
from distgnn.partition.refine.balance import Balance, rebalanced
from distgnn.partition.roots import choose_roots
from distgnn.partition.threads import available_threads, in_order

if TYPE_CHECKING:
    from distgnn.datasets.graph import Graph
    from distgnn.partition.arcs import Adjacency, Arcs
    from distgnn.partition.stopwatch import Stopwatch

# Edges, and vertices, up to which it is tried, and these together times parts: the process takes
# some 6 bytes for each.
MOST_EDGES, MOST_WORK = 10**6, 1 << 26
# Shares of the edges in what parts balance. Parts of low degree have few edges and many roots:
# with all weight on edges, roots move out of such parts afterwards, with less, edges do. Each is
# the best on some graph. Then the steps of the seed with each, the later ones while that is quick
# and the one before found something: from one to another, rows differ by 1 to 5 %.
EDGE_SHARES, SEEDS = (1.0, 0.9, 0.65), (0, 1)
# Largest part's weight over the mean, less 1, up to which Mt-KaHyPar uses what edges may take. With
# more, so many roots have to move back that it is in vain.
MOST_IMBALANCE = 0.5
# Weight of an edge; weights are integers.
_EDGE_WEIGHT = 1000
ANY_EDGES = 1e30
"""A balance of edges that any assignment keeps."""


def better_hypergraph(
    graph: Graph,
    arcs: Arcs,
    placed: Assignment,
    balance: Balance,
    *,
    adjacency: Adjacency,
    seed: int,
    times: int,
    watch: Stopwatch,
) -> Assignment:
    """Cut the hypergraph of `slots_of` by Mt-KaHyPar, and return what moves the fewest rows.

    Its objective is the rows that travel, of edges that may live on any part, where METIS sees cut
    edges. It balances one weight; roots move out of overfull parts, and the edges at these are
    covered again. Several tries run at a time, each on one thread.

    Args:
        graph: The graph.
        arcs: Its arcs.
        placed: An assignment of them, refined as often as these are.
        balance: Balance to aim at.
        adjacency: Graph that `adjacency_of` makes of the arcs.
        seed: Seed of Mt-KaHyPar.
        times: How often parts are refined after the first time.
        watch: Told of what was found.

    Returns:
        `placed`, or another assignment of the arcs whose roots are as even as is aimed at.

    References:
        Catalyurek and Aykanat, "A fine-grain hypergraph model for 2D decomposition of sparse
        matrices", IPDPS 2001; Schlag, Schulz, Seemaier and Strash, "Scalable edge partitioning",
        ALENEX 2019.
    """
    num_parts = placed.num_parts
    num_edges, num_vertices = arcs.of_edge.size, arcs.num_vertices
    is_small = 0 < num_edges <= MOST_EDGES >= num_vertices
    is_small &= (num_edges + num_vertices) * num_parts <= MOST_WORK
    if not is_small or num_parts == 1 or not is_installed():
        return placed
    unit = units_of(arcs)
    is_quick = arcs.of_edge.size * num_parts <= QUICK_WORK

    def refined_try(given: tuple[int, float]) -> Assignment:
        step, share = given
        parts = part_hypergraph(
            slots_of(arcs, unit, share),
            num_parts,
            imbalance=min(balance.edges - 1.0, MOST_IMBALANCE),
            seed=seed + step,
        )
        arc_part = parts[unit]
        roots = choose_roots(graph.widened(), arc_part[arcs.of_edge], num_parts)
        covered = _evened(arcs, Assignment(num_parts, arc_part, roots), balance, adjacency)
        refined = refined_from(arcs, covered, balance, halo_rows(arcs, covered))
        return polished(arcs, refined, balance, times)

    best = placed
    try:
        for step in SEEDS if is_quick else SEEDS[:1]:
            before, tries = best, tuple((step, share) for share in EDGE_SHARES)
            with in_order(refined_try, tries, available_threads()) as each_found:
                for share, found in zip(EDGE_SHARES, each_found, strict=True):
                    rows, least = (halo_rows(arcs, each) for each in (found, best))
                    if is_even(found, balance):
                        best = cheapest(arcs, (best, found), balance.edges)
                    vain = "" if best is found else " in vain"
                    told = f"{rows} rows where {least} are to be beaten"
                    watch.note(f"parts by Mt-KaHyPar, edges weigh {share:g}{vain}: {told}")
            if best is before:
                break
    except (LibraryFailedError, MemoryError) as error:
        why = str(error) or "memory was refused"
        watch.note(f"no more parts by Mt-KaHyPar, those so far are kept: {why}")
    return best


def _evened(arcs: Arcs, placed: Assignment, balance: Balance, adjacency: Adjacency) -> Assignment:
    """Move roots out of overfull parts, and cover the edges at these again."""
    num_parts, roots = placed.num_parts, placed.root_part
    # Refinement drains edges at a lower price.
    of_roots = Balance(edges=ANY_EDGES, vertices=balance.vertices)
    even = rebalanced(adjacency, roots, of_roots, np.zeros(num_parts))
    has_moved = even != roots
    at_moved = np.repeat(has_moved, np.diff(arcs.start)) | has_moved[arcs.head]
    covered = place_arcs(arcs, even, num_parts, edge_balance=balance.edges)
    return Assignment(num_parts, np.where(at_moved, covered, placed.edge_part), even)


def units_of(arcs: Arcs) -> NDArray[np.int32]:
    """Number the links of arcs that all have an arc back, else the arcs.

    Args:
        arcs: Arcs of a graph.

    Returns:
        (num_arcs,) int32. The number of each arc; an arc and its mate have the same.
    """
    numbers = np.arange(arcs.head.size, dtype=np.int32)
    if not arcs.is_symmetric:
        return numbers
    is_first = arcs.mate >= numbers
    number = np.cumsum(is_first, dtype=np.int32) - 1
    return np.where(is_first, number, number[arcs.mate])


def slots_of(arcs: Arcs, unit: NDArray[np.int32], edge_share: float) -> Hypergraph:
    """Make a hypergraph whose nets touch one part more than rows travel for them.

    A node is a unit of edges. A net joins all edges that read a vertex, another all that write it.
    Where edges go both ways, these are one, and the root may be on any of its parts. Else the two
    also join a node for the root. The weight of a root is shared by the edges at it.

    Args:
        arcs: Arcs of a graph.
        unit: Result of `units_of`.
        edge_share: Share of the edges in the weights of nodes, above 0 and at most 1.

    Returns:
        The hypergraph, roots after the units. Where edges go both ways, each net stands for two.
    """
    num_vertices, num_units = arcs.num_vertices, int(unit.max(initial=-1)) + 1
    source = arcs.sources()
    ends = [source] if arcs.is_symmetric else [source, arcs.head]
    degree = np.bincount(np.concatenate(ends), minlength=num_vertices)
    of_root = arcs.of_edge.size * (1.0 - edge_share) / (edge_share * num_vertices)
    at_ends = sum((of_root / degree[each] for each in ends), start=arcs.weight)
    weight = np.bincount(unit, weights=_EDGE_WEIGHT * at_ends, minlength=num_units)
    pins = [unit] * len(ends)
    if not arcs.is_symmetric:
        vertices = np.arange(num_vertices, dtype=np.int32)
        ends = [np.concatenate([each, vertices]) for each in ends]
        pins = [np.concatenate([each, num_units + vertices]) for each in pins]
        weight = np.concatenate([weight, np.ones(num_vertices)])
    net = np.concatenate([each + np.int64(role * num_vertices) for role, each in enumerate(ends)])
    pin = np.concatenate(pins)
    sizes = np.bincount(net)
    return Hypergraph(
        start=np.concatenate([[0], np.cumsum(sizes[sizes > 0])]),
        pins=pin[np.argsort(net, kind="stable")],
        weight=np.rint(weight).astype(np.int64),
    )
