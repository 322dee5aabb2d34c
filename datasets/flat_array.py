"""Arrays on disk in the .npy format: their headers, and one-dimensional ones read slice by slice.

A memory map counts as memory of the process for as long as its pages stay there. What is read into
a buffer does not, so a file of any size passes through a few megabytes.
"""

from __future__ import annotations

import math
import os
import struct
import tokenize
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from distgnn.datasets.errors import InputError

if TYPE_CHECKING:
    from types import TracebackType

    from numpy.typing import NDArray

# Exceptions that numpy raises for damaged files: it evaluates the text of a header.
DAMAGES = (
    ValueError,
    TypeError,
    LookupError,
    OSError,
    EOFError,
    RuntimeError,
    SyntaxError,
    MemoryError,
    OverflowError,
    struct.error,
    tokenize.TokenError,
)
_HEADER_BYTES = 128


@dataclass(frozen=True)
class Header:
    """Header of an .npy file: its first bytes.

    Attributes:
        dtype: Type of the values.
        shape: Shape of the array.
        is_fortran: Whether it is stored column by column.
        offset_bytes: Where its values begin.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    is_fortran: bool
    offset_bytes: int


def read_header(path: Path) -> Header:
    """Read the header of an .npy file and check that the file holds the array.

    Args:
        path: The file.

    Returns:
        The header; its dtype holds no Python objects.

    Raises:
        InputError: If the file is missing, damaged, too short or of another kind.
    """
    if not path.is_file():
        raise InputError(f"{path}: there is no such file; check the path")
    try:
        with path.open("rb") as file:
            dtype, shape, is_fortran = parse_header(file)
            offset = file.tell()
        missing = offset + math.prod(shape) * dtype.itemsize - path.stat().st_size
        if missing > 0:
            raise ValueError(f"its last {missing} bytes are missing")
    except DAMAGES as error:
        raise InputError(
            f"{path} cannot be read ({reason_of(error)}); write it again with numpy.save"
        ) from error
    return Header(dtype, shape, is_fortran, offset)


def parse_header(file: IO[bytes]) -> tuple[np.dtype[Any], tuple[int, ...], bool]:
    """Read the header of an array from the beginning of a stream.

    Args:
        file: Open file of bytes; left where the values begin.

    Returns:
        The dtype, the shape, and whether the array is stored column by column.

    Raises:
        ValueError: Or another one of `DAMAGES`, if it is no header or holds Python objects.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        version = np.lib.format.read_magic(file)
        if version == (1, 0):
            shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(file)
        else:
            shape, is_fortran, dtype = np.lib.format.read_array_header_2_0(file)
    if dtype.hasobject:
        raise ValueError("it holds Python objects")
    if any(size < 0 for size in shape):
        raise ValueError(f"its shape is {shape}")
    num_values: int = math.prod(shape)
    if dtype.itemsize == 0 and num_values:
        # Any number of them fits into an empty file.
        raise ValueError(f"its values, {dtype}, have no bytes")
    return dtype, tuple(int(size) for size in shape), is_fortran


def reason_of(error: BaseException) -> str:
    """Say why an array cannot be read, without numpy's advice to run what is in the file.

    Args:
        error: One of `DAMAGES`.
    """
    text = str(error) or type(error).__name__
    if "pickle" not in text:
        return text
    return "its header is too long" if "max_header_size" in text else "it holds Python objects"


