"""Matrix Market files: a matrix whose entry (i, j) is an edge from i to j; and Proteins, one such.

References:
    Azad, Pavlopoulos, Ouzounis, Kyrpides, Buluc, "HipMCL: a high-performance parallel
    implementation of the Markov clustering algorithm", Nucleic Acids Research 46, 2018. Md et
    al., "DistGNN", SC 2021.
"""

from __future__ import annotations

import dataclasses
import gzip
import io
import logging
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io

from distgnn.datasets.errors import InputError
from distgnn.datasets.files import check_room
from distgnn.datasets.graph import Graph
from distgnn.datasets.npz import sha256

_DAMAGES = (
    *(ValueError, TypeError, EOFError, OverflowError, MemoryError),
    *(zlib.error, gzip.BadGzipFile),
)
_LOGGER = logging.getLogger(__name__)

_BUFFER_BYTES = 1 << 20
# "1 1" and its line end, and how much deflate shrinks at most.
_SHORTEST_LINE, _MOST_PACKED = 4, 1040
_BYTES_PER_ENTRY, _BYTES_PER_ROW = 24, 8

MATRIX_SUFFIXES = (".mtx", ".mtx.gz")
"""Suffixes of Matrix Market files."""
PROTEINS_FILES = ("proteins.mtx", "subgraph3_iso_vs_iso_30_70length_ALL.m100.propermm.mtx")
"""Names of the file of Proteins: that of DistGNN's program, and that of its publisher."""
_PROTEINS_FEATURES, _PROTEINS_CLASSES = 128, 256
# DistGNN takes vertices 0 to 999,999 for training, 500,000 for testing, 5,000 for validation, of
# 8,745,542; a piece of the graph is divided likewise.
_PROTEINS_VERTICES = 8_745_542
_PROTEINS_SPLIT = {"train": 1_000_000, "test": 500_000, "val": 5_000}


def read_matrix_market(path: str | Path) -> Graph:
    """Read a graph from a Matrix Market file; entries other than 1 are edge weights.

    A symmetric matrix gives both directions of every edge.

    Args:
        path: A .mtx or .mtx.gz file in coordinate format.

    Raises:
        InputError: If the file is missing or damaged, or the matrix is not square or not real.
    """
    path = Path(path)
    matrix = _read(path)
    if matrix.shape[0] != matrix.shape[1] or matrix.shape[0] < 1:
        raise InputError(f"{path}: an adjacency matrix is square, this one has {matrix.shape}")
    if matrix.dtype.kind not in "biuf":
        raise InputError(f"{path}: the entries are {matrix.dtype}, but weights are real numbers")
    is_weighted = bool((matrix.data != 1).any())
    try:
        return Graph(
            name=path.name.removesuffix(".gz").removesuffix(".mtx"),
            num_vertices=matrix.shape[0],
            src=matrix.row,
            dst=matrix.col,
            edge_weight=matrix.data if is_weighted else None,
            source=str(path),
            checksum=sha256([path]),
        )
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def is_proteins(path: Path) -> bool:
    """Return whether a file has the name of the Proteins graph."""
    return path.name.removesuffix(".gz") in PROTEINS_FILES


def read_proteins(path: str | Path) -> Graph:
    """Read Proteins, the similarities of HipMCL, and give it what DistGNN trains it on.

    The graph has neither features nor labels. As in DistGNN, 128 random features and one of 256
    random classes stand in for them, drawn from a fixed seed. The first vertices train, and the
    similarities are not used. Epochs can be timed on this graph, but accuracies mean nothing.

    Args:
        path: The Matrix Market file.

    Raises:
        InputError: As `read_matrix_market`; or if there are too few vertices to split.
    """
    graph = read_matrix_market(path)
    num_vertices = graph.num_vertices
    share = min(1.0, num_vertices / _PROTEINS_VERTICES)
    masks: dict[str, Any] = {}
    begin = 0
    for split, count in _PROTEINS_SPLIT.items():
        end = begin + max(round(count * share), 1)
        mask = np.zeros(num_vertices, dtype=np.bool_)
        mask[begin:end] = True
        masks[f"{split}_mask"] = mask
        begin = end
    generator = np.random.default_rng(0)
    features = generator.random((num_vertices, _PROTEINS_FEATURES), dtype=np.float32)
    _LOGGER.warning(
        "%s: Proteins has no features and no labels: its %d features and %d classes are random, "
        "so take times from it, not accuracies",
        path,
        _PROTEINS_FEATURES,
        _PROTEINS_CLASSES,
    )
    names = tuple(str(number) for number in range(_PROTEINS_CLASSES))
    return dataclasses.replace(
        graph,
        name="proteins",
        features=features,
        labels=generator.integers(_PROTEINS_CLASSES, size=num_vertices, dtype=np.int64),
        class_names=names,
        edge_weight=None,
        **masks,
    )


class _Text(io.RawIOBase):
    """A file as scipy can bear it.

    Behind the last number of a line, scipy looks for the line end, up to a NUL byte. Where it finds
    neither, it reads past the end of the text.

    Args:
        file: Open file to read from.
    """

    def __init__(self, file: io.BufferedIOBase) -> None:
        super().__init__()
        self._file = file
        self._is_ended = True

    def readable(self) -> bool:
        """Say yes."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read on; a line end follows what has none.

        Args:
            buffer: Memory to fill.

        Returns:
            How many bytes were read.

        Raises:
            ValueError: If there are NUL bytes.
        """
        block = self._file.read(len(buffer))
        if b"\0" in block:
            raise ValueError("it has NUL bytes")
        if not block and not self._is_ended:
            block = b"\n"
        self._is_ended = not block or block.endswith(b"\n")
        buffer[: len(block)] = block
        return len(block)


def _read(path: Path) -> Any:
    """Return the matrix as COO."""
    if not path.is_file():
        raise InputError(f"there is no file {path}; check the path")
    try:
        _check_size(path)
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            matrix = scipy.io.mmread(io.BufferedReader(_Text(file), _BUFFER_BYTES))
    except InputError:
        raise
    except _DAMAGES as error:
        reason = str(error).strip().rstrip(".")
        raise InputError(
            f"{path} is damaged or is no Matrix Market file ({reason}); fetch it again"
        ) from error
    return matrix.tocoo()


def _check_size(path: Path) -> None:
    """Compare what the first lines promise with the file and the memory, which scipy does not."""
    is_packed = path.suffix == ".gz"
    with gzip.open(path) if is_packed else path.open("rb") as file:
        text = io.BufferedReader(_Text(file), _BUFFER_BYTES)
        num_rows, num_columns, num_entries, layout, _, symmetry = scipy.io.mminfo(text)
    if layout != "coordinate":
        raise InputError(
            f"{path} holds a dense matrix; an adjacency matrix is in coordinate format"
        )
    room = path.stat().st_size * (_MOST_PACKED if is_packed else 1)
    if num_entries * _SHORTEST_LINE > room:
        raise ValueError(f"it promises {num_entries} entries, for which it is too short")
    # Of a matrix that is its own mirror image, the file has one half.
    num_read = num_entries * (1 if symmetry == "general" else 2)
    check_room(num_read * _BYTES_PER_ENTRY, f"{path} with {num_read} entries")
    check_room(max(num_rows, num_columns) * _BYTES_PER_ROW, f"{path} with {num_rows} rows")
