"""Output of verbs: text for people, or exactly one JSON object."""

from __future__ import annotations

import json
import math
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from distgnn.machine.units import human_bytes

__all__ = [
    "add_json_flag",
    "bar",
    "human_bytes",
    "note",
    "pairs",
    "print_json",
    "print_lines",
    "table",
]

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Mapping, Sequence


def add_json_flag(parser: argparse.ArgumentParser) -> None:
    """Add --json to a verb."""
    parser.add_argument(
        "--json", action="store_true", help="print exactly one JSON object on standard output"
    )


def print_json(values: Mapping[str, Any]) -> None:
    """Print one JSON object on standard output; a number that is not finite becomes null."""
    sys.stdout.write(json.dumps(_finite(values), allow_nan=False) + "\n")
    sys.stdout.flush()


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    # JSON has no word for them, and most readers refuse the one that Python writes.
    return None if isinstance(value, float) and not math.isfinite(value) else value


def print_lines(lines: Iterable[str]) -> None:
    """Print lines on standard output."""
    text = "".join(f"{line}\n" for line in lines)
    # The terminal may not know a character of a file's name.
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
    sys.stdout.flush()


def note(line: str) -> None:
    """Print a line on standard error, unless it cannot be: a full disk of the log ends no work."""
    with suppress(OSError):
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


def pairs(values: Mapping[str, object]) -> list[str]:
    """Align names and values in two columns."""
    width = max(len(name) for name in values)
    return [f"{name:<{width}}  {value}" for name, value in values.items()]


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Align a table, numbers to the right."""
    texts = [list(header), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in texts) for column in range(len(header))]
    return [
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in texts
    ]


def bar(value: float, most: float, width: int) -> str:
    """Draw a share as a bar of at most `width` characters; at least one where there is any."""
    length = round(width * value / most) if most else 0
    return "#" * max(length, value > 0)
