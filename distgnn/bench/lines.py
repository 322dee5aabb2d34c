"""Files of runs, a line of JSON each, which an interrupted table goes on with."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


def read_lines(file: Path) -> list[dict[str, Any]]:
    """Read the runs that have ended, and remove a line that was cut off.

    Args:
        file: File of the runs; it may be missing.

    Returns:
        Values of each run by name, in the order of the lines.
    """
    text = file.read_text(encoding="utf-8") if file.is_file() else ""
    if text and not text.endswith("\n"):
        # The next run would be added to it otherwise.
        text = text[: text.rfind("\n") + 1]
        file.write_text(text, encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]
