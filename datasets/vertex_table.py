"""The vertex table beside an edge list: ids, labels, split and features."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from distgnn.datasets.categories import one_hot_features
from distgnn.datasets.columns import (
    FLAGS,
    NO_COLUMNS,
    Columns,
    check_distinct,
    column_of,
    feature_columns_of,
    is_row_number,
    told,
)
from distgnn.datasets.errors import InputError
from distgnn.datasets.missing import Imputer
from distgnn.datasets.tables import Ids, Table, open_table, read_ids
from distgnn.datasets.text_table import MISSING_WORDS, warn_of_comma

if TYPE_CHECKING:
    from collections.abc import Callable

_LOGGER = logging.getLogger(__name__)

_SPLITS = ("train", "val", "test")
_LABEL_PREFIX = "label_"


@dataclass(frozen=True, eq=False)
class VertexTable:
    """A vertex table: ids, the fields of a Graph that it gives, and the columns left out."""

    ids: Ids
    """(num_vertices,) int64 or str."""
    fields: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments of `Graph`: labels, class_names, masks, features."""
    unused: tuple[str, ...] = ()
    """Names of the columns that are neither known nor numeric."""


def read_vertex_table(
    path: str | Path,
    *,
    columns: Columns = NO_COLUMNS,
    progress: Callable[[str], None] | None = None,
) -> VertexTable:
    """Read a vertex table: a file with a header and one row for each vertex.

    Its columns, unless `columns` names others, whose names may be in capitals:

    - `id`.
    - `label`: integers (empty or -1 = unlabelled) or class names (empty = unlabelled). If one has a
      fraction, or `columns.label_values` says so, they are values to be learned (empty = not
      known).
    - `label_NAME`, several columns instead of `label`: 0 and 1 (empty = not known).
    - `split`: train, val, test or nothing.
    - Any number of numeric columns, which become the features in their order. Behind them come
      those of the categories that `columns.one_hot` names. Columns of other texts are not used.

    Args:
        path: A .csv, .tsv, .txt or .edges file, possibly .gz, or a .parquet file.
        columns: Names of columns where the known ones do not apply. With a label given, columns
            named `label` or `label_NAME` are not used otherwise.
        progress: Called with a line that says which columns became what, and one about what took
            the place of missing numbers.

    Raises:
        InputError: If the file cannot be read, has no column of ids, lacks a given column, or a
            value is not allowed.
    """
    table = open_table(Path(path), lambda first, second: True)
    names = table.names or ()
    split = _column_named(names, "split")
    given = column_of(table, columns, "id")
    id_column = _column_named(names, "id") if given is None else given
    if id_column is None:
        raise InputError(
            f"vertex table {path} has no column 'id' among {', '.join(names)}; its first line must "
            f"name the columns, and {FLAGS['id']} tells which one has another name for ids"
        )
    if table.num_rows == 0:
        raise InputError(f"vertex table {path} has no rows; give one row for each vertex")
    several = [i for i, name in enumerate(names) if name.lower().startswith(_LABEL_PREFIX)]
    known_label = _column_named(names, "label")
    label = column_of(table, columns, "label")
    known_labels = {known_label, *several} - {None}
    if label is None:
        label = known_label
        if label is not None and several:
            raise InputError(
                f"vertex table {path} has both 'label' and {names[several[0]]!r}; keep one "
                "column of classes or several columns of 0 and 1"
            )
    else:
        several = []
    (ids,) = read_ids(table, [id_column])
    fields: dict[str, Any] = {}
    if label is not None:
        is_regression = bool(columns.label_values)
        fields.update(_targets(table, label) if is_regression else _labels(table, label))
    if several:
        fields.update(_several_labels(table, several, are_values=bool(columns.label_values)))
    if split is not None:
        fields.update(_split(table, split))
    chosen = feature_columns_of(table, columns, "features")
    uses = {"id": id_column, "label": label, "split": split}
    categories = feature_columns_of(table, columns, "one_hot") or []
    check_distinct(table, {**uses, **{names[i]: i for i in several}}, chosen, categories)
    used = {*uses.values(), *several, *categories}
    rest = [i for i in range(len(names)) if i not in used]
    imputer = Imputer(columns.impute)
    if chosen is None:
        candidates = [i for i in rest if i not in known_labels and not is_row_number(names[i])]
        features, texts = numeric_columns(table, candidates, imputer)
        without_numbers = set(texts)
        chosen = [i for i in candidates if names[i] not in without_numbers]
    else:
        features = chosen_features(table, chosen, "features", imputer)
    taken = set(chosen)
    unused = tuple(names[i] for i in rest if i not in taken)
    blocks = [
        block for block in (features, one_hot_features(table, categories)) if block is not None
    ]
    if blocks:
        fields["features"] = blocks[0] if len(blocks) == 1 else np.concatenate(blocks, axis=1)
    if progress is not None:
        shown = {"labels": several, "features": chosen, "categories": categories}
        for line in (told(table, {**uses, **shown}), *imputer.told(table)):
            progress(line)
    return VertexTable(ids, fields, unused)


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
    is_given = ~np.isin(names, ("", *MISSING_WORDS))
    labels = np.full(table.num_rows, -1, dtype=np.int64)
    if (np.char.find(names, "_") >= 0).any():  # Python reads 1_0 as 10
        return _named_classes(table, column, names)
    try:
        # An integer column with gaps is often exported as 0.0, 1.0 and nothing, nan or NA.
        numbers = names[is_given].astype(np.float64)
    except ValueError:
        return _named_classes(table, column, names)
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


