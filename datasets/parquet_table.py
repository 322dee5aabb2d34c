"""Parquet files as columns; needs pyarrow, which the extra `parquet` installs."""

from __future__ import annotations

import importlib
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from distgnn.datasets.errors import InputError
from distgnn.datasets.files import check_room
from distgnn.datasets.limits import available_memory
from distgnn.datasets.text_table import MAX_FIELD_BYTES, Kind, no_value, whole_numbers_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

_BYTES_PER_VALUE = 8
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
        check_room(sum(_stored_bytes(column) for column in _columns_of(file)), f"{path}")
        coded = _coded_columns(file)
    with _reporting(path):
        return _table(path, parquet.read_table(path, read_dictionary=coded), 0)


def parquet_slices(path: Path, *, num_rows: int = 1 << 20) -> Iterator[ParquetTable]:
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
        coded = _coded_columns(file)
    with _reporting(path), parquet.ParquetFile(path, read_dictionary=coded) as file:
        for batch in file.iter_batches(batch_size=num_rows):
            yield _table(path, arrow.Table.from_batches([batch]), first)
            first += batch.num_rows


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


def _columns_of(file: Any) -> Iterator[Any]:
    """Return what a file tells of each column of each of its groups of rows."""
    for number in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(number)
        for column in range(group.num_columns):
            yield group.column(column)


def _stored_bytes(column: Any) -> int:
    """Bytes of the values as they are stored, but numbers as they are read."""
    return max(_BYTES_PER_VALUE * int(column.num_values), int(column.total_uncompressed_size))


def _coded_columns(file: Any) -> list[str]:
    """Choose the columns of texts that are read as codes, before what they stand for is counted.

    A text that is stored once may stand in every row. How long it is, only the file's own codes
    tell, so columns are read as such where the longest would not fit into memory. Others are read
    at once, which takes less time.
    """
    worst: dict[str, int] = {}
    for column in _columns_of(file):
        is_coded = any("DICTIONARY" in str(name) for name in column.encodings)
        if is_coded and column.physical_type == "BYTE_ARRAY":
            most = int(column.num_values) * int(column.total_uncompressed_size)
            worst[column.path_in_schema] = worst.get(column.path_in_schema, 0) + most
    return list(worst) if sum(worst.values()) > max(available_memory() // 2, _FEW_BYTES) else []


def _check_names(path: Path, names: Sequence[str]) -> None:
    repeated = {name for name in names if names.count(name) > 1}
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
