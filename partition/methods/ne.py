"""NE: parts that grow one after another by neighbour expansion."""

from __future__ import annotations

import numpy as np

from distgnn.datasets.graph import Graph
from distgnn.partition.assignment import Assignment, random_numbers
from distgnn.partition.methods.expansion import PartLimits, check_clone_balance, grow_balanced
from distgnn.partition.methods.hdrf import stream_rest
from distgnn.partition.methods.links import links_of
from distgnn.partition.roots import choose_roots
from distgnn.partition.stream import edge_cap


def assign(
    graph: Graph,
    num_parts: int,
    *,
    seed: int = 0,
    edge_balance: float = 1.05,
    clone_balance: float = 1.3,
) -> Assignment:
    """Grow one part at a time from a core until its edges or its clones reach the cap.

    The boundary vertex with the fewest links outside joins the core, and its neighbours join the
    boundary; see `expansion.grow`. HDRF places what finds no room in any part, such as self-loops;
    clones of a part can exceed the cap by those.

    Args:
        graph: The graph.
        num_parts: At least 1.
        seed: Seed of the vertices at which growth begins.
        edge_balance: Largest part's edges over the mean, rounded up to whole edges.
        clone_balance: Largest part's clones over the mean at which a part stops to grow.

    Returns:
        The assignment.

    Raises:
        InputError: If edge_balance or clone_balance is below 1.

    References:
        Zhang, Wei, Liu, Tang and Li, "Graph edge partitioning via neighborhood heuristic", KDD
        2017.
    """
    cap = edge_cap(graph.num_edges, num_parts, edge_balance)
    check_clone_balance(clone_balance)
    share = edge_cap(graph.num_edges, num_parts, 1.0)
    links = links_of(graph)
    seeds = random_numbers(seed).permutation(graph.num_vertices)
    is_core = np.ones(graph.num_vertices, bool)
    link_part = grow_balanced(
        links, is_core, seeds, PartLimits(num_parts, share, cap), clone_balance=clone_balance
    )
    edge_part = links.to_edges(link_part)
    stream_rest(graph, edge_part, num_parts, cap=cap, seed=seed)
    return Assignment(num_parts, edge_part, choose_roots(graph, edge_part, num_parts))
