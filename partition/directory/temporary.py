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
NEW = "new"
"""Name in the folder of the directory in the making."""
_LOCK = "distgnn-lock"
_NAMES = {NEW, PREVIOUS, _LOCK}
# What mkdtemp puts behind a name, so that folders of "a" are told from those of "a.b".
_SUFFIX = re.compile(r"[a-z0-9_]{8}")
# A process takes its own locks again, so it has to know its folders, whatever their paths.
_own: set[tuple[int, int]] = set()


@contextmanager
def folder_beside(target: Path) -> Iterator[Path]:
    """Make a folder beside a path, and remove it at the end; first those of dead processes.

    A lock in the folder tells whether its process lives: the system releases it when the process
    ends. Other hosts may not see the lock, so a folder is removed only on the host that made it,
    and not once that has been started again.

    Args:
        target: An absolute path, whose parent exists.

    Yields:
        The folder, which only this user may read. It stays if it holds the only copy of the
        target.
    """
    _remove_dead(target)
    folder = Path(tempfile.mkdtemp(prefix=_prefix(target), dir=target.parent))
    identity = _identity(folder)
    _own.add(identity)
    descriptor = _locked(folder)
    try:
        yield folder
    finally:
        # First, as NFS keeps a file that is open, and with it its folder.
        if descriptor is not None:
            os.close(descriptor)
        _remove(folder, target)
        _own.discard(identity)


def _prefix(target: Path) -> str:
    return f".{target.name}."


def _locked(folder: Path) -> int | None:
    """Lock a folder; None where the file system has no locks, and nobody will remove it."""
    file = folder / f"{_LOCK}.new"
    with suppress(OSError):
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(descriptor, _started_host())
            # Whoever finds the lock by its name finds it taken.
            file.rename(folder / _LOCK)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor
    return None


def _started_host() -> bytes:
    """Return a text that no other host has, nor this one after its next start."""
    return Path("/proc/sys/kernel/random/boot_id").read_bytes()


def _identity(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino


def _remove_dead(target: Path) -> None:
    """Remove folders of processes that have ended without doing so."""
    prefix = _prefix(target)
    with suppress(OSError):
        for folder in target.parent.iterdir():
            suffix = folder.name.removeprefix(prefix)
            if suffix != folder.name and _SUFFIX.fullmatch(suffix):
                _remove_if_dead(folder, target)


def _remove_if_dead(folder: Path, target: Path) -> None:
    with suppress(OSError):
        if folder.is_symlink() or _identity(folder) in _own:
            return
        host = _started_host()
        descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_of_host = os.read(descriptor, 2 * len(host)) == host
        finally:
            os.close(descriptor)
        # Somebody else may have put something in, or given another folder such a name.
        if is_of_host and {item.name for item in folder.iterdir()} <= _NAMES:
            _remove(folder, target)


def _remove(folder: Path, target: Path) -> None:
    # A directory that was not put back stays where it is, rather than be lost.
    if target.exists() or not (folder / PREVIOUS).exists():
        shutil.rmtree(folder, ignore_errors=True)
