"""Reddit as DGL publishes it and PyG takes it: `reddit_data.npz` and `reddit_graph.npz`.

References:
    Hamilton, Ying, Leskovec, "Inductive Representation Learning on Large Graphs", NeurIPS 2017.
"""

from __future__ import annotations

import io
import zipfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from distgnn.datasets.archive import (
    ARCHIVE_DAMAGES,
    array_names,
    arrays_in,
    read_arrays,
    read_packed,
)
from distgnn.datasets.errors import InputError
from distgnn.datasets.files import check_room
from distgnn.datasets.graph import Graph
from distgnn.datasets.npz import sha256
from distgnn.datasets.scipy_npz import MATRIX_KEYS, ends_of_matrix

_DATA, _GRAPH = "reddit_data.npz", "reddit_graph.npz"
_WANTED = ("feature", "label", "node_types", *MATRIX_KEYS)
_read_arrays = partial(read_arrays, only=_WANTED)
_SPLITS = {"train": 1, "val": 2, "test": 3}


def is_reddit(path: Path) -> bool:
    """Return whether a folder has, or a zip file holds, Reddit's two archives."""
    if path.is_dir():
        return (path / _GRAPH).is_file() and (path / _DATA).is_file()
    if path.suffix != ".zip" or not path.is_file():  # a pipe would be waited for
        return False
    names = {name.rpartition("/")[2] for name in array_names(path)}
    return {_DATA, _GRAPH} <= names


def reddit_files(path: Path) -> list[Path]:
    """List the files that `read_reddit` reads."""
    return [path / _DATA, path / _GRAPH] if path.is_dir() else [path]


def read_reddit(path: str | Path) -> Graph:
    """Read Reddit.

    Args:
        path: The folder with the two archives, or the zip file that holds them. Edges are those of
            the file, with its self-loops if it is the one with self-loops.

    Raises:
        InputError: If a file is damaged, an array is missing, or they contradict each other.
    """
    path = Path(path)
    try:
        files = reddit_files(path)
        if path.is_dir():
            data, graph = (_named(file.name, _read_arrays, file) for file in files)
        else:
            data, graph = (_zipped(path, name) for name in (_DATA, _GRAPH))
        for key in ("feature", "label", "node_types"):
            if key not in data:
                raise InputError(
                    f"{_DATA} has no array {key!r} among {', '.join(sorted(data))}; fetch it again"
                )
        src, dst, num_vertices = _named(_GRAPH, ends_of_matrix, graph)
        kinds = data["node_types"]
        if kinds.dtype.kind not in "iufb":
            raise InputError(f"node_types must hold 1, 2 and 3, got {kinds.dtype}; fetch it again")
        return Graph(
            name="reddit",
            num_vertices=num_vertices,
            src=src,
            dst=dst,
            features=data["feature"],
            labels=data["label"],
            **{f"{split}_mask": kinds == number for split, number in _SPLITS.items()},
            source=str(path),
            checksum=sha256(files),
        )
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def _named(name: str, function: Any, argument: Any) -> Any:
    """Call a reader; its error says of which of the two files it speaks."""
    try:
        return function(argument)
    except InputError as error:
        raise InputError(f"{name}: {error}") from error


def _zipped(path: Path, name: str) -> dict[str, np.ndarray[Any, Any]]:
    try:
        with zipfile.ZipFile(path) as archive:
            member = next(item for item in archive.namelist() if item.rpartition("/")[2] == name)
            check_room(2 * archive.getinfo(member).file_size, name)
            content = io.BytesIO(read_packed(archive, member))
    except InputError:
        raise
    except ARCHIVE_DAMAGES as error:
        raise InputError(f"{name} cannot be read ({error}); fetch the zip file again") from error
    if not zipfile.is_zipfile(content):
        raise InputError(f"{name} is no .npz archive; fetch the zip file again")
    return dict(_named(name, partial(arrays_in, only=_WANTED), content))
