"""The edge cut: METIS roots, and every edge at its destination's root.

What systems without a vertex-cut do: no vertex writes from a leaf, every cut edge's source is read.
"""

from __future__ import annotations

from distgnn.datasets.graph import Graph
from distgnn.partition.arcs import undirected
from distgnn.partition.assignment import Assignment
from distgnn.partition.methods.metis import metis_roots
from distgnn.partition.refine.balance import Balance


def assign(
    graph: Graph,
    num_parts: int,
    *,
    seed: int = 0,
    objective: str = "volume",
    edge_balance: float = 1.1,
    vertex_balance: float = 1.25,
) -> Assignment:
    """Assign roots by METIS and each edge to the part of its destination's root.

    Args:
        graph: The graph.
        num_parts: At least 1.
        seed: Seed of METIS.
        objective: "volume" (rows that travel) or "cut" (edges cut).
        edge_balance: Largest part's edges over the mean that is aimed at; directed graphs may
            miss it, because METIS balances edges of either direction.
        vertex_balance: Largest part's roots over the mean that is aimed at.

    Returns:
        The assignment.

    Raises:
        InputError: If the objective is unknown or a balance is below 1.

    References:
        Karypis and Kumar, "A fast and high quality multilevel scheme for partitioning irregular
        graphs", SIAM J. Scientific Computing 1998.
    """
    roots = metis_roots(
        graph,
        num_parts,
        adjacency=undirected(graph),
        seed=seed,
        objective=objective,
        balance=Balance(edge_balance, vertex_balance),
    )
    return Assignment(num_parts, roots[graph.dst], roots)
