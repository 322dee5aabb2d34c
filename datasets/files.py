"""Files before they are read: are they files, and is there memory for what is in them?"""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

from distgnn.datasets.errors import InputError
from distgnn.datasets.limits import available_memory

if TYPE_CHECKING:
    from pathlib import Path

# Smaller files are read without a look at the machine.
_SMALL_BYTES = 64 << 20
_KINDS = (
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def read_whole(path: Path) -> bytes:
    """Read a file into memory.

    Args:
        path: The file.

    Raises:
        OSError: If it cannot be read, is a pipe, which might wait for ever, or does not fit into
            the memory that is free.
    """
    check_regular(path)
    size, free = path.stat().st_size, available_memory()
    if size > max(free, _SMALL_BYTES):
        reason = f"it has {_shown(size)}, but {_shown(free)} of memory are free"
        raise OSError(errno.ENOMEM, reason, str(path))
    return path.read_bytes()


def most_text(bytes_per_byte: int) -> int:
    """Return how long a text may be so that what is made of it fits into the free memory.

    Args:
        bytes_per_byte: Bytes that are taken for a byte of text.
    """
    return max(available_memory() // bytes_per_byte, _SMALL_BYTES)


def check_regular(path: Path) -> None:
    """Refuse what is neither a file nor a folder.

    Args:
        path: Path that is to be opened.

    Raises:
        OSError: If it is a named pipe, a socket or a device, or cannot be looked at.
    """
    mode = path.stat().st_mode
    for is_kind, name in _KINDS:
        if is_kind(mode):
            raise OSError(errno.EINVAL, f"it is {name}, not a file", str(path))


def sync_directory(path: Path) -> None:
    """Force the names in a directory to disk, so that a rename survives a crash.

    Args:
        path: The directory.

    Raises:
        OSError: If the directory cannot be opened.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check_room(num_bytes: int, what: str) -> None:
    """Refuse to read what does not fit into the memory that is free.

    Args:
        num_bytes: Bytes that reading it takes.
        what: Its name, for the message.

    Raises:
        InputError: If it does not fit.
    """
    if num_bytes <= _SMALL_BYTES:
        return
    free = available_memory()
    if num_bytes > free:
        raise InputError(
            f"{what} takes {_shown(num_bytes)} of memory, but {_shown(free)} are free; check the "
            "file, or use a machine with more memory"
        )


def _shown(num_bytes: int) -> str:
    return f"{num_bytes} bytes" if num_bytes < 1_000_000 else f"{num_bytes / 1e9:.3g} GB"
