"""Categories of a table as features: a column of 0 and 1 for each value."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from distgnn.datasets.columns import FLAGS
from distgnn.datasets.errors import InputError
from distgnn.datasets.files import check_room
from distgnn.datasets.text_table import MISSING_WORDS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from distgnn.datasets.tables import Table

# More values than these are names or numbers, which say nothing as features of their own.
_MOST_CATEGORIES = 1000


def one_hot_features(table: Table, columns: list[int]) -> NDArray[np.float32] | None:
    """Turn columns of categories into features.

    Each value of a column, in sorted order of the texts, becomes a feature: 1 where a vertex has it
    and 0 elsewhere. A vertex without a value has 0 in all of them.

    Args:
        table: Vertex table, with names of its columns.
        columns: Numbers of the columns, from 0.

    Returns:
        (num_rows, num_values of all columns) float32; None without columns.

    Raises:
        InputError: If a column has no value or more than 1000, or there is too little memory.
    """
    found = [_categories(table, column) for column in columns]
    if not found:
        return None
    width = sum(count for _, count in found)
    check_room(4 * width * table.num_rows, f"{width} categories of {table.path}")
    features = np.zeros((table.num_rows, width), np.float32)
    first = 0
    for number, count in found:
        rows = np.flatnonzero(number >= 0)
        features[rows, first + number[rows]] = 1
        first += count
    return features


def _categories(table: Table, column: int) -> tuple[NDArray[np.int64], int]:
    """Return (num_rows,) int64, the category of each row or -1, and the number of categories."""
    values, place = np.unique(table.strings(column), return_inverse=True)
    is_value = ~np.isin(values, ("", *MISSING_WORDS))
    count = int(np.count_nonzero(is_value))
    if not 0 < count <= _MOST_CATEGORIES:
        raise InputError(
            f"column {table.column_name(column)} of {table.path}, which {FLAGS['one_hot']} names, "
            f"has {count} different values, but categories are 1 to {_MOST_CATEGORIES}; leave it "
            "out"
        )
    number = np.where(is_value, np.cumsum(is_value) - 1, -1)
    return number[place.reshape(-1)], count
