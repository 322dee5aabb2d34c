"""METIS for graphs of many links: on a graph of clusters, whose parts are improved on the way back.

```
links --choose, join--> clusters --merge--> links of clusters --... few--> METIS
  |                                                  |                       |
  +<---- choose, join ---- expand -------------------+<----------------------+
```
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from distgnn import _partitioner
from distgnn.partition.arcs import Adjacency
from distgnn.partition.methods.metis_library import part_graph
from distgnn.partition.threads import available_threads

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Entries, two for a link, from which on METIS gets clusters. With fewer it takes seconds.
LEAST_ENTRIES = 1 << 25
# It gets clusters once their graph has this small a share of the entries.
_FEW_ENTRIES = 1 / 8
# Mean vertices that the clusters of a level may have, and the smallest fraction of a part.
_LARGEST_CLUSTER, _CLUSTERS_PER_PART = 8, 50
# A level that leaves more of the entries of the one before is the last.
_LEAST_SHRINKING = 0.9
_CLUSTER_PASSES, _MOVE_PASSES = 3, 4
# Share of the vertices that move in a pass after which another one is not worth its time.
_FEW_MOVES = 0.002
# Largest part's sizes over the mean; that of METIS.
_IMBALANCE = 1.03
# Batches of a level, whose vertices choose side by side, and the fewest vertices of one.
_BATCHES, _LEAST_BATCH = 64, 1024


class _Clusters(NamedTuple):
    """Vertices in clusters."""

    label: NDArray[np.int32]
    """(num_vertices,) int32. Cluster of each vertex, from 0 on."""
    order: NDArray[np.int64]
    """(num_vertices,) int64. The vertices by cluster."""
    start: NDArray[np.int64]
    """(num_clusters + 1,) int64. Where each cluster begins there."""


def takes_levels(adjacency: Adjacency, objective: str) -> bool:
    """Return whether METIS gets clusters: to cut few of many links.

    Args:
        adjacency: Undirected.
        objective: "cut" or "volume" of METIS.
    """
    return objective == "cut" and adjacency.indices.size >= LEAST_ENTRIES


def part_by_levels(
    adjacency: Adjacency,
    num_parts: int,
    *,
    vertex_weight: NDArray[np.int64],
    seed: int,
) -> NDArray[np.int32]:
    """Part a graph of clusters by METIS, and improve its parts on the way back.

    Clusters of up to eight vertices are found and merged, level after level, until an eighth of
    the links is left. On the way back vertices move to the part that most of their links lead to.
    METIS alone takes several times the time and the memory on such graphs. The outcome depends on
    neither the number of threads nor the order of the edges.

    Args:
        adjacency: Undirected; a single weight stands for all.
        num_parts: At least 2.
        vertex_weight: (num_vertices,) int64, positive. What parts balance.
        seed: At least 0.

    Returns:
        (num_vertices,) int32. Part of each vertex; parts may be empty.

    Raises:
        InputError: If SIGTERM ended METIS, and the program goes on.
        MemoryError: If METIS was refused memory.

    References:
        Meyerhenke, Sanders and Schulz, "Partitioning complex networks via size-constrained
        clustering", SEA 2014; Akhremtsev, Sanders and Schulz, "High-quality shared-memory graph
        partitioning", IEEE Trans. Parallel and Distributed Systems 2020.
    """
    total = int(vertex_weight.sum())
    most_entries = int(_FEW_ENTRIES * adjacency.indices.size)
    levels, labels = [(adjacency, vertex_weight)], []
    with ThreadPoolExecutor(available_threads()) as pool:
        while levels[-1][0].indices.size > most_entries:
            links, size = levels[-1]
            in_parts = total // (_CLUSTERS_PER_PART * num_parts)
            most = min(in_parts, _LARGEST_CLUSTER * total // size.size)
            label = np.arange(size.size, dtype=np.int32)
            moves = _Moves(links, size, label, size.copy(), most, seed)
            moves.make(pool, _CLUSTER_PASSES)
            num_clusters = number_clusters(label)
            coarser = _contracted(pool, links, label, num_clusters)
            if coarser.indices.size > _LEAST_SHRINKING * links.indices.size:
                break
            labels.append(label)
            sizes = np.zeros(num_clusters, np.int64)
            np.add.at(sizes, label, size)
            levels.append((coarser, sizes))
        links, size = levels[-1]
        part = part_graph(links, num_parts, vertex_weight=size, seed=seed, objective="cut")
        most = int(_IMBALANCE * total / num_parts)
        while labels:
            levels.pop()
            links, size = levels[-1]
            part = part[labels.pop()]
            load = np.zeros(num_parts, np.int64)
            np.add.at(load, part, size)
            _Moves(links, size, part, load, most, seed).make(pool, _MOVE_PASSES)
    return part


def number_clusters(label: NDArray[np.int32]) -> int:
    """Number clusters 0, 1, 2, ... in the order of their labels.

    Args:
        label: (num_vertices,) int32. The cluster of each vertex, named by one of its vertices;
            becomes the number of the cluster.

    Returns:
        How many clusters there are.
    """
    is_used = np.zeros(label.size, np.bool_)
    is_used[label] = True
    rank = np.cumsum(is_used, dtype=np.int32)
    rank -= 1
    np.take(rank, label, out=label)
    return int(rank[-1]) + 1


class _Moves(NamedTuple):
    """Moves of vertices between groups, clusters or parts."""

    adjacency: Adjacency
    """Links of the vertices."""
    size: NDArray[np.int64]
    """(num_vertices,) int64."""
    group: NDArray[np.int32]
    """(num_vertices,) int32. Group of each vertex; changed."""
    load: NDArray[np.int64]
    """(num_groups,) int64. Sizes in each group; changed."""
    most: int
    """Sum of sizes up to which a group takes in vertices."""
    seed: int
    """Decides among groups that as many links lead to."""

    def make(self, pool: ThreadPoolExecutor, passes: int) -> None:
        """Let each vertex join the group that most of its links lead to, some times.

        Args:
            pool: Threads to use.
            passes: Most times.
        """
        num_vertices = self.size.size
        choice = np.empty(num_vertices, np.int32)
        step = max(-(-num_vertices // _BATCHES), _LEAST_BATCH)
        groups = self.group, self.size, self.load, self.most, self.seed, choice

        def choose(first: int, last: int) -> None:
            _partitioner.choose_groups(first, last, self.adjacency, *groups)

        for _ in range(passes):
            num_moves = 0
            for first in range(0, num_vertices, step):
                last = min(first + step, num_vertices)
                bounds = _bounds(self.adjacency.indptr, first, last)
                list(pool.map(choose, bounds[:-1], bounds[1:]))
                num_moves += _partitioner.join_groups(
                    first, last, choice, self.size, self.most, self.group, self.load
                )
            if num_moves <= _FEW_MOVES * num_vertices:
                break


def _contracted(
    pool: ThreadPoolExecutor, links: Adjacency, label: NDArray[np.int32], num_clusters: int
) -> Adjacency:
    """Merge the vertices of each cluster into one, and links between two clusters."""
    order = np.argsort(label, kind="stable")
    start = np.concatenate([[0], np.cumsum(np.bincount(label, minlength=num_clusters))])
    clusters = _Clusters(label, order, start)
    entries = np.concatenate([[0], np.cumsum(np.diff(links.indptr)[order])])[start]
    # Each thread writes from the place on where its links would begin if none were merged. Pages
    # in between are never touched, and take no memory.
    bounds = _bounds(entries, 0, num_clusters)
    count = np.empty(num_clusters, np.int64)
    neighbor, weight = np.empty(entries[-1], np.int32), np.empty(entries[-1], np.int64)

    def merge(first: int, last: int) -> slice:
        place = int(entries[first])
        given = count, neighbor, weight
        _partitioner.merge_cluster_links(first, last, links, clusters, place, *given)
        return slice(place, place + int(count[first:last].sum()))

    written = list(pool.map(merge, bounds[:-1], bounds[1:]))
    return Adjacency(
        np.concatenate([[0], np.cumsum(count)]),
        np.concatenate([neighbor[range_] for range_ in written]),
        np.concatenate([weight[range_] for range_ in written]),
    )


def _bounds(indptr: NDArray[np.int64], first: int, last: int) -> list[int]:
    """Cut a range of rows into one for each thread, with about as many entries each."""
    threads = available_threads()
    begin, end = int(indptr[first]), int(indptr[last])
    shares = begin + (end - begin) * np.arange(1, threads) // threads
    inner = np.searchsorted(indptr[first : last + 1], shares) + first
    return [first, *inner.tolist(), last]
