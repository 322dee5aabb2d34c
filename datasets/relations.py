"""Types of edges from a column of a table, read whole or a slice at a time."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from distgnn.datasets._checks import MOST_TYPES
from distgnn.datasets.columns import FLAGS
from distgnn.datasets.errors import InputError
from distgnn.datasets.tables import read_keys
from distgnn.datasets.text_table import MISSING_WORDS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from distgnn.datasets.tables import Table

_LOGGER = logging.getLogger(__name__)
_WHOLE_FLOAT = re.compile(r"-?\d{1,18}\.0*")


def read_relations(table: Table, column: int) -> dict[str, Any]:
    """Read the types of edges, which are numbered in sorted order.

    Args:
        table: Table of edges.
        column: Its column of types.

    Returns:
        `edge_type` (num_edges,) int64 and `relation_names` of a Graph; nothing without edges.

    Raises:
        InputError: If an edge has no type, or there are too many types.
    """
    (values,) = read_keys(table, [column], "type")
    if values.size == 0:
        return {}
    distinct, position = np.unique(values, return_inverse=True)
    _check_count(distinct.size, table, column)
    number, names = _numbered(distinct)
    types = number[position.reshape(-1)]
    _warn_of_missing(table.path, names, np.bincount(types, minlength=len(names)))
    return {"edge_type": types, "relation_names": names}


class SlicedRelations:
    """Types of edges of a table that is read a slice at a time.

    Which numbers they get is known behind the last slice: until then, they are numbered as they
    come.
    """

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._number_of: dict[str, int] = {}
        self._are_integers = True

    def append(self, table: Table, column: int) -> NDArray[np.int32]:
        """Read the types of a slice.

        Args:
            table: Slice of a table of edges.
            column: Its column of types.

        Returns:
            (num_rows,) Their numbers in the order in which they came.

        Raises:
            InputError: If an edge has no type, or there are too many types.
        """
        (values,) = read_keys(table, [column], "type")
        self._are_integers &= values.dtype.kind == "i"
        distinct, position, counts = np.unique(values, return_inverse=True, return_counts=True)
        # An integer is written in one way alone, so its text in another slice is the same type.
        texts = [str(value) for value in distinct.tolist()]
        for text, count in zip(texts, counts.tolist(), strict=True):
            self._number_of.setdefault(text, len(self._number_of))
            self._counts[text] = self._counts.get(text, 0) + count
        _check_count(len(self._number_of), table, column)
        number = np.array([self._number_of[text] for text in texts], np.int32)
        return number[position.reshape(-1)]

    def finish(self, path: Path) -> tuple[NDArray[np.int64], tuple[str, ...]]:
        """Number the types in sorted order.

        Args:
            path: The table, for a warning.

        Returns:
            The number of each type in the order in which they came, and the names in their order.
        """
        texts = list(self._number_of)
        values: Any = [int(text) for text in texts] if self._are_integers else texts
        distinct, position = np.unique(np.array(values), return_inverse=True)
        number, names = _numbered(distinct)
        number = number[position.reshape(-1)]
        counts = np.zeros(len(names), np.int64)
        np.add.at(counts, number, np.array(list(self._counts.values()), np.int64))
        _warn_of_missing(path, names, counts)
        return number, names


def _numbered(distinct: NDArray[Any]) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Return the number of each of the sorted values, and the names of the types."""
    texts = distinct.tolist()
    # Programs with gaps in a column of integers write it as 1.0, 2.0 and 10.0.
    if distinct.dtype.kind == "U" and all(_WHOLE_FLOAT.fullmatch(text) for text in texts):
        whole = [int(text.partition(".")[0]) for text in texts]
        numbers, number = np.unique(whole, return_inverse=True)
        return number.reshape(-1).astype(np.int64), tuple(map(str, numbers.tolist()))
    return np.arange(distinct.size), tuple(map(str, texts))


def _check_count(count: int, table: Table, column: int) -> None:
    if count > MOST_TYPES:
        raise InputError(
            f"column {table.column_name(column)} of {table.path}, which {FLAGS['edge_type']} "
            f"names, has {count} values or more, but at most {MOST_TYPES} types are allowed; name "
            "a column of relations"
        )


def _warn_of_missing(path: Path, names: Sequence[str], counts: NDArray[np.integer[Any]]) -> None:
    for name, count in zip(names, counts.tolist(), strict=True):
        if name in MISSING_WORDS:
            _LOGGER.warning(
                "%s: %d edges have the type %r; give each edge a type if it stands for none",
                path,
                count,
                name,
            )
