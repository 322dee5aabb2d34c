"""HDRF: edges one after another, high-degree ends replicated first."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from distgnn import _partitioner
from distgnn.datasets.errors import InputError
from distgnn.datasets.graph import Graph
from distgnn.partition.assignment import Assignment
from distgnn.partition.roots import choose_roots
from distgnn.partition.stream import degrees, edge_cap, no_clones, shuffled_links


def assign(
    graph: Graph,
    num_parts: int,
    *,
    seed: int = 0,
    edge_balance: float = 1.05,
    balance_weight: float = 1.1,
) -> Assignment:
    """Assign edges one after another to the part with the highest score.

    For an edge between u and v with degrees d(u) and d(v), the score of part p is

        g(u, p) + g(v, p) + balance_weight * (max - load(p)) / (1 + max - min)
        g(u, p) = 1 + d(v) / (d(u) + d(v)) if p has a clone of u, else 0

    load, max and min are those of the parts' edges so far. Degrees are those of the whole graph,
    edges come in shuffled order, and no part exceeds the cap. Roots go where the fewest rows
    travel.

    Args:
        graph: The graph.
        num_parts: At least 1.
        seed: Seed of the order.
        edge_balance: Largest part's edges over the mean, rounded up to whole edges.
        balance_weight: Lambda of the paper; above 1, an emptier part can outweigh a clone.

    Returns:
        The assignment.

    Raises:
        InputError: If edge_balance is below 1 or balance_weight below 0.

    References:
        Petroni, Querzoni, Daudjee, Kamali and Iacoboni, "HDRF: stream-based partitioning for
        power-law graphs", CIKM 2015.
    """
    cap = edge_cap(graph.num_edges, num_parts, edge_balance)
    check_weight(balance_weight)
    edge_part = np.full(graph.num_edges, -1, np.int32)
    stream_rest(graph, edge_part, num_parts, cap=cap, seed=seed, balance_weight=balance_weight)
    return Assignment(num_parts, edge_part, choose_roots(graph, edge_part, num_parts))


def check_weight(balance_weight: float) -> None:
    """Check the weight of the balance in the score.

    Args:
        balance_weight: Lambda of the paper.

    Raises:
        InputError: If it is negative or infinite.
    """
    if not 0.0 <= balance_weight < math.inf:
        raise InputError(
            f"balance_weight must be at least 0 and finite, got {balance_weight}; 1 weighs an "
            "empty part like a clone"
        )


def stream_rest(
    graph: Graph,
    edge_part: NDArray[np.int32],
    num_parts: int,
    *,
    cap: int,
    seed: int,
    balance_weight: float = 1.1,
) -> None:
    """Assign the edges that have no part yet, given where the others are.

    Args:
        graph: The graph.
        edge_part: (num_edges,) int32. Part of each edge, negative of those to assign; filled in.
        num_parts: Number of parts.
        cap: Most edges of a part; together they have room for all.
        seed: Seed of the order.
        balance_weight: Lambda of the score.
    """
    is_placed = edge_part >= 0
    lives_on = no_clones(graph.num_vertices, num_parts)
    for ends in (graph.src, graph.dst):
        _partitioner.insert_all(lives_on, ends[is_placed], edge_part[is_placed])
    load = np.bincount(edge_part[is_placed], minlength=num_parts).astype(np.int64)
    order = shuffled_links(graph, seed)
    order = order[~is_placed[order]]
    src, dst = np.ascontiguousarray(graph.src), np.ascontiguousarray(graph.dst)
    _partitioner.stream_edges(
        *(src, dst, order, degrees(graph), edge_part, lives_on, load), cap, balance_weight
    )
