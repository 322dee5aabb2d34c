"""Parquet files as columns; needs pyarrow, which the extra `parquet` installs."""

from __future__ import annotations

import importlib
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from distgnn.datasets.errors import InputError
from distgnn.datasets.files import check_room
from distgnn.datasets.limits import available_memory
from distgnn.datasets.text_table import MAX_FIELD_BYTES, Kind, no_value, whole_numbers_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

_BYTES_PER_VALUE, _BYTES_PER_DECIMAL = 8, 16
# Decimals of more digits take twice as many bytes.
_LONG_DECIMAL = 38
_MOST_ROWS = 1 << 20
_FLOATS = ("float", "double", "halffloat")
_NUMBERS = ("int", "uint", *_FLOATS, "bool", "decimal")
_LONG = ("string", "large_string", "binary", "large_binary")
_FIRST_ROUNDED = 2**53
# What texts may take without a look at their codes.
_FEW_BYTES = 64 << 20


@dataclass(frozen=True, eq=False)
class ParquetTable:
    """The columns of a Parquet file, with the methods of `TextTable`."""

    path: Path
    columns: tuple[Any, ...]
    """One pyarrow ChunkedArray a column."""
    num_rows: int
    names: tuple[str, ...]
    first_row: int = 0
    """Rows of the file before these."""

    @property
    def num_columns(self) -> int:
        """Number of columns."""
        return len(self.columns)

    def place(self, row: int) -> str:
        """Return where a row is, for messages."""
        return f"row {self.first_row + row} of {self.path}"

    def column_name(self, column: int) -> str:
        """Return the name of a column for messages."""
        return repr(self.names[column])

    def is_empty(self, column: int) -> NDArray[np.bool_]:
        """Return (num_rows,) bool: which values of a column are null or an empty text."""
        is_null: NDArray[np.bool_] = self.columns[column].is_null().to_numpy()
        if _is_text(self.columns[column]):
            is_null = is_null | (self.strings(column) == "")
        return is_null

    def integers(self, column: int) -> NDArray[np.int64] | None:
        """Return a column as (num_rows,) int64, or None if it has another type or nulls."""
        values = self.columns[column]
        if str(values.type).startswith("decimal") and values.type.scale == 0:
            arrow = importlib.import_module("pyarrow")
            try:
                values = values.cast("int64")
            except arrow.ArrowInvalid:  # beyond int64
                return None
        if values.null_count or not str(values.type).startswith(("int", "uint")):
            return None
        array = values.to_numpy()
        if array.size and int(array.max()) > np.iinfo(np.int64).max:
            return None
        return np.asarray(array, dtype=np.int64)

    def whole_numbers(self, column: int) -> NDArray[np.int64] | None:
        """Return a column as (num_rows,) int64, or None if it has other values than 1 and 1.0."""
        values = self.columns[column]
        if not str(values.type).startswith(_FLOATS):
            return whole_numbers_of(self.strings(column))
        array = np.asarray(values.to_numpy(), dtype=np.float64)
        # Beyond, a float stands for several integers; NaN compares as false.
        if not (np.abs(array) < _FIRST_ROUNDED).all() or (array != np.trunc(array)).any():
            return None
        return array.astype(np.int64)

    def strings(self, column: int) -> NDArray[np.str_]:
        """Return a column as (num_rows,) str; null becomes the empty text.

        Raises:
            InputError: If the column has a type without a text form, such as a list.
        """
        arrow = importlib.import_module("pyarrow")
        try:
            text = self.columns[column].cast("string").fill_null("")
            text.validate(full=True)
        except (arrow.ArrowInvalid, arrow.ArrowNotImplementedError) as error:
            raise InputError(
                f"column {self.column_name(column)} of {self.path} has the type "
                f"{self.columns[column].type}, or text that is not UTF-8; store integers or text"
            ) from error
        lengths = importlib.import_module("pyarrow.compute").binary_length(text).to_numpy()
        width = int(lengths.max(initial=0))
        if width > MAX_FIELD_BYTES:
            raise InputError(
                f"{self.place(int(lengths.argmax()))} has a field of {width} bytes, but at most "
                f"{MAX_FIELD_BYTES} are allowed; shorten it"
            )
        check_room(4 * width * self.num_rows, f"column {self.column_name(column)} of {self.path}")
        return np.asarray(text.to_numpy(), dtype=np.str_)

    def kind(self, column: int, missing: Sequence[str] = ()) -> Kind:
        """Say what a column holds, as its type says.

        Args:
            column: Its number.
            missing: Texts that mean null, which no column of numbers has.
        """
        is_number = str(self.columns[column].type).startswith(_NUMBERS)
        return "numbers" if is_number else "texts"

    def floats(
        self,
        column: int,
        *,
        has_gaps: bool = False,
        missing: Sequence[str] = (),
        are_numbers: bool = False,
    ) -> NDArray[np.float64] | None:
        """Return a column as (num_rows,) float64, or None if it has no numbers.

        Args:
            column: Its number.
            has_gaps: Whether values may be null, which then are NaN.
            missing: Texts that mean null; a column of numbers has no texts.
            are_numbers: Whether earlier rows have numbers, as the type says of all.

        Raises:
            InputError: If a value is null.
        """
        values = self.columns[column]
        if self.kind(column) == "texts":
            return None
        if values.null_count and not has_gaps:
            raise no_value(self, column, int(np.argmax(self.is_empty(column))))
        # Integers above 2**53 are rounded, as every reader of text does.
        return np.asarray(values.cast("float64", safe=False).to_numpy(), dtype=np.float64)


