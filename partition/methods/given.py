"""A user's own parts: of the edges, or of the vertices."""

from __future__ import annotations

import tokenize
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distgnn.datasets.errors import InputError
from distgnn.datasets.files import check_regular
from distgnn.datasets.flat_array import reason_of
from distgnn.datasets.graph import Graph
from distgnn.partition.assignment import Assignment

KINDS = ("edges", "vertices")
# Exceptions that NumPy raises for files that are damaged, or whose header claims an absurd array.
_UNREADABLE = (
    OSError,
    ValueError,
    TypeError,
    EOFError,
    SyntaxError,
    OverflowError,
    MemoryError,
    tokenize.TokenError,
    zipfile.BadZipFile,
)


def read_parts(path: str) -> NDArray[Any]:
    """Read an array of parts.

    Args:
        path: Path of an .npy file.

    Returns:
        (n,) of an integer type.

    Raises:
        InputError: If the file cannot be read or holds something else.
    """
    try:
        check_regular(Path(path))
        # NumPy leaves a damaged archive open.
        with Path(path).open("rb") as file:
            parts = np.load(file, allow_pickle=False)
    except _UNREADABLE as error:
        reason = getattr(error, "strerror", None) or reason_of(error)
        raise InputError(
            f"cannot read parts from '{path}': {reason}; write them with numpy.save"
        ) from error
    if not isinstance(parts, np.ndarray) or parts.ndim != 1 or parts.dtype.kind not in "iu":
        shape = f"{parts.dtype} {parts.shape}" if isinstance(parts, np.ndarray) else "an archive"
        raise InputError(
            f"'{path}' must hold a one-dimensional array of whole numbers, got {shape}; write one "
            "part per edge or per vertex with numpy.save"
        )
    return parts


def kind_of(parts: NDArray[Any], graph: Graph) -> str:
    """Return whether an array, by its length, has the parts of edges or of vertices.

    Args:
        parts: (num_edges,) or (num_vertices,).
        graph: The graph.

    Returns:
        One of KINDS.

    Raises:
        InputError: If the length fits neither, or both.
    """
    fits = (parts.size == graph.num_edges, parts.size == graph.num_vertices)
    sizes = f"graph {graph.name!r} has {graph.num_edges} edges and {graph.num_vertices} vertices"
    if all(fits):
        raise InputError(
            f"{parts.size} parts may be of the edges or of the vertices, for {sizes}; say which "
            "with --assignment-of"
        )
    if not any(fits):
        raise InputError(f"{parts.size} parts are given, but {sizes}; give one part for each")
    return KINDS[fits.index(True)]


def assignment_of(parts: NDArray[Any], kind: str, graph: Graph, num_parts: int) -> Assignment:
    """Complete a user's parts to an assignment.

    Parts of edges get roots where the fewest rows travel. Parts of vertices are those of the roots;
    a minimum vertex cover then places the edges.

    Args:
        parts: (num_edges,) or (num_vertices,) whole numbers.
        kind: One of KINDS: edges or vertices.
        graph: The graph.
        num_parts: At least 1.

    Returns:
        The assignment.

    Raises:
        InputError: If there are too many or too few parts, or one is not in 0..num_parts - 1.
    """
    from distgnn.partition.methods.cover import place_edges
    from distgnn.partition.roots import choose_roots

    expected = graph.num_edges if kind == "edges" else graph.num_vertices
    if parts.size != expected:
        raise InputError(
            f"{parts.size} parts are given for {expected} {kind} of graph {graph.name!r}; give "
            "one for each"
        )
    if parts.size and not 0 <= int(parts.min()) <= int(parts.max()) < num_parts:
        raise InputError(
            f"the given parts are {parts.min()}..{parts.max()}, but {num_parts} parts are numbered "
            f"0..{num_parts - 1}; renumber them or change the number of parts"
        )
    given = parts.astype(np.int32)
    if kind == "edges":
        return Assignment(num_parts, given, choose_roots(graph, given, num_parts))
    return Assignment(num_parts, place_edges(graph, given, num_parts), given)
