"""Numbers sorted on disk: thrown into buckets by their size, then sorted one bucket at a time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from types import TracebackType

    from numpy.typing import NDArray


class Buckets:
    """Files that numbers are thrown into, each number into a bucket of its own choice.

    Used as a context: the files are removed at its end. What was thrown first comes out first.
    """

    def __init__(self, folder: Path, num_buckets: int, dtype: np.dtype[Any]) -> None:
        """Make empty buckets.

        Args:
            folder: Where the files are written.
            num_buckets: At least 1; as many files are open at a time, so at most some hundreds.
            dtype: Type of the values; a structured one for records.

        Raises:
            OSError: If the folder cannot be written to.
        """
        self._paths = [folder / f".bucket-{number:05d}" for number in range(num_buckets)]
        self._dtype = dtype
        self._files = [path.open("w+b") for path in self._paths]

    def __enter__(self) -> Buckets:
        """Begin."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Remove the files."""
        for file, path in zip(self._files, self._paths, strict=True):
            file.close()
            path.unlink(missing_ok=True)

    def throw(self, values: NDArray[Any], bucket: NDArray[np.integer[Any]]) -> None:
        """Throw values into buckets.

        Args:
            values: (any size,) of the dtype of the buckets.
            bucket: (the same size,) The bucket of each value.

        Raises:
            OSError: If the disk is full.
        """
        # 16 bits are sorted by counting.
        bucket = bucket.astype(np.uint16)
        counts = np.bincount(bucket, minlength=len(self._files))
        self.append(values[np.argsort(bucket, kind="stable")], counts)

    def append(self, values: NDArray[Any], counts: NDArray[np.int64]) -> None:
        """Throw in values that are in order of their buckets already.

        Args:
            values: (any size,) C-contiguous.
            counts: (num_buckets,) int64. How many of them each bucket gets.

        Raises:
            OSError: If the disk is full.
        """
        assert values.dtype == self._dtype, (values.dtype, self._dtype)
        begin = 0
        for file, count in zip(self._files, counts.tolist(), strict=True):
            if count:
                file.write(values[begin : begin + count].view(np.uint8).data)
            begin += count

    def take(self, bucket: int) -> NDArray[Any]:
        """Empty a bucket.

        Args:
            bucket: Which one; each can be taken once.

        Returns:
            (any size,) What was thrown into it, in that order.

        Raises:
            OSError: If the file cannot be read.
        """
        file = self._files[bucket]
        file.seek(0)
        values: NDArray[Any] = np.fromfile(file, self._dtype)
        file.close()
        self._paths[bucket].unlink()
        return values
