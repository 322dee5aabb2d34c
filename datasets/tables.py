"""Opening of tables by their suffix and reading of ids, for edge lists and vertex tables."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from distgnn.datasets.errors import InputError
from distgnn.datasets.parquet_table import ParquetTable, parquet_slices, read_parquet
from distgnn.datasets.text_table import MISSING_WORDS, TextTable, read_text, text_slices

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_LOGGER = logging.getLogger(__name__)

Table = TextTable | ParquetTable
Ids = NDArray[np.int64] | NDArray[np.str_]

TEXT_SUFFIXES = (".csv", ".tsv", ".txt", ".edges")
"""Suffixes of text tables, which may be followed by .gz."""
TABLE_SUFFIXES = (*TEXT_SUFFIXES, *(f"{suffix}.gz" for suffix in TEXT_SUFFIXES), ".parquet")
"""Every suffix that `open_table` takes."""


def open_table(path: Path, is_header: Callable[[list[str], list[str] | None], bool]) -> Table:
    """Open a text or Parquet table.

    Args:
        path: The file.
        is_header: Decides from the first two rows of a text whether the first one is a header.

    Raises:
        InputError: If the file is missing, of another kind or damaged.
    """
    _check_name(path)
    return read_parquet(path) if path.suffix == ".parquet" else read_text(path, is_header)


def table_slices(
    path: Path, is_header: Callable[[list[str], list[str] | None], bool]
) -> Iterator[Table]:
    """Open a text or Parquet table to be read a slice at a time.

    Args:
        path: The file.
        is_header: Decides from the first two rows of a text whether the first one is a header.

    Returns:
        Slices of the rows; the iterator raises InputError where the file is damaged.

    Raises:
        InputError: If the file is missing or of another kind.
    """
    _check_name(path)
    return parquet_slices(path) if path.suffix == ".parquet" else text_slices(path, is_header)


def _check_name(path: Path) -> None:
    if not path.name.endswith(TABLE_SUFFIXES):
        raise InputError(f"{path} is not a table; its name must end in {', '.join(TABLE_SUFFIXES)}")
    if not path.is_file():
        raise InputError(f"there is no file {path}; check the path")


def read_ids(table: Table, columns: list[int]) -> list[Ids]:
    """Return columns of ids, each (num_rows,): int64 if all of them are integers, else all str.

    Programs with gaps in a column of integers write it as 1.0 and 2.0, which are integers here.

    Args:
        table: Table with the columns.
        columns: Their numbers, from 0.

    Raises:
        InputError: If an id is empty.
    """
    found = read_keys(table, columns, "id")
    if all(ids.dtype.kind == "i" for ids in found):
        return found
    whole = [_whole_numbers(table, column) for column in columns]
    as_integers = [ids for ids in whole if ids is not None]
    if len(as_integers) == len(columns):
        return list(as_integers)
    for column, ids in zip(columns, found, strict=True):
        _warn_of_odd_id(table, column, ids.astype(np.str_, copy=False))
    return found


def read_keys(table: Table, columns: list[int], noun: str) -> list[Ids]:
    """Return columns of keys, each (num_rows,): int64 if all of them are integers, else all str.

    Args:
        table: Table with the columns.
        columns: Their numbers, from 0.
        noun: Word for one value in the message.

    Raises:
        InputError: If a key is empty.
    """
    for column in columns:
        empty = table.is_empty(column)
        if empty.any():
            raise InputError(
                f"{table.place(int(np.argmax(empty)))} has no {noun} in column "
                f"{table.column_name(column)}; every row needs one"
            )
    integers = [table.integers(column) for column in columns]
    as_integers = [column for column in integers if column is not None]
    if len(as_integers) == len(columns):
        return list(as_integers)
    return [table.strings(column) for column in columns]


def _whole_numbers(table: Table, column: int) -> NDArray[np.int64] | None:
    integers = table.integers(column)
    return table.whole_numbers(column) if integers is None else integers


def _warn_of_odd_id(table: Table, column: int, ids: NDArray[np.str_]) -> None:
    """Log the first id that stands for none, or that alone keeps a column from being integers."""
    is_missing = np.isin(ids, MISSING_WORDS)
    is_integer = np.char.isdecimal(ids)
    if is_missing.any():
        row = int(np.argmax(is_missing))
        message = "which becomes a vertex: remove the row if it stands for no vertex"
    elif 2 * np.count_nonzero(is_integer) > ids.size and not is_integer.all():
        row = int(np.argmin(is_integer))
        message = "so ids are texts, but most are integers: correct it if it should be one"
    else:
        return
    name = table.column_name(column)
    odd = str(ids[row])
    _LOGGER.warning("%s has the id %r in column %s, %s", table.place(row), odd, name, message)