def read_parquet(path: Path) -> ParquetTable:
    """Read a Parquet file.

    Raises:
        InputError: If pyarrow is not installed, or the file is missing, damaged or not Parquet.
    """
    parquet = _pyarrow_parquet(path)
    with _reporting(path), parquet.ParquetFile(path) as file:
        _check_names(path, file.schema_arrow.names)
        # Equal values are stored once, so a small file may hold very many.
        chunks = _chunks_of(file)
        check_room(sum(chunk.read_bytes for chunk in chunks), f"{path}")
        _check_prefixes(path, file, chunks)
        coded = _coded_columns(chunks)
    with _reporting(path):
        return _table(path, parquet.read_table(path, read_dictionary=coded), 0)


def parquet_slices(path: Path, *, num_rows: int = _MOST_ROWS) -> Iterator[ParquetTable]:
    """Read a Parquet file a slice at a time.

    Args:
        path: The file.
        num_rows: Most rows of a slice.

    Yields:
        Rows of the table, at least one.

    Raises:
        InputError: If pyarrow is not installed, or the file is missing, damaged or not Parquet.
    """
    parquet = _pyarrow_parquet(path)
    arrow = importlib.import_module("pyarrow")
    first = 0
    with _reporting(path), parquet.ParquetFile(path) as file:
        _check_names(path, file.schema_arrow.names)
        chunks = _chunks_of(file)
        coded, at_once = _coded_columns(chunks), _rows_at_once(path, chunks, num_rows)
        most_bytes = _part_of_memory() // 2
    with _reporting(path), parquet.ParquetFile(path, read_dictionary=coded) as file:
        batches = file.iter_batches(batch_size=at_once)
        for some in _gathered(batches, num_rows - at_once, most_bytes):
            table = _table(path, arrow.Table.from_batches(some), first)
            yield table
            first += table.num_rows


def num_rows_of(path: Path) -> int:
    """Read how many rows a Parquet file has, which its end says.

    Raises:
        InputError: If pyarrow is not installed, or the file is missing, damaged or not Parquet.
    """
    parquet = _pyarrow_parquet(path)
    with _reporting(path):
        return int(parquet.read_metadata(path).num_rows)


def _pyarrow_parquet(path: Path) -> Any:
    try:
        return importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise InputError(
            f"{path} needs pyarrow, which is not installed; run pip install distgnn[parquet]"
        ) from error


