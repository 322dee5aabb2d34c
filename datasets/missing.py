"""Numbers in the place of missing ones among the features of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from distgnn.datasets.text_table import MISSING_WORDS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from distgnn.datasets.tables import Table


class Imputer:
    """Filler of missing numbers; it counts what it fills.

    Args:
        choice: Value that takes the place of a missing one: mean or median of the finite numbers of
            its column, or zero. None fills nothing.
    """

    def __init__(self, choice: str | None) -> None:
        self._choice = choice
        self._num_values = self._num_columns = 0

    def floats(self, table: Table, column: int) -> NDArray[np.float64] | None:
        """Return a column of features with its gaps filled.

        Args:
            table: Table of vertices or edges.
            column: Number of the column.

        Returns:
            (num_rows,) float64; None if the column has no numbers.

        Raises:
            InputError: If a value is no number, or is missing and nothing is to take its place.
        """
        if self._choice is None:
            return table.floats(column)
        values = table.floats(column, has_gaps=True, missing=MISSING_WORDS)
        if values is None:
            return None
        is_missing = np.isnan(values)
        num_missing = int(np.count_nonzero(is_missing))
        if not num_missing:
            return values
        if num_missing == values.size:
            return None
        self.note(num_missing)
        return np.where(is_missing, self._stand_in(values[np.isfinite(values)]), values)

    def _stand_in(self, known: NDArray[np.float64]) -> float:
        if self._choice == "zero" or not known.size:
            return 0.0
        with np.errstate(over="ignore"):  # a mean that is not finite is refused with its column
            return float(known.mean() if self._choice == "mean" else np.median(known))

    def note(self, num_missing: int) -> None:
        """Count the values that are filled in a column.

        Args:
            num_missing: How many, at least one.
        """
        self._num_values += num_missing
        self._num_columns += 1

    def told(self, table: Table) -> list[str]:
        """Say in a line what was filled; no line if nothing was.

        Args:
            table: Table that was read.
        """
        if not self._num_values:
            return []
        values = "value" if self._num_values == 1 else "values"
        columns = "column" if self._num_columns == 1 else "columns"
        word = "zero" if self._choice == "zero" else f"the {self._choice} of the column"
        counts = f"{self._num_values} missing {values} in {self._num_columns} {columns}"
        return [f"{table.path}: {counts} of features became {word}"]
