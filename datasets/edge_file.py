"""Edges on disk that are read slice by slice, for graphs that do not fit into memory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from distgnn.datasets.array_folder import ends_of, num_vertices_of
from distgnn.datasets.errors import InputError
from distgnn.datasets.flat_array import FlatArray

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

CHUNK_EDGES = 1 << 22
"""Edges of a slice: 32 MiB at 8 bytes an edge."""


@dataclass(frozen=True)
class EdgeFile:
    """The edges of a graph on disk; it keeps no file open and no memory mapped.

    Attributes:
        src: (num_edges,) int32 or int64. The vertex that each edge leaves.
        dst: (num_edges,) of the same dtype. The vertex that each edge enters.
        num_vertices: At least 1; vertices are 0 .. num_vertices - 1.
    """

    src: FlatArray
    dst: FlatArray
    num_vertices: int

    @property
    def num_edges(self) -> int:
        """Number of directed edges."""
        return self.src.size

    def chunks(
        self, size: int = CHUNK_EDGES
    ) -> Iterator[tuple[int, NDArray[np.integer[Any]], NDArray[np.integer[Any]]]]:
        """Read all edges in the order of the file.

        Args:
            size: Edges of a slice, at least 1.

        Yields:
            The number of the first edge, the sources and the destinations. The arrays are buffers
            of the next slice too: copy what is kept.

        Raises:
            InputError: If the files have become shorter.
        """
        size = max(min(size, self.num_edges), 1)
        src, dst = np.empty(size, self.src.dtype), np.empty(size, self.dst.dtype)
        for start in range(0, self.num_edges, size):
            stop = min(start + size, self.num_edges)
            yield start, self.src.read(start, stop, src), self.dst.read(start, stop, dst)

    def read(
        self, start: int, stop: int
    ) -> tuple[NDArray[np.integer[Any]], NDArray[np.integer[Any]]]:
        """Read some edges into arrays of their own.

        Args:
            start: At least 0.
            stop: One behind the last edge; what is beyond the end of the file is not read.

        Returns:
            The sources and the destinations.

        Raises:
            InputError: If the files have become shorter.
        """
        stop = min(stop, self.num_edges)
        return self.src.read(start, stop), self.dst.read(start, stop)


def from_array_folder(folder: str | Path) -> EdgeFile:
    """Open the edges of an array folder where they lie.

    Args:
        folder: A folder with edge_index.npy, or with src.npy and dst.npy.

    Returns:
        The edges, every one between vertices that there are.

    Raises:
        InputError: If an array is missing, damaged or of another kind, or an id is out of range.
    """
    folder = Path(folder)
    src, dst = ends_of(folder)
    known = num_vertices_of(folder)
    found = EdgeFile(src, dst, 1 if known is None else known)
    least, most, edge = 0, -1, 0
    for start, *ends in found.chunks():
        for ids in ends:
            low, high = int(ids.min()), int(ids.max())
            least, most = min(least, low), max(most, high)
            if low < 0 or (known is not None and high >= known):
                edge = start + int(np.argmax((ids < 0) | (ids >= (known or high + 1))))
                wrong = int(ids[edge - start])
                allowed = "0, 1, 2, ..." if known is None else f"0..{known - 1}"
                raise InputError(
                    f"{folder}: edge {edge} has vertex {wrong}, but vertices are {allowed}; "
                    "correct the id or num_vertices"
                )
    if known is None and most < 0:
        raise InputError(f"{folder} has neither edges nor num_vertices.npy; add one of them")
    return EdgeFile(src, dst, most + 1) if known is None else found


def finite_weights(weight: NDArray[Any], path: Path, start: int) -> NDArray[np.float32]:
    """Convert weights of a slice of edges.

    Args:
        weight: (any size,) numbers.
        path: Where they were read from, for the message.
        start: The number of the first edge.

    Returns:
        (the same size,) float32.

    Raises:
        InputError: If one is not finite in float32.
    """
    with np.errstate(over="ignore"):
        found = weight.astype(np.float32)
    is_bad = ~np.isfinite(found)
    if is_bad.any():
        edge = int(np.argmax(is_bad))
        raise InputError(
            f"{path}: edge {start + edge} has the weight {weight[edge]:g}, but every weight must "
            "be finite in float32; correct it"
        )
    return found
