"""Features of vertices in a file, while a graph is cut that needs none."""

from __future__ import annotations

import mmap
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from distgnn.datasets.graph import Graph

# Features of so many bytes are worth a file.
LEAST_BYTES = 1 << 26
# Room on the disk in sizes of the features: for this file, for the parts, and for their edges.
_ROOM = 3
# Rows that are written at a time, if they do not lie one after the other.
_ROWS = 1 << 16


def disk_of(out: str) -> Path:
    """Return a folder that exists on the disk of a partition directory, which need not.

    Args:
        out: Partition directory.
    """
    return next(path for path in Path(out).absolute().parents if path.exists())


def is_mapped(array: NDArray[Any]) -> bool:
    """Return whether an array is a view of a file that is mapped."""
    base: object = array
    while isinstance(base, np.ndarray) and not isinstance(base, np.memmap):
        base = base.base
    return isinstance(base, np.memmap)


def with_features_aside(graph: Graph, folder: Path) -> Graph:
    """Move large dense features from memory to a file, which is mapped.

    The system then drops them while memory is short, and reads them again where parts are written.
    The file has no name, so that a process that is killed leaves none behind.

    Args:
        graph: The graph. Its caller lets go of it, or nothing is freed.
        folder: On the disk of the file.

    Returns:
        A graph with the same features; the given one if they are few, sparse, or mapped already,
        or the disk has no room for them.
    """
    features = graph.features
    if not isinstance(features, np.ndarray) or features.nbytes < LEAST_BYTES:
        return graph
    if is_mapped(features):
        return graph
    try:
        if shutil.disk_usage(folder).free < _ROOM * features.nbytes:
            return graph
        with tempfile.TemporaryFile(dir=folder) as file:
            for begin in range(0, len(features), _ROWS):
                np.ascontiguousarray(features[begin : begin + _ROWS]).tofile(file)
            file.flush()
            # Copy-on-write, as array folders are mapped: what is written to it stays in memory.
            mapped = np.memmap(file, features.dtype, "c", shape=features.shape)
    except OSError:
        return graph
    lighter = replace(graph, features=mapped.view(np.ndarray))
    # The checks of a graph have read all of it.
    mapped._mmap.madvise(mmap.MADV_DONTNEED)  # type: ignore[attr-defined]
    return lighter