@dataclass(frozen=True)
class FlatArray:
    """A one-dimensional array on disk, or a run of one; it keeps no file open.

    Attributes:
        path: The file.
        offset_bytes: Where the values begin in it.
        dtype: Type of the values, in the byte order of this machine.
        size: Number of values.
    """

    path: Path
    offset_bytes: int
    dtype: np.dtype[Any]
    size: int

    def read(self, start: int, stop: int, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Read values start to stop - 1.

        Args:
            start: At least 0.
            stop: At most `size`.
            out: (at least stop - start,) C-contiguous, of `dtype`, to read into. None takes a new
                array.

        Returns:
            (stop - start,) of `dtype`; the beginning of `out`, if that was given.

        Raises:
            InputError: If the file cannot be read or has become shorter.
        """
        assert 0 <= start <= stop <= self.size, (start, stop, self.size)
        count = stop - start
        values: NDArray[Any] = np.empty(count, self.dtype) if out is None else out[:count]
        assert values.dtype == self.dtype, (values.dtype, self.dtype)
        waiting = values.view(np.uint8).data
        try:
            with self.path.open("rb", buffering=0) as file:
                file.seek(self.offset_bytes + start * self.dtype.itemsize)
                while len(waiting):
                    done = file.readinto(waiting)
                    if not done:
                        raise EOFError(f"{len(waiting)} bytes are missing")
                    waiting = waiting[done:]
        except (OSError, EOFError) as error:
            raise InputError(
                f"{self.path} cannot be read any more ({error}); it has to stay as it is until "
                "the command ends"
            ) from error
        return values


def open_flat(path: Path) -> list[FlatArray]:
    """Open an .npy file of one or two dimensions for reading slice by slice.

    Args:
        path: The file.

    Returns:
        The rows of the array; one for an array of one dimension.

    Raises:
        InputError: If the file is damaged, or its values do not lie row by row in the byte order
            of this machine.
    """
    header = read_header(path)
    if len(header.shape) not in (1, 2):
        raise InputError(
            f"{path} has the shape {header.shape}, but one or two dimensions are read slice by "
            "slice; write it as such an array"
        )
    if not header.dtype.isnative or (header.is_fortran and len(header.shape) == 2):
        order = "column by column" if header.dtype.isnative else "in another byte order"
        raise InputError(
            f"{path} is stored {order}, which cannot be read slice by slice; write "
            "numpy.ascontiguousarray of it in the byte order of this machine"
        )
    num_rows = 1 if len(header.shape) == 1 else header.shape[0]
    size = header.shape[-1]
    row_bytes = size * header.dtype.itemsize
    return [
        FlatArray(path, header.offset_bytes + row * row_bytes, header.dtype, size)
        for row in range(num_rows)
    ]


class FlatWriter:
    """Writes an .npy file slice by slice, whose size is known at the end only.

    The file appears under its name when it is complete: at the end of a `with` block that raised
    nothing.
    """

    def __init__(self, path: Path, dtype: np.dtype[Any], *, num_columns: int = 0) -> None:
        """Begin a file.

        Args:
            path: Where it is to be; one that exists is replaced.
            dtype: Type of the values.
            num_columns: Columns of an array of two dimensions; 0 for one dimension.

        Raises:
            OSError: If the folder cannot be written to.
        """
        self._path = path
        self._temporary = path.with_name(f".{path.name}.{os.getpid()}")
        self._dtype = dtype
        self._num_columns = num_columns
        self._size = 0
        self._file = self._temporary.open("wb")
        self._file.write(self._header())

    def __enter__(self) -> FlatWriter:
        """Begin."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Complete the file, or remove it if something was raised.

        Raises:
            OSError: If the disk is full.
        """
        try:
            if error is None:
                self._file.seek(0)
                self._file.write(self._header())
                self._file.flush()
                os.fsync(self._file.fileno())
                self._temporary.replace(self._path)
        finally:
            self._file.close()
            self._temporary.unlink(missing_ok=True)

    @property
    def written(self) -> FlatArray:
        """All values that were written, row by row, once the file is complete."""
        return FlatArray(self._path, _HEADER_BYTES, self._dtype, self._size)

    def append(self, values: NDArray[Any]) -> None:
        """Write values behind those that are there.

        Args:
            values: (any size,) or (any size, num_columns). They are converted to the dtype of the
                file.

        Raises:
            OSError: If the disk is full.
        """
        assert values.ndim == 1 or values.shape[1] == self._num_columns, values.shape
        flat = np.ascontiguousarray(values, self._dtype).reshape(-1)
        self._file.write(flat.view(np.uint8).data)
        self._size += values.size

    def _header(self) -> bytes:
        """Return the header, of the same length for every size."""
        columns = self._num_columns
        shape = (self._size // columns, columns) if columns else (self._size,)
        text = f"{{'descr': {self._dtype.str!r}, 'fortran_order': False, 'shape': {shape}, }}"
        padded = (text.ljust(_HEADER_BYTES - 11) + "\n").encode("ascii")
        return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(padded)) + padded
