"""Any source as an array folder, its edges slice by slice.

Ids are written as they come and numbered in a second pass. As in `read_edge_list`, their order is
that of the vertex table, or else they are sorted.
"""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from distgnn.datasets.array_folder import is_array_folder
from distgnn.datasets.columns import NO_COLUMNS, Columns
from distgnn.datasets.edge_file import (
    CHUNK_EDGES,
    EdgeFile,
    finite_weights,
    from_array_folder,
)
from distgnn.datasets.edge_list import (
    columns_of,
    feature_candidates,
    header_rule,
    is_range,
    tables_of,
    told_edges,
    warn_of_unused,
    weights_of,
)
from distgnn.datasets.errors import InputError
from distgnn.datasets.flat_array import FlatWriter, open_flat
from distgnn.datasets.layouts import reader_of
from distgnn.datasets.named_twins import is_streamed_twin, write_twin
from distgnn.datasets.npz import arrays_of
from distgnn.datasets.numbering import Numbering, distinct_ids
from distgnn.datasets.relations import SlicedRelations
from distgnn.datasets.reverses import add_reverses, values_of
from distgnn.datasets.sliced_features import SlicedFeatures
from distgnn.datasets.tables import TABLE_SUFFIXES, read_ids, table_slices
from distgnn.datasets.vertex_table import read_vertex_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from distgnn.datasets.flat_array import FlatArray
    from distgnn.datasets.tables import Table

    Progress = Callable[[str], None] | None

_ENDS = ("src.npy", "dst.npy")
_VALUES = ("edge_weight.npy", "edge_features.npy", "edge_type.npy")


def ingest(
    source: str | Path,
    folder: str | Path,
    *,
    vertices: str | Path | None = None,
    undirected: bool = False,
    columns: Columns = NO_COLUMNS,
    progress: Progress = None,
) -> Path:
    """Turn a source into an array folder.

    An edge list is read slice by slice and needs the memory of its vertices alone; its ids must be
    integers. Its arrays are those of `read_edge_list`. While it is read, the disk holds 16 bytes an
    edge, and 4 for its weight, its type and each of its features. The features are there twice for
    a while where columns turn out to hold texts, or numbers are missing. A vertex table, an `.npz`
    file and a graph that has a name are read into memory.

    Args:
        source: An array folder, an edge list or a folder with one, or whatever else
            `datasets.load` takes.
        folder: An empty folder for the arrays. An array folder as source is taken as it is, unless
            edges are to be added.
        vertices: The vertex table of an edge list.
        undirected: Add the reverse of every edge that has none, behind all others.
        columns: Names of columns in the edge list and the vertex table.
        progress: Called with one line of text now and then.

    Returns:
        The array folder: `folder`, or the source itself.

    Raises:
        InputError: If the source is unknown, cannot be read, or contradicts itself.
        OSError: If the disk is full.
    """
    path, folder = Path(source), Path(folder)
    if is_streamed_twin(str(source)):
        path = folder / "twin"
        if not path.exists():
            write_twin(str(source), path)
    if path.is_dir() and is_array_folder(path):
        if vertices is not None:
            raise InputError(
                f"{str(source)!r} takes no vertex table, only edge lists do; leave out {vertices}"
            )
        columns.check_unused(str(source))
        if columns.label_values:
            raise InputError(
                f"labels.npy of {path} is read as it is stored, out of core; save it as float32 in "
                "place of --task regression, or use --out-of-core off"
            )
        if not undirected:
            return path
        _link_others(path, folder)
        edges = from_array_folder(path)
        add_reverses(edges, values_of(path, edges.num_edges), folder)
        return folder
    is_published = reader_of(path) is not None
    if path.is_dir() and not is_published and not (path / "manifest.json").exists():
        path, found = tables_of(path)
        vertices = found if vertices is None else vertices
    if path.name.endswith(TABLE_SUFFIXES):
        columns.check_vertices(path, has_vertices=vertices is not None)
        _ingest_table(path, folder, vertices, columns, undirected=undirected, progress=progress)
    else:
        from distgnn.datasets.sources import load

        graph = load(source, vertices=vertices, undirected=undirected, columns=columns)
        for name, array in arrays_of(graph).items():
            np.save(folder / f"{name}.npy", array)
    return folder


def _link_others(source: Path, folder: Path) -> None:
    """Link all arrays but those that have a value or row for each edge."""
    for file in sorted(source.glob("*.npy")):
        if file.name not in (*_ENDS, *_VALUES, "edge_index.npy"):
            (folder / file.name).symlink_to(file.resolve())
    if not (folder / "num_vertices.npy").exists():
        np.save(folder / "num_vertices.npy", np.asarray(from_array_folder(source).num_vertices))


def _ingest_table(
    path: Path,
    folder: Path,
    vertices: str | Path | None,
    columns: Columns,
    *,
    undirected: bool,
    progress: Progress,
) -> None:
    raw = folder / "raw"
    shutil.rmtree(raw, ignore_errors=True)
    raw.mkdir()
    relation_names = _write_raw(path, raw, columns, progress)
    if relation_names:
        np.save(folder / "relation_names.npy", np.asarray(relation_names))
    ends = [open_flat(raw / name)[0] for name in _ENDS]
    if vertices is None:
        ids = distinct_ids(ends)
        if ids.size == 0:
            raise InputError(f"{path} has no edges; give at least one edge, or a vertex table")
        if not is_range(ids):
            np.save(folder / "vertex_id.npy", ids)
    else:
        ids = _write_vertices(Path(vertices), folder, columns, progress)
    np.save(folder / "num_vertices.npy", np.asarray(ids.size))
    numbering = Numbering(ids)
    target = raw / "numbered" if undirected else folder
    target.mkdir(exist_ok=True)
    kind = np.dtype(np.int32 if ids.size <= np.iinfo(np.int32).max else np.int64)
    for end, name in zip(ends, _ENDS, strict=True):
        with FlatWriter(target / name, kind) as writer:
            for start in range(0, end.size, 1 << 22):
                wanted = end.read(start, min(start + (1 << 22), end.size))
                writer.append(_numbered(numbering, wanted, start, (path, vertices)))
        end.path.unlink()
    if undirected:
        src, dst = (open_flat(target / name)[0] for name in _ENDS)
        add_reverses(EdgeFile(src, dst, ids.size), values_of(raw, src.size), folder)
    else:
        for file in raw.glob("*.npy"):
            file.replace(folder / file.name)
    shutil.rmtree(raw)


