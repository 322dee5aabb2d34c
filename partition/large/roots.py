"""Parts of the vertices of a graph on disk, in memory of a few bytes per vertex.

```
edges --sort--> rows --cluster--> contract --> rows of clusters --... until they fit--> METIS
                  |                                  |                                     |
                  +<-- improve <-- expand -----------+<----------- improve <-- expand -----+
```
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from distgnn.datasets.edge_file import EdgeFile
from distgnn.datasets.flat_array import FlatWriter
from distgnn.partition.compilation import noting_compilation
from distgnn.partition.large.clusters import cluster
from distgnn.partition.large.coarsest import fits, part_rows
from distgnn.partition.large.contract import contract
from distgnn.partition.large.improve import VertexWeights, add_sizes, improve
from distgnn.partition.large.rows import RowFile, open_rows
from distgnn.partition.large.sort_rows import rows_of_edges
from distgnn.partition.methods.multilevel import number_clusters
from distgnn.partition.refine import refinement
from distgnn.partition.refine.balance import EDGE_SHARE
from distgnn.partition.refine.hubs import LINKS_PER_PART, has_hubs
from distgnn.partition.stopwatch import Stopwatch

# Edges inside a part never move afterwards, so that roots alone may not pass what parts may hold.
EDGE_BALANCE = refinement.EDGE_BALANCE
# Where single vertices are large, of a small graph or of clusters.
LOOSE_EDGE_BALANCE = 1.1
VERTEX_BALANCE = 1.25
# METIS moves clusters as a whole: they are at most this small a fraction of a part.
_CLUSTERS_PER_PART = 20
# Mean vertices that a cluster of one level may have. On the twin of ogbn-papers100M at 1/64 of its
# size 64 left three times as many links as 512, and cut more edges: 34.2 % instead of 33.8 %.
_LARGEST_CLUSTER = 512
# A graph of clusters that is hardly smaller is the last one.
_LEAST_SHRINKING = 0.95
_LABELS = "label.npy"
_HUNDREDTHS = 100


def roots(
    edges: EdgeFile,
    num_parts: int,
    folder: str | Path,
    *,
    seed: int = 0,
    memory_bytes: int,
    progress: Callable[[str], None] | None = None,
) -> NDArray[np.int32]:
    """Choose the part of each vertex so that few edges are cut and parts are balanced.

    Clusters of limited size are found by label propagation and merged, again and again, until
    METIS can hold the graph of clusters. Its parts are carried back to the vertices; on the way,
    passes over clusters and vertices move them between parts where that cuts fewer edges.

    The outcome depends on the edges, the number of parts, the seed and `memory_bytes`. It depends
    neither on the order of the edges nor on the number of threads.

    Args:
        edges: The graph.
        num_parts: At least 1.
        folder: Exists. Where files are written: up to 24 bytes an edge while edges are sorted, then
            8 and what the graphs of clusters take. If the call does not end, the next one with the
            same arguments continues from what is complete. They are the caller's to remove.
        seed: At least 0.
        memory_bytes: Bytes that sorting and METIS may take, beside 32 bytes a vertex.
        progress: Called with one line of text after each stage.

    Returns:
        (num_vertices,) int32. The part of each vertex; parts may be empty.

    Raises:
        InputError: If there are more than 2**31 - 1 vertices, or a file has become shorter.
        OSError: If the disk is full.

    References:
        Akhremtsev, Sanders and Schulz, "(Semi-)external algorithms for graph partitioning and
        clustering", ALENEX 2015; Karypis and Kumar, "A fast and high quality multilevel scheme for
        partitioning irregular graphs", SIAM J. Scientific Computing 1998.
    """
    if num_parts == 1:
        return np.zeros(edges.num_vertices, np.int32)
    work = Path(folder)
    for unfinished in work.rglob(".*"):
        unfinished.unlink()
    watch = Stopwatch(progress)
    with noting_compilation(progress or (lambda line: None)):
        rows = open_rows(work, is_weighted=False)
        if rows is None:
            rows = rows_of_edges(edges, work, memory_bytes=memory_bytes)
            watch.note(f"{rows.num_entries // 2} links sorted by vertex")
        return _Levels(num_parts, work, seed, memory_bytes, watch).partition(rows)


@dataclass(frozen=True)
class _Level:
    """A graph, and the cluster of each of its vertices in `folder`, once there are some.

    Attributes:
        rows: The graph.
        folder: Folder of its files.
        sizes: Weights of its vertices; None for the first level, which makes them when needed.
        num_parts: At least 2.
    """

    rows: RowFile
    folder: Path
    sizes: VertexWeights | None
    num_parts: int

    def sizes_now(self) -> VertexWeights:
        """Sizes of the vertices."""
        if self.sizes is not None:
            return self.sizes
        return VertexWeights(np.zeros(0, np.int64), self._ends())

    def _ends(self) -> NDArray[np.int64]:
        """Count ends of edges at each vertex of the first level, those at hubs at the other end.

        The edges of a hub that is large beside a part live beside its neighbours, wherever its root
        is; see `refine.hubs`.
        """
        ends = self.rows.degree.read(0, self.rows.num_vertices).astype(np.int64)
        a_part = self.rows.num_entries / self.num_parts
        if ends.max(initial=0) <= (EDGE_BALANCE - 1.0) * a_part or not has_hubs(ends):
            return ends
        is_hub = ends > LINKS_PER_PART * self.num_parts
        for first, indptr, neighbour, _ in self.rows.chunks():
            running = np.concatenate([[0], np.cumsum(is_hub[neighbour])])
            at_hubs, rows = np.diff(running[indptr]), slice(first, first + indptr.size - 1)
            # One between two hubs, or two others, has an end at either.
            ends[rows] = np.where(is_hub[rows], at_hubs, ends[rows] + at_hubs)
        return ends


@dataclass(frozen=True)
class _Levels:
    """The graph, the graph of its clusters, that of their clusters, ..., and back.

    Attributes:
        num_parts: At least 2.
        folder: Folder of the files.
        seed: At least 0.
        memory_bytes: Bytes that sorting and METIS may take.
        watch: Told of each stage.
    """

    num_parts: int
    folder: Path
    seed: int
    memory_bytes: int
    watch: Stopwatch

    def partition(self, rows: RowFile) -> NDArray[np.int32]:
        """Return the part of each vertex of the first level."""
        measure = _Measure(rows.num_vertices, rows.num_entries, self.num_parts)
        levels = [_Level(rows, self.folder, None, self.num_parts)]
        while not fits(levels[-1].rows, self.memory_bytes):
            levels.append(self._contracted(levels[-1], len(levels), measure))
            if levels[-1].rows.num_vertices > _LEAST_SHRINKING * levels[-2].rows.num_vertices:
                break
        coarsest = levels[-1]
        part = part_rows(
            coarsest.rows,
            self.num_parts,
            own=measure.own(coarsest.sizes_now()),
            seed=self.seed,
            memory_bytes=self.memory_bytes,
        )
        self.watch.note(f"{coarsest.rows.num_vertices} vertices parted by METIS")
        for level in reversed(levels):
            if level is not coarsest:
                part = part[np.load(level.folder / _LABELS)]
            sizes = level.sizes_now()
            improve(level.rows, part, sizes, measure.limit(sizes), self.num_parts)
            self.watch.note(f"{level.rows.num_vertices} vertices moved between parts")
        return part

    def _contracted(self, level: _Level, number: int, measure: _Measure) -> _Level:
        """Cluster the vertices of a level, and make the graph of the clusters."""
        folder = self.folder / f"level-{number}"
        folder.mkdir(exist_ok=True)
        sizes = level.sizes_now()
        if (level.folder / _LABELS).exists():
            label: NDArray[np.int32] = np.load(level.folder / _LABELS)
        else:
            own = measure.own(sizes)
            label = cluster(level.rows, own, most=measure.largest_cluster(own), seed=self.seed)
            number_clusters(label)
            with FlatWriter(level.folder / _LABELS, label.dtype) as writer:
                writer.append(label)
        merged = _merged(sizes, label)
        self.watch.note(f"{label.size} vertices in {merged.ends.size} clusters")
        rows = open_rows(folder, is_weighted=True)
        if rows is None:
            rows = contract(
                level.rows, label, merged.ends.size, folder, memory_bytes=self.memory_bytes
            )
            self.watch.note(f"{rows.num_entries // 2} links between {rows.num_vertices} clusters")
        return _Level(rows, folder, merged, self.num_parts)


@dataclass(frozen=True)
class _Measure:
    """Sizes that parts balance.

    Attributes:
        num_vertices: Number of vertices of the original.
        num_ends: Ends of edges of the original, self-loops apart.
        num_parts: At least 2.
    """

    num_vertices: int
    num_ends: int
    num_parts: int

    def own(self, sizes: VertexWeights) -> NDArray[np.int64]:
        """Weigh vertices by the ends of their edges and by themselves, as for METIS in memory."""
        per_vertex, per_end = self._weights()
        own = sizes.ends * per_end
        own += per_vertex * (sizes.vertices if sizes.vertices.size else np.int64(1))
        return own

    def largest_cluster(self, own: NDArray[np.int64]) -> int:
        """Size up to which a cluster takes in vertices of these sizes."""
        total = int(own.sum())
        in_parts = total // (_CLUSTERS_PER_PART * self.num_parts)
        return max(min(in_parts, _LARGEST_CLUSTER * total // own.size), 1)

    def limit(self, sizes: VertexWeights) -> NDArray[np.int64]:
        """Vertices and ends of edges up to which a part takes in vertices, (2,) int64.

        Without room for one vertex of the graph, or cluster, nothing could move between parts.
        """
        mean = np.array([self.num_vertices, self.num_ends]) / self.num_parts
        largest = int(sizes.ends.max(initial=0))
        room = min(1 + largest / max(float(mean[1]), 1), LOOSE_EDGE_BALANCE)
        wanted = np.maximum(mean * [VERTEX_BALANCE, max(EDGE_BALANCE, room)], np.ceil(mean))
        return np.maximum(wanted.astype(np.int64), 1)

    def _weights(self) -> tuple[int, int]:
        """Weight of a vertex and of an end of an edge, in whole numbers."""
        per_end = round(_HUNDREDTHS * EDGE_SHARE)
        mean = max(self.num_ends // self.num_vertices, 1)
        return (_HUNDREDTHS - per_end) * mean, per_end


def _merged(sizes: VertexWeights, label: NDArray[np.int32]) -> VertexWeights:
    """Sizes of the clusters."""
    num_clusters = int(label.max()) + 1
    found = VertexWeights(np.zeros(num_clusters, np.int64), np.zeros(num_clusters, np.int64))
    add_sizes(sizes, label, found)
    return found