def _targets(table: Table, column: int) -> dict[str, Any]:
    """Return labels as values to be learned, whole numbers and -1 too."""
    values = table.floats(column, has_gaps=True, missing=MISSING_WORDS)
    if values is None:
        raise InputError(
            f"column {table.column_name(column)} of {table.path} holds no numbers, which --task "
            "regression learns; leave --task out to learn classes"
        )
    return {"labels": _values(values)}


def _named_classes(table: Table, column: int, names: NDArray[np.str_]) -> dict[str, Any]:
    is_labelled = names != ""
    if names.size:
        first = int(np.argmax(~np.isin(names, ("", *MISSING_WORDS))))
        warn_of_comma(table, column, first, str(names[first]))
    labels = np.full(table.num_rows, -1, dtype=np.int64)
    classes, labels[is_labelled] = np.unique(names[is_labelled], return_inverse=True)
    for number, name in enumerate(classes.tolist()):
        if name in MISSING_WORDS:  # North America, or what R writes for nothing
            _LOGGER.warning(
                "%s: %d vertices have the class %r; leave the field empty where there is no label",
                table.path,
                np.count_nonzero(labels == number),
                name,
            )
    return {"labels": labels, "class_names": tuple(classes.tolist())}


def _several_labels(table: Table, columns: list[int], *, are_values: bool) -> dict[str, Any]:
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
        "labels": _values(labels) if are_values or _has_fractions(labels) else labels,
        "class_names": tuple(names[column][len(_LABEL_PREFIX) :] for column in columns),
    }


def _has_fractions(numbers: NDArray[np.float64]) -> bool:
    """Return whether numbers are values to be learned, rather than classes or flags."""
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


def chosen_features(
    table: Table, columns: list[int], field: str, imputer: Imputer
) -> NDArray[np.float32] | None:
    """Read features that a user names.

    Args:
        table: Table of vertices or edges, with names of its columns.
        columns: Columns of the features, in their order.
        field: Field of `Columns` that names them, for messages.
        imputer: Filler of missing numbers.

    Returns:
        (num_rows, num_columns) float32, None where no column is named.

    Raises:
        InputError: If a column does not hold numbers, or one is missing or not finite in float32.
    """
    features, unused = numeric_columns(table, columns, imputer)
    if unused:
        raise no_numbers(table, unused[0], field)
    return features


def no_numbers(table: Table, name: str, field: str) -> InputError:
    """Return the error for a column that is named as a feature and holds no numbers.

    Args:
        table: Table that has the column.
        name: Its name.
        field: Field of `Columns` that names it.
    """
    return InputError(
        f"column {name!r} of {table.path}, which {FLAGS[field]} names, does not hold numbers; "
        "leave it out or make it numbers"
    )


def numeric_columns(
    table: Table, columns: list[int], imputer: Imputer
) -> tuple[NDArray[np.float32] | None, list[str]]:
    """Read features.

    Args:
        table: Table of vertices or edges, with names of its columns.
        columns: Columns to look at.
        imputer: Filler of missing numbers.

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
        values = imputer.floats(table, column)
        if values is None:
            unused.append((table.names or ())[column])
            continue
        fill_finite(features[num_features], values, table, column)
        num_features += 1
    if num_features == 0:
        return None, unused
    return np.ascontiguousarray(features[:num_features].T), unused


def fill_finite(
    target: NDArray[np.float32],
    values: NDArray[np.float64],
    table: Table,
    column: int,
    *,
    is_slice: bool = False,
) -> None:
    """Convert a column of features.

    Args:
        target: (num_rows,) Where it is written.
        values: (num_rows,) The column.
        table: Table that has it, for the message.
        column: Its number.
        is_slice: Whether the table may have more rows.

    Raises:
        InputError: If a value is not finite in float32.
    """
    with np.errstate(over="ignore"):  # what overflows float32 is reported as not finite
        target[:] = values
    is_finite = np.isfinite(target)
    if not is_finite.all():
        row = int(np.argmin(is_finite))
        raise InputError(
            f"{table.place(row)} has {values[row]:g} in the numeric column "
            f"{table.column_name(column)}, whose features have {'at least ' * is_slice}"
            f"{int(np.count_nonzero(~is_finite))} values that are NaN or infinite in float32; "
            "correct them or remove the column; --impute fills what is missing"
        )
