"""Any source as an array folder, its edges slice by slice.

Ids are written as they come and numbered in a second pass. As in `read_edge_list`, their order is
that of the vertex table, or else they are sorted.
"""

from __future__ import annotations

import logging
import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from distgnn.datasets.array_folder import is_array_folder, weight_of
from distgnn.datasets.columns import FLAGS, NO_COLUMNS, Columns
from distgnn.datasets.edge_file import EdgeFile, finite_weights, from_array_folder
from distgnn.datasets.edge_list import (
    columns_of,
    header_rule,
    is_range,
    tables_of,
    told_edges,
    weights_of,
)
from distgnn.datasets.errors import InputError
from distgnn.datasets.flat_array import FlatWriter, open_flat
from distgnn.datasets.layouts import reader_of
from distgnn.datasets.named_twins import is_streamed_twin, write_twin
from distgnn.datasets.npz import arrays_of
from distgnn.datasets.numbering import Numbering, distinct_ids
from distgnn.datasets.reverses import add_reverses
from distgnn.datasets.tables import TABLE_SUFFIXES, read_ids, table_slices
from distgnn.datasets.vertex_table import read_vertex_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Progress = Callable[[str], None] | None

_LOGGER = logging.getLogger(__name__)
_EDGES = ("src.npy", "dst.npy", "edge_weight.npy")


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
    integers. A vertex table, an `.npz` file and a graph that has a name are read into memory.

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
        if (path / "edge_features.npy").exists():
            raise InputError(
                f"{path} has edge_features.npy, which reverse edges get in memory only; use "
                "--out-of-core off, leave --undirected out, or leave the features of edges out"
            )
        _link_others(path, folder)
        edges = from_array_folder(path)
        add_reverses(edges, weight_of(path, edges.num_edges), folder)
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
    """Link all arrays but those of the edges."""
    for file in sorted(source.glob("*.npy")):
        if file.name not in (*_EDGES, "edge_index.npy"):
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
    has_weights = _write_raw(path, raw, columns, progress)
    ends = [open_flat(raw / name)[0] for name in _EDGES[:2]]
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
    for end, name in zip(ends, _EDGES, strict=False):
        with FlatWriter(target / name, kind) as writer:
            for start in range(0, end.size, 1 << 22):
                wanted = end.read(start, min(start + (1 << 22), end.size))
                writer.append(_numbered(numbering, wanted, start, (path, vertices)))
        end.path.unlink()
    weight = raw / _EDGES[2] if has_weights else None
    if undirected:
        src, dst = (open_flat(target / name)[0] for name in _EDGES[:2])
        weights = None if weight is None else open_flat(weight)[0]
        add_reverses(EdgeFile(src, dst, ids.size), weights, folder)
    elif weight is not None:
        weight.replace(folder / weight.name)
    shutil.rmtree(raw)


def _write_raw(path: Path, raw: Path, columns: Columns, progress: Progress) -> bool:
    """Write ids and weights as they come; return whether there are weights."""
    for field, what in (("edge_features", "features"), ("edge_type", "types")):
        if getattr(columns, field) is not None:
            raise InputError(
                f"{FLAGS[field]} names {what} of edges, which are read from tables in memory only; "
                "use --out-of-core off or leave it out"
            )
    is_begun = has_weights = False
    num_edges = 0
    kinds = (np.int64, np.int64, np.float32)
    with ExitStack() as stack:
        writers = [
            stack.enter_context(FlatWriter(raw / name, np.dtype(kind)))
            for name, kind in zip(_EDGES, kinds, strict=True)
        ]
        for table in table_slices(path, header_rule(columns)):
            found = columns_of(table, columns)
            others = [(table.names or ())[column] for column in found.others]
            if progress is not None and not is_begun:
                progress(told_edges(table, found, others))
            if others and not is_begun:
                _LOGGER.warning(
                    "%s: columns that are not used: %s (features of edges are read from tables in "
                    "memory only)",
                    path,
                    ", ".join(others),
                )
            is_begun = True
            for writer, ids in zip(
                writers, read_ids(table, [found.source, found.target]), strict=False
            ):
                if ids.dtype.kind != "i":
                    raise InputError(
                        f"{path} has ids that are not integers, which are numbered in memory only; "
                        "number the vertices 0, 1, 2, ... or use a machine with more memory"
                    )
                writer.append(ids)
            if found.weight is not None:
                has_weights = True
                weights = weights_of(table, found.weight)
                writers[2].append(finite_weights(weights, table.path, num_edges))
            num_edges += table.num_rows
            if progress is not None:
                progress(f"{num_edges} edges read")
    return has_weights


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
    for name, values in table.fields.items():
        np.save(folder / f"{name}.npy", np.asarray(values))
    if not is_range(ids):
        np.save(folder / "vertex_id.npy", ids)
    return np.asarray(ids, np.int64)
