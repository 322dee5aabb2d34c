"""Tables of numbers of OGB (`.csv.gz`), read as blocks of rows."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np

from distgnn.datasets.errors import InputError
from distgnn.datasets.text_table import read_text
from distgnn.datasets.whole_lines import line_slices

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

_SLICE_BYTES = 1 << 23
_NOT_WHOLE = (b".", b"e", b"E")


def blocks(
    path: Path, dtype: Any, *, num_columns: int | None = None, slice_bytes: int = _SLICE_BYTES
) -> Iterator[NDArray[Any]]:
    """Read a table without a header.

    Args:
        path: The file.
        dtype: Type of the numbers, int64 or a float.
        num_columns: How many each row must have; None takes those of the first row.
        slice_bytes: Bytes of text that are read at once.

    Yields:
        (some rows, num_columns) of dtype, at least one row.

    Raises:
        InputError: If the file is missing or damaged, or a field is missing or not a number.
    """
    if not path.is_file():
        raise InputError(f"{path}: there is no such file; prepare the data set again")
    num_rows = 0
    for text in line_slices(path, slice_bytes):
        if not text.strip():
            continue
        try:
            # NumPy reads 1.5 as the integer 1, with a warning. A filter that makes an error of that
            # is one of all threads of the process.
            if np.issubdtype(dtype, np.integer) and any(mark in text for mark in _NOT_WHOLE):
                raise ValueError("some are not whole")
            # Latin-1 takes any byte; what is not a number is refused as such.
            block = np.loadtxt(
                io.StringIO(text.decode("latin-1")),
                dtype=dtype,
                delimiter=",",
                comments=None,
                ndmin=2,
            )
        except (ValueError, OverflowError) as error:
            raise InputError(
                f"{path} is not a table of numbers ({error}, counted from row {num_rows}); the "
                "file is damaged, so prepare the data set again"
            ) from error
        num_columns = block.shape[1] if num_columns is None else num_columns
        if block.shape[1] != num_columns:
            raise InputError(
                f"{path} has {block.shape[1]} columns at row {num_rows}, but {num_columns} are "
                "expected; the file is damaged, so prepare the data set again"
            )
        num_rows += block.shape[0]
        yield block


def counted(
    path: Path, dtype: Any, num_rows: int, *, num_columns: int | None = None
) -> Iterator[tuple[int, NDArray[Any]]]:
    """Read a table that must have so many rows.

    Args:
        path: The file.
        dtype: Type of the numbers, int64 or a float.
        num_rows: Number of rows of the whole table.
        num_columns: Number of columns, as in `blocks`.

    Yields:
        The number of the first row, and the rows as `blocks` gives them.

    Raises:
        InputError: As `blocks`; or if there are fewer or more rows.
    """
    done = 0
    if num_rows or path.is_file():
        for block in blocks(path, dtype, num_columns=num_columns):
            if done + block.shape[0] <= num_rows:
                yield done, block
            done += block.shape[0]
    if done != num_rows:
        raise InputError(
            f"{path} has {done} rows, but the graph needs {num_rows}; the file is damaged, so "
            "prepare the data set again"
        )


def one_number(path: Path) -> int:
    """Read a table of a single number, of vertices or edges.

    Args:
        path: The file.

    Returns:
        The number.

    Raises:
        InputError: If there are several, as of several graphs, or it is below 0.
    """
    found = [block.reshape(-1) for block in blocks(path, np.int64)]
    values = np.concatenate(found) if found else np.zeros(0, np.int64)
    if values.size != 1 or values[0] < 0:
        raise InputError(
            f"{path} must hold one number of at least 0, that of the only graph, got "
            f"{values.size}: {values[:3].tolist()}; prepare the data set again"
        )
    return int(values[0])


def named(path: Path) -> dict[str, str]:
    """Read a table of names and one row of values.

    Args:
        path: The file.

    Returns:
        The text of the value of each name.

    Raises:
        InputError: If the file is missing, damaged, or has another number of rows.
    """
    if not path.is_file():
        raise InputError(f"{path}: there is no such file; prepare the data set again")
    table = read_text(path, lambda _first, _second: True)
    if table.num_rows != 1:
        raise InputError(
            f"{path} must hold names and one row of values, got {table.num_rows} rows; prepare the "
            "data set again"
        )
    assert table.names is not None
    columns = range(table.num_columns)
    return {table.names[column]: str(table.strings(column)[0]) for column in columns}


def texts(path: Path, num_columns: int) -> list[tuple[str, ...]]:
    """Read a small table of text without a header.

    Args:
        path: The file.
        num_columns: How many each row must have.

    Returns:
        A tuple for each row.

    Raises:
        InputError: If the file is missing, damaged, or has another number of columns.
    """
    if not path.is_file():
        raise InputError(f"{path}: there is no such file; prepare the data set again")
    table = read_text(path, lambda _first, _second: False)
    if table.num_columns != num_columns:
        raise InputError(
            f"{path} has {table.num_columns} columns, but {num_columns} are expected; prepare the "
            "data set again"
        )
    columns = [table.strings(column).tolist() for column in range(num_columns)]
    return list(zip(*columns, strict=True))
