"""Weights of links of hubs, and vertices moved out of overfull parts."""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import NDArray

from distgnn.partition.arcs import Adjacency

WEIGHT_SCALE = 100
_MOST_WEIGHT = 2**31 - 1


def _light_weights(adjacency: Adjacency, hub: float) -> NDArray[np.int32]:
    indptr, indices, weight = adjacency.indptr, adjacency.indices, adjacency.weight
    weights = np.empty(indices.size, np.int32)
    for vertex in range(indptr.size - 1):
        for k in range(indptr[vertex], indptr[vertex + 1]):
            links = max(_links(indptr, vertex), _links(indptr, indices[k]))
            light = WEIGHT_SCALE * weight[k] * min(hub / links, 1.0)
            weights[k] = min(max(round(light), 1), _MOST_WEIGHT)
    return weights


def edges_beside(adjacency: Adjacency, hub: float) -> NDArray[np.float64]:
    """Expect edges to live beside roots: half of a link's beside each of its ends, less at hubs.

    Args:
        adjacency: Graph that `adjacency_of` makes of the arcs.
        hub: Links from which on a vertex is a hub.

    Returns:
        (num_vertices,) float64. Edges beside each root, self-loops apart; all are counted once.
    """
    indptr, indices, weight = adjacency.indptr, adjacency.indices, adjacency.weight
    edges = np.zeros(indptr.size - 1)
    for vertex in range(edges.size):
        own = _links(indptr, vertex)
        for k in range(indptr[vertex], indptr[vertex + 1]):
            other = _links(indptr, indices[k])
            light = 0.5 * min(hub / max(own, other), 1.0)
            share = 0.5 if own == other else light if own > other else 1.0 - light
            edges[vertex] += weight[k] * share
    return edges


def _links(indptr: NDArray[np.int64], vertex: int) -> int:
    return int(indptr[vertex + 1] - indptr[vertex])


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


def _relief(load: NDArray[np.float64], share: NDArray[np.float64]) -> float:
    """Return how much a vertex takes off the overfull constraints of its part."""
    relief = 1e-12
    for c in range(load.size):
        if load[c] > 1.0:
            relief += share[c]
    return relief


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
