"""A graph on disk: its edges and its features are read in slices, the rest is small."""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from distgnn.datasets.array_folder import edge_features_of, open_array, relations_of, weight_of
from distgnn.datasets.edge_file import EdgeFile, from_array_folder
from distgnn.datasets.errors import InputError
from distgnn.datasets.flat_array import FlatArray, read_header
from distgnn.datasets.npz import graph_of_arrays, log_unused

if TYPE_CHECKING:
    from distgnn.datasets.graph import Graph

FLOAT: np.dtype[Any] = np.dtype(np.float32)
# Arrays that are read in slices.
_SLICED = ("edge_index", "src", "dst", "features", "edge_weight", "edge_features", "edge_type")
# The system maps what it has of so many bytes around a page that is read, and all that is mapped
# counts as memory of the process.
_AROUND_BYTES = 1 << 16
_AROUNDS = 1 << 9


@dataclass(frozen=True, eq=False)
class Table:
    """Numbers on disk, row by row. No page of the file stays in the memory of the process."""

    path: Path
    dtype: np.dtype[Any]
    offset_bytes: int
    num_rows: int
    num_columns: int
    read_as: np.dtype[Any] = FLOAT
    """Type of the numbers in memory."""

    def read(self, row: NDArray[np.int64]) -> NDArray[Any]:
        """Read some rows.

        Args:
            row: (num_rows,) int64, in any order.

        Returns:
            (num_rows, num_columns) of `read_as`.

        Raises:
            InputError: If a value is not finite.
        """
        rows = np.empty((row.size, self.num_columns), self.read_as)
        if not row.size:
            return rows
        order = np.argsort(row)
        around = row[order] * (self.num_columns * self.dtype.itemsize) // _AROUND_BYTES
        num_arounds = np.cumsum(np.diff(around, prepend=around[0]) > 0)
        bounds = np.searchsorted(num_arounds, np.arange(0, num_arounds[-1] + 1, _AROUNDS))
        with (
            self.path.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
        ):
            if num_arounds[-1] * 2 > row.size:
                # Neighbours of a row that is read are not: do not read them ahead.
                mapped.madvise(mmap.MADV_RANDOM)
            flat = np.frombuffer(
                mapped, self.dtype, self.num_rows * self.num_columns, self.offset_bytes
            )
            table = flat.reshape(self.num_rows, -1)
            with np.errstate(over="ignore"):  # what overflows float32 is reported as not finite
                for chosen in np.split(order, bounds[1:]):
                    rows[chosen] = table[row[chosen]]
                    mapped.madvise(mmap.MADV_DONTNEED)
            # The map can be closed only when nobody looks into it.
            del table, flat
        self._check_finite(rows, row)
        return rows

    @property
    def narrow_dtype(self) -> np.dtype[Any]:
        """Type that holds the values as `read_as`, in no more bytes than that or the file take."""
        return self.dtype if self.dtype.itemsize <= 4 else self.read_as

    def read_run(self, begin: int, end: int) -> NDArray[Any]:
        """Read rows that follow each other, as fast as the disk hands them over.

        Args:
            begin: The first.
            end: The one after the last.

        Returns:
            (end - begin, num_columns) of `narrow_dtype`.

        Raises:
            InputError: If the file cannot be read any more, or a value is not finite.
        """
        size, columns = self.num_rows * self.num_columns, self.num_columns
        flat = FlatArray(self.path, self.offset_bytes, self.dtype, size)
        rows = flat.read(begin * columns, end * columns).reshape(-1, columns)
        with np.errstate(over="ignore"):  # as above
            rows = rows.astype(self.narrow_dtype, copy=False)
        self._check_finite(rows, np.arange(begin, end))
        return rows

    def _check_finite(self, rows: NDArray[Any], row: NDArray[np.int64]) -> None:
        """Refuse values that are not; `row` are the numbers of `rows`."""
        is_bad = ~np.isfinite(rows).all(axis=1)
        if is_bad.any():
            raise InputError(
                f"{self.path}: row {row[is_bad].min()} has values that are NaN or infinite in "
                "float32; replace or drop them"
            )


