"""A graph and its assignment, read back from a partition directory one part at a time."""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from distgnn.datasets.errors import InputError
from distgnn.datasets.graph import Graph
from distgnn.partition.assignment import Assignment
from distgnn.partition.build import Part
from distgnn.partition.directory.layout import LINKS, MASKS
from distgnn.partition.directory.manifest import Manifest
from distgnn.partition.directory.store import read_part


class Gathered(NamedTuple):
    """Graph and assignment that a partition directory was made of.

    Attributes:
        graph: The graph; its edges come part by part, and inside a part as it stores them.
        assignment: Where they and the roots live.
        start: (num_parts + 1,) int64. Where the edges of each part begin.
    """

    graph: Graph
    assignment: Assignment
    start: NDArray[np.int64]


def gather(
    directory: str | os.PathLike[str], manifest: Manifest, *, scratch: Path, verify: bool = True
) -> Gathered:
    """Put the parts of a directory together again.

    Vertices keep their numbers, and everything that is known of them and of edges is the same to
    the bit. Dense features of both lie in files without a name, so that they take no memory of
    their own.

    Args:
        directory: The partition directory.
        manifest: Its manifest.
        scratch: An existing folder, on whose disk those files are.
        verify: Whether to check every file's checksum.

    Returns:
        The graph and its assignment.

    Raises:
        InputError: If a part is damaged, or the disk lacks the room for the features.
    """
    collector = _Collector(manifest, scratch)
    for number in range(manifest.num_parts):
        collector.add(read_part(directory, number, verify=verify, manifest=manifest))
    return collector.finish()


def feature_bytes(manifest: Manifest) -> int:
    """Return the size of the files that `gather` writes; 0 where there are none."""
    columns = 0 if manifest.has_sparse_features else manifest.num_features
    values = manifest.num_vertices * columns + manifest.num_edges * manifest.num_edge_features
    return values * np.dtype(np.float32).itemsize


def _mapped(folder: Path, shape: tuple[int, int]) -> NDArray[np.float32]:
    """Make a file without a name, which ends with the process however that ends, and map it.

    All of it is taken first: a page without room kills the process.
    """
    num_bytes = math.prod(shape) * np.dtype(np.float32).itemsize
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, num_bytes)
            mapped = np.memmap(file, np.float32, mode="r+", shape=shape)
    except OSError as error:
        raise InputError(
            f"cannot write {num_bytes} bytes of features into '{folder}' ({error.strerror}); "
            "make room, or choose another disk for the partition"
        ) from error
    # A plain view: memmap's own class would make every slice of it a memmap too.
    return mapped.view(np.ndarray)


class _Collector:
    """Takes parts in order and holds what has come so far, by global id."""

    def __init__(self, manifest: Manifest, scratch: Path) -> None:
        num_vertices, num_edges = manifest.num_vertices, manifest.num_edges
        self._manifest = manifest
        counts = [part.num_edges for part in manifest.parts]
        self._start = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        self._ends = np.empty((2, num_edges), np.int64)
        self._by_edge: dict[str, NDArray[Any]] = {}
        self._root_part = np.empty(num_vertices, np.int32)
        self._by_vertex: dict[str, NDArray[Any]] = {}
        self._links: dict[str, list[NDArray[np.int64]]] = {}
        self._sparse = _SparseRows(manifest) if manifest.has_sparse_features else None
        if manifest.num_features and self._sparse is None:
            shape = num_vertices, manifest.num_features
            self._by_vertex["features"] = _mapped(scratch, shape)
        # The system neither makes room for nothing nor maps it.
        if num_edges * manifest.num_edge_features:
            shape = num_edges, manifest.num_edge_features
            self._by_edge["edge_features"] = _mapped(scratch, shape)

    def add(self, part: Part) -> None:
        """Take the next part."""
        edges = slice(int(self._start[part.part]), int(self._start[part.part + 1]))
        self._ends[0, edges] = part.global_id[part.indices]
        self._ends[1, edges] = np.repeat(part.global_id, np.diff(part.indptr))
        for name in ("edge_weight", "edge_features", "edge_type"):
            values = getattr(part, name)
            if values is not None:
                if name not in self._by_edge:
                    shape = self._manifest.num_edges, *values.shape[1:]
                    self._by_edge[name] = np.empty(shape, values.dtype)
                self._by_edge[name][edges] = values
        for name in LINKS:
            if getattr(part, name) is not None:
                self._links.setdefault(name, []).append(getattr(part, name))
        roots = np.asarray(part.global_id[: part.num_roots])
        self._root_part[roots] = part.part
        for name, values in _vertex_values(part):
            self._place(name, roots, values)
        if self._sparse is not None:
            self._sparse.add(roots, part.features)

    def _place(self, name: str, roots: NDArray[np.int64], values: NDArray[Any]) -> None:
        """Put values of a part's roots where their ids say; masks have vertices in columns."""
        num_vertices = self._manifest.num_vertices
        if name not in self._by_vertex:
            is_mask = name in MASKS
            shape = (len(values), num_vertices) if is_mask else (num_vertices, *values.shape[1:])
            self._by_vertex[name] = np.empty(shape, values.dtype)
        if name in MASKS:
            self._by_vertex[name][:, roots] = values
        else:
            self._by_vertex[name][roots] = values

    def finish(self) -> Gathered:
        """Make the graph of what has come."""
        manifest = self._manifest
        known: dict[str, Any] = {**self._by_vertex, **self._by_edge}
        known |= {name: np.concatenate(parts) for name, parts in self._links.items()}
        if self._sparse is not None:
            known["features"] = self._sparse.finish()
        graph = Graph(
            name=manifest.name,
            num_vertices=manifest.num_vertices,
            src=self._ends[0],
            dst=self._ends[1],
            class_names=manifest.class_names or None,
            relation_names=manifest.relation_names or None,
            metric=manifest.metric,
            source=manifest.source,
            checksum=manifest.source_checksum,
            **known,
        )
        counts = np.diff(self._start)
        edge_part = np.repeat(np.arange(manifest.num_parts, dtype=np.int32), counts)
        assignment = Assignment(manifest.num_parts, edge_part, self._root_part)
        return Gathered(graph, assignment, self._start)


def _vertex_values(part: Part) -> Iterator[tuple[str, NDArray[Any]]]:
    for name in ("features", "labels", "vertex_id", "vertex_type", *MASKS):
        values = getattr(part, name)
        if isinstance(values, np.ndarray):
            yield name, values if name in MASKS else values[: part.num_roots]


class _SparseRows:
    """Rows of sparse features, collected in any order."""

    def __init__(self, manifest: Manifest) -> None:
        self._shape = manifest.num_vertices, manifest.num_features
        self._rows: list[NDArray[np.int64]] = []
        self._matrices: list[sp.csr_matrix] = []

    def add(self, roots: NDArray[np.int64], rows: Any) -> None:
        self._rows.append(roots)
        self._matrices.append(rows)

    def finish(self) -> sp.csr_matrix:
        """Put all rows in the order of their ids; their entries stay as they are."""
        row = np.concatenate(self._rows)
        stacked = sp.vstack(self._matrices, format="csr")
        self._matrices.clear()
        place = np.empty(self._shape[0], np.int64)
        place[row] = np.arange(row.size)
        return stacked[place]
