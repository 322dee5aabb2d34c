"""Hierarchical METIS: first between machines, then between the sockets of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from distgnn.datasets.graph import Graph
from distgnn.partition.arcs import Adjacency, adjacency_of, arcs_of
from distgnn.partition.assignment import Assignment
from distgnn.partition.methods import metis
from distgnn.partition.methods.levels import halo_rows_per_level, parse_levels
from distgnn.partition.methods.metis import of_edges, part_evenly, settle
from distgnn.partition.methods.starts import objectives_of
from distgnn.partition.quality import measure
from distgnn.partition.refine.balance import Balance, rebalanced
from distgnn.partition.refine.refinement import EDGE_BALANCE, most_edges
from distgnn.partition.stopwatch import Stopwatch


def assign(
    graph: Graph,
    num_parts: int,
    *,
    seed: int = 0,
    levels: str = "",
    objective: str = "",
    edge_balance: float = EDGE_BALANCE,
    vertex_balance: float = 1.25,
    refine: bool = True,
    progress: Callable[[str], None] | None = None,
) -> Assignment:
    """Assign roots by METIS level by level, and edges by minimum vertex cover, then refine.

    The slow links between machines come first. METIS cuts the graph into one group per machine, as
    if there were no other parts, then each group alone. METIS also numbers neighbouring parts in a
    row, so all parts cut at once are tried, too. The one that moves fewer rows between machines is
    kept.

    Args:
        graph: The graph.
        num_parts: At least 1.
        seed: Seed of METIS.
        levels: Numbers such as 2x4, for 2 machines of 4 sockets; their product is num_parts. Part p
            is on machine p // 4. Empty for the smallest prime factor of num_parts above the rest.
        objective: "volume" or "cut", or empty, as for metis.
        edge_balance: Largest part's edges over the mean that is aimed at.
        vertex_balance: Largest part's roots over the mean that is aimed at.
        refine: Whether to refine, with no regard to levels.
        progress: Called with one line of text after each stage.

    Returns:
        The assignment.

    Raises:
        InputError: If the levels make another number of parts, the objective is unknown, or a
            balance is below 1.

    References:
        Karypis and Kumar, "A fast and high quality multilevel scheme for partitioning irregular
        graphs", SIAM J. Scientific Computing 1998.
    """
    counts = parse_levels(levels, num_parts)
    balance = Balance(edge_balance, vertex_balance, refine=refine)
    arcs = arcs_of(graph)
    adjacency = adjacency_of(arcs)
    watch = Stopwatch(progress)
    found = []
    for name in objectives_of(graph, num_parts, objective):
        # The imbalances of the levels multiply. To mend that at the end moved 15 % fewer rows
        # between machines than to keep each level in closer balance (coauthor-physics, 2x4).
        roots = _split(adjacency, counts, seed, name, balance.of_roots())
        roots = rebalanced(adjacency, roots, balance.of_roots(), np.zeros(num_parts))
        watch.note(f"roots by METIS level by level, {name}")
        placed = settle(
            arcs, roots, num_parts, adjacency=adjacency, balance=balance, watch=watch
        ).placed
        found.append(of_edges(arcs, placed))
    flat = metis.assign(
        graph,
        num_parts,
        seed=seed,
        objective=objective,
        edge_balance=edge_balance,
        vertex_balance=vertex_balance,
        refine=refine,
        progress=progress,
    )
    found.append(flat)
    return min(found, key=lambda each: _cost(graph, each, edge_balance, counts))


def _cost(
    graph: Graph, assignment: Assignment, edge_balance: float, counts: Sequence[int]
) -> tuple[int, ...]:
    """Edges above the limit in the fullest part, then rows of each level, the slowest first."""
    quality = measure(graph, assignment)
    rows = halo_rows_per_level(quality.read_rows + quality.write_rows, counts)
    most = most_edges(graph.num_edges, assignment.num_parts, edge_balance)
    return max(int(quality.num_edges.max()) - most, 0), *rows


def _split(
    adjacency: Adjacency, counts: Sequence[int], seed: int, objective: str, balance: Balance
) -> NDArray[np.int32]:
    """(num_vertices,) part of each vertex, level by level."""
    num_vertices, count = adjacency.indptr.size - 1, counts[0]
    if count == 1:
        group = np.zeros(num_vertices, np.int32)
    elif num_vertices <= count:
        group = np.arange(num_vertices, dtype=np.int32)
    else:
        group = part_evenly(adjacency, count, seed=seed, objective=objective)
        group = rebalanced(adjacency, group, balance, np.zeros(count))
    if len(counts) == 1:
        return group
    parts: NDArray[np.int32] = group * np.int32(np.prod(counts[1:]))
    matrix = sp.csr_matrix(
        (adjacency.weight, adjacency.indices, adjacency.indptr), shape=(num_vertices,) * 2
    )
    for number in range(count):
        members = np.flatnonzero(group == number)
        inner = matrix[members][:, members]
        inner.sort_indices()
        below = Adjacency(inner.indptr.astype(np.int64), inner.indices.astype(np.int32), inner.data)
        parts[members] += _split(below, counts[1:], seed, objective, balance)
    return parts