@dataclass(frozen=True, eq=False)
class GraphOnDisk:
    """A graph to partition, whose edges lie on disk."""

    edges: EdgeFile
    """On disk."""
    vertices: Graph
    """The graph without edges and without dense features: names, labels, masks, ids."""
    features: Table | None
    """On disk, where there are dense ones."""
    edge_weight: Table | None
    """(num_edges, 1) on disk."""
    edge_features: Table | None
    """(num_edges, num_edge_features) on disk, where edges have some."""
    edge_type: Table | None
    """(num_edges, 1) integers on disk, where edges have types; `vertices` has the names."""
    num_relations: int = 0
    """Number of relations; 0 without types."""

    @property
    def num_features(self) -> int:
        """Number of feature columns; 0 without features."""
        return self.vertices.num_features if self.features is None else self.features.num_columns

    @property
    def features_bytes(self) -> int:
        """Bytes of the rows of features that stay on disk."""
        table = self.features
        return 0 if table is None else table.num_rows * table.num_columns * table.dtype.itemsize

    @property
    def num_edge_features(self) -> int:
        """Number of feature columns of edges; 0 without such features."""
        return 0 if self.edge_features is None else self.edge_features.num_columns

    @property
    def has_edge_values(self) -> bool:
        """Whether something on disk has a row for each edge, so that edges know their numbers."""
        values = self.edge_weight, self.edge_features, self.edge_type
        return any(value is not None for value in values)


def open_folder(folder: str | Path) -> GraphOnDisk:
    """Open an array folder without reading its features and weights.

    Args:
        folder: The folder.

    Returns:
        The source.

    Raises:
        InputError: If an array is missing, damaged or of another kind, or they contradict each
            other, or links are held out.
    """
    folder = Path(folder)
    if (folder / "test_links.npy").exists():
        raise InputError(
            f"{folder} has test_links.npy, but graphs that hold links out are partitioned in "
            "memory only; use --out-of-core off, or leave the links out"
        )
    edges = from_array_folder(folder)
    files = sorted(folder.glob("*.npy"))
    arrays = {file.stem: open_array(file) for file in files if file.stem not in _SLICED}
    arrays["num_vertices"] = np.asarray(edges.num_vertices)
    no_edges = np.zeros(0, np.int64)
    found = relations_of(folder, edges.num_edges)
    if found is not None:  # names alone would be those of nothing
        arrays["edge_type"] = no_edges
    try:
        vertices = graph_of_arrays(
            arrays,
            (no_edges, no_edges),
            name=folder.resolve().name,
            source=str(folder),
            checksum="",
        )
    except InputError as error:
        raise InputError(f"{folder}: {error}") from error
    log_unused(vertices)
    if vertices.features is not None and (folder / "features.npy").exists():
        raise InputError(
            f"{folder}: features.npy and features_indptr.npy are both there; keep the dense or the "
            "CSR one"
        )
    return GraphOnDisk(
        edges=edges,
        vertices=vertices,
        features=_features(folder / "features.npy", edges.num_vertices),
        edge_weight=_weight(folder, edges.num_edges),
        edge_features=_edge_features(folder, edges.num_edges),
        edge_type=None if found is None else _column(found[0], np.dtype(np.int32)),
        num_relations=0 if found is None else found[1],
    )


def _column(found: FlatArray, read_as: np.dtype[Any]) -> Table:
    return Table(found.path, found.dtype, found.offset_bytes, found.size, 1, read_as)


def _edge_features(folder: Path, num_edges: int) -> Table | None:
    found, width = edge_features_of(folder, num_edges)
    if found is None:
        return None
    return Table(found.path, found.dtype, found.offset_bytes, num_edges, width)


def _features(path: Path, num_rows: int) -> Table | None:
    if not path.exists():
        return None
    header = read_header(path)
    shape, dtype = header.shape, header.dtype
    if (
        len(shape) != 2
        or shape[0] != num_rows
        or shape[1] == 0
        or dtype.kind not in "fiub"
        or header.is_fortran
    ):
        order = "column by column" if header.is_fortran else "row by row"
        raise InputError(
            f"{path} must hold numbers of shape ({num_rows}, num_{path.stem}), row by row, got "
            f"{dtype} of shape {shape}, {order}; write one row for each vertex"
        )
    return Table(path, dtype, header.offset_bytes, *shape)


def _weight(folder: Path, num_edges: int) -> Table | None:
    found = weight_of(folder, num_edges)
    return None if found is None else _column(found, FLOAT)
