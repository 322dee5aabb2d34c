"""Array files that are written with a checksum and opened with a check."""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray

from distgnn.datasets.errors import InputError
from distgnn.datasets.files import check_regular
from distgnn.partition.directory.manifest import FileRecord

CHUNK_BYTES = 1 << 20
# Header that numpy writes for arrays that are neither structured nor of Python objects. Its own
# reader evaluates the text, which for a damaged one may warn or raise almost anything.
_HEADER_BYTES = 1 << 10
_HEADER = re.compile(
    rb"\x93NUMPY\x01\x00(?P<length>..)"
    rb"\{'descr': '(?P<descr>[<>|][a-zA-Z]\d{1,9})', 'fortran_order': (?P<order>False|True), "
    rb"'shape': \((?P<shape>(\d{1,18},?(, \d{1,18})*)?)\), \} *\n",
    re.DOTALL,
)
# Bytes that a core keeps near between hashing and writing them.
_CHUNK = 1 << 20
REMEDY = "partition the graph again or copy the directory again"


class _HashingWriter:
    """A file that counts and hashes what passes through, so that nothing is read back."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._hash = hashlib.sha256()
        self._bytes = 0

    def write(self, data: bytes | memoryview) -> int:
        self._hash.update(data)
        self._bytes += len(data)
        return self._file.write(data)

    def record(self) -> FileRecord:
        return FileRecord(self._bytes, self._hash.hexdigest())


def write_array(path: Path, array: NDArray[Any]) -> FileRecord:
    """Write one array in the .npy format and force it to disk.

    Args:
        path: File to create.
        array: Array without Python objects.

    Returns:
        Size and checksum of the file.

    Raises:
        OSError: If the file cannot be written.
    """
    with path.open("wb") as file:
        writer = _HashingWriter(file)
        array = np.ascontiguousarray(array)
        header = np.lib.format.header_data_from_array_1_0(array)
        np.lib.format.write_array_header_1_0(writer, header)
        # As it lies in memory: NumPy would copy it piece by piece.
        data = array.reshape(-1).view(np.uint8).data
        for begin in range(0, len(data), _CHUNK):
            writer.write(data[begin : begin + _CHUNK])
        file.flush()
        os.fsync(file.fileno())
    return writer.record()


def write_slices(
    path: Path, shape: tuple[int, ...], dtype: np.dtype[Any], slices: Iterable[NDArray[Any]]
) -> FileRecord:
    """Write an array that is never held whole; the file is that of `write_array`.

    Args:
        path: File to create.
        shape: Shape of the array.
        dtype: Type of the array.
        slices: Its rows, one run of them after another.

    Returns:
        Size and checksum of the file.

    Raises:
        OSError: If the file cannot be written.
    """
    with path.open("wb") as file:
        writer = _HashingWriter(file)
        about = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False}
        np.lib.format.write_array_header_1_0(writer, {**about, "shape": shape})
        for rows in slices:
            writer.write(np.ascontiguousarray(rows, dtype).tobytes())
        file.flush()
        os.fsync(file.fileno())
    return writer.record()


def open_array(path: Path, record: FileRecord, *, verify: bool) -> NDArray[Any]:
    """Map an array into memory, copy-on-write, after checking the file.

    Args:
        path: File to open.
        record: Size and checksum that the file must have.
        verify: Whether to read the whole file for its checksum; the size is always checked.

    Returns:
        The array, C-contiguous. Writing to it leaves the file alone.

    Raises:
        InputError: If the file is missing, truncated, altered or no array.
    """
    try:
        check_regular(path)
        size = path.stat().st_size
    except OSError as error:
        raise InputError(
            f"file {str(path)!r} of the partition cannot be read: {error.strerror}; {REMEDY}"
        ) from error
    if size != record.bytes:
        raise InputError(
            f"file {str(path)!r} has {size} bytes, but the manifest says {record.bytes}; {REMEDY}"
        )
    try:
        if verify and _sha256(path) != record.sha256:
            raise InputError(
                f"file {str(path)!r} was altered: its sha256 is not that of the manifest; {REMEDY}"
            )
        array = _map(path, size)
    except (ValueError, TypeError, OSError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"file {str(path)!r} is not a plain .npy array; {REMEDY}") from error
    if not array.flags.c_contiguous:
        raise InputError(f"file {str(path)!r} is not stored row by row; {REMEDY}")
    # A plain view: memmap's own class would make every slice and sum of it a memmap too.
    return array.view(np.ndarray)


def _map(path: Path, size: int) -> NDArray[Any]:
    """Map an .npy file of this size; raise ValueError or TypeError if it is damaged."""
    with path.open("rb") as file:
        header = _HEADER.match(file.read(_HEADER_BYTES))
    if header is None:
        raise ValueError("no header of an array")
    dtype = np.dtype(header["descr"].decode())
    shape = tuple(int(text) for text in re.findall(rb"\d+", header["shape"]))
    offset = header.end()
    if (
        offset != 10 + int.from_bytes(header["length"], "little")
        or offset + math.prod(shape) * dtype.itemsize != size
        or not dtype.isnative
    ):
        raise ValueError("the header contradicts the file")
    order: Literal["C", "F"] = "F" if header["order"] == b"True" else "C"
    return np.memmap(path, dtype, mode="c", offset=offset, shape=shape, order=order)


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