def _write_raw(path: Path, raw: Path, columns: Columns, progress: Progress) -> tuple[str, ...]:
    """Write ids as they come and values of edges; return the names of the types, if any."""
    values: _RawValues | None = None
    num_edges = 0
    with ExitStack() as stack:
        ends = [stack.enter_context(FlatWriter(raw / name, np.dtype(np.int64))) for name in _ENDS]
        for table in table_slices(path, header_rule(columns)):
            if values is None:
                values = _RawValues(table, columns, raw, stack, progress)
            found = values.found
            both = read_ids(table, [found.source, found.target])
            for writer, ids in zip(ends, both, strict=True):
                if ids.dtype.kind != "i":
                    raise InputError(
                        f"{path} has ids that are not integers, which are numbered in memory only; "
                        "number the vertices 0, 1, 2, ... or use a machine with more memory"
                    )
                writer.append(ids)
            values.append(table, num_edges)
            num_edges += table.num_rows
            if progress is not None:
                progress(f"{num_edges} edges read")
    return () if values is None else values.finish()


class _RawValues:
    """Weights, features and types of edges, written a slice at a time."""

    def __init__(
        self, table: Table, columns: Columns, raw: Path, stack: ExitStack, progress: Progress
    ) -> None:
        self.found = columns_of(table, columns)
        self._table = table
        self._progress = progress
        candidates, self._left_out = feature_candidates(table, self.found)
        self._features = SlicedFeatures(
            table, candidates, columns.impute, are_named=self.found.features is not None
        )
        self._relations = SlicedRelations()
        self._writers: dict[str, FlatWriter] = {}
        width = self._features.num_columns
        for name, kind, is_there in (
            ("edge_weight", np.float32, self.found.weight is not None),
            ("edge_features", np.float32, width > 0),
            ("edge_type", np.int32, self.found.type is not None),
        ):
            if is_there:
                num_columns = width if name == "edge_features" else 0
                writer = FlatWriter(raw / f"{name}.npy", np.dtype(kind), num_columns=num_columns)
                self._writers[name] = stack.enter_context(writer)
        # With columns of numbers it is open until the last slice which of them are features.
        if not width:
            self._finish_features(None)

    def append(self, table: Table, start: int) -> None:
        """Write a slice, whose first edge has that number."""
        if self.found.weight is not None:
            weights = weights_of(table, self.found.weight)
            self._writers["edge_weight"].append(finite_weights(weights, table.path, start))
        if "edge_features" in self._writers:
            self._writers["edge_features"].append(self._features.append(table))
        if self.found.type is not None:
            types = self._relations.append(table, self.found.type)
            self._writers["edge_type"].append(types)

    def finish(self) -> tuple[str, ...]:
        """Complete the files, which are closed; return the names of the types, if any."""
        if "edge_features" in self._writers:
            self._finish_features(self._writers["edge_features"].written)
        if "edge_type" not in self._writers:
            return ()
        types = self._writers["edge_type"].written
        if not types.size:
            types.path.unlink()
            return ()
        number, names = self._relations.finish(self._table.path)
        with FlatWriter(types.path, types.dtype) as writer:
            for start in range(0, types.size, CHUNK_EDGES):
                writer.append(number[types.read(start, min(start + CHUNK_EDGES, types.size))])
        return names

    def _finish_features(self, written: FlatArray | None) -> None:
        unused, filled = self._features.finish(self._table, written)
        unused = [*self._left_out, *unused]
        if self._progress is not None:
            for line in (told_edges(self._table, self.found, unused), *filled):
                self._progress(line)
        warn_of_unused(self._table.path, unused)


def _numbered(
    numbering: Numbering,
    wanted: NDArray[np.int64],
    start: int,
    paths: tuple[Path, str | Path | None],
) -> NDArray[np.int64]:
    number = numbering.numbers(wanted)
    is_missing = number < 0
    if is_missing.any():
        edge = int(np.argmax(is_missing))
        raise InputError(
            f"edge {start + edge} of {paths[0]} is at vertex {wanted[edge]}, which {paths[1]} does "
            "not list; add the vertex or remove the edge"
        )
    return number


def _write_vertices(
    path: Path, folder: Path, columns: Columns, progress: Progress
) -> NDArray[np.int64]:
    """Write the arrays of a vertex table; return its ids."""
    table = read_vertex_table(path, columns=columns, progress=progress)
    ids: Any = table.ids
    if ids.dtype.kind != "i":
        raise InputError(
            f"{path} has ids that are not integers, which are numbered in memory only; number the "
            "vertices 0, 1, 2, ... or use a machine with more memory"
        )
    warn_of_unused(path, table.unused)
    for name, values in table.fields.items():
        np.save(folder / f"{name}.npy", np.asarray(values))
    if not is_range(ids):
        np.save(folder / "vertex_id.npy", ids)
    return np.asarray(ids, np.int64)
