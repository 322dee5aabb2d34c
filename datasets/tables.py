"""Opening of tables by their suffix and reading of ids, for edge lists and vertex tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from distgnn.datasets.errors import InputError
from distgnn.datasets.parquet_table import ParquetTable, parquet_slices, read_parquet
from distgnn.datasets.text_table import TextTable, read_text, text_slices

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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


def read_ids(table: Table, columns: list[int], noun: str = "id") -> list[Ids]:
    """Return columns of ids, each (num_rows,): int64 if all of them are integers, else all str.

    Args:
        table: Table with the columns.
        columns: Their numbers, from 0.
        noun: Word for one value in the message.

    Raises:
        InputError: If an id is empty.
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
