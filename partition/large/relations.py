"""Relations of edges on disk: how many edges of its relation enter the destination of each edge."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distgnn.datasets.flat_array import FlatArray, FlatWriter, open_flat
from distgnn.partition.jit import compiled
from distgnn.partition.large.clock import Progress, StageProgress
from distgnn.partition.large.source import GraphOnDisk, Table
from distgnn.partition.large.work import WorkFolder

NAME = "relation-degree"
"""Name of the file of the degrees in the work folder."""
# A count in int64.
_COUNT_BYTES = 8


def relate(
    source: GraphOnDisk,
    work: WorkFolder,
    *,
    memory_bytes: int,
    chunk_edges: int,
    progress: Progress | None,
) -> None:
    """Count the edges of each relation into each vertex, and write the count of every edge's.

    As many vertices as fit into the memory are counted at a time; each time all edges are read.

    Args:
        source: A graph whose edges have types.
        work: Where the counts go, in the order of the edges.
        memory_bytes: Bytes that the counts may take.
        chunk_edges: Edges to read at a time.
        progress: Called with one line of text now and then.

    Raises:
        InputError: If a file has become shorter.
        OSError: If the disk is full.
    """
    edges, num_relations = source.edges, source.num_relations
    step = min(max(memory_bytes // (_COUNT_BYTES * num_relations), 1), edges.num_vertices)
    begins = range(0, edges.num_vertices, step)
    clock = StageProgress("relations", "edges", 2 * len(begins) * edges.num_edges, progress)
    path = work.path(f"{NAME}.new.npy")
    # What an interrupted run left, also of a file that was not whole yet.
    for left in (path, *work.folder.glob(f".{path.name}*")):
        left.unlink(missing_ok=True)
    for begin in begins:
        counts = np.zeros((min(step, edges.num_vertices - begin), num_relations), np.int64)
        for _, dst, kind in _chunks(source, chunk_edges):
            _count(dst, kind, begin, counts)
            clock.add(dst.size)
        known = open_flat(path)[0] if begin else None
        with FlatWriter(path, np.dtype(np.int32)) as writer:
            for start, dst, kind in _chunks(source, chunk_edges):
                degree = _known(known, start, dst.size)
                _take(dst, kind, begin, counts, degree)
                writer.append(degree)
                clock.add(dst.size)
    path.replace(work.path(f"{NAME}.npy"))
    clock.end()


def relation_degree(work: WorkFolder, num_edges: int) -> Table:
    """Open what `relate` wrote.

    Args:
        work: The work folder.
        num_edges: Edges of the graph.

    Returns:
        (num_edges, 1) int32 on disk, at least 1.
    """
    (found,) = open_flat(work.path(f"{NAME}.npy"))
    return Table(found.path, found.dtype, found.offset_bytes, num_edges, 1, found.dtype)


def _chunks(
    source: GraphOnDisk, chunk_edges: int
) -> Iterator[tuple[int, NDArray[Any], NDArray[Any]]]:
    """Yield the number of the first edge, destinations and relations, slice by slice."""
    assert source.edge_type is not None
    for start, _, dst in source.edges.chunks(chunk_edges):
        yield start, dst, source.edge_type.read_run(start, start + dst.size).reshape(-1)


def _known(found: FlatArray | None, start: int, size: int) -> NDArray[np.int32]:
    return np.zeros(size, np.int32) if found is None else found.read(start, start + size)


@compiled
def _count(
    dst: NDArray[np.integer[Any]],
    kind: NDArray[np.integer[Any]],
    begin: int,
    counts: NDArray[np.int64],
) -> None:
    for k in range(dst.size):
        row = dst[k] - begin
        if 0 <= row < counts.shape[0]:
            counts[row, kind[k]] += 1


@compiled
def _take(
    dst: NDArray[np.integer[Any]],
    kind: NDArray[np.integer[Any]],
    begin: int,
    counts: NDArray[np.int64],
    degree: NDArray[np.int32],
) -> None:
    for k in range(dst.size):
        row = dst[k] - begin
        if 0 <= row < counts.shape[0]:
            degree[k] = counts[row, kind[k]]
