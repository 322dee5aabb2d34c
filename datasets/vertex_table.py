"""The vertex table beside an edge list: ids, labels, split and features."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distgnn.datasets.errors import InputError
from distgnn.datasets.tables import Ids, Table, open_table, read_ids

_LOGGER = logging.getLogger(__name__)

_SPLITS = ("train", "val", "test")
_LABEL_PREFIX = "label_"
# What programs write for a value that is not there.
_NOTHING = ("NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "none")


@dataclass(frozen=True, eq=False)
class VertexTable:
    """A vertex table: ids, the fields of a Graph that it gives, and the columns left out."""

    ids: Ids
    """(num_vertices,) int64 or str."""
    fields: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments of `Graph`: labels, class_names, masks, features."""
    unused: tuple[str, ...] = ()
    """Names of the columns that are neither known nor numeric."""


def read_vertex_table(path: str | Path) -> VertexTable:
    """Read a vertex table: a file with a header and one row for each vertex.

    The columns are `id`; `label`, which holds integers (empty or -1 = unlabelled) or class names
    (empty = unlabelled), or several columns `label_NAME` of 0 and 1 (empty = not known); `split`,
    which holds train, val, test or nothing; and any number of numeric columns, which become the
    features in their order. Labels of which one has a fraction are values to be learned (empty =
    not known). Columns of other texts are not used. The names may be in capitals.

    Args:
        path: A .csv, .tsv, .txt or .edges file, possibly .gz, or a .parquet file.

    Raises:
        InputError: If the file cannot be read, has no column `id`, or a value is not allowed.
    """
    table = open_table(Path(path), lambda first, second: True)
    names = table.names or ()
    columns = {name: _column_named(names, name) for name in ("id", "label", "split")}
    if columns["id"] is None:
        raise InputError(
            f"vertex table {path} has no column 'id' among {', '.join(names)}; its first line must "
            "name the columns"
        )
    if table.num_rows == 0:
        raise InputError(f"vertex table {path} has no rows; give one row for each vertex")
    (ids,) = read_ids(table, [columns["id"]])
    label_columns = [i for i, name in enumerate(names) if name.lower().startswith(_LABEL_PREFIX)]
    fields: dict[str, Any] = {}
    if columns["label"] is not None and label_columns:
        raise InputError(
            f"vertex table {path} has both 'label' and {names[label_columns[0]]!r}; keep one "
            "column of classes or several columns of 0 and 1"
        )
    if columns["label"] is not None:
        fields.update(_labels(table, columns["label"]))
    if label_columns:
        fields.update(_several_labels(table, label_columns))
    if columns["split"] is not None:
        fields.update(_split(table, columns["split"]))
    taken = {*columns.values(), *label_columns}
    others = [i for i in range(len(names)) if i not in taken]
    features, unused = numeric_columns(table, others)
    if features is not None:
        fields["features"] = features
    return VertexTable(ids, fields, tuple(unused))


def _column_named(names: tuple[str, ...], wanted: str) -> int | None:
    """Return the column of a name, or else of one in other letters, such as Id of Gephi."""
    if wanted in names:
        return names.index(wanted)
    return next((i for i, name in enumerate(names) if name.lower() == wanted), None)


def _labels(table: Table, column: int) -> dict[str, Any]:
    integers = table.integers(column)
    if integers is not None:
        return {"labels": integers}
    names = table.strings(column)
    is_given = ~np.isin(names, ("", *_NOTHING))
    labels = np.full(table.num_rows, -1, dtype=np.int64)
    try:
        # An integer column with gaps is often exported as 0.0, 1.0 and nothing, nan or NA.
        numbers = names[is_given].astype(np.float64)
    except ValueError:
        return _named_classes(table, names)
    if _has_fractions(numbers):
        values = np.full(table.num_rows, np.nan)
        values[is_given] = numbers
        return {"labels": _values(values)}
    numbers = np.where(np.isnan(numbers), -1.0, numbers)
    is_bad = np.abs(numbers) >= 2.0**63
    if is_bad.any():
        row = int(np.flatnonzero(is_given)[np.argmax(is_bad)])
        raise InputError(
            f"{table.place(row)} has label {str(names[row])!r}, but labels are integers, class "
            "names or values to be learned; number the classes from 0"
        )
    labels[is_given] = numbers.astype(np.int64)
    return {"labels": labels}


