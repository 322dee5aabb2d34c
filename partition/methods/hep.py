"""HEP: neighbour expansion for vertices of low degree, HDRF for edges between hubs."""

from __future__ import annotations

from distgnn.datasets.errors import InputError
from distgnn.datasets.graph import Graph
from distgnn.partition.assignment import Assignment, random_numbers
from distgnn.partition.methods.expansion import PartLimits, check_clone_balance, grow_balanced
from distgnn.partition.methods.hdrf import check_weight, stream_rest
from distgnn.partition.methods.links import links_of
from distgnn.partition.roots import choose_roots
from distgnn.partition.stream import degrees, edge_cap


def assign(
    graph: Graph,
    num_parts: int,
    *,
    seed: int = 0,
    edge_balance: float = 1.05,
    clone_balance: float = 1.3,
    tau: float = 10.0,
    balance_weight: float = 1.1,
) -> Assignment:
    """Grow parts over the vertices of low degree, then stream the edges between the others.

    Vertices with more than tau times the mean degree never join a core and keep no list of links.
    Only the links of the others have to be in memory. A smaller tau needs less memory and moves
    more rows.

    Args:
        graph: The graph.
        num_parts: At least 1.
        seed: Seed of the vertices at which growth begins, and of the stream's order.
        edge_balance: Largest part's edges over the mean, rounded up to whole edges.
        clone_balance: Largest part's clones over the mean at which a part stops to grow.
        tau: Largest degree over the mean of a vertex that may join a core.
        balance_weight: Lambda of HDRF's score.

    Returns:
        The assignment.

    Raises:
        InputError: If edge_balance or clone_balance is below 1, or tau or balance_weight below 0.

    References:
        Mayer and Jacobsen, "Hybrid edge partitioner: partitioning large power-law graphs under
        memory constraints", SIGMOD 2021.
    """
    cap = edge_cap(graph.num_edges, num_parts, edge_balance)
    check_clone_balance(clone_balance)
    check_weight(balance_weight)
    if not tau >= 0.0:
        raise InputError(f"tau must be at least 0, got {tau}; 10 suits most graphs")
    degree = degrees(graph)
    is_core = degree <= tau * degree.mean()
    links = links_of(graph)
    is_between_hubs = ~(is_core[links.low] | is_core[links.high])
    num_streamed = int(links.weight[is_between_hubs].sum())
    # The stream needs room in every part, or hubs would meet on the last ones alone.
    share = edge_cap(graph.num_edges - num_streamed, num_parts, 1.0)
    room = edge_cap(graph.num_edges - num_streamed, num_parts, edge_balance)
    seeds = random_numbers(seed).permutation(graph.num_vertices)
    link_part = grow_balanced(
        links, is_core, seeds, PartLimits(num_parts, share, room), clone_balance=clone_balance
    )
    edge_part = links.to_edges(link_part)
    stream_rest(graph, edge_part, num_parts, cap=cap, seed=seed, balance_weight=balance_weight)
    return Assignment(num_parts, edge_part, choose_roots(graph, edge_part, num_parts))
