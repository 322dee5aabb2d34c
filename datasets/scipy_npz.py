"""The archives of `scipy.sparse.save_npz`: a matrix whose entry (i, j) is an edge from i to j."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from distgnn.datasets.archive import read_arrays
from distgnn.datasets.errors import InputError
from distgnn.datasets.graph import Graph
from distgnn.datasets.npz import sha256

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

_FORMATS = {"coo": ("row", "col"), "csr": ("indices", "indptr"), "csc": ("indices", "indptr")}
MATRIX_KEYS = ("format", "shape", "data", "row", "col", "indices", "indptr")
"""Names of the arrays that `save_npz` writes."""


def is_scipy_npz(names: frozenset[str]) -> bool:
    """Return whether an archive with arrays of these names was written by `save_npz`."""
    return {"format", "shape", "data"} <= names


def read_scipy_npz(path: str | Path) -> Graph:
    """Read a graph from its adjacency matrix; entries other than 1 are edge weights.

    Args:
        path: A file of `scipy.sparse.save_npz`, of a CSR, CSC or COO matrix.

    Raises:
        InputError: If the file is damaged, or the matrix is not square.
    """
    path = Path(path)
    try:
        arrays = read_arrays(path, only=MATRIX_KEYS)
        src, dst, num_vertices = ends_of_matrix(arrays)
        is_weighted = bool((arrays["data"] != 1).any())
        return Graph(
            name=path.stem,
            num_vertices=num_vertices,
            src=src,
            dst=dst,
            edge_weight=arrays["data"] if is_weighted else None,
            source=str(path),
            checksum=sha256([path]),
        )
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def ends_of_matrix(arrays: Mapping[str, Any]) -> tuple[NDArray[Any], NDArray[Any], int]:
    """Return the edges of an adjacency matrix.

    Args:
        arrays: Arrays that `save_npz` writes.

    Returns:
        Sources (rows) and destinations (columns), each (num_edges,), and the number of vertices.

    Raises:
        InputError: If an array is missing, or they contradict each other.
    """
    if "format" not in arrays:
        raise InputError(
            "the array 'format' of a matrix is missing; save it with scipy.sparse.save_npz"
        )
    kind = arrays["format"].tobytes().replace(b"\0", b"").decode(errors="replace")
    if kind not in _FORMATS:
        raise InputError(f"the matrix has format {kind!r}; save it as csr, csc or coo")
    for key in ("shape", "data", *_FORMATS[kind]):
        if key not in arrays or arrays[key].ndim != 1:
            raise InputError(f"the array {key!r} of a {kind} matrix is missing; save it again")
    shape = arrays["shape"].tolist()
    if (
        arrays["shape"].dtype.kind not in "iu"
        or len(shape) != 2
        or shape[0] != shape[1]
        or shape[0] < 1
    ):
        raise InputError(f"an adjacency matrix is square, this one has shape {shape}; correct it")
    first, second = (arrays[key] for key in _FORMATS[kind])
    if first.dtype.kind not in "iu" or second.dtype.kind not in "iu":
        raise InputError(f"{' and '.join(_FORMATS[kind])} must hold integers; save it again")
    if kind != "coo":
        second = second.astype(np.int64)
        # Compared, not subtracted: a difference may overflow.
        is_sound = second.size == shape[0] + 1 and second[0] == 0
        if not is_sound or (second[1:] < second[:-1]).any() or int(second[-1]) != first.size:
            raise InputError("indptr does not fit shape and indices; save the matrix again")
        outer = np.repeat(np.arange(shape[0]), np.diff(second))
        first, second = (outer, first) if kind == "csr" else (first, outer)
    if arrays["data"].dtype.kind not in "iufb":
        raise InputError(f"data must hold numbers, got {arrays['data'].dtype}; save it again")
    if arrays["data"].size != first.size:
        raise InputError(f"the matrix has {first.size} places and {arrays['data'].size} values")
    return first, second, int(shape[0])
