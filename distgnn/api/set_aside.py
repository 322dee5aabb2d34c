"""Features of vertices in a file, while a graph is cut that needs none."""

from __future__ import annotations

import mmap
import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from distgnn.datasets.graph import Graph

# Features of so many bytes are worth a file.
LEAST_BYTES = 1 << 26
# Room on the disk in sizes of the features: for this file, for the parts, and for their edges.
_ROOM = 3


@contextmanager
def folder_beside(out: str) -> Iterator[Path]:
    """Make a folder on the disk of a partition directory, and remove it at the end if possible.

    Args:
        out: Partition directory, which need not exist.

    Yields:
        The folder.
    """
    beside = next(path for path in Path(out).absolute().parents if path.exists())
    # A file system of a network may keep a file in it that is still mapped.
    with tempfile.TemporaryDirectory(
        prefix=".distgnn-", dir=beside, ignore_cleanup_errors=True
    ) as folder:
        yield Path(folder)


def is_mapped(array: NDArray[Any]) -> bool:
    """Return whether an array is a view of a file that is mapped."""
    base: object = array
    while isinstance(base, np.ndarray) and not isinstance(base, np.memmap):
        base = base.base
    return isinstance(base, np.memmap)


def with_features_aside(graph: Graph, folder: Path) -> Graph:
    """Move large dense features from memory to a file, which is mapped.

    The system then drops them while memory is short, and reads them again where parts are written.
    The file has no name once it is mapped, so that a process that is killed leaves none behind.

    Args:
        graph: The graph. Its caller lets go of it, or nothing is freed.
        folder: Folder of the file.

    Returns:
        A graph with the same features; the given one if they are few, sparse, or mapped already,
        or the disk has no room for them.
    """
    features = graph.features
    if not isinstance(features, np.ndarray) or features.nbytes < LEAST_BYTES:
        return graph
    if is_mapped(features):
        return graph
    file = folder / "features.npy"
    try:
        if shutil.disk_usage(folder).free < _ROOM * features.nbytes:
            return graph
        np.save(file, features)
        # Copy-on-write, as array folders are mapped: what is written to the array stays in memory.
        mapped: np.memmap = np.load(file, mmap_mode="c")
    except OSError:
        return graph
    finally:
        file.unlink(missing_ok=True)
    lighter = replace(graph, features=mapped.view(np.ndarray))
    # The checks of a graph have read all of it.
    mapped._mmap.madvise(mmap.MADV_DONTNEED)  # type: ignore[attr-defined]
    return lighter