def _named_classes(table: Table, names: NDArray[np.str_]) -> dict[str, Any]:
    is_labelled = names != ""
    labels = np.full(table.num_rows, -1, dtype=np.int64)
    classes, labels[is_labelled] = np.unique(names[is_labelled], return_inverse=True)
    for number, name in enumerate(classes.tolist()):
        if name in _NOTHING:  # North America, or what R writes for nothing
            _LOGGER.warning(
                "%s: %d vertices have the class %r; leave the field empty where there is no label",
                table.path,
                np.count_nonzero(labels == number),
                name,
            )
    return {"labels": labels, "class_names": tuple(classes.tolist())}


def _several_labels(table: Table, columns: list[int]) -> dict[str, Any]:
    labels = np.empty((table.num_rows, len(columns)), dtype=np.float64)
    for position, column in enumerate(columns):
        values = table.floats(column, has_gaps=True)
        if values is None:
            raise InputError(
                f"column {table.column_name(column)} of {table.path} must hold 0 and 1; name a "
                "column of classes 'label'"
            )
        labels[:, position] = values
    names = table.names or ()
    return {
        "labels": _values(labels) if _has_fractions(labels) else labels,
        "class_names": tuple(names[column][len(_LABEL_PREFIX) :] for column in columns),
    }


def _has_fractions(numbers: NDArray[np.float64]) -> bool:
    """Whether numbers are values to be learned, rather than classes or flags."""
    return bool((np.isfinite(numbers) & (np.trunc(numbers) != numbers)).any())


def _values(numbers: NDArray[np.float64]) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):  # a Graph refuses what is not finite
        return numbers.astype(np.float32)


def _split(table: Table, column: int) -> dict[str, NDArray[np.bool_]]:
    values = table.strings(column)
    known = np.isin(values, ("", *_SPLITS))
    if not known.all():
        row = int(np.argmin(known))
        raise InputError(
            f"{table.place(row)} has split {str(values[row])!r}; write train, val, test or nothing"
        )
    return {f"{name}_mask": values == name for name in _SPLITS}


def numeric_columns(
    table: Table, columns: list[int]
) -> tuple[NDArray[np.float32] | None, list[str]]:
    """Read features.

    Args:
        table: Of vertices or edges, with names of its columns.
        columns: To look at.

    Returns:
        (num_rows, num_numeric) float32: the columns of numbers side by side, None where there are
        none; and the names of the other columns.

    Raises:
        InputError: If a number is missing, or not finite in float32.
    """
    # One row a column while filling, so that every column is written contiguously.
    features = np.empty((len(columns), table.num_rows), dtype=np.float32)
    unused: list[str] = []
    num_features = 0
    for column in columns:
        values = table.floats(column)
        if values is None:
            unused.append((table.names or ())[column])
            continue
        with np.errstate(over="ignore"):  # what overflows float32 is reported as not finite
            features[num_features] = values
        is_finite = np.isfinite(features[num_features])
        if not is_finite.all():
            row = int(np.argmin(is_finite))
            raise InputError(
                f"{table.place(row)} has {values[row]:g} in the numeric column "
                f"{table.column_name(column)}, whose features have "
                f"{int(np.count_nonzero(~is_finite))} values that are NaN or infinite in float32; "
                "correct them or remove the column"
            )
        num_features += 1
    if num_features == 0:
        return None, unused
    return np.ascontiguousarray(features[:num_features].T), unused
