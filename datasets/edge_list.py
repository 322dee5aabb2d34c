"""Edge lists in CSV, TSV, blank-separated text or Parquet, with an optional vertex table."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from distgnn.datasets.columns import (
    FLAGS,
    NO_COLUMNS,
    Columns,
    check_distinct,
    column_of,
    feature_columns_of,
    is_row_number,
    told,
    unknown_header,
)
from distgnn.datasets.errors import InputError
from distgnn.datasets.graph import Graph
from distgnn.datasets.missing import Imputer
from distgnn.datasets.npz import sha256
from distgnn.datasets.relations import read_relations
from distgnn.datasets.tables import TABLE_SUFFIXES, Ids, Table, open_table, read_ids
from distgnn.datasets.vertex_table import (
    chosen_features,
    numeric_columns,
    read_vertex_table,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

_LOGGER = logging.getLogger(__name__)

# In small letters, without anything between the words. SNAP writes FromNodeId and ToNodeId.
_ENDS = (
    ("src", "dst"),
    ("source", "target"),
    ("source", "destination"),
    ("from", "to"),
    ("u", "v"),
    ("srcid", "dstid"),
    ("sourceid", "targetid"),
    ("fromid", "toid"),
    ("fromnode", "tonode"),
    ("fromnodeid", "tonodeid"),
    ("node1", "node2"),
    ("id1", "id2"),
)
_WEIGHTS = ("weight", "edgeweight", "w")
_INTEGER = re.compile(r"\s*-?\d+\s*")


def read_edge_list(
    path: str | Path,
    *,
    vertices: str | Path | None = None,
    name: str | None = None,
    columns: Columns = NO_COLUMNS,
    progress: Callable[[str], None] | None = None,
) -> Graph:
    """Read a graph from an edge list.

    A file without a header has the columns source, destination and possibly weight. A header names
    them, in any order, as `columns` says. Else their names are src and dst (or source and target,
    from and to, u and v, ...) and weight. `columns` may also name one of types of edges. All other
    columns of numbers below a header but `id` are features of edges. Ids are integers or texts and
    become 0, 1, 2, ...: in the order of the vertex table, or else sorted. `Graph.vertex_id` has the
    original ids.

    Args:
        path: A .csv, .tsv, .txt or .edges file, possibly .gz, or a .parquet file.
        vertices: A vertex table of the same formats, see `read_vertex_table`. Vertices that no
            edge has are isolated.
        name: Name of the graph; None takes that of the file.
        columns: Names of columns where the known ones do not apply.
        progress: Called with one line a table that says which columns became what.

    Raises:
        InputError: If a file cannot be read, its header does not tell the ends of edges, or a given
            column is missing. Also if an edge has an id that the vertex table lacks.
    """
    path = Path(path)
    columns.check_vertices(path, has_vertices=vertices is not None)
    table = open_table(path, header_rule(columns))
    found = columns_of(table, columns)
    weight: Any = None if found.weight is None else weights_of(table, found.weight)
    imputer = Imputer(columns.impute)
    edge_features, unused = _edge_features(table, found, imputer)
    lines = [told_edges(table, found, unused), *imputer.told(table)]
    left_out = {path: list(unused)}
    ends = read_ids(table, [found.source, found.target])
    fields = {} if found.type is None else read_relations(table, found.type)
    if vertices is None:
        ids, src, dst = _number(*ends)
    else:
        vertex_table = read_vertex_table(vertices, columns=columns, progress=lines.append)
        left_out[Path(vertices)] = list(vertex_table.unused)
        unused += vertex_table.unused
        fields |= vertex_table.fields
        ids, wanted = _same_kind(vertex_table.ids, ends, table, found)
        src, dst = (_positions(end, ids, table, Path(vertices)) for end in wanted)
    if ids.size == 0:
        raise InputError(f"{path} has no edges; give at least one edge, or a vertex table")
    for file, names in left_out.items():
        warn_of_unused(file, names)
    files = [path] if vertices is None else [path, Path(vertices)]
    try:
        graph = Graph(
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
    # Last, so that a refusal is a sentence alone.
    if progress is not None:
        for line in lines:
            progress(line)
    return graph


def read_folder(
    path: str | Path,
    *,
    vertices: str | Path | None = None,
    columns: Columns = NO_COLUMNS,
    progress: Callable[[str], None] | None = None,
) -> Graph:
    """Read a folder that has `edges` and possibly `vertices`, each as csv, tsv or parquet.

    Args:
        path: Folder, whose name becomes the name of the graph.
        vertices: Vertex table to take instead of the one in the folder.
        columns: Names of columns where the known ones do not apply.
        progress: Called with one line a table that says which columns became what.

    Raises:
        InputError: If there is no edge list or more than one, or a file cannot be read.
    """
    path = Path(path)
    edges, table = tables_of(path)
    return read_edge_list(
        edges,
        vertices=table if vertices is None else vertices,
        name=path.resolve().name,
        columns=columns,
        progress=progress,
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


class EdgeColumns(NamedTuple):
    """Columns of a table of edges, numbered from 0."""

    source: int
    target: int
    weight: int | None
    type: int | None
    others: list[int]
    """Columns that are neither of these."""
    features: list[int] | None
    """Columns that a user names as features; None for all columns of numbers among the others."""


def header_rule(columns: Columns) -> Callable[[list[str], list[str] | None], bool]:
    """Return what decides from its first two rows whether a table of edges has a header.

    Args:
        columns: Names that a user gives; with any name of a column of edges there is a header.
    """
    return (lambda first, second: True) if columns.given_of_edges else is_header


def is_header(first: list[str], second: list[str] | None) -> bool:
    """Return whether the first of two rows of an edge list names the columns."""
    if _known_ends(first) is not None:
        return True
    if second is None:
        return False
    if all(_INTEGER.fullmatch(text) for text in second[:2]):
        return not any(_INTEGER.fullmatch(text) for text in first[:2])
    # Ids may be texts; then a weight tells a row from the names above it.
    has_words_alone = not any(text == "" or _is_number(text) for text in first)
    return has_words_alone and any(_is_number(text) for text in second[2:])


def columns_of(table: Table, columns: Columns = NO_COLUMNS) -> EdgeColumns:
    """Find the columns of a table of edges.

    Args:
        table: Table, with names of its columns if it has a header.
        columns: Names that a user gives.

    Raises:
        InputError: If the header does not tell both ends of an edge, or a given column is missing.
            Also if a table without a header has other than two or three columns.
    """
    if table.names is None:
        if table.num_columns not in (2, 3):
            raise InputError(
                f"{table.path} has {table.num_columns} columns, but an edge list has src, dst and "
                "possibly weight; name them in a header if there are others"
            )
        return EdgeColumns(0, 1, 2 if table.num_columns == 3 else None, None, [], None)
    known = _known_ends(table.names)
    source = column_of(table, columns, "source")
    target = column_of(table, columns, "target")
    weight = column_of(table, columns, "weight")
    relation = column_of(table, columns, "edge_type")
    features = feature_columns_of(table, columns, "edge_features")
    if known is not None:
        source = known[0] if source is None else source
        target = known[1] if target is None else target
    if source is None or target is None:
        raise unknown_header(table)
    taken = {source, target, relation, *(features or ())}
    if weight is None:
        plain = [_plain(name) for name in table.names]
        found = [plain.index(name) for name in _WEIGHTS if name in plain]
        weight = next((column for column in found if column not in taken), None)
    uses = {"source": source, "target": target, "weight": weight, "type": relation}
    check_distinct(table, uses, features)
    others = [column for column in range(len(table.names)) if column not in {*uses.values()}]
    return EdgeColumns(source, target, weight, relation, others, features)


def _known_ends(names: Sequence[str]) -> tuple[int, int] | None:
    """Return the columns of both ends where a header has names that are known."""
    plain = [_plain(name) for name in names]
    for src, dst in _ENDS:
        if src in plain and dst in plain:
            return plain.index(src), plain.index(dst)
    return None


def _plain(name: str) -> str:
    return re.sub(r"[\W_]", "", name.lower())


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def weights_of(table: Table, column: int) -> NDArray[np.float64]:
    """Return the weights of edges, (num_rows,); an InputError if they are not numbers."""
    weight = table.floats(column)
    if weight is None:
        where = "the third column" if table.names is None else f"column {table.column_name(column)}"
        remedy = (
            "the columns in a header" if table.names is None else f"another by {FLAGS['weight']}"
        )
        raise InputError(
            f"{where} of {table.path}, the edge weight, does not hold numbers; correct it or name "
            f"{remedy}"
        )
    return weight


def told_edges(table: Table, columns: EdgeColumns, unused: Sequence[str]) -> str:
    """Say in one line which columns of a table of edges became what.

    Args:
        table: Table that was read.
        columns: Its columns.
        unused: Names of those that are not used.
    """
    features = columns.others if columns.features is None else columns.features
    names = table.names or ()
    uses = {
        "source": columns.source,
        "target": columns.target,
        "weight": columns.weight,
        "type": columns.type,
        "features": [column for column in features if names[column] not in unused],
    }
    return told(table, uses)


def _edge_features(
    table: Table, columns: EdgeColumns, imputer: Imputer
) -> tuple[NDArray[np.float32] | None, list[str]]:
    """Return the features of edges, and the names of columns that are not used."""
    candidates, left_out = feature_candidates(table, columns)
    if columns.features is not None:
        return chosen_features(table, candidates, "edge_features", imputer), left_out
    features, unused = numeric_columns(table, candidates, imputer)
    return features, [*left_out, *unused]


def feature_candidates(table: Table, columns: EdgeColumns) -> tuple[list[int], list[str]]:
    """Find the columns that may be features of edges.

    Args:
        table: Table of edges.
        columns: Its columns.

    Returns:
        Their numbers in the order of the features, and the names of columns that are none.
    """
    names = table.names or ()
    if columns.features is not None:
        rest = [column for column in columns.others if column not in columns.features]
        return columns.features, [names[column] for column in rest]
    # Gephi numbers edges in a column `id`, and pandas rows, which says nothing about them.
    ids = [
        column
        for column in columns.others
        if names[column].lower() == "id" or is_row_number(names[column])
    ]
    candidates = [one for one in columns.others if one not in ids]
    return candidates, [names[column] for column in ids]


def warn_of_unused(path: Path, names: Sequence[str]) -> None:
    """Log the columns of a table that are not used, if there are any.

    Args:
        path: The table.
        names: Names of the columns.
    """
    if names:
        _LOGGER.warning("%s: columns that are not used: %s", path, ", ".join(names))


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


def _same_kind(
    ids: Ids, ends: list[Ids], table: Table, columns: EdgeColumns
) -> tuple[Ids, list[Ids]]:
    """Return the ids of the vertices and of the edges, all as texts if one of them is."""
    if all(array.dtype.kind == "i" for array in (ids, *ends)):
        return ids, ends
    # From the table, as the integer 1 may be written 1.0 there, and so among the vertices.
    return ids.astype(np.str_), [table.strings(i) for i in (columns.source, columns.target)]


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
    """Return whether ids are 0, 1, 2, ..."""
    return ids.dtype.kind == "i" and bool((ids == np.arange(ids.size)).all())
