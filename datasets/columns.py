"""Columns of tables of edges and vertices: which ones a user names, and what each became."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from distgnn.datasets.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from distgnn.datasets.tables import Table

FLAGS = {
    "source": "--source-column",
    "target": "--target-column",
    "weight": "--weight-column",
    "edge_features": "--edge-feature-columns",
    "id": "--id-column",
    "label": "--label-column",
    "features": "--feature-columns",
}
"""Flag that gives each field of `Columns`."""
_OF_EDGES = ("source", "target", "weight", "edge_features")
# Of a longer list only the ends are shown.
_MOST_SHOWN = 20


@dataclass(frozen=True)
class Columns:
    """Names of columns that a user chooses; None leaves the choice to the names that are known.

    A name that no column has exactly stands for one that differs in capitals only.
    """

    source: str | None = None
    """Vertices that edges leave."""
    target: str | None = None
    """Vertices that edges enter."""
    weight: str | None = None
    """Weights of edges."""
    edge_features: tuple[str, ...] | None = None
    """Features of edges, in this order; None for all other columns of numbers."""
    id: str | None = None
    """Ids in the vertex table."""
    label: str | None = None
    """Labels in the vertex table."""
    features: tuple[str, ...] | None = None
    """Features of vertices, in this order; None for all other columns of numbers."""

    @property
    def given(self) -> tuple[str, ...]:
        """Fields that are given."""
        return tuple(name for name in FLAGS if getattr(self, name) is not None)

    @property
    def given_of_edges(self) -> tuple[str, ...]:
        """Fields about the table of edges that are given."""
        return tuple(name for name in self.given if name in _OF_EDGES)

    @property
    def given_of_vertices(self) -> tuple[str, ...]:
        """Fields about the vertex table that are given."""
        return tuple(name for name in self.given if name not in _OF_EDGES)

    def check_unused(self, source: str) -> None:
        """Refuse columns for a source that is no table.

        Args:
            source: Name or path of the source, for the message.

        Raises:
            InputError: If a column is given.
        """
        if self.given:
            raise InputError(
                f"{FLAGS[self.given[0]]} names a column of a table, but {source!r} is none; leave "
                "it out"
            )

    def check_vertices(self, path: Path, *, has_vertices: bool) -> None:
        """Refuse columns of a vertex table where there is no such table.

        Args:
            path: Edge list, for the message.
            has_vertices: Whether there is a vertex table beside it.

        Raises:
            InputError: If a column of a missing table is given.
        """
        if self.given_of_vertices and not has_vertices:
            raise InputError(
                f"{FLAGS[self.given_of_vertices[0]]} names a column of a vertex table, but {path} "
                "has none beside it; give one by --vertices FILE"
            )

    def to_json(self) -> dict[str, Any]:
        """Return the columns that are given as JSON values."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in asdict(self).items()
            if value is not None
        }

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> Columns:
        """Read what `to_json` returned.

        Args:
            values: Given columns by the name of their field.

        Raises:
            ValueError: If a name is unknown or a value has another type.
        """
        known = {field.name for field in fields(Columns)}
        found: dict[str, Any] = {}
        for name, value in values.items():
            is_several = name in ("features", "edge_features")
            texts = value if is_several else [value]
            is_sound = isinstance(texts, list) and all(isinstance(text, str) for text in texts)
            if name not in known or not is_sound:
                raise ValueError(f"columns have {name} {value}")
            found[name] = tuple(value) if is_several else value
        return Columns(**found)


NO_COLUMNS = Columns()
"""Nothing given: columns go by the names that are known."""


def column_of(table: Table, columns: Columns, field: str) -> int | None:
    """Find the column that a user names.

    Args:
        table: Table with names of its columns.
        columns: Names that are given.
        field: Field of `Columns` with one name.

    Returns:
        Number of the column, from 0; None if no name is given.

    Raises:
        InputError: If no column has the name.
    """
    name = getattr(columns, field)
    return None if name is None else _find(table, name, field)


def feature_columns_of(table: Table, columns: Columns, field: str) -> list[int] | None:
    """Find the columns of features that a user names.

    Args:
        table: Table with names of its columns.
        columns: Names that are given.
        field: Field of `Columns` with several names.

    Returns:
        Numbers of the columns, from 0, in the order of the names; None if no name is given.

    Raises:
        InputError: If no column has one of the names.
    """
    names = getattr(columns, field)
    if names is None:
        return None
    return [_find(table, name, field) for name in names]


def check_distinct(
    table: Table, uses: Mapping[str, int | None], features: Sequence[int] | None
) -> None:
    """Check that no column is used for two things.

    Args:
        table: Table with the columns.
        uses: Column, from 0, of each use; None for a use without a column.
        features: Columns that are named as features.

    Raises:
        InputError: If two uses have the same column.
    """
    use_of: dict[int, str] = {}
    for use, column in (*uses.items(), *(("a feature", column) for column in features or ())):
        if column is None:
            continue
        if column in use_of:
            raise InputError(
                f"column {table.column_name(column)} of {table.path} is named as {use_of[column]} "
                f"and as {use}, but has one use; {_listed(table)}"
            )
        use_of[column] = use


def unknown_header(table: Table) -> InputError:
    """Return the error for a table of edges whose header has no name that is known."""
    return InputError(
        f"{table.path} has a header without known names for both ends of an edge, such as src and "
        f"dst; {_listed(table)}: say which by {FLAGS['source']} and {FLAGS['target']}, and by "
        f"{FLAGS['weight']} if there are weights"
    )


def told(table: Table, uses: Mapping[str, int | Sequence[int] | None]) -> str:
    """Say in one line which columns became what.

    Args:
        table: Table that was read.
        uses: Number or numbers of columns for each use; None and nothing are left out.

    Returns:
        The line, such as "e.csv: source = 'from', target = 'to', weight = 'w'".
    """
    word = "" if table.names is not None else "column "
    parts = []
    for use, columns in uses.items():
        numbers = [columns] if isinstance(columns, int) else list(columns or ())
        names = [f"{word}{table.column_name(number)}" for number in numbers]
        if len(names) > _MOST_SHOWN:
            names = [f"{names[0]} .. {names[-1]} ({len(names)} columns)"]
        if names:
            parts.append(f"{use} = {', '.join(names)}")
    header = "" if table.names is not None else "no header; by position, "
    return f"{table.path}: {header}{'; '.join(parts)}"


def _find(table: Table, name: str, field: str) -> int:
    names = table.names or ()
    if name in names:
        return names.index(name)
    alike = [number for number, other in enumerate(names) if other.lower() == name.lower()]
    if len(alike) == 1:
        return alike[0]
    raise InputError(
        f"{table.path} has no column {name!r}, which {FLAGS[field]} names; {_listed(table)}"
    )


def _listed(table: Table) -> str:
    names = [repr(name) for name in table.names or ()]
    if len(names) > _MOST_SHOWN:
        rest = len(names) - _MOST_SHOWN
        names = [*names[:_MOST_SHOWN], f"and {rest} more"]
    return f"its columns are {', '.join(names)}"
