"""Orders of the roots inside a part."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

NUM_ROUNDS = 4


def _is_symmetric(src: NDArray[np.int32], dst: NDArray[np.int32]) -> bool:
    """Return whether edges and their reverses have equal sums of hashes; errors do no harm.

    The hash is the mixing step of SplitMix64.
    """
    difference = np.uint64(0)
    for k in range(src.size):
        for is_reverse in range(2):
            low, high = (dst[k], src[k]) if is_reverse else (src[k], dst[k])
            mixed = np.uint64(high) << np.uint64(32) | np.uint64(low)
            mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            mixed ^= mixed >> np.uint64(31)
            difference += ~mixed + np.uint64(1) if is_reverse else mixed
    return bool(difference == np.uint64(0))


def _link(
    src: NDArray[np.int32], dst: NDArray[np.int32], num_vertices: int
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Sort both ends of all edges by counting."""
    indptr = np.zeros(num_vertices + 1, np.int64)
    for k in range(src.size):
        indptr[src[k] + 1] += 1
        indptr[dst[k] + 1] += 1
    for vertex in range(num_vertices):
        indptr[vertex + 1] += indptr[vertex]
    position = indptr[:-1].copy()
    indices = np.empty(indptr[-1], np.int32)
    for k in range(src.size):
        indices[position[src[k]]] = dst[k]
        position[src[k]] += 1
        indices[position[dst[k]]] = src[k]
        position[dst[k]] += 1
    return indptr, indices


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


def _propagate(
    indptr: NDArray[np.int64], indices: NDArray[np.int32], visits: NDArray[np.int64], largest: int
) -> NDArray[np.int32]:
    """Return a label per vertex; no more than `largest` vertices share one."""
    num_vertices = indptr.size - 1
    label = np.arange(num_vertices).astype(np.int32)
    size = np.ones(num_vertices, np.int64)
    count = np.zeros(num_vertices, np.int32)
    seen = np.empty(num_vertices, np.int32)
    for _ in range(NUM_ROUNDS):
        for vertex in visits:
            num_seen = 0
            for k in range(indptr[vertex], indptr[vertex + 1]):
                other = label[indices[k]]
                if count[other] == 0:
                    seen[num_seen] = other
                    num_seen += 1
                count[other] += 1
            own = label[vertex]
            best = own
            for other in seen[:num_seen]:
                # Among equal ones its own stays, else the smallest is taken.
                is_first = count[other] == count[best] and best != own and other < best
                if (count[other] > count[best] or is_first) and size[other] < largest:
                    best = other
            for other in seen[:num_seen]:
                count[other] = 0
            size[own] -= 1
            size[best] += 1
            label[vertex] = best
    return label
