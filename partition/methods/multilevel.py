"""METIS for graphs of many links: on a graph of clusters, whose parts are improved on the way back.

```
links --choose, join--> clusters --merge--> links of clusters --... few--> METIS
  |                                           |       |                      |
  +<----- choose, join ----- expand ----------+<------+-------- METIS? <-----+
```
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from distgnn import _partitioner
from distgnn.partition.arcs import Adjacency
from distgnn.partition.methods.metis_library import part_graph
from distgnn.partition.threads import available_threads, even_bounds

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Entries, two for a link, from which on METIS gets clusters. With fewer it takes seconds.
LEAST_ENTRIES = 1 << 25
# METIS parts the last level. There is no other once one has at most the smaller share of all
# entries. On the way back METIS also parts a level with at most the larger share, if it has twice
# the entries of the level that METIS parted before. How good its cuts are depends on the level, by
# up to a fifth and not in any order.
_FEWEST_ENTRIES, _FEW_ENTRIES = 1 / 20, 1 / 4
# Mean sizes that the clusters of a level may have, and the smallest fraction of a part.
_LARGEST_CLUSTER, _CLUSTERS_PER_PART = 8, 50
# A level that would keep more of the entries of the one before is not made: levels that shrink
# slowly would take more memory together than METIS does.
_LEAST_SHRINKING = 0.75
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

    Clusters of up to eight times the mean size are found and merged, level after level, until a
    twentieth of the links is left. On the way back vertices move to the part that most of their
    links lead to. METIS also parts levels with few links anew, and what cuts fewer links goes on.
    METIS alone takes two to three times the time, and more memory. The outcome depends on neither
    the number of threads nor the order of the edges.

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
    num_entries = adjacency.indices.size
    seed_of_ties = seed % 2**64
    levels, labels = [(adjacency, vertex_weight)], []
    # Threads are gone whenever METIS runs, which handles signals as if there were one.
    with ThreadPoolExecutor(available_threads()) as pool:
        while levels[-1][0].indices.size > _FEWEST_ENTRIES * num_entries:
            most = total // (_CLUSTERS_PER_PART * num_parts)
            found = _coarser(pool, *levels[-1], most, seed_of_ties)
            if found is None:
                break
            labels.append(found[0])
            levels.append(found[1])
            del found
    most = int(_IMBALANCE * total / num_parts)

    def moved(part: NDArray[np.int32], level: tuple[Adjacency, NDArray[np.int64]]) -> int:
        """Move vertices of a level between parts; return the size of the largest part."""
        links, size = level
        load = np.zeros(num_parts, np.int64)
        np.add.at(load, part, size)
        with ThreadPoolExecutor(available_threads()) as pool:
            _Moves(links, size, part, load, most, seed_of_ties).make(pool, _MOVE_PASSES)
        return int(load.max())

    links, size = levels.pop()
    best = part_graph(links, num_parts, vertex_weight=size, seed=seed, objective="cut")
    parted = links.indices.size
    while labels:
        level = links, size = levels.pop()
        best = best[labels.pop()]
        largest = moved(best, level)
        if 2 * parted <= links.indices.size <= _FEW_ENTRIES * num_entries:
            other = part_graph(links, num_parts, vertex_weight=size, seed=seed, objective="cut")
            parted = links.indices.size
            choices = [(largest, best), (moved(other, level), other)]
            # First by what the largest part has beyond the limit.
            costs = [(max(load, most), cut_weight(links, part)) for load, part in choices]
            best = choices[costs.index(min(costs))][1]
    return best


def cut_weight(links: Adjacency, part: NDArray[np.int32]) -> int:
    """Sum the weights of links between parts.

    Args:
        links: Undirected; a single weight stands for all.
        part: (num_vertices,) int32. Part of each vertex.
    """
    is_cut = np.repeat(part, np.diff(links.indptr)) != part[links.indices]
    if links.weight.size == 1:
        return int(links.weight[0]) * int(np.count_nonzero(is_cut)) // 2
    return int(links.weight[is_cut].sum(dtype=np.int64)) // 2


def _coarser(
    pool: ThreadPoolExecutor,
    links: Adjacency,
    size: NDArray[np.int64],
    most: int,
    seed: int,
) -> tuple[NDArray[np.int32], tuple[Adjacency, NDArray[np.int64]]] | None:
    """Cluster the vertices of a level.

    Args:
        pool: Threads to use.
        links: Links of the level.
        size: (num_vertices,) int64. Sizes of its vertices.
        most: Largest size of a cluster; smaller where a few vertices fill one.
        seed: Decides ties.

    Returns:
        The cluster of each vertex, and the links and sizes of the clusters; None where too many
        links would be left.
    """
    # Vertices without links are never merged.
    is_linked = np.diff(links.indptr) > 0
    num_linked = max(int(np.count_nonzero(is_linked)), 1)
    most = min(most, _LARGEST_CLUSTER * int(size[is_linked].sum()) // num_linked)
    label = np.arange(size.size, dtype=np.int32)
    _Moves(links, size, label, size.copy(), most, seed).make(pool, _CLUSTER_PASSES)
    num_clusters = number_clusters(label)
    coarser = _contracted(pool, links, label, num_clusters)
    if coarser.indices.size > _LEAST_SHRINKING * links.indices.size:
        return None
    sizes = np.zeros(num_clusters, np.int64)
    np.add.at(sizes, label, size)
    return label, (coarser, sizes)


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
        threads = available_threads()

        def choose(first: int, last: int) -> None:
            _partitioner.choose_groups(first, last, self.adjacency, *groups)

        for _ in range(passes):
            num_moves = 0
            for first in range(0, num_vertices, step):
                last = min(first + step, num_vertices)
                bounds = even_bounds(self.adjacency.indptr, first, last, threads)
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
    bounds = even_bounds(entries, 0, num_clusters, available_threads())
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
