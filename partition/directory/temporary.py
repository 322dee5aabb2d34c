"""Folders beside a directory in the making, and what is left of those of killed processes."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

PREVIOUS = "previous"
"""Name in the folder of the directory that the new one replaces."""
_LOCK = "lock"
# What mkdtemp puts behind a name, so that folders of "a" are told from those of "a.b".
_SUFFIX = re.compile(r"[a-z0-9_]{8}")
# A process takes no lock from itself, so it has to know its own folders.
_own: set[Path] = set()


@contextmanager
def folder_beside(target: Path) -> Iterator[Path]:
    """Make a folder beside a path, and remove it at the end; first those of dead processes.

    The system ends a lock in it with the process, on any host that shares the disk.

    Args:
        target: An absolute path, whose parent exists.

    Yields:
        The folder, which only this user may read. It stays if it holds the only copy of the
        target.
    """
    _remove_dead(target)
    folder = Path(tempfile.mkdtemp(prefix=_prefix(target), dir=target.parent))
    _own.add(folder)
    descriptor = _locked(folder)
    try:
        yield folder
    finally:
        # First, as NFS keeps a file that is open, and with it its folder.
        if descriptor is not None:
            os.close(descriptor)
        _remove(folder, target)
        _own.discard(folder)


def _prefix(target: Path) -> str:
    return f".{target.name}."


def _locked(folder: Path) -> int | None:
    """Lock a folder; None where the file system has no locks, and nobody will remove it."""
    file = folder / f"{_LOCK}.new"
    with suppress(OSError):
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Whoever finds the lock by its name finds it taken.
            file.rename(folder / _LOCK)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor
    return None


def _remove_dead(target: Path) -> None:
    """Remove folders of processes that have ended without doing so."""
    prefix = _prefix(target)
    with suppress(OSError):
        for folder in target.parent.iterdir():
            is_ours = folder.name.startswith(prefix) and folder not in _own
            if is_ours and _SUFFIX.fullmatch(folder.name.removeprefix(prefix)):
                _remove_if_dead(folder, target)


def _remove_if_dead(folder: Path, target: Path) -> None:
    with suppress(OSError):
        descriptor = os.open(folder / _LOCK, os.O_RDWR)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            os.close(descriptor)
        _remove(folder, target)


def _remove(folder: Path, target: Path) -> None:
    # A directory that was not put back stays where it is, rather than be lost.
    if target.exists() or not (folder / PREVIOUS).exists():
        shutil.rmtree(folder, ignore_errors=True)
