"""Vertices of rows from disk that join clusters, and that change their parts."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distgnn.partition.bits import mix

FREE = -1


def _entries(rows: Any, row: int) -> Any:
    first, last = rows.indptr[row : row + 2]
    return list(
        zip(rows.neighbour[first:last].tolist(), rows.weight[first:last].tolist(), strict=True)
    )


def _sums(rows: Any, row: int, label: NDArray[np.int32]) -> Counter[int]:
    """Sum the weights of a row by the labels of its neighbours."""
    total: Counter[int] = Counter()
    for neighbour, weight in _entries(rows, row):
        total[int(label[neighbour])] += weight
    return total


def join_clusters(rows: Any, clusters: Any, most: int, seed: int) -> int:
    """Let each vertex of some rows join a cluster; return how many changed theirs."""
    label, size, own = clusters
    num_moves = 0
    for row in range(rows.indptr.size - 1):
        vertex = rows.first + row
        current = int(label[vertex])
        found = [
            (weight, int(mix(mix(np.uint64(seed)) ^ np.uint64(one))), one)
            for one, weight in _sums(rows, row, label).items()
            if one == current or size[one] + own[vertex] <= most
        ]
        best = max(found, default=(0, 0, current))[2]
        if best != current:
            size[current] -= own[vertex]
            size[best] += own[vertex]
            label[vertex] = best
            num_moves += 1
    return num_moves


def gather_alone(rows: Any, clusters: Any, most: int, bins: NDArray[np.int32]) -> None:
    """Let vertices that are still alone share a cluster with others of the same favourite."""
    label, size, own = clusters
    for row in range(rows.indptr.size - 1):
        vertex = rows.first + row
        if label[vertex] != vertex or size[vertex] != own[vertex]:
            continue
        found = [(weight, -one) for one, weight in _sums(rows, row, label).items()]
        favourite = -max(found, default=(0, 1 - bins.size))[1]
        home = bins[favourite]
        if home == FREE or size[home] + own[vertex] > most:
            bins[favourite] = vertex
            continue
        label[vertex] = home
        size[home] += own[vertex]
        size[vertex] -= own[vertex]


def change_parts(rows: Any, parts: Any, sizes: Any, price: int) -> int:
    """Let each vertex of some rows change its part; return how many did."""
    part, load, limit, _ = parts
    num_moves = 0
    for row in range(rows.indptr.size - 1):
        vertex = rows.first + row
        of_vertex = sizes.vertices[vertex] if sizes.vertices.size else 1
        own = np.array([of_vertex, sizes.ends[vertex]])
        home, tally = int(part[vertex]), _sums(rows, row, part)
        is_over = (load[:, home] > limit).any()
        found = [
            (weight, -goal)
            for goal, weight in tally.items()
            if goal != home and (load[:, goal] + own <= limit).all()
        ]
        most, goal = max(found, default=(-1, -home))
        best = -goal
        if is_over:
            if best == home:
                best, most = int(np.argmin((load / limit[:, None]).max(axis=0))), 0
            has_room = (load[:, best] + own <= limit).all()
            best = best if has_room and tally[home] - most <= price else home
        elif most <= tally[home]:
            best = home
        if best != home:
            part[vertex] = best
            load[:, home] -= own
            load[:, best] += own
            num_moves += 1
    return num_moves
