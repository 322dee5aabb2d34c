"""Columns of tables of edges and vertices: choices of a user, and what each became."""

from __future__ import annotations

import csv
import io
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from distgnn.datasets.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from distgnn.datasets.tables import Table

FLAGS = {
    "source": "--source-column",
    "target": "--target-column",
    "weight": "--weight-column",
    "edge_type": "--edge-type-column",
    "edge_features": "--edge-feature-columns",
    "id": "--id-column",
    "label": "--label-column",
    "features": "--feature-columns",
    "one_hot": "--one-hot-columns",
    "impute": "--impute",
}
"""Flag that gives each field of `Columns`, apart from `label_values`."""
KEYWORDS = {field: flag.removeprefix("--").replace("-", "_") for field, flag in FLAGS.items()}
"""Keyword in Python that gives each field of `Columns`, apart from `label_values`."""
_OF_EDGES = ("source", "target", "weight", "edge_type", "edge_features")
_OF_VERTICES = ("id", "label", "features", "one_hot")
SEVERAL = ("edge_features", "features", "one_hot")
"""Fields of `Columns` that hold several names."""
IMPUTE_CHOICES = ("mean", "median", "zero")
"""Values that may take the place of missing numbers among the features."""
# Of a longer list only the ends are shown.
_MOST_SHOWN = 20


@dataclass(frozen=True)
class Columns:
    """Choices of a user about columns of tables; None leaves one to the names that are known.

    A name that no column has exactly stands for one that differs in capitals only.

    Raises:
        InputError: If `impute` is none of its choices.
    """

    source: str | None = None
    """Vertices that edges leave."""
    target: str | None = None
    """Vertices that edges enter."""
    weight: str | None = None
    """Weights of edges."""
    edge_type: str | None = None
    """Relations of edges, such as "cites": texts or whole numbers."""
    edge_features: tuple[str, ...] | None = None
    """Features of edges, in this order; None for all other columns of numbers."""
    id: str | None = None
    """Ids in the vertex table."""
    label: str | None = None
    """Labels in the vertex table."""
    features: tuple[str, ...] | None = None
    """Features of vertices, in this order; None for all other columns of numbers."""
    one_hot: tuple[str, ...] | None = None
    """Categories of vertices: each of their values becomes a feature of 0 and 1."""
    impute: str | None = None
    """Value in the place of missing features, one of `IMPUTE_CHOICES`; None refuses them."""
    label_values: bool | None = None
    """Whether labels are values to be learned even if all are whole; None where one has a
    fraction."""

    def __post_init__(self) -> None:
        """Check the choice of `impute`."""
        if self.impute not in (None, *IMPUTE_CHOICES):
            raise InputError(
                f"{FLAGS['impute']} must be {', '.join(IMPUTE_CHOICES[:-1])} or "
                f"{IMPUTE_CHOICES[-1]}, got {self.impute!r}"
            )

    @property
    def given(self) -> tuple[str, ...]:
        """Fields with a flag that are given."""
        return tuple(name for name in FLAGS if getattr(self, name) is not None)

    @property
    def given_of_edges(self) -> tuple[str, ...]:
        """Fields about the table of edges that are given."""
        return tuple(name for name in self.given if name in _OF_EDGES)

    @property
    def given_of_vertices(self) -> tuple[str, ...]:
        """Fields about the vertex table that are given."""
        return tuple(name for name in self.given if name in _OF_VERTICES)

    def check_unused(self, source: str) -> None:
        """Refuse columns for a source that is no table.

        Args:
            source: Name or path of the source, for the message.

        Raises:
            InputError: If a column is given.
        """
        if self.given:
            raise InputError(
                f"{FLAGS[self.given[0]]} is about columns of a table, but {source!r} is none; "
                "leave it out"
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

    def words(self) -> list[str]:
        """Return the choices as words of a command line, apart from `label_values`."""
        words = []
        for name in self.given:
            value = getattr(self, name)
            words.append(f"{FLAGS[name]}={value if isinstance(value, str) else _csv(value)}")
        return words

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
            is_several = name in SEVERAL
            texts = value if is_several else [value]
            kind = bool if name == "label_values" else str
            is_sound = isinstance(texts, list) and all(isinstance(text, kind) for text in texts)
            if name not in known or not is_sound:
                raise ValueError(f"columns have {name} {value}")
            found[name] = tuple(value) if is_several else value
        return Columns(**found)


def parse_names(text: str) -> tuple[str, ...]:
    """Read names between commas; a name with a comma stands between double quotes.

    Args:
        text: Names, such as `age,"city, state"`.

    Raises:
        InputError: If there is no name, or an empty one.
    """
    names = tuple(next(csv.reader([text]), ()))
    if not names or not all(names):
        raise InputError(f"must be names between commas, got '{text}'")
    return names


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
    table: Table,
    uses: Mapping[str, int | None],
    features: Sequence[int] | None,
    categories: Sequence[int] = (),
) -> None:
    """Check that no column is used for two things.

    Args:
        table: Table with the columns.
        uses: Column, from 0, of each use; None for a use without a column.
        features: Columns that are named as features.
        categories: Columns that are named as categories.

    Raises:
        InputError: If two uses have the same column.
    """
    use_of: dict[int, str] = {}
    several = (
        *(("a feature", column) for column in features or ()),
        *(("a category", column) for column in categories),
    )
    for use, column in (*uses.items(), *several):
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


def _csv(names: Iterable[str]) -> str:
    """Write names between commas, so that a name with a comma stands between double quotes."""
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(names)
    return text.getvalue()


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


def is_row_number(name: str) -> bool:
    """Whether a column has the name that pandas gives to the numbers of rows, which say nothing.

    Args:
        name: Name of the column.
    """
    return name == "" or name.startswith(("Unnamed:", "__index_level_"))
