"""Trial whether parts that grow by neighbour expansion move fewer rows than those of METIS."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distgnn.partition.assignment import Assignment
from distgnn.partition.methods import hep, ne
from distgnn.partition.methods.candidates import (
    cheapest,
    excess_edges,
    halo_rows,
    is_even,
    refined_from,
)

if TYPE_CHECKING:
    from distgnn.datasets.graph import Graph
    from distgnn.partition.arcs import Arcs
    from distgnn.partition.refine.balance import Balance
    from distgnn.partition.stopwatch import Stopwatch

# Edges up to which both expansions are tried on any graph. Where there are hubs, METIS and
# refinement take longer than HEP at any size.
QUICK_EDGES = 10**6
# Rows of grown parts over those that are to be beaten up to which they are worth refining.
MOST_GROWN_ROWS = 1.3
# The same of parts by HEP up to which NE is tried as well. On 19 real graphs in 4, 16 and 64 parts,
# the rows of NE were below 1.3 only where those of HEP were below 1.44.
MOST_ROWS_OF_FIRST = 1.6


def better_grown(
    graph: Graph,
    arcs: Arcs,
    placed: Assignment,
    balance: Balance,
    *,
    has_hubs: bool,
    seed: int,
    watch: Stopwatch,
) -> Assignment:
    """Grow parts by HEP and NE, where that is quick, and return what moves the fewest rows.

    METIS sees pairs of vertices, expansion the edges that are to be placed. Where most of these are
    at few hubs, or no cut is small, expansion can end with fewer rows.

    Args:
        graph: The graph.
        arcs: Its arcs.
        placed: An assignment of them, refined.
        balance: Balance to aim at.
        has_hubs: Whether HEP is worth a try however large the graph is.
        seed: Seed of the growth.
        watch: Told of what was found.

    Returns:
        `placed`, or another assignment of the arcs whose roots are as even as is aimed at.
    """
    best = placed
    is_hopeless = False
    for method in (hep, ne):
        is_tried = graph.num_edges <= QUICK_EDGES or (has_hubs and method is hep)
        if not is_tried or is_hopeless or placed.num_parts == 1:
            continue
        by_edge = method.assign(
            graph.widened(), placed.num_parts, seed=seed, edge_balance=balance.edges
        )
        grown = Assignment(placed.num_parts, arcs.parts(by_edge.edge_part), by_edge.root_part)
        rows, grown_rows = halo_rows(arcs, best), halo_rows(arcs, grown)
        told = f"{grown_rows} rows where {rows} are to be beaten"
        is_overfull = excess_edges(arcs, best, balance.edges) > 0
        is_hopeless = not is_overfull and grown_rows > MOST_ROWS_OF_FIRST * rows
        if is_overfull or grown_rows <= MOST_GROWN_ROWS * rows:
            grown = refined_from(arcs, grown, balance, 0)
            told = f"{told}, {halo_rows(arcs, grown)} when refined"
            if is_even(grown, balance):
                best = cheapest(arcs, (best, grown), balance.edges)
        name = method.__name__.rpartition(".")[2]
        watch.note(f"parts by {name}{'' if best is grown else ' in vain'}: {told}")
    return best
