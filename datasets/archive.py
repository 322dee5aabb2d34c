"""The arrays of an `.npz` archive, which is a zip file of `.npy` files; none of them unpickled."""

from __future__ import annotations

import io
import lzma
import math
import warnings
import zipfile
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from distgnn.datasets.errors import InputError
from distgnn.datasets.files import check_room
from distgnn.datasets.flat_array import DAMAGES, parse_header, reason_of
from distgnn.datasets.plain_pickle import read_pickle

if TYPE_CHECKING:
    from collections.abc import Container
    from pathlib import Path
    from typing import IO

    from numpy.typing import NDArray

ARCHIVE_DAMAGES = (*DAMAGES, zipfile.BadZipFile, zlib.error, lzma.LZMAError)
"""Exceptions that reading a damaged archive raises."""
_SUFFIX = ".npy"
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_BLOCK_BYTES = 1 << 20


def array_names(path: Path) -> frozenset[str]:
    """Return the names of the arrays of an archive; none for a file that is no archive."""
    try:
        with zipfile.ZipFile(path) as archive:
            return frozenset(name.removesuffix(_SUFFIX) for name in archive.namelist())
    except (OSError, *ARCHIVE_DAMAGES):
        return frozenset()


def read_arrays(
    path: Path, *, pickled: Container[str] = (), only: Container[str] | None = None
) -> dict[str, Any]:
    """Read the arrays of an archive.

    Args:
        path: The file.
        pickled: Names of arrays that may hold objects, such as a scipy matrix: these are read by
            `read_pickle`. Any other array of objects is an error.
        only: Names of the arrays to read; others take no memory. None reads all.

    Raises:
        InputError: If the file is missing or damaged, an array holds objects, or one takes more
            memory than is free.
    """
    if not path.is_file():
        raise InputError("there is no such file; check the path")
    # One that may not be opened is no damaged one; `load` says why.
    with path.open("rb") as file:
        if not zipfile.is_zipfile(file):
            raise InputError(
                "this is not an .npz file or its end is missing; write it with "
                "numpy.savez_compressed"
            )
        return arrays_in(file, pickled=pickled, only=only)


def arrays_in(
    file: IO[bytes], *, pickled: Container[str] = (), only: Container[str] | None = None
) -> dict[str, Any]:
    """Read the arrays of an archive that is open, as `read_arrays` does."""
    arrays: dict[str, Any] = {}
    key = "the table of contents"
    try:
        with warnings.catch_warnings(), zipfile.ZipFile(file) as archive:
            warnings.simplefilter("ignore")
            for member in dict.fromkeys(archive.namelist()):
                key = member.removesuffix(_SUFFIX)
                if only is None or key in only:
                    arrays[key] = _member(archive, member, key, may_be_pickled=key in pickled)
    except InputError:
        raise
    except ARCHIVE_DAMAGES as error:
        raise InputError(
            f"{key} cannot be read ({reason_of(error)}); the file is damaged or holds Python "
            "objects, so write it again with plain numpy arrays"
        ) from error
    return arrays


def open_packed(archive: zipfile.ZipFile, member: str) -> IO[bytes]:
    """Open a member of an archive.

    Args:
        archive: It is open.
        member: Name of the member.

    Raises:
        ValueError: Or another one of `ARCHIVE_DAMAGES`, if it is damaged, or compressed otherwise
            than by deflate.
    """
    # Of bz2 and LZMA, zipfile unpacks all that a block holds, whatever size the archive tells.
    method = archive.getinfo(member).compress_type
    if method not in _METHODS:
        raise ValueError(f"it is compressed by method {method}, not by deflate")
    return archive.open(member)


def read_packed(archive: zipfile.ZipFile, member: str) -> bytes:
    """Read a member of an archive, never more than the size that the archive tells.

    Args:
        archive: It is open.
        member: Name of the member.

    Raises:
        ValueError: Or another one of `ARCHIVE_DAMAGES`, as `open_packed` does.
    """
    # If it is asked for no size, zipfile unpacks the whole member, and cuts it to its size then.
    with open_packed(archive, member) as stream:
        return stream.read(archive.getinfo(member).file_size)


def is_text_sound(array: NDArray[Any]) -> bool:
    """Return whether all characters of an array of text can be written; numpy checks none."""
    if array.dtype.kind != "U" or array.size == 0 or array.dtype.itemsize == 0:
        return True
    native = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))
    code = native.reshape(-1).view(np.uint32)
    return bool(((code < 0xD800) | ((code > 0xDFFF) & (code <= 0x10FFFF))).all())


def _member(archive: zipfile.ZipFile, member: str, key: str, *, may_be_pickled: bool) -> Any:
    num_bytes = archive.getinfo(member).file_size
    check_room(num_bytes, key)
    if may_be_pickled:
        held = _objects(read_packed(archive, member), key)
        if held is not None:
            return held
    with open_packed(archive, member) as stream:
        array = _array_in(stream, num_bytes)
    if not is_text_sound(array):
        raise ValueError("its text has characters that do not exist")
    return array


def _array_in(stream: IO[bytes], num_bytes: int) -> NDArray[Any]:
    """Read an `.npy` file of so many bytes; memory is taken when its header agrees with them."""
    dtype, shape, is_fortran = parse_header(stream)
    missing = stream.tell() + math.prod(shape) * dtype.itemsize - num_bytes
    if missing > 0:
        raise ValueError(f"its last {missing} bytes are missing")
    array: NDArray[Any] = np.empty(shape, dtype, order="F" if is_fortran else "C")
    # A view of bytes, in the order of the file: the transpose of a Fortran array is a C array.
    waiting = array.T.reshape(-1) if is_fortran else array.reshape(-1)
    if array.size:
        left = waiting.view(np.uint8).data
        while len(left):
            done = stream.readinto(left[:_BLOCK_BYTES])  # type: ignore[attr-defined]
            if not done:
                raise EOFError(f"its last {len(left)} bytes are missing")
            left = left[done:]
    while stream.read(_BLOCK_BYTES):
        pass  # The checksum is compared at the end.
    return array


def _objects(data: bytes, key: str) -> Any:
    """Return what an `.npy` file of objects holds; None for one of numbers."""
    stream = io.BytesIO(data)
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        header = np.lib.format.read_array_header_1_0(stream)
    else:
        header = np.lib.format.read_array_header_2_0(stream)
    return read_pickle(stream.read(), key) if header[2].hasobject else None
