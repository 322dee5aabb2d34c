"""Grid: two-dimensional hashing, which bounds the clones of every vertex."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from distgnn.datasets.graph import Graph
from distgnn.partition.assignment import Assignment
from distgnn.partition.jit import compiled
from distgnn.partition.roots import choose_roots
from distgnn.partition.stream import edge_cap, shuffled_links, vertex_hashes


def assign(
    graph: Graph, num_parts: int, *, seed: int = 0, edge_balance: float = 1.05
) -> Assignment:
    """Assign each edge to the least loaded part that both of its ends may live on.

    The parts stand in a grid of ceil(sqrt(num_parts)) columns whose last row may be shorter. A
    vertex hashes to a cell and may live on the parts in that cell's row and column. These are about
    2 * sqrt(num_parts) clones at most. Two vertices share at least one part: the row of one crosses
    the column of the other, or the rows are the same. If one crossing lies in the gap of the last
    row, the other does not. Where all shared parts are full, the least loaded part of all takes the
    edge.

    Args:
        graph: The graph.
        num_parts: At least 1; squares are cut best.
        seed: Seed of the hash and the order.
        edge_balance: Largest part's edges over the mean, rounded up to whole edges.

    Returns:
        The assignment.

    Raises:
        InputError: If edge_balance is below 1.

    References:
        Jain, Liao and Willke, "GraphBuilder: scalable graph ETL framework", GRADES 2013; Gonzalez,
        Low, Gu, Bickson and Guestrin, "PowerGraph", OSDI 2012.
    """
    cap = edge_cap(graph.num_edges, num_parts, edge_balance)
    cell = vertex_hashes(graph.num_vertices, seed) % num_parts
    order = shuffled_links(graph, seed)
    columns = math.isqrt(num_parts - 1) + 1
    edge_part = _stream(graph.src, graph.dst, order, cell, (num_parts, columns, cap))
    return Assignment(num_parts, edge_part, choose_roots(graph, edge_part, num_parts))


@compiled
def _stream(
    src: NDArray[np.int64],
    dst: NDArray[np.int64],
    order: NDArray[np.int64],
    cell: NDArray[np.int64],
    limits: tuple[int, int, int],
) -> NDArray[np.int32]:
    """Assign the edges in order; `limits` holds the parts, the columns and the cap of a part."""
    num_parts, columns, cap = limits
    load = np.zeros(num_parts, np.int64)
    edge_part = np.empty(src.size, np.int32)
    last, part = np.int64(-1), -1
    for edge in order:
        u, v = src[edge], dst[edge]
        is_same = last >= 0 and (
            (u == src[last] and v == dst[last]) or (u == dst[last] and v == src[last])
        )
        if not is_same or load[part] >= cap:
            part = _least_shared(cell[u], cell[v], columns, load)
            if load[part] >= cap:
                part = int(np.argmin(load))
        last = edge
        edge_part[edge] = part
        load[part] += 1
    return edge_part


@compiled
def _least_shared(one: int, other: int, columns: int, load: NDArray[np.int64]) -> int:
    """Least loaded part in the row or the column of both cells."""
    row, column = one // columns, one % columns
    other_row, other_column = other // columns, other % columns
    best = -1
    for part in (row * columns + other_column, other_row * columns + column):
        if part < load.size and (best < 0 or load[part] < load[best]):
            best = part
    if row == other_row:
        for part in range(row * columns, min((row + 1) * columns, load.size)):
            if load[part] < load[best]:
                best = part
    if column == other_column:
        for part in range(column, load.size, columns):
            if load[part] < load[best]:
                best = part
    return best
