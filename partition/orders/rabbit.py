"""Communities inside communities, found by merging each vertex into its best neighbour once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from distgnn.partition.jit import compiled
from distgnn.partition.orders.links import Links


def arrange(links: Links, *, seed: int) -> NDArray[np.int64]:
    """Order vertices along the tree of mergers.

    Vertices are visited once, those with few links first. A visited one, which stands for all that
    were merged into it, joins the neighbour with which modularity grows most, if it grows at all.
    The order lists every vertex before the communities that joined it, earliest first, so that
    what merged first, the smallest communities, lies closest together.

    Args:
        links: Links among the vertices of a part, which has at least one vertex.
        seed: Not used: ties go to the smaller number.

    Returns:
        (num_vertices,) int64. The vertices in their new order.

    References:
        Arai, Shiokawa, Yamamuro, Onizuka and Iwamura, "Rabbit Order: just-in-time parallel
        reordering for fast graph analysis", IPDPS 2016.
    """
    del seed
    visits = np.argsort(np.diff(links.indptr), kind="stable")
    parent = _merge(links.indptr, links.indices.copy(), visits)
    return _walk_down(parent, visits)


@compiled
def _merge(
    indptr: NDArray[np.int64], link: NDArray[np.int32], visits: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return what each vertex was merged into, or -1; `link` is overwritten.

    The links of a community lie in the segments of its members, of which `follower` makes a chain.
    Visiting it replaces them by one link for each community they lead to: never more than before.
    """
    num_vertices = indptr.size - 1
    weight = np.ones(link.size, np.float32)
    end = indptr[1:].copy()
    follower = np.full(num_vertices, -1, np.int64)
    tail = np.arange(num_vertices)
    parent = np.full(num_vertices, -1, np.int64)
    top = np.arange(num_vertices)
    volume = np.diff(indptr).astype(np.float64)
    total = max(float(link.size), 1.0)
    strength = np.zeros(num_vertices, np.float32)
    seen = np.empty(num_vertices, np.int64)
    for vertex in visits:
        num_seen = 0
        segment = vertex
        while segment >= 0:
            for k in range(indptr[segment], end[segment]):
                # Halving the path to the top, as in any union-find.
                other = np.int64(link[k])
                while top[other] != other:
                    top[other] = top[top[other]]
                    other = top[other]
                if other == vertex:
                    continue
                if strength[other] == 0:
                    seen[num_seen] = other
                    num_seen += 1
                strength[other] += weight[k]
            segment = follower[segment]
        best, best_gain = -1, 0.0
        segment, k = vertex, indptr[vertex]
        end[vertex] = k
        for i in range(num_seen):
            other = seen[i]
            gain = strength[other] - volume[vertex] * volume[other] / total
            if gain > best_gain or (gain == best_gain and best >= 0 and other < best):
                best, best_gain = other, gain
            while k == indptr[segment + 1]:
                end[segment] = k
                segment = follower[segment]
                k = indptr[segment]
            link[k] = other
            weight[k] = strength[other]
            strength[other] = 0
            k += 1
        end[segment] = k
        follower[segment] = -1
        tail[vertex] = segment
        if best >= 0:
            parent[vertex] = best
            top[vertex] = best
            volume[best] += volume[vertex]
            follower[tail[best]] = vertex
            tail[best] = tail[vertex]
    return parent


@compiled
def _walk_down(parent: NDArray[np.int64], visits: NDArray[np.int64]) -> NDArray[np.int64]:
    """List all vertices, each before what was merged into it, in the order of the mergers."""
    num_vertices = parent.size
    latest = np.full(num_vertices, -1, np.int64)
    earlier = np.full(num_vertices, -1, np.int64)
    for vertex in visits:
        if parent[vertex] >= 0:
            earlier[vertex] = latest[parent[vertex]]
            latest[parent[vertex]] = vertex
    order = np.empty(num_vertices, np.int64)
    waiting = np.empty(num_vertices, np.int64)
    num_ordered = 0
    for start in range(num_vertices):
        if parent[start] >= 0:
            continue
        waiting[0] = start
        num_waiting = 1
        while num_waiting > 0:
            num_waiting -= 1
            vertex = waiting[num_waiting]
            order[num_ordered] = vertex
            num_ordered += 1
            child = latest[vertex]
            while child >= 0:
                waiting[num_waiting] = child
                num_waiting += 1
                child = earlier[child]
    return order
