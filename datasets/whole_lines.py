"""Text files in slices of whole lines."""

from __future__ import annotations

import gzip
import zlib
from typing import TYPE_CHECKING

from distgnn.datasets.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_MOST_LINE_BYTES = 64 << 20


def whole_lines(path: Path, slice_bytes: int) -> Iterator[bytes]:
    """Read a file, plain or gzipped, in slices of whole lines; the last may lack its end.

    Raises:
        InputError: If a line has more than 64 MiB, as a damaged or a packed file may.
        OSError: If the file is missing or cannot be read.
        EOFError: If it is gzipped and cut.
        zlib.error: If it is gzipped and damaged.
    """
    rest: list[bytes] = []
    size = 0
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        while block := file.read(slice_bytes):
            end = block.rfind(b"\n") + 1
            if end:
                yield b"".join([*rest, block[:end]])
                rest, size = [block[end:]], len(block) - end
            else:
                rest.append(block)
                size += len(block)
            if size > max(_MOST_LINE_BYTES, slice_bytes):
                raise InputError(
                    f"{path} has a line of more than {size} bytes, so it is no table; check the "
                    "file, and write one row a line"
                )
    if size:
        yield b"".join(rest)


def line_slices(path: Path, slice_bytes: int) -> Iterator[bytes]:
    """Read a file as `whole_lines` does, for users.

    Raises:
        InputError: If the file is missing or damaged.
    """
    try:
        yield from whole_lines(path, slice_bytes)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path} cannot be read ({error}); check the path and the file") from error
