"""Delimited text (CSV, TSV, plain edge lists, also gzipped) as columns, without a loop per row.

The file is read into one byte array. The positions of its line ends and delimiters give the
boundaries of every field. A column is parsed digit by digit, for all its rows at once. Memory peaks
at about ten bytes per byte of text.
"""

from __future__ import annotations

import gzip
import logging
import re
import zlib
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from distgnn.datasets.errors import InputError
from distgnn.datasets.files import check_room, most_text
from distgnn.datasets.whole_lines import line_slices

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

_LOGGER = logging.getLogger(__name__)

_QUOTE, _MINUS, _ZERO, _NEWLINE, _COMMENT, _SPACE = (ord(c) for c in '"-0\n# ')
_DELIMITERS = (",", "\t", ";", " ")
_DECIMAL_COMMA = re.compile(r"[-+]?\d+,\d+")
# Texts that are looked at before all are, and digits that are sure to fit.
_SAMPLE, _SURE_DIGITS = 1000, 18
_UNDERSCORE = ord("_")
# A control character is a blank, as it is where fields are cut out.
_ROW = re.compile(rb"(?m)^(?!#)[^\n]*[^\x00-\x20][^\n]*$")
# 19 digits always fit uint64; ids beyond int64 are kept as strings.
_MAX_DIGITS = 19
_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")
MAX_FIELD_BYTES = 4096
"""Longest field of a table."""
MISSING_WORDS = ("NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "none")
"""Texts that programs write for a missing value."""
_MISSING = [word.encode() for word in MISSING_WORDS]
Kind = Literal["empty", "missing", "truths", "numbers", "texts"]
"""Kinds of columns: without values, without but words for missing ones, True and False, ..."""
_TRUTHS = (b"True", b"False", b"TRUE", b"FALSE", b"true", b"false")
# Fields are gathered in blocks of rows, so that their index matrix stays near 64 MiB.
_GATHER_BYTES = 1 << 23
_BLOCK_BYTES = 1 << 20
_MEMORY_PER_BYTE = 10


@dataclass(frozen=True, eq=False)
class TextTable:
    """The fields of a text file: `names` has one name a column, or is None without a header."""

    path: Path
    buffer: NDArray[np.uint8]
    start: NDArray[np.int64]
    """(num_columns, num_rows) int64. Offset of each field in the buffer."""
    length: NDArray[np.int64]
    """(num_columns, num_rows) int64. Bytes of each field, without blanks and quotes around it."""
    line: NDArray[np.int64]
    """(num_rows,) int64. Line number of each row in the file, from 1."""
    names: tuple[str, ...] | None

    @property
    def num_rows(self) -> int:
        """Number of rows below the header."""
        return int(self.line.size)

    @property
    def num_columns(self) -> int:
        """Number of columns."""
        return int(self.start.shape[0])

    def place(self, row: int) -> str:
        """Return where a row is, for messages."""
        return f"line {self.line[row]} of {self.path}"

    def is_empty(self, column: int) -> NDArray[np.bool_]:
        """Return (num_rows,) bool: which fields of a column are empty."""
        empty: NDArray[np.bool_] = self.length[column] == 0
        return empty

    def integers(self, column: int) -> NDArray[np.int64] | None:
        """Return a column as (num_rows,) int64, or None if a field is not a plain integer.

        A plain integer is at most 2^63-1, with an optional minus and no leading zero, so that two
        different texts are never the same id.
        """
        start, length = self.start[column], self.length[column]
        if self.num_rows == 0:
            return np.zeros(0, dtype=np.int64)
        if length.min() == 0 or length.max() > _MAX_DIGITS + 1:
            return None
        first = self.buffer[start]
        is_negative = first == _MINUS
        begin, digits = start + is_negative, length - is_negative
        if digits.min() == 0 or digits.max() > _MAX_DIGITS:
            return None
        leading_zero = self.buffer[begin] == _ZERO
        if (leading_zero & ((digits > 1) | is_negative)).any():
            return None
        number = np.zeros(self.num_rows, dtype=np.uint64)
        for position in range(int(digits.max())):
            rows = slice(None) if position < digits.min() else np.flatnonzero(position < digits)
            digit = self.buffer[begin[rows] + position] - _ZERO  # uint8: below '0' wraps round
            if digit.max() > 9:
                return None
            number[rows] = number[rows] * np.uint64(10) + digit
        if int(number.max()) > np.iinfo(np.int64).max:
            return None
        value = number.view(np.int64)
        np.negative(value, out=value, where=is_negative)
        return value

    def whole_numbers(self, column: int) -> NDArray[np.int64] | None:
        """Return a column as (num_rows,) int64, or None if one is neither like 1 nor like 1.0."""
        return whole_numbers_of(self.strings(column))

    def strings(self, column: int) -> NDArray[np.str_]:
        """Return a column as (num_rows,) str.

        Raises:
            InputError: If a field is not UTF-8 or longer than 4096 bytes.
        """
        fields = self._gather(column)
        if fields.size and bool((fields.view(np.uint8) > 127).any()):
            try:
                decoded: NDArray[np.str_] = np.char.decode(fields, "utf-8")
            except UnicodeDecodeError as error:
                raise InputError(
                    f"{self.path} has text that is not UTF-8 ({error.reason}); save it as UTF-8"
                ) from error
        else:
            decoded = fields.astype(np.str_)
        if bool((self.buffer == _QUOTE).any()):
            decoded = np.char.replace(decoded, '""', '"')
        return decoded

    def kind(self, column: int, missing: Sequence[str] = ()) -> Kind:
        """Say what a column holds, of which these rows may be a slice.

        Args:
            column: Its number.
            missing: Texts that stand for a missing value beside True and False.
        """
        fields = self._gather(column)
        is_missing = self.is_empty(column)
        if is_missing.all():
            return "empty"
        words = [word.encode() for word in missing]
        is_open = is_missing | np.isin(fields, _MISSING)
        has_truths_alone = bool(np.isin(fields, (*_TRUTHS, b"", *words)).all())
        if has_truths_alone and not is_open.all():
            return "truths"
        first = int(np.argmin(is_open if not is_open.all() else is_missing))
        if is_open.all() and (missing or not _is_number(fields[[first]])):
            return "missing"
        if _is_number(fields[[first]]):
            return "numbers"
        warn_of_comma(self, column, first, fields[first].decode(errors="replace"))
        return "texts"

    def floats(
        self,
        column: int,
        *,
        has_gaps: bool = False,
        missing: Sequence[str] = (),
        are_numbers: bool = False,
    ) -> NDArray[np.float64] | None:
        """Return a column as (num_rows,) float64, or None if it has no numbers.

        Its first value that neither is missing nor a word for that decides.

        True and False, in any letters, are 1 and 0 where a column has nothing else.

        Args:
            column: Its number.
            has_gaps: Whether values may be missing, which then are NaN; of a column without any,
                all are.
            missing: Texts that stand for a missing value, too, where there may be any.
            are_numbers: Whether earlier rows have numbers, so that the first value is one as well.

        Raises:
            InputError: If the first value is a number and another one is not or is missing.
        """
        fields = self._gather(column)
        words = [word.encode() for word in missing] if has_gaps else []
        fields = fields if are_numbers else _digits_of_truths(fields, words)
        is_empty = self.is_empty(column)
        if words:
            is_empty = is_empty | np.isin(fields, words)
        rows: Any = np.flatnonzero(~is_empty) if has_gaps else slice(None)
        given = fields[rows]
        if given.size and not are_numbers:
            is_open = is_empty | np.isin(fields, _MISSING)
            first = int(np.argmin(is_empty if is_open.all() else is_open))
            if not _is_number(fields[[first]]):
                warn_of_comma(self, column, first, fields[first].decode(errors="replace"))
                return None
        if _is_number(given):
            values = np.full(self.num_rows, np.nan)
            values[rows] = given.astype(np.float64)
            return values
        row = int(np.arange(self.num_rows)[rows][_first_failure(given, _is_number)])
        if is_empty[row]:
            raise no_value(self, column, row)
        text = fields[row].decode(errors="replace")
        raise no_number(self, column, row, text, has_gaps=has_gaps)

    def column_name(self, column: int) -> str:
        """Return the name of a column for messages; its number from 1 without a header."""
        return repr(self.names[column]) if self.names is not None else str(column + 1)

    def _gather(self, column: int) -> NDArray[np.bytes_]:
        start, length = self.start[column], self.length[column]
        width = max(1, int(length.max(initial=0)))
        if width > MAX_FIELD_BYTES:
            raise InputError(
                f"{self.place(int(length.argmax()))} has a field of {width} bytes, but at most "
                f"{MAX_FIELD_BYTES} are allowed; shorten it"
            )
        # One long field makes every field of its column as long, and text takes 4 bytes a letter.
        check_room(5 * width * self.num_rows, f"column {self.column_name(column)} of {self.path}")
        fields = np.zeros((self.num_rows, width), dtype=np.uint8)
        offsets = np.arange(width)
        step = max(1, _GATHER_BYTES // width)
        for begin in range(0, self.num_rows, step):
            rows = slice(begin, begin + step)
            inside = offsets < length[rows, None]
            index = np.where(inside, start[rows, None] + offsets, 0)
            fields[rows] = np.where(inside, self.buffer[index], 0)
        return fields.view(f"S{width}").reshape(-1)


def whole_numbers_of(texts: NDArray[np.str_]) -> NDArray[np.int64] | None:
    """Return texts like 1 and 1.0 as (num_rows,) int64, or None if one is of another kind."""
    whole = np.zeros(0, np.int64)
    for some in (texts[:_SAMPLE], texts) if texts.size else ():
        parts = np.char.partition(some, ".")
        head, tail = parts[:, 0], parts[:, 2]
        has_room = np.char.str_len(np.char.lstrip(head, "-")) <= _SURE_DIGITS
        if not (has_room & (np.char.strip(tail, "0") == "")).all():
            return None
        try:
            whole = head.astype(np.int64)
        except ValueError:
            return None
        if (whole.astype(np.str_) != head).any():  # 007 is another text than 7
            return None
    return whole


def no_value(table: Any, column: int, row: int) -> InputError:
    """Return the error for a number that is missing.

    Args:
        table: The table, of any kind.
        column: Number of the column.
        row: Number of the row below the header.
    """
    return InputError(
        f"{table.place(row)} has no value in the numeric column {table.column_name(column)}; fill "
        "it or remove the column; --impute fills features"
    )


def no_number(
    table: Any, column: int, row: int, text: str, *, has_gaps: bool = False
) -> InputError:
    """Return the error for a text among numbers.

    Args:
        table: The table, of any kind.
        column: Number of the column.
        row: Number of the row below the header.
        text: Text of that field.
        has_gaps: Whether the field may be empty.
    """
    remedy = " or nothing" if has_gaps else ", or give --impute" * (text in MISSING_WORDS)
    return InputError(
        f"{table.place(row)} has {text!r} in the numeric column {table.column_name(column)}; "
        f"write a number there{remedy}"
    )


def warn_of_comma(table: Any, column: int, row: int, text: str) -> None:
    """Log a warning if a text of a table is a number with a decimal comma.

    Args:
        table: The table, of any kind.
        column: Number of the column.
        row: Number of the row below the header.
        text: Text of that field.
    """
    if _DECIMAL_COMMA.fullmatch(text):
        _LOGGER.warning(
            "%s has '%s' in column %s, which is a text: write a point in place of the comma if it "
            "is a number",
            table.place(row),
            text,
            table.column_name(column),
        )


def read_text(path: Path, is_header: Callable[[list[str], list[str] | None], bool]) -> TextTable:
    """Read a delimited text file, plain or gzipped.

    The delimiter is the one that the suffix promises: comma, or tab for `.tsv`. If the first row
    lacks it, it is the first of comma, tab, semicolon and blanks that this row has. Empty lines and
    lines that begin with # are skipped. A field with a delimiter in it stands between double
    quotes, on one line.

    Args:
        path: The file.
        is_header: Decides from the fields of the first two rows (the second may be None) whether
            the first row names the columns.

    Raises:
        InputError: If the file is missing, not text, or its rows differ in their number of columns.
    """
    text = _sound(_read_bytes(path), path)
    rows = _first_rows(text, 2)
    # Where blanks separate fields, a line may turn out to be a comment behind blanks.
    table = _parse(text, path, _sniff(path, rows[0]), 1) if rows else None
    if table is None or table.num_rows == 0:
        raise InputError(f"{path} has no rows; give at least one line that is not a comment")
    _tell_of_comment(text, path, 1, is_begun=False)
    return _with_header(table, is_header)


def text_slices(
    path: Path,
    is_header: Callable[[list[str], list[str] | None], bool],
    *,
    slice_bytes: int = 1 << 23,
) -> Iterator[TextTable]:
    """Read a delimited text file a slice at a time, as `read_text` reads it whole.

    Args:
        path: The file.
        is_header: Decides from the fields of the first two rows (the second may be None) whether
            the first row names the columns.
        slice_bytes: Bytes of a slice; one that holds no whole line grows.

    Yields:
        Rows of the table, at least one unless the file has but a header.

    Raises:
        InputError: If the file is missing, not text, or its rows differ in their number of columns.
    """
    first: TextTable | None = None
    delimiter, line, is_told = "", 1, False
    for raw in line_slices(path, slice_bytes):
        text = _sound(raw, path)
        is_told = is_told or _tell_of_comment(text, path, line, is_begun=first is not None)
        rows = _first_rows(text, 1)
        separator = delimiter or (_sniff(path, rows[0]) if rows else "")
        if rows and (table := _parse(text, path, separator, line)).num_rows:
            delimiter = separator
            if first is None:
                first = table = _with_header(table, is_header)
            elif table.num_columns != first.num_columns:
                raise InputError(
                    f"line {table.line[0]} of {path} has {table.num_columns} columns, but the "
                    f"lines before have {first.num_columns}; give every row the same columns"
                )
            yield replace(table, names=first.names)
        line += text.count(b"\n")
    if first is None:
        raise InputError(f"{path} has no rows; give at least one line that is not a comment")


def _parse(text: bytes, path: Path, delimiter: str, first_line: int) -> TextTable:
    """Find the fields of a text, whose first line has a number."""
    if delimiter == " ":
        # Any run of blanks is one delimiter, and blanks around a line are none.
        text = re.sub(rb"[ \t]+", b" ", text)
        text = re.sub(rb"(?m)^ | $", b"", text)
    buffer = np.frombuffer(text, dtype=np.uint8)
    start, length, line = _fields_of(buffer, delimiter, path, first_line)
    return TextTable(path, buffer, start, length, line, None)


def _with_header(
    table: TextTable, is_header: Callable[[list[str], list[str] | None], bool]
) -> TextTable:
    """Take the first row for the names of the columns, if it is them."""
    heads = [_row_text(table, row) for row in range(min(2, table.num_rows))]
    if not is_header(heads[0], heads[1] if len(heads) > 1 else None):
        return table
    repeated = [name for name, count in Counter(heads[0]).items() if count > 1]
    if repeated:
        raise InputError(
            f"{table.path} has two columns named {min(repeated)!r}; give each column its own name"
        )
    start, length = table.start[:, 1:], table.length[:, 1:]
    return replace(table, start=start, length=length, line=table.line[1:], names=tuple(heads[0]))


def _read_bytes(path: Path) -> bytes:
    most = most_text(_MEMORY_PER_BYTE)
    blocks, size = [], 0
    try:
        # A few kilobytes may unpack to gigabytes: they are counted as they come.
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            while size <= most and (block := file.read(_BLOCK_BYTES)):
                blocks.append(block)
                size += len(block)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path} cannot be read ({error}); check the path and the file") from error
    if size > most:
        raise InputError(
            f"{path} has more than {most / 1e9:.3g} GB of text, and reading it takes "
            f"{_MEMORY_PER_BYTE} times as much memory, which is not free; check the file, use a "
            "machine with more memory, or cut it by distgnn partition --out-of-core on"
        )
    return b"".join(blocks)


def _sound(text: bytes, path: Path) -> bytes:
    """Return text whose lines all end in a newline."""
    if b"\0" in text:
        raise InputError(
            f"{path} is not a text file (it has NUL bytes, as UTF-16 and packed files have); "
            "export it as CSV in UTF-8"
        )
    text = text.removeprefix(b"\xef\xbb\xbf")
    if b"\r" in text:
        text = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return text if text.endswith(b"\n") else text + b"\n"


def _tell_of_comment(text: bytes, path: Path, line: int, *, is_begun: bool) -> bool:
    """Log the first line below a row that begins with #, as ids may, and return if there is one.

    The first line of the text has that number; there are rows above it if the table is begun.
    """
    row = None if is_begun else _ROW.search(text)
    if not is_begun and row is None:
        return False
    is_first = row is None and text.startswith(b"#")
    place = 0 if is_first else text.find(b"\n#", 0 if row is None else row.end())
    if place >= 0:
        _LOGGER.warning(
            "%s: line %d begins with #, so it is left out as a comment, like all that do; put the "
            "first field of a row between double quotes if it begins with #",
            path,
            line + text.count(b"\n", 0, place + 1),
        )
    return place >= 0


def _first_rows(text: bytes, count: int) -> list[str]:
    """Return the first lines that are neither empty nor comments."""
    rows: list[str] = []
    for match in _ROW.finditer(text):
        rows.append(match.group().decode(errors="replace"))
        if len(rows) == count:
            break
    return rows


def _sniff(path: Path, row: str) -> str:
    stem = path.with_suffix("") if path.suffix == ".gz" else path
    promised = "\t" if stem.suffix == ".tsv" else ","
    present = [delimiter for delimiter in (promised, *_DELIMITERS) if delimiter in row.strip()]
    for other in "\t;":
        first, second, *more = [*row.split(other), "", ""]
        is_inside = "," in "".join(more) and "," not in first + second
        if is_inside and any(_DECIMAL_COMMA.fullmatch(field.strip()) for field in more):
            return other
    return present[0] if present else promised


def _row_text(table: TextTable, row: int) -> list[str]:
    bounds = zip(table.start[:, row], table.length[:, row], strict=True)
    return [table.buffer[s : s + n].tobytes().decode(errors="replace") for s, n in bounds]


def _digits_of_truths(fields: NDArray[np.bytes_], words: list[bytes]) -> NDArray[np.bytes_]:
    """Return true and false as 1 and 0, where there is nothing else but words for missing ones."""
    # Cheap for columns of numbers, as most are.
    if not np.isin(fields[:1], (*_TRUTHS, b"", *words)).any():
        return fields
    is_true, is_false = (np.isin(fields, words) for words in (_TRUTHS[::2], _TRUTHS[1::2]))
    has_others = not (is_true | is_false | np.isin(fields, [b"", *words])).all()
    return fields if has_others else np.where(is_true, b"1", np.where(is_false, b"0", fields))


def _is_number(fields: NDArray[np.bytes_]) -> bool:
    if (np.ascontiguousarray(fields).view(np.uint8) == _UNDERSCORE).any():  # 1_0 is read as 10
        return False
    try:
        fields.astype(np.float64)
    except ValueError:
        return False
    return True


def _first_failure(fields: NDArray[Any], is_valid: Callable[[NDArray[Any]], bool]) -> int:
    """Return the first row that is not valid, by bisection; there must be one."""
    low, high = 0, int(fields.size)
    while high - low > 1:
        middle = (low + high) // 2
        if is_valid(fields[low:middle]):
            low = middle
        else:
            high = middle
    return low


def _fields_of(
    buffer: NDArray[np.uint8], delimiter: str, path: Path, first_line: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Find the fields of a text. Empty lines and lines that begin with # are left out.

    Args:
        buffer: (num_bytes,) uint8. Lines with their ends.
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
    if (per_line != per_line[:1]).any():
        wrong = int(np.argmax(per_line != per_line[0]))
        raise InputError(
            f"line {lines[wrong]} of {path} has {per_line[wrong] + 1} columns, but line "
            f"{lines[0]} has {per_line[0] + 1}; give every row the same columns"
        )
    inner = separators.reshape(lines.size, separators.size // max(lines.size, 1)).T
    start = np.concatenate([starts[None, kept], inner + 1])
    stop = np.concatenate([inner, ends[None, kept]])
    for at_end in (False, True):
        row = _trim(buffer, start, stop, at_end=at_end)
        if row is not None:
            raise InputError(
                f"line {lines[row]} of {path} has more than {MAX_FIELD_BYTES} blanks beside a "
                "field; leave them out"
            )
    if quotes.size:
        quoted = (stop - start >= 2) & (buffer[start] == _QUOTE) & (buffer[stop - 1] == _QUOTE)
        start, stop = start + quoted, stop - quoted
    return start, stop - start, lines


def _inside_quotes(size: int, quotes: NDArray[np.int64]) -> NDArray[np.bool_]:
    is_quote = np.zeros(size, dtype=np.uint8)
    is_quote[quotes] = 1
    # uint8 wraps round at 256, which keeps the parity.
    return (np.cumsum(is_quote, dtype=np.uint8) & 1).astype(np.bool_)


def _trim(
    buffer: NDArray[np.uint8], start: NDArray[np.int64], stop: NDArray[np.int64], *, at_end: bool
) -> int | None:
    """Leave out the blanks before fields, or behind them.

    Args:
        buffer: (num_bytes,) uint8.
        start: (num_columns, num_rows) int64. Changed.
        stop: (num_columns, num_rows) int64. Changed.
        at_end: Whether to leave out those behind fields.

    Returns:
        A row with more blanks than a field may have bytes; None if there is none.
    """
    first, last = start.reshape(-1), stop.reshape(-1)
    # Every field ends before a delimiter or line end, so both reads stay in the buffer.
    ends, behind, step = (last, 1, -1) if at_end else (first, 0, 1)
    at = np.flatnonzero((first < last) & (buffer[ends - behind] <= _SPACE))
    for _ in range(MAX_FIELD_BYTES):
        if not at.size:
            return None
        ends[at] += step
        at = at[(first[at] < last[at]) & (buffer[ends[at] - behind] <= _SPACE)]
    return int(at[0]) % start.shape[1] if at.size else None
