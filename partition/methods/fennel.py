"""Fennel: vertices streamed to roots, then the edges between parts by minimum vertex cover."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from distgnn.datasets.errors import InputError
from distgnn.datasets.graph import Graph
from distgnn.partition.arcs import Adjacency, adjacency_of, arcs_of
from distgnn.partition.assignment import Assignment, random_numbers
from distgnn.partition.jit import compiled
from distgnn.partition.methods.metis import cover_edges, of_edges
from distgnn.partition.refine.balance import Balance, rebalanced, vertex_sizes

GAMMA = 1.5


def assign(
    graph: Graph,
    num_parts: int,
    *,
    seed: int = 0,
    edge_balance: float = 1.1,
    vertex_balance: float = 1.25,
    passes: int = 10,
) -> Assignment:
    """Stream the vertices, each to the part with the highest score, then cover the cut edges.

    The score of part p for vertex v is

        links(v, p) - size(v) * alpha * gamma * load(p)**(gamma - 1)

    These are the edges between v and the vertices of p, less the growth of a convex cost of p's
    load. For the whole graph, alpha is sqrt(num_parts) * num_links / load**1.5, and gamma is 1.5.
    The size of a vertex weighs it and its edges as for METIS. Vertices come breadth first from
    random ones, which halves the halo of a shuffled order on meshes. Later passes decide again,
    given where all others are.

    Args:
        graph: The graph.
        num_parts: At least 1.
        seed: Seed of the vertices where the order begins.
        edge_balance: Largest part's edges over the mean that is aimed at.
        vertex_balance: Largest part's roots over the mean that is aimed at.
        passes: Passes over the vertices, at least 1; 1 is the paper's.

    Returns:
        The assignment.

    Raises:
        InputError: If a balance or passes is below 1.

    References:
        Tsourakakis, Gkantsidis, Radunovic and Vojnovic, "FENNEL: streaming graph partitioning for
        massive scale graphs", WSDM 2014; Nishimura and Ugander, "Restreaming graph partitioning",
        KDD 2013.
    """
    balance = Balance(edge_balance, vertex_balance)
    if passes < 1:
        raise InputError(f"passes must be at least 1, got {passes}; 1 is a single stream")
    arcs = arcs_of(graph)
    adjacency = adjacency_of(arcs)
    starts = random_numbers(seed).permutation(graph.num_vertices)
    order = _breadth_first(adjacency, starts)
    size = vertex_sizes(adjacency)
    roots = _stream(adjacency, order, size, num_parts, passes)
    roots = rebalanced(adjacency, roots, balance, np.zeros(num_parts))
    placed = cover_edges(arcs, roots, num_parts, adjacency=adjacency, balance=balance)
    return of_edges(arcs, placed)


@compiled
def _breadth_first(adjacency: Adjacency, starts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Order all vertices breadth first, beginning at `starts` one after another."""
    order = np.empty_like(starts)
    is_reached = np.zeros(starts.size, np.bool_)
    num_reached = 0
    num_done = 0
    for start in starts:
        if not is_reached[start]:
            is_reached[start] = True
            order[num_reached] = start
            num_reached += 1
        while num_done < num_reached:
            vertex = order[num_done]
            num_done += 1
            for k in range(adjacency.indptr[vertex], adjacency.indptr[vertex + 1]):
                other = adjacency.indices[k]
                if not is_reached[other]:
                    is_reached[other] = True
                    order[num_reached] = other
                    num_reached += 1
    return order


@compiled
def _stream(
    adjacency: Adjacency,
    order: NDArray[np.int64],
    size: NDArray[np.float64],
    num_parts: int,
    passes: int,
) -> NDArray[np.int32]:
    total = size.sum()
    alpha = math.sqrt(num_parts) * 0.5 * adjacency.weight.sum() / total**1.5
    most = 1.1 * total / num_parts
    load = np.zeros(num_parts)
    links = np.zeros(num_parts)
    part_of = np.full(order.size, -1, np.int32)
    for _ in range(passes):
        for vertex in order:
            if part_of[vertex] >= 0:
                load[part_of[vertex]] -= size[vertex]
            links[:] = 0.0
            for k in range(adjacency.indptr[vertex], adjacency.indptr[vertex + 1]):
                part = part_of[adjacency.indices[k]]
                if part >= 0:
                    links[part] += adjacency.weight[k]
            best, highest = int(np.argmin(load)), -np.inf
            for part in range(num_parts):
                if load[part] + size[vertex] > most:
                    continue
                score = links[part] - size[vertex] * alpha * GAMMA * math.sqrt(load[part])
                if score > highest:
                    best, highest = part, score
            part_of[vertex] = best
            load[best] += size[vertex]
    return part_of
