"""Files of predictions and of embeddings: tables under original ids, or plain arrays."""

from __future__ import annotations

import contextlib
import csv
import importlib
import io
import os
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from distgnn.api.link_predictions import SEPARATORS
from distgnn.datasets.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

ARRAY, PARQUET = ".npy", ".parquet"
SUFFIXES = (*SEPARATORS, PARQUET, ARRAY)
_DIGITS = 6


class OutputTable(Protocol):
    """Content of a file."""

    def columns(self) -> Mapping[str, NDArray[Any]]:
        """Return the columns by name, all of one length."""

    def array(self) -> NDArray[Any]:
        """Return the values alone, in the order of the rows."""


def check_target(out: Path) -> None:
    """Check before the work that a file can be written.

    Args:
        out: The file.

    Raises:
        InputError: If it cannot.
    """
    if out.suffix not in SUFFIXES:
        names = f"{', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}"
        raise InputError(f"--out must end in {names}, got '{out}'")
    if out.suffix == PARQUET:
        _parquet()
    if out.is_dir():
        raise InputError(f"cannot write '{out}': it is a directory; choose another --out")
    if not out.parent.is_dir():
        raise InputError(
            f"cannot write '{out}': there is no directory '{out.parent}'; make it first"
        )
    if not os.access(out.parent, os.W_OK):
        raise InputError(
            f"cannot write '{out}': '{out.parent}' is not writable; choose another --out"
        )


def write_table(out: Path, table: OutputTable) -> None:
    """Write the file, whole or not at all.

    Args:
        out: The file, whose suffix chooses its form.
        table: OutputTable to write.

    Raises:
        InputError: If it cannot be written.
    """
    temporary = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    try:
        if out.suffix == ARRAY:
            with temporary.open("wb") as file:
                np.save(file, table.array(), allow_pickle=False)
        elif out.suffix == PARQUET:
            arrow = importlib.import_module("pyarrow")
            _parquet().write_table(arrow.table(dict(table.columns())), temporary)
        else:
            temporary.write_text(as_text(table, SEPARATORS[out.suffix]), encoding="utf-8")
        # Before it takes the place of an earlier one.
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(out)
    except OSError as error:
        # numpy gives no reason where a disk is full.
        reason = error.strerror or "not all of it could be written, as where a disk is full"
        raise InputError(f"cannot write '{out}': {reason}; choose another --out") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def as_text(table: OutputTable, separator: str) -> str:
    """Return a line for each row below a header.

    Args:
        table: The table.
        separator: Text between two columns.
    """
    text = io.StringIO()
    writer = csv.writer(text, delimiter=separator, lineterminator="\n")
    columns = table.columns()
    writer.writerow(columns)
    shown = [_shown(name, column) for name, column in columns.items()]
    writer.writerows(zip(*shown, strict=True))
    return text.getvalue()


def _shown(name: str, column: NDArray[Any]) -> list[Any]:
    """Return the values of a column as they are printed: probabilities have six digits."""
    if name.startswith("probability"):
        rounded: list[Any] = np.round(column.astype(float), _DIGITS).tolist()
        return rounded
    values: list[Any] = (column.astype(str) if column.dtype.kind == "f" else column).tolist()
    return values


def _parquet() -> Any:
    try:
        return importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise InputError(
            "--out ends in .parquet, but pyarrow is not installed; pip install "
            "'distgnn[parquet]', or write .csv"
        ) from error