@contextmanager
def _reporting(path: Path) -> Iterator[None]:
    """Turn what pyarrow raises into an InputError."""
    arrow_error = importlib.import_module("pyarrow").ArrowException
    try:
        yield
    except (arrow_error, OSError, UnicodeDecodeError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise InputError(
            f"{path} is not a readable Parquet file ({reason}); write it again"
        ) from error


class _Chunk(NamedTuple):
    """A column of one of the groups of rows of a file, as the file tells.

    Attributes:
        name: Path of the column.
        num_values: Number of its values, of which a row of lists has several.
        num_rows: Number of rows.
        width: Bytes of a value as it is read, apart from those of texts.
        stored_bytes: Bytes of the values as they are stored, but not compressed.
        is_coded: Whether texts that are equal are stored once.
        has_prefixes: Whether texts are stored without what they share with the one before.
    """

    name: str
    num_values: int
    num_rows: int
    width: int
    stored_bytes: int
    is_coded: bool
    has_prefixes: bool

    @property
    def read_bytes(self) -> int:
        """Bytes of the values as they are read, but those of texts as they are stored."""
        return max(self.width * self.num_values, self.stored_bytes)

    @property
    def worst_bytes(self) -> int:
        """Most bytes of the texts: each may be as long as all that is stored."""
        return self.num_values * self.stored_bytes

    @property
    def row_bytes(self) -> int:
        """Most bytes of a row, of lists on average; but texts only where they have prefixes."""
        values = -(-self.num_values // max(self.num_rows, 1))
        return values * (self.stored_bytes if self.has_prefixes else self.width)


def _chunks_of(file: Any) -> list[_Chunk]:
    chunks = []
    for number in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(number)
        for place in range(group.num_columns):
            column = group.column(place)
            encodings = [str(name) for name in column.encodings]
            is_text = column.physical_type == "BYTE_ARRAY"
            chunks.append(
                _Chunk(
                    column.path_in_schema,
                    int(column.num_values),
                    int(group.num_rows),
                    _width(file.schema.column(place)),
                    int(column.total_uncompressed_size),
                    is_text and any("DICTIONARY" in name for name in encodings),
                    is_text and "DELTA_BYTE_ARRAY" in encodings,
                )
            )
    return chunks


def _width(described: Any) -> int:
    """Return how many bytes a value takes, as the schema says: all have as many but texts."""
    if described.logical_type.type == "DECIMAL":
        return _BYTES_PER_DECIMAL * (1 if described.precision <= _LONG_DECIMAL else 2)
    return max(_BYTES_PER_VALUE, int(described.length))


def _part_of_memory() -> int:
    """Bytes that values may take without a look at how long they are."""
    return max(available_memory() // 2, _FEW_BYTES)


def _coded_columns(chunks: Sequence[_Chunk]) -> list[str]:
    """Choose the columns of texts that are read as codes, before what they stand for is counted.

    A text that is stored once may stand in every row. How long it is, only the file's own codes
    tell, so columns are read as such where the longest would not fit into memory. Others are read
    at once, which takes less time. pyarrow reads no codes where others of the texts have prefixes.
    """
    others = {chunk.name for chunk in chunks if chunk.has_prefixes}
    coded = [chunk for chunk in chunks if chunk.is_coded and chunk.name not in others]
    is_much = sum(chunk.worst_bytes for chunk in coded) > _part_of_memory()
    return list(dict.fromkeys(chunk.name for chunk in coded)) if is_much else []


def _check_prefixes(path: Path, file: Any, chunks: Sequence[_Chunk]) -> None:
    """Count texts that are stored without what they share, a few at a time, where they may be long.

    What they share is stored once, so a small file may hold very much text.
    """
    others = {chunk.name for chunk in chunks if chunk.has_prefixes}
    shared = [chunk for chunk in chunks if chunk.name in others]
    if sum(chunk.worst_bytes for chunk in shared) <= _part_of_memory():
        return
    num_bytes = sum(chunk.read_bytes for chunk in chunks if chunk.name not in others)
    at_once = _rows_at_once(path, shared, _MOST_ROWS)
    for batch in file.iter_batches(batch_size=at_once, columns=sorted(others)):
        num_bytes += batch.nbytes
        check_room(num_bytes, f"{path}")


def _rows_at_once(path: Path, chunks: Sequence[_Chunk], most: int) -> int:
    """Return how many rows, at most so many, fit into memory whatever the longest of them is."""
    longest: dict[str, int] = {}
    for chunk in chunks:
        longest[chunk.name] = max(longest.get(chunk.name, 0), chunk.row_bytes)
    num_bytes = sum(longest.values())
    check_room(num_bytes, f"a row of {path}")
    return max(1, min(most, _part_of_memory() // max(2 * num_bytes, 1)))


def _gathered(batches: Iterable[Any], most_rows: int, most_bytes: int) -> Iterator[list[Any]]:
    """Yield batches together until they have more rows or bytes than that.

    Rows that might have been long come a few at a time, but seldom are.
    """
    some: list[Any] = []
    num_rows = num_bytes = 0
    for batch in batches:
        some.append(batch)
        num_rows += batch.num_rows
        num_bytes += batch.nbytes
        if num_rows > most_rows or num_bytes > most_bytes:
            yield some
            some, num_rows, num_bytes = [], 0, 0
    if some:
        yield some


def _check_names(path: Path, names: Sequence[str]) -> None:
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise InputError(
            f"{path} has two columns named {min(repeated)!r}; give each column its own name"
        )


def _table(path: Path, table: Any, first_row: int) -> ParquetTable:
    named = zip(table.column_names, table.columns, strict=True)
    columns = tuple(_decoded(column, f"column {name!r} of {path}") for name, column in named)
    return ParquetTable(path, columns, table.num_rows, tuple(table.column_names), first_row)


def _decoded(values: Any, what: str) -> Any:
    """Return a column without dictionary encoding, which pandas categories are stored with."""
    if not str(values.type).startswith("dictionary"):
        return values
    if str(values.type.value_type) in _LONG:
        length = importlib.import_module("pyarrow.compute").binary_length
        num_bytes = 0
        for chunk in values.chunks:
            lengths = length(chunk.dictionary).fill_null(0).to_numpy(zero_copy_only=False)
            rows = chunk.indices.drop_null().to_numpy(zero_copy_only=False)
            num_bytes += int(lengths[rows].sum())
        check_room(num_bytes, what)
    return values.cast(values.type.value_type)


def _is_text(values: Any) -> bool:
    return str(values.type) in ("string", "large_string", "string_view")
