"""Vertices that choose among groups and join them, and the graph of clusters."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distgnn.partition.bits import mix


def _sums(links: Any, group: NDArray[np.int32], vertices: Any) -> Counter[int]:
    """Sum the weights of the links of some vertices by the groups of their other ends."""
    indptr, indices, weight = links
    total: Counter[int] = Counter()
    for vertex in vertices:
        for k in range(indptr[vertex], indptr[vertex + 1]):
            total[int(group[indices[k]])] += int(weight[k if weight.size > 1 else 0])
    return total


def _choose(
    vertices: tuple[int, int],
    links: Any,
    groups: tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int64], int],
    seed: int,
    choice: NDArray[np.int32],
) -> None:
    """Note for each vertex the group that most of its links lead to, among those with room."""
    group, size, load, most = groups
    for vertex in range(*vertices):
        home = int(group[vertex])
        total = _sums(links, group, [vertex])
        found = [
            (weight, int(mix(mix(np.uint64(seed)) ^ np.uint64(one))), one)
            for one, weight in total.items()
            if one != home and load[one] + size[vertex] <= most
        ]
        best = max(found, default=(0, 0, home))
        choice[vertex] = best[2] if best[0] > total[home] else home


def _join(
    vertices: tuple[int, int],
    choice: NDArray[np.int32],
    size: NDArray[np.int64],
    most: int,
    groups: tuple[NDArray[np.int32], NDArray[np.int64]],
) -> int:
    """Move vertices, in order, where there is still room; return how many moved."""
    group, load = groups
    num_moves = 0
    for vertex in range(*vertices):
        home, goal = group[vertex], choice[vertex]
        if goal == home or load[goal] == 0 or load[goal] + size[vertex] > most:
            continue
        load[home] -= size[vertex]
        load[goal] += size[vertex]
        group[vertex] = goal
        num_moves += 1
    return num_moves


def _merge_clusters(
    clusters: tuple[int, int],
    links: Any,
    members: tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int64]],
    place: int,
    written: tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]],
) -> None:
    """Write the other clusters that links of each lead to, from a place on."""
    label, order, start = members
    count, neighbor, weight = written
    for cluster in range(*clusters):
        total = _sums(links, label, order[start[cluster] : start[cluster + 1]])
        del total[cluster]
        count[cluster] = len(total)
        for other, sum_ in total.items():
            neighbor[place], weight[place] = other, sum_
            place += 1
