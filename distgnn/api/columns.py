"""Choices about columns of tables, as keywords in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distgnn.datasets.columns import KEYWORDS, SEVERAL, Columns, parse_names
from distgnn.datasets.errors import InputError

if TYPE_CHECKING:
    from distgnn.api.settings import Keywords

LABEL_TASKS = ("auto", "regression")
"""Tasks that decide how labels are read as a graph is loaded."""


def columns_of(words: Keywords) -> Columns:
    """Return the choices about columns of tables that keywords make.

    Args:
        words: Keywords of a verb: the flags of `Columns`, with underscores for dashes. Several
            names are a list, or a text as on the command line.

    Raises:
        InputError: If a value is of another type or not allowed.
    """
    chosen: dict[str, Any] = {}
    for field, name in KEYWORDS.items():
        value = words.take(name)
        if value is not None:
            chosen[field] = _names(name, value) if field in SEVERAL else value
            if not isinstance(chosen[field], str | tuple):
                raise InputError(f"{name} must be a text, got {value!r}")
    is_regression = words.take("task") == LABEL_TASKS[1]
    return Columns(**chosen, label_values=True if is_regression else None)


def _names(keyword: str, value: Any) -> tuple[str, ...]:
    """Return names of columns, given as a list or as a text with commas."""
    if isinstance(value, str):
        try:
            return parse_names(value)
        except InputError as error:
            raise InputError(f"{keyword} {error}") from None
    names = tuple(value) if isinstance(value, list | tuple) else ()
    if not names or not all(isinstance(name, str) and name for name in names):
        raise InputError(f"{keyword} must be names of columns, such as ['age'], got {value!r}")
    return names
