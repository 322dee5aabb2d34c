"""Arrays inside an `.npz` file, read slice by slice from the compressed stream.

`numpy.load` of such a file takes the memory of the whole array, 57 GB for the features of
ogbn-papers100M.
"""

from __future__ import annotations

import math
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from distgnn.datasets.archive import ARCHIVE_DAMAGES, open_packed
from distgnn.datasets.errors import InputError
from distgnn.datasets.flat_array import parse_header

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray


@dataclass(frozen=True)
class Member:
    """An array inside an `.npz` file; it keeps no file open.

    Attributes:
        path: The file.
        key: The name of the array.
        dtype: Type of the array, perhaps of another byte order.
        shape: Shape of the array.
        is_fortran: Whether it is stored column by column.
    """

    path: Path
    key: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    is_fortran: bool

    def slices(self, size: int) -> Iterator[NDArray[Any]]:
        """Read all values once, in the order in which they are stored.

        Args:
            size: Values of a slice, at least 1.

        Yields:
            (size,) values in the byte order of this machine; fewer in the last slice.

        Raises:
            InputError: If the file is damaged or its end is missing.
        """
        try:
            member = f"{self.key}.npy"
            with zipfile.ZipFile(self.path) as archive, open_packed(archive, member) as file:
                parse_header(file)
                left = math.prod(self.shape)
                while left:
                    count = min(size, left)
                    text = file.read(count * self.dtype.itemsize)
                    if len(text) < count * self.dtype.itemsize:
                        raise EOFError(f"its last {left} values are missing")
                    values = np.frombuffer(text, self.dtype)
                    yield values.astype(self.dtype.newbyteorder("="), copy=False)
                    left -= count
        except ARCHIVE_DAMAGES as error:
            raise _damaged(self.path, self.key, error) from error

    def read(self) -> NDArray[Any]:
        """Read a small array whole, as one dimension.

        Returns:
            All values in the order in which they are stored.

        Raises:
            InputError: If the file is damaged or its end is missing.
        """
        found = list(self.slices(max(math.prod(self.shape), 1)))
        return found[0] if found else np.zeros(0, self.dtype)


def open_member(path: Path, key: str) -> Member:
    """Read the header of an array inside an `.npz` file.

    Args:
        path: The file.
        key: The name of the array.

    Returns:
        The array, still to be read.

    Raises:
        InputError: If the file is missing or damaged, lacks the array, or it holds Python objects.
    """
    if not path.is_file():
        raise InputError(f"{path}: there is no such file; prepare the data set again")
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name.removesuffix(".npy") for name in archive.namelist()]
            if key not in names:
                raise InputError(
                    f"{path} has no array {key}, only {', '.join(names) or 'nothing'}; prepare the "
                    "data set again"
                )
            with open_packed(archive, f"{key}.npy") as file:
                return Member(path, key, *parse_header(file))
    except InputError:
        raise
    except ARCHIVE_DAMAGES as error:
        raise _damaged(path, key, error) from error


def _damaged(path: Path, key: str, error: Exception) -> InputError:
    return InputError(
        f"{path}: {key} cannot be read ({error}); the file is damaged, so prepare the data set "
        "again from a sound archive"
    )
