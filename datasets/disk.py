"""Room on disk, asked for before hours of work."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from distgnn.datasets.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path


def check_room(target: Path, needed_bytes: int) -> None:
    """Check that a file or folder can be written.

    Args:
        target: File or folder to write, in a folder that exists.
        needed_bytes: Its size.

    Raises:
        InputError: If the folder around it does not exist, or its disk lacks the room.
    """
    if not target.parent.is_dir():
        raise InputError(
            f"'{target}' cannot be written: the folder '{target.parent}' does not exist; create it"
        )
    free = shutil.disk_usage(target.parent).free
    if needed_bytes > free:
        raise InputError(
            f"'{target}' needs {needed_bytes / 2**30:.1f} GiB, but {free / 2**30:.1f} GiB are "
            "free; make room or write it to another disk"
        )
