"""Move vertices out of overfull parts where that cuts the fewest edges."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from distgnn.partition.jit import compiled

if TYPE_CHECKING:
    from distgnn.partition.arcs import Adjacency

# Later passes are for parts that a move itself overfilled.
MAX_PASSES = 8


def rebalance(
    adjacency: Adjacency,
    part: NDArray[np.int32],
    size: NDArray[np.float64],
    limit: NDArray[np.float64],
    fixed_load: NDArray[np.float64],
) -> NDArray[np.int32]:
    """Move vertices until no part exceeds a limit, or until moves no longer help.

    Args:
        adjacency: The graph.
        part: (num_vertices,) int32. Part of each vertex.
        size: (num_vertices, num_constraints) float64. What each vertex adds to its part.
        limit: (num_constraints,) float64. Largest load of a part.
        fixed_load: (num_parts, num_constraints) float64. Load of each part beside its vertices;
            may be negative.

    Returns:
        (num_vertices,) int32. The new parts.
    """
    part = part.copy()
    num_parts = fixed_load.shape[0]
    load = fixed_load.copy()
    for constraint in range(limit.size):
        load[:, constraint] += np.bincount(part, weights=size[:, constraint], minlength=num_parts)
    # Loads in units of their limits: above 1 is too much, whatever the constraint.
    load /= limit
    share = size / limit
    for _ in range(MAX_PASSES):
        if load.max() <= 1.0 or _drain(adjacency, part, share, load) == 0:
            break
    return part


@compiled
def _drain(
    adjacency: Adjacency,
    part: NDArray[np.int32],
    share: NDArray[np.float64],
    load: NDArray[np.float64],
) -> int:
    """Move vertices out of overfull parts, cheapest first; update `part` and `load`.

    Cheap means few edges newly cut per load that leaves. A move makes its neighbours cheaper to
    move: they enter the queue again with a bound, and are priced when their turn comes.
    """
    links = np.zeros(load.shape[0], np.int64)
    price = np.full(part.size, np.inf)
    queue = [(-np.inf, np.int64(-1))]
    for vertex in range(part.size):
        if load[part[vertex]].max() > 1.0:
            price[vertex] = _price(adjacency, part, vertex, share, load, links)[0]
            if price[vertex] < np.inf:
                queue.append((price[vertex], np.int64(vertex)))
    heapq.heapify(queue)
    num_moves = 0
    while len(queue) > 0:
        bound, vertex = heapq.heappop(queue)
        if vertex < 0 or bound != price[vertex] or load[part[vertex]].max() <= 1.0:
            continue
        exact, target = _price(adjacency, part, vertex, share, load, links)
        price[vertex] = exact
        if target < 0:
            continue
        if exact > bound:
            heapq.heappush(queue, (exact, vertex))
            continue
        home = part[vertex]
        part[vertex] = target
        price[vertex] = np.inf
        load[home] -= share[vertex]
        load[target] += share[vertex]
        num_moves += 1
        for k in range(adjacency.indptr[vertex], adjacency.indptr[vertex + 1]):
            neighbor = np.int64(adjacency.indices[k])
            if part[neighbor] == home and price[neighbor] < np.inf:
                gain = 2.0 * adjacency.weight[k] / _relief(load[home], share[neighbor])
                price[neighbor] -= gain
                heapq.heappush(queue, (price[neighbor], neighbor))
    return num_moves


@compiled
def _price(
    adjacency: Adjacency,
    part: NDArray[np.int32],
    vertex: int,
    share: NDArray[np.float64],
    load: NDArray[np.float64],
    links: NDArray[np.int64],
) -> tuple[float, int]:
    """Edges newly cut per load that leaves, for the best move that lowers the summed excess."""
    links[:] = 0
    for k in range(adjacency.indptr[vertex], adjacency.indptr[vertex + 1]):
        links[part[adjacency.indices[k]]] += adjacency.weight[k]
    home = part[vertex]
    best = -1
    for target in range(load.shape[0]):
        if target == home or not _lowers_excess(load[home], load[target], share[vertex]):
            continue
        if (
            best < 0
            or links[target] > links[best]
            or (links[target] == links[best] and load[target].max() < load[best].max())
        ):
            best = target
    if best < 0:
        return np.inf, best
    return (links[home] - links[best]) / _relief(load[home], share[vertex]), best


@compiled
def _relief(load: NDArray[np.float64], share: NDArray[np.float64]) -> float:
    """Return how much a vertex takes off the overfull constraints of its part."""
    relief = 1e-12
    for c in range(load.size):
        if load[c] > 1.0:
            relief += share[c]
    return relief


@compiled
def _lowers_excess(
    source: NDArray[np.float64], target: NDArray[np.float64], share: NDArray[np.float64]
) -> bool:
    # A smaller step is rounding, and could go to and fro for ever.
    step = 1e-9
    change = 0.0
    for c in range(share.size):
        before = max(source[c] - 1.0, 0.0) + max(target[c] - 1.0, 0.0)
        after = max(source[c] - share[c] - 1.0, 0.0) + max(target[c] + share[c] - 1.0, 0.0)
        change += after - before
    return change < -step
