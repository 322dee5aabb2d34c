"""Search for the beginnings and ends of the fields of a delimited text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from distgnn.datasets.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

_NEWLINE, _QUOTE, _COMMENT, _SPACE = (ord(c) for c in '\n"# ')


def fields_of(
    buffer: NDArray[np.uint8], delimiter: str, path: Path, first_line: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Find the fields of a text. Empty lines and lines that begin with # are left out.

    Args:
        buffer: (num_bytes,) uint8. Lines with their ends, at least one of them a row.
        delimiter: Separator of the fields, one byte.
        path: The file, for messages.
        first_line: Number of the first line in it.

    Returns:
        start and length (num_columns, num_rows) of all fields, and the line of each row.

    Raises:
        InputError: If rows differ in their number of columns, or a quoted field does not end.
    """
    ends = np.flatnonzero(buffer == _NEWLINE)
    starts = np.concatenate([[0], ends[:-1] + 1])
    # A line of blanks counts as empty: no byte in it is above the blank.
    blank_free = np.concatenate([[0], np.cumsum(buffer > _SPACE)])
    kept = (blank_free[ends] > blank_free[starts]) & (buffer[starts] != _COMMENT)
    is_delimiter = buffer == ord(delimiter)
    quotes = np.flatnonzero(buffer == _QUOTE)
    quotes = quotes[kept[np.searchsorted(ends, quotes)]]
    if quotes.size:
        per_line = np.bincount(np.searchsorted(ends, quotes), minlength=ends.size)
        if (per_line % 2).any():
            wrong = int(np.argmax(per_line % 2)) + first_line
            raise InputError(
                f"line {wrong} of {path} has an odd number of double quotes; close the quoted "
                "field on its line, and double a quote inside it"
            )
        is_delimiter[_inside_quotes(buffer.size, quotes)] = False
    separators = np.flatnonzero(is_delimiter)
    line_of = np.searchsorted(ends, separators)
    separators = separators[kept[line_of]]
    per_line = np.bincount(line_of, minlength=ends.size)[kept]
    lines = np.flatnonzero(kept) + first_line
    if (per_line != per_line[0]).any():
        wrong = int(np.argmax(per_line != per_line[0]))
        raise InputError(
            f"line {lines[wrong]} of {path} has {per_line[wrong] + 1} columns, but line "
            f"{lines[0]} has {per_line[0] + 1}; give every row the same columns"
        )
    inner = separators.reshape(lines.size, -1).T
    start = np.concatenate([starts[None, kept], inner + 1])
    stop = np.concatenate([inner, ends[None, kept]])
    return *_trim(buffer, start, stop, has_quotes=bool(quotes.size)), lines


def _inside_quotes(size: int, quotes: NDArray[np.int64]) -> NDArray[np.bool_]:
    is_quote = np.zeros(size, dtype=np.uint8)
    is_quote[quotes] = 1
    # uint8 wraps round at 256, which keeps the parity.
    return (np.cumsum(is_quote, dtype=np.uint8) & 1).astype(np.bool_)


def _trim(
    buffer: NDArray[np.uint8],
    start: NDArray[np.int64],
    stop: NDArray[np.int64],
    *,
    has_quotes: bool,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return start and length of the fields without blanks, then without quotes around them."""
    # Every field ends before a delimiter or line end, so both reads stay in the buffer; the
    # loops pass as often as the longest run of blanks around a field has bytes.
    while (blank := (start < stop) & (buffer[start] <= _SPACE)).any():
        start = start + blank
    while (blank := (start < stop) & (buffer[stop - 1] <= _SPACE)).any():
        stop = stop - blank
    if has_quotes:
        quoted = (stop - start >= 2) & (buffer[start] == _QUOTE) & (buffer[stop - 1] == _QUOTE)
        start, stop = start + quoted, stop - quoted
    return start, stop - start
