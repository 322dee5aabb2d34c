"""The arrays of an array folder that all layouts of OGB have, written slice by slice."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from distgnn.datasets.distinct import distinct
from distgnn.datasets.errors import InputError
from distgnn.datasets.flat_array import FlatWriter
from distgnn.datasets.ogb.rows import blocks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from numpy.typing import NDArray

    from distgnn.datasets.ogb.catalogue import Published

    Progress = Callable[[str], None] | None

_REPORT_ROWS = 1 << 24
_AT_ONCE = 1 << 22
ENDS, FEATURES, LABELS = ("src.npy", "dst.npy"), "features.npy", "labels.npy"
EDGE_FEATURES = "edge_features.npy"
"""Files of an array folder."""
# The names of OGB and ours.
_SPLITS = (("train", "train_mask"), ("valid", "val_mask"), ("test", "test_mask"))
MASKS = tuple(f"{name}.npy" for _, name in _SPLITS)
"""The files that `write_masks` writes."""


@dataclass(frozen=True)
class Stage:
    """A step of a conversion, which is left out when an interrupted one continues.

    Attributes:
        files: Files that it writes; each appears when it is complete.
        write: Writes them.
    """

    files: tuple[str, ...]
    write: Callable[[], None]


class Stages(Protocol):
    """Lists what turns a layout into an array folder."""

    def __call__(self, published: Published, folder: Path, target: Target) -> list[Stage]:
        """List the stages in the order in which they run.

        Args:
            published: The data set.
            folder: With raw/ and split/.
            target: Where the arrays are written.

        Raises:
            InputError: If a file is missing or damaged.
        """


@dataclass(frozen=True)
class Target:
    """Place that a conversion writes to.

    Attributes:
        folder: Folder of the arrays.
        name: Name of the data set.
        progress: Called with one line of text now and then.
    """

    folder: Path
    name: str
    progress: Progress = None

    def report(self, what: str, done: int, step: int, total: int) -> None:
        """Say how far a stage is, each 16 million rows.

        Args:
            what: Name of the things that are counted.
            done: Number of things that are done.
            step: Number of those that are new.
            total: Number of all things.
        """
        if self.progress is not None and done // _REPORT_ROWS > (done - step) // _REPORT_ROWS:
            self.progress(f"{self.name}: {done} of {total} {what}")


def id_type(num_vertices: int) -> np.dtype[Any]:
    """Return the dtype of the ends of edges: int32 where it holds them."""
    return np.dtype(np.int32 if num_vertices <= np.iinfo(np.int32).max else np.int64)


def check_ids(ids: NDArray[Any], num_vertices: int, where: tuple[Path | str, int]) -> None:
    """Check ids of vertices.

    Args:
        ids: Any shape, integers.
        num_vertices: Number of vertices.
        where: The file, and the number of the first row in it.

    Raises:
        InputError: If one is out of range.
    """
    if ids.size and (int(ids.min()) < 0 or int(ids.max()) >= num_vertices):
        rows = ids.reshape(ids.shape[0], -1)
        row, column = np.argwhere((rows < 0) | (rows >= num_vertices))[0]
        raise InputError(
            f"{where[0]} has vertex {rows[row, column]} in row {where[1] + int(row)}, but the "
            f"graph has {num_vertices} vertices (0..{num_vertices - 1}); the file is damaged, so "
            "prepare the data set again"
        )


def classes(values: NDArray[Any], where: tuple[Path | str, int]) -> NDArray[np.int64]:
    """Convert labels, which OGB writes as NaN where there is none.

    Args:
        values: (num_rows,) floats.
        where: The file, and the number of the first row in it.

    Returns:
        (num_rows,) classes, -1 for an unlabelled vertex.

    Raises:
        InputError: If one is neither NaN nor a whole number of at least 0.
    """
    filled = np.where(np.isnan(values), -1, values)
    is_wrong = (filled != np.floor(filled)) | (filled < -1) | ~np.isfinite(filled)
    if is_wrong.any():
        row = int(np.argmax(is_wrong))
        raise InputError(
            f"{where[0]} has the label {values[row]:g} in row {where[1] + row}, but labels are 0, "
            "1, 2, ... or nan; the file is damaged, so prepare the data set again"
        )
    return filled.astype(np.int64)


def write_masks(
    split: Path, num_vertices: int, folder: Path, *, offset: int = 0, num_all: int | None = None
) -> None:
    """Write the three masks of a split.

    Args:
        split: Folder with train.csv.gz, valid.csv.gz and test.csv.gz, one vertex in a row.
        num_vertices: Number of vertices that may be listed.
        folder: Where the masks are written.
        offset: Number of the first of these vertices among all.
        num_all: Vertices of the graph; None if there are no others.

    Raises:
        InputError: If a file is missing or damaged, or a vertex is listed twice.
    """
    kind = np.zeros(num_vertices if num_all is None else num_all, np.uint8)
    for code, (name, _) in enumerate(_SPLITS, 1):
        path, row = split / f"{name}.csv.gz", 0
        for block in blocks(path, np.int64, num_columns=1):
            ids = block.reshape(-1)
            check_ids(ids, num_vertices, (path, row))
            is_taken = kind[ids + offset] != 0
            kind[ids + offset] = code
            if is_taken.any() or distinct(ids).size < ids.size:
                raise InputError(
                    f"{split} lists a vertex twice, as {name}.csv.gz near row {row} shows; the "
                    "files are damaged, so prepare the data set again"
                )
            row += ids.size
    for code, file in enumerate(MASKS, 1):
        with FlatWriter(folder / file, np.dtype(np.bool_)) as writer:
            for start in range(0, kind.size, _AT_ONCE):
                writer.append(kind[start : start + _AT_ONCE] == code)


def write_edges(
    target: Target,
    ends: Iterable[tuple[NDArray[Any], NDArray[Any]]],
    sizes: tuple[int, int],
) -> None:
    """Write src.npy and dst.npy.

    Args:
        target: Where.
        ends: Sources and destinations, slice by slice, in range.
        sizes: Numbers of vertices and edges.
    """
    num_vertices, num_edges = sizes
    kind = id_type(num_vertices)
    done = 0
    with ExitStack() as stack:
        writers = [stack.enter_context(FlatWriter(target.folder / end, kind)) for end in ENDS]
        for pair in ends:
            for writer, ids in zip(writers, pair, strict=True):
                writer.append(ids)
            done += pair[0].size
            target.report("edges", done, pair[0].size, num_edges)


def write_rows(target: Target, file: str, slices: Iterable[NDArray[Any]], num_rows: int) -> None:
    """Write an array that has a row for each vertex or edge.

    Args:
        target: Where.
        file: Its name.
        slices: (some rows,) or (some rows, num_columns), at least one; floats become float32.
        num_rows: Number of all rows.
    """
    done = 0
    with ExitStack() as stack:
        writer: FlatWriter | None = None
        for rows in slices:
            if writer is None:
                kind = np.dtype(np.float32) if rows.dtype.kind == "f" else rows.dtype
                columns = rows.shape[1] if rows.ndim == 2 else 0
                writer = stack.enter_context(
                    FlatWriter(target.folder / file, kind, num_columns=columns)
                )
            with np.errstate(over="ignore"):  # a Graph refuses what is not finite
                writer.append(rows)
            done += rows.shape[0]
            target.report(f"rows of {file}", done, rows.shape[0], num_rows)
