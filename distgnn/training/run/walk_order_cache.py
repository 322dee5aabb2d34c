"""Walk orders kept on disk, so that the next start of a run reads what this one made.

A folder has a file for each walk order, named by the content of its block and by how it was
made. A file holds the division of the block's rows only. It is checked against the block when it is
read, so that nothing in the folder has to be trusted, and all of it may be removed at any time.
Files are renamed when complete, so that ranks and runs share a folder without locks.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from typing import TYPE_CHECKING

import torch

from distgnn.datasets.errors import InputError
from distgnn.edges.walk_orders import WalkOrderSource
from distgnn.kernels.walk_order import WalkOrder, WalkOrderLayout
from distgnn.training.run.tensors import read_tensors, write_tensors

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from torch import Tensor

    from distgnn.edges.walk_orders import Way
    from distgnn.kernels.csr import Csr

SUFFIX = ".walk"
_MAX_UNUSED_S = 30 * 24 * 3600
_REMEDY = "its walk order is made again"
_FORMAT = 1
_DTYPES = {
    "row": torch.int32,
    "begin": torch.int64,
    "task": torch.int64,
    "numbers": torch.int64,
    "reuse": torch.float64,
}


class WalkOrderCache(WalkOrderSource):
    """Reads walk orders from a folder, and makes and writes those that are not there.

    Who writes a walk order removes those that nobody has read for a month: of graphs that were
    partitioned again, or of other widths.

    Args:
        folder: Made when the first walk order is written.
        say: Called with a line when a file cannot be used or written.
        others: Where walk orders come from that are not in the folder, which is then left as it is;
            None to make and write them.
    """

    def __init__(
        self, folder: Path, say: Callable[[str], None], *, others: WalkOrderSource | None = None
    ) -> None:
        super().__init__()
        self._folder = folder
        self._say = say
        self._others = others
        self._is_writable = True

    def get(self, key: str, block: Csr, way: Way) -> WalkOrder | None:
        """Read the walk order of a block, or make and write it."""
        path = self._folder / f"{key}{SUFFIX}"
        try:
            walk = read_walk_order(path, key, block)
        except InputError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                self._say(str(error))
            if self._others is not None:
                return self._others.get(key, block, way)
            made = super().get(key, block, way)
            assert made is not None, "walk orders are made for all"
            self._write(path, key, made)
            return made
        _note_use(path)
        self.counts.num_read += 1
        return walk

    def _write(self, path: Path, key: str, walk: WalkOrder) -> None:
        if not self._is_writable:
            return
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            write_walk_order(path, key, walk)
            _remove_unused(self._folder)
        except OSError as error:
            self._is_writable = False
            self._say(
                f"cannot write walk order cache '{self._folder}': {error.strerror}; "
                "training continues, and the next start makes them again"
            )


def _note_use(path: Path) -> None:
    # A folder that cannot be written is still read.
    with contextlib.suppress(OSError):
        os.utime(path)


def _remove_unused(folder: Path) -> None:
    """Remove walk orders that were not used for long; another rank may be at it, too."""
    oldest = time.time() - _MAX_UNUSED_S
    for path in folder.glob(f"*{SUFFIX}"):
        with contextlib.suppress(OSError):
            if path.stat().st_mtime < oldest:
                path.unlink()


def write_walk_order(path: Path, key: str, walk: WalkOrder) -> None:
    """Write a walk order to a file, whole or not at all.

    Args:
        path: Path of the file.
        key: Key of the walk order.
        walk: Any walk order.

    Raises:
        OSError: If the file cannot be written.
    """
    layout = walk.layout()
    tensors = {
        "row": layout.row,
        "begin": layout.begin,
        "task": layout.task,
        "numbers": torch.tensor([_FORMAT, layout.num_long, int(layout.is_clustered)]),
        "reuse": torch.tensor(
            [layout.sources_per_edge, layout.ordered_sources_per_edge], dtype=torch.float64
        ),
    }
    write_tensors(path, {**tensors, "checksum": _checksum(key, tensors)})


def read_walk_order(path: Path, key: str, block: Csr) -> WalkOrder:
    """Read the walk order of a block.

    Args:
        path: Path of a file of `write_walk_order`.
        key: Key of the walk order that is wanted.
        block: Block of the walk order.

    Returns:
        The walk order.

    Raises:
        InputError: If the file cannot be read, is damaged, or holds the walk order of another block
            or of another format.
    """
    tensors = read_tensors(path, remedy=_REMEDY)
    checksum = tensors.pop("checksum", torch.empty(0))
    if {name: tensor.dtype for name, tensor in tensors.items()} != _DTYPES:
        raise InputError(f"walk order file '{path}' is of another format; {_REMEDY}")
    if not torch.equal(checksum, _checksum(key, tensors)):
        raise InputError(f"walk order file '{path}' was altered, or is of another graph; {_REMEDY}")
    has_shapes = tensors["numbers"].shape == (3,) and tensors["reuse"].shape == (2,)
    numbers, reuse = tensors["numbers"].tolist(), tensors["reuse"].tolist()
    if not has_shapes or numbers[0] != _FORMAT:
        raise InputError(f"walk order file '{path}' is of another format; {_REMEDY}")
    row, begin, task = (tensors[name] for name in ("row", "begin", "task"))
    layout = WalkOrderLayout(row, begin, task, numbers[1], bool(numbers[2]), *reuse)
    try:
        return WalkOrder.restore(block.indptr, block.indices, layout)
    except (TypeError, ValueError) as error:
        raise InputError(f"walk order file '{path}' cannot be used: {error}; {_REMEDY}") from error


def _checksum(key: str, tensors: dict[str, Tensor]) -> Tensor:
    digest = hashlib.sha256(key.encode())
    for name in _DTYPES:
        digest.update(f" {name} {tuple(tensors[name].shape)} ".encode())
        digest.update(tensors[name].numpy().data)
    return torch.tensor(list(digest.digest()), dtype=torch.uint8)
