"""Columns of numbers of a table of edges that is read a slice at a time.

As in a table that is read whole, the first value of a column says whether it holds numbers. It may
come in a late slice, so what is written may be left out behind the last one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from distgnn.datasets.columns import FLAGS
from distgnn.datasets.errors import InputError
from distgnn.datasets.flat_array import FlatWriter
from distgnn.datasets.missing import Imputer
from distgnn.datasets.text_table import MISSING_WORDS, no_number, no_value
from distgnn.datasets.vertex_table import fill_finite, no_numbers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from distgnn.datasets.flat_array import FlatArray
    from distgnn.datasets.tables import Table
    from distgnn.datasets.text_table import Kind

_VALUES_AT_ONCE = 1 << 22


class SlicedFeatures:
    """Features of edges of a table that is read a slice at a time."""

    def __init__(
        self, table: Table, columns: Sequence[int], impute: str | None, *, are_named: bool
    ) -> None:
        """Begin.

        Args:
            table: The first slice.
            columns: Columns that may hold numbers.
            impute: Value in the place of missing numbers, as `Columns.impute`.
            are_named: Whether a user names the columns, so that all must hold numbers.

        Raises:
            InputError: If one is named and holds texts.
        """
        self._impute = impute
        self._are_named = are_named
        self._num_rows = 0
        names = table.names or ()
        self._all = [_Column(column, names[column], impute) for column in columns]
        for column in self._all:
            column.learn(table)
        self._refuse_texts(table)
        self._written = [column for column in self._all if column.kind != "texts"]

    @property
    def num_columns(self) -> int:
        """Number of columns of what `append` returns."""
        return len(self._written)

    def append(self, table: Table) -> NDArray[np.float32]:
        """Read a slice.

        Args:
            table: The slice; the first one, too.

        Returns:
            (num_rows, num_columns) The numbers of all columns that may hold some, NaN for missing
            ones.

        Raises:
            InputError: If a number is missing or not finite in float32, or a value is no number.
        """
        rows = np.empty((table.num_rows, len(self._written)), np.float32)
        for place, column in enumerate(self._written):
            column.read(table, rows[:, place])
        self._refuse_texts(table)
        self._num_rows += table.num_rows
        return rows

    def finish(self, table: Table, written: FlatArray | None) -> tuple[list[str], list[str]]:
        """Leave out the columns without numbers, and fill in what is missing.

        Args:
            table: Any slice.
            written: Rows that `append` returned, or None without columns; the file is written anew
                where it must be, and removed where no column is left.

        Returns:
            Names of the columns that hold no numbers, and lines about what was filled.

        Raises:
            InputError: If a number is missing that cannot be filled, or a column is named and
                holds none.
            OSError: If the disk is full.
        """
        kept = [column for column in self._written if column.has_numbers(self._num_rows)]
        unused = [column.name for column in self._all if column not in kept]
        if unused and self._are_named:
            raise no_numbers(table, unused[0], "edge_features")
        imputer = Imputer(self._impute)
        for column in kept:
            column.refuse_gap()
            if column.num_missing:
                imputer.note(column.num_missing)
        if written is None:
            return unused, []
        if not kept:
            written.path.unlink()
        elif len(kept) < len(self._written) or any(column.num_missing for column in kept):
            self._write_anew(written, kept)
        return unused, imputer.told(table)

    def _write_anew(self, written: FlatArray, kept: list[_Column]) -> None:
        width = len(self._written)
        places = [self._written.index(column) for column in kept]
        fill = np.array([column.stand_in(self._num_rows) for column in kept], np.float32)
        step = max(_VALUES_AT_ONCE // width, 1)
        with FlatWriter(written.path, np.dtype(np.float32), num_columns=len(kept)) as writer:
            for start in range(0, self._num_rows, step):
                stop = min(start + step, self._num_rows)
                rows = written.read(start * width, stop * width).reshape(-1, width)[:, places]
                writer.append(np.where(np.isnan(rows), fill, rows))

    def _refuse_texts(self, table: Table) -> None:
        texts = [column for column in self._all if column.kind == "texts"]
        if texts and self._are_named:
            raise no_numbers(table, texts[0].name, "edge_features")


class _Column:
    """A column, as far as its slices tell about it."""

    def __init__(self, number: int, name: str, impute: str | None) -> None:
        self.name = name
        self.kind: Kind = "empty"
        self.num_missing = 0
        self._number = number
        self._impute = impute
        self._words = () if impute is None else MISSING_WORDS
        self._sum = 0.0
        # The refusal of the first missing value, if the column turns out to hold numbers.
        self._gap: InputError | None = None

    def learn(self, table: Table) -> None:
        """Look at the kind of values in a slice."""
        if self.kind not in ("numbers", "texts"):
            self.kind = _joined(
                self.kind, table.kind(self._number, self._words), fills=self._impute is not None
            )

    def read(self, table: Table, target: NDArray[np.float32]) -> None:
        """Read a slice into (num_rows,) numbers; NaN for missing ones."""
        self.learn(table)
        if self.kind == "texts":
            target[:] = 0
            return
        has_numbers = self.kind == "numbers"
        if has_numbers:
            self.refuse_gap()
        values = table.floats(
            self._number,
            has_gaps=self._impute is not None or not has_numbers,
            missing=MISSING_WORDS,
            are_numbers=has_numbers,
        )
        assert values is not None, self.kind
        is_missing = np.isnan(values)
        if self._impute is None and has_numbers:
            is_missing[:] = False  # refused as not finite
        fill_finite(target, np.where(is_missing, 0, values), table, self._number, is_slice=True)
        self._sum += float(values[~is_missing].sum())
        if is_missing.any():
            target[is_missing] = np.nan
            self.num_missing += int(np.count_nonzero(is_missing))
            self._gap = self._gap or self._refusal(table, int(np.argmax(is_missing)))
        if has_numbers:
            self.refuse_gap()

    def has_numbers(self, num_rows: int) -> bool:
        """Return whether the column, read to its end, holds numbers; one without rows does."""
        is_number = self.kind in ("numbers", "truths")
        return not num_rows or (is_number and self.num_missing < num_rows)

    def refuse_gap(self) -> None:
        """Raise if a value is missing and nothing can take its place."""
        if self._gap is not None:
            raise self._gap

    def stand_in(self, num_rows: int) -> float:
        """Return what takes the place of missing values."""
        return self._sum / (num_rows - self.num_missing) if self._impute == "mean" else 0.0

    def _refusal(self, table: Table, row: int) -> InputError | None:
        if self._impute is None:
            if table.is_empty(self._number)[row]:
                return no_value(table, self._number, row)
            return no_number(table, self._number, row, str(table.strings(self._number)[row]))
        if self._impute == "median":
            return InputError(
                f"{table.place(row)} has no value in the numeric column {self.name!r}, and out of "
                f"core {FLAGS['impute']} median does not fill features of edges; use "
                f"{FLAGS['impute']} mean or zero, or --out-of-core off"
            )
        return None


def _joined(before: Kind, kind: Kind, *, fills: bool) -> Kind:
    """Return the kind of a column that goes on; neither numbers nor texts become another."""
    if kind in ("empty", before) or (fills and (before, kind) == ("truths", "missing")):
        return before
    if before == "empty" or (before == "missing" and (kind == "numbers" or fills)):
        return kind
    # True and False count as numbers only where a column has nothing else.
    return "texts"
