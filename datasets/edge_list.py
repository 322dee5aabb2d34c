"""Edge lists in CSV, TSV, blank-separated text or Parquet, with an optional vertex table."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from distgnn.datasets.errors import InputError
from distgnn.datasets.graph import Graph
from distgnn.datasets.npz import sha256
from distgnn.datasets.tables import TABLE_SUFFIXES, Ids, Table, open_table, read_ids
from distgnn.datasets.vertex_table import numeric_columns, read_vertex_table

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LOGGER = logging.getLogger(__name__)

_ENDS = (
    ("src", "dst"),
    ("source", "target"),
    ("source", "destination"),
    ("from", "to"),
    ("u", "v"),
)
_WEIGHTS = ("weight", "edge_weight", "w")
_INTEGER = re.compile(r"\s*-?\d+\s*")


def read_edge_list(
    path: str | Path, *, vertices: str | Path | None = None, name: str | None = None
) -> Graph:
    """Read a graph from an edge list.

    The columns are source, destination and, if there is a third, weight; below a header, all other
    columns of numbers but `id` are features of edges. A header is recognised by the names src and
    dst (or source and target, from and to, u and v), which may then stand anywhere, or as words
    above two columns of integers. Ids are integers or texts and become 0, 1, 2, ...: in the order
    of the vertex table, or else sorted. `Graph.vertex_id` has the original ids.

    Args:
        path: A .csv, .tsv, .txt or .edges file, possibly .gz, or a .parquet file.
        vertices: A vertex table of the same formats, see `read_vertex_table`. Vertices that no
            edge has are isolated.
        name: The name of the graph; None takes that of the file.

    Raises:
        InputError: If a file cannot be read, or an edge has an id that the vertex table lacks.
    """
    path = Path(path)
    table = open_table(path, is_header)
    src_column, dst_column, weight_column, others = columns_of(table)
    weight: Any = None if weight_column is None else weights_of(table, weight_column)
    edge_features, unused = _edge_features(table, others)
    ends = read_ids(table, [src_column, dst_column])
    fields: dict[str, Any] = {}
    if vertices is None:
        ids, src, dst = _number(*ends)
    else:
        vertex_table = read_vertex_table(vertices)
        unused += vertex_table.unused
        fields = vertex_table.fields
        ids, wanted = _same_kind(vertex_table.ids, ends)
        src, dst = (_positions(end, ids, table, Path(vertices)) for end in wanted)
    if ids.size == 0:
        raise InputError(f"{path} has no edges; give at least one edge, or a vertex table")
    if unused:
        _LOGGER.warning("%s: columns that are not used: %s", path, ", ".join(unused))
    files = [path] if vertices is None else [path, Path(vertices)]
    try:
        return Graph(
            name=path.name.split(".")[0] if name is None else name,
            num_vertices=ids.size,
            src=src,
            dst=dst,
            edge_weight=weight,
            edge_features=edge_features,
            vertex_id=None if is_range(ids) else ids,
            unused=tuple(unused),
            source=str(path),
            checksum=sha256(files),
            **fields,
        )
    except InputError as error:
        raise InputError(f"{' with '.join(map(str, files))}: {error}") from error


def read_folder(path: str | Path, *, vertices: str | Path | None = None) -> Graph:
    """Read a folder that has `edges` and possibly `vertices`, each as csv, tsv or parquet.

    Args:
        path: The folder; its name becomes the name of the graph.
        vertices: A vertex table to take instead of the one in the folder.

    Raises:
        InputError: If there is no edge list or more than one, or a file cannot be read.
    """
    path = Path(path)
    edges, table = tables_of(path)
    return read_edge_list(
        edges, vertices=table if vertices is None else vertices, name=path.resolve().name
    )


def tables_of(folder: Path) -> tuple[Path, Path | None]:
    """Find the edge list and the vertex table of a folder.

    Args:
        folder: The folder.

    Returns:
        The edge list, and the vertex table or None.

    Raises:
        InputError: If there is no edge list, or more than one of either.
    """
    edges = _only(folder, "edges")
    if edges is None:
        raise InputError(
            f"folder {folder} has no edge list; it must have edges.csv, edges.tsv or edges.parquet"
        )
    return edges, _only(folder, "vertices")


def _only(folder: Path, stem: str) -> Path | None:
    found = [folder / f"{stem}{suffix}" for suffix in TABLE_SUFFIXES]
    found = [file for file in found if file.is_file()]
    if len(found) > 1:
        raise InputError(
            f"folder {folder} has both {found[0].name} and {found[1].name}; keep one of them"
        )
    return found[0] if found else None


def is_header(first: list[str], second: list[str] | None) -> bool:
    """Whether the first of two rows of an edge list names the columns."""
    names = [name.lower() for name in first]
    if any(src in names and dst in names for src, dst in _ENDS):
        return True
    has_numbers = second is not None and all(_INTEGER.fullmatch(text) for text in second[:2])
    return has_numbers and not any(_INTEGER.fullmatch(text) for text in first[:2])


def columns_of(table: Table) -> tuple[int, int, int | None, list[int]]:
    """Return the columns of source, destination and weight, and the others."""
    names = [name.lower() for name in table.names or ()]
    for src, dst in _ENDS:
        if src in names and dst in names:
            weight = next((names.index(name) for name in _WEIGHTS if name in names), None)
            taken = {names.index(src), names.index(dst), weight}
            others = [column for column in range(len(names)) if column not in taken]
            return names.index(src), names.index(dst), weight, others
    if table.num_columns not in (2, 3):
        raise InputError(
            f"{table.path} has {table.num_columns} columns, but an edge list has src, dst and "
            "possibly weight; name them in a header if there are others"
        )
    return 0, 1, 2 if table.num_columns == 3 else None, []


def weights_of(table: Table, column: int) -> NDArray[np.float64]:
    """Return the weights of edges, (num_rows,); an InputError if they are not numbers."""
    weight = table.floats(column)
    if weight is None:
        raise InputError(
            f"the third column of {table.path}, the edge weight, does not hold numbers; correct it "
            "or name the columns in a header"
        )
    return weight


def _edge_features(
    table: Table, columns: list[int]
) -> tuple[NDArray[np.float32] | None, list[str]]:
    """As `numeric_columns`, but the numbers of edges that Gephi writes say nothing of them."""
    names = table.names or ()
    ids = [column for column in columns if names[column].lower() == "id"]
    features, unused = numeric_columns(table, [one for one in columns if one not in ids])
    return features, [*(names[column] for column in ids), *unused]


def _number(src_id: Ids, dst_id: Ids) -> tuple[Ids, NDArray[np.int64], NDArray[np.int64]]:
    """Return the sorted ids and both ends of the edges as positions among them."""
    both = np.concatenate([src_id, dst_id])
    if both.dtype.kind == "i" and both.size and both.min() >= 0 and both.max() < 4 * both.size:
        # Dense ids need no sorting: mark those in use and count the marks before each.
        is_used = np.zeros(int(both.max()) + 1, dtype=np.bool_)
        is_used[both] = True
        position = np.cumsum(is_used) - 1
        return np.flatnonzero(is_used), position[src_id], position[dst_id]
    ids, inverse = np.unique(both, return_inverse=True)
    src, dst = np.split(inverse.reshape(-1), 2)
    return ids, src, dst


def _same_kind(ids: Ids, ends: list[Ids]) -> tuple[Ids, list[Ids]]:
    """Return the ids of the vertices and of the edges, all as texts if one of them is."""
    if all(array.dtype.kind == "i" for array in (ids, *ends)):
        return ids, ends
    return ids.astype(np.str_), [end.astype(np.str_) for end in ends]


def _positions(wanted: Ids, ids: Ids, table: Table, vertices: Path) -> NDArray[np.int64]:
    """Return (num_edges,) int64: the row of each wanted id in the vertex table."""
    if wanted.size == 0:
        return np.zeros(0, dtype=np.int64)
    order = np.argsort(ids, kind="stable")
    in_order = ids[order]
    position = np.searchsorted(in_order, wanted)
    is_missing = in_order[np.minimum(position, ids.size - 1)] != wanted
    if is_missing.any():
        row = int(np.argmax(is_missing))
        raise InputError(
            f"{table.place(row)} has an edge at vertex {str(wanted[row])!r}, which {vertices} does "
            f"not list ({ids.size} vertices); add the vertex or remove the edge"
        )
    return order[position]


def is_range(ids: Ids) -> bool:
    """Whether ids are 0, 1, 2, ..."""
    return ids.dtype.kind == "i" and bool((ids == np.arange(ids.size)).all())
