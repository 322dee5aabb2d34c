"""The citation graphs as Planetoid published them: `ind.cora.allx`, `ind.cora.graph` and so on.

References:
    Yang, Cohen, Salakhutdinov, "Revisiting Semi-Supervised Learning with Graph Embeddings", ICML
    2016. Kipf, Welling, "Semi-Supervised Classification with Graph Convolutional Networks", ICLR
    2017, whose split this is.
"""

from __future__ import annotations

import itertools
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse

from distgnn.datasets._checks import computable
from distgnn.datasets.distinct import distinct
from distgnn.datasets.errors import InputError
from distgnn.datasets.files import read_whole
from distgnn.datasets.graph import Graph
from distgnn.datasets.npz import sha256
from distgnn.datasets.plain_pickle import read_pickle
from distgnn.datasets.simple_edges import simple_edges

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LOGGER = logging.getLogger(__name__)

_PICKLES = ("y", "tx", "ty", "allx", "ally", "graph")
_NUM_VAL = 500
_MOST_ID_DIGITS = 18


def read_planetoid(path: str | Path) -> Graph:
    """Read a graph in Planetoid's files.

    The rows of `allx` and `ally` are the first vertices, those of `tx` and `ty` the vertices that
    `test.index` lists. Vertices in neither (15 of Citeseer) have features of zero and no label;
    those of NELL have one column each, as in the paper. Edges are taken both ways, once, without
    self-loops (Cora's file has 151 edges twice). The rows of `y` train, the next 500 validate, the
    listed ones test. The files are pickles, but nothing in them is run.

    Args:
        path: The folder, or any one of the files where a folder has several graphs.

    Raises:
        InputError: If a file is missing or damaged, or they contradict each other.
    """
    folder, name = _find(Path(path))
    files = _files(folder, name)
    for file in files:
        if not file.is_file():
            raise InputError(f"there is no file {file}; put all of Planetoid's ind.{name}.* there")
    values = {
        part: read_pickle(read_whole(file), str(file))
        for part, file in zip(_PICKLES, files, strict=False)
    }
    try:
        return _graph(name, values, _test_ids(files[-1]), source=str(path), files=files)
    except InputError as error:
        raise InputError(f"{folder}/ind.{name}.*: {error}") from error


def is_planetoid(path: Path) -> bool:
    """Return whether a folder has, or a file is one of, Planetoid's files."""
    if path.is_dir():
        return any(path.glob("ind.*.graph"))
    return path.name.startswith("ind.") and path.suffix.lstrip(".") in (*_PICKLES, "x", "index")


def planetoid_files(path: Path) -> list[Path]:
    """List the files that `read_planetoid` reads, whether they are there or not."""
    return _files(*_find(path))


def _files(folder: Path, name: str) -> list[Path]:
    return [folder / f"ind.{name}.{part}" for part in (*_PICKLES, "test.index")]


def _find(path: Path) -> tuple[Path, str]:
    if not path.is_dir():
        name = path.name.removeprefix("ind.").removesuffix(".test.index")
        return path.parent, name if path.name.endswith(".test.index") else name.rpartition(".")[0]
    names = sorted(file.name[4:-6] for file in path.glob("ind.*.graph"))
    if len(names) != 1:
        raise InputError(
            f"folder {path} has the Planetoid graphs {', '.join(names) or '(none)'}; give one of "
            f"them, such as {path / 'ind.cora.graph'}"
        )
    return path, names[0]


def _test_ids(file: Path) -> NDArray[np.int64]:
    words = read_whole(file).split()
    for line, word in enumerate(words):
        if not word.isdigit() or len(word) > _MOST_ID_DIGITS:
            shown = word.decode(errors="replace")
            raise InputError(f"line {line + 1} of {file} has {shown!r}; it must hold a vertex id")
    ids = np.array(words, dtype=np.int64)
    if ids.size == 0 or distinct(ids).size < ids.size:
        raise InputError(f"{file} must list at least one test vertex and none twice; correct it")
    return ids


def _graph(
    name: str,
    values: dict[str, Any],
    test_ids: NDArray[np.int64],
    *,
    source: str,
    files: list[Path],
) -> Graph:
    _check(values, test_ids)
    first = values["allx"].shape[0]
    src, dst = _edges(values["graph"])
    num_vertices = 1 + max(int(ids.max(initial=first - 1)) for ids in (src, dst, test_ids))
    if int(test_ids.max()) > _most(first + test_ids.size + src.size):
        raise InputError(
            f"test.index lists vertex {int(test_ids.max())}, but there are {first} rows of allx "
            f"and {test_ids.size} of tx; they must be of one graph"
        )
    # Row of each vertex among those of allx and, behind them, tx; -1 for vertices in neither.
    row = np.full(num_vertices, -1, dtype=np.int64)
    row[:first] = np.arange(first)
    row[test_ids] = first + np.arange(test_ids.size)
    alone = np.flatnonzero(row < 0)
    if alone.size:
        _LOGGER.info("%s: %d vertices have no features and no label", source, alone.size)
    labels = np.full(num_vertices, -1, dtype=np.int64)
    has_row = row >= 0
    labels[has_row] = _classes(np.concatenate([values["ally"], values["ty"]]))[row[has_row]]
    masks = np.zeros((3, num_vertices), dtype=np.bool_)
    num_train = values["y"].shape[0]
    masks[0, :num_train] = True
    masks[1, num_train : min(num_train + _NUM_VAL, first)] = True
    masks[2, test_ids] = True
    masks &= labels >= 0
    src, dst = simple_edges(src, dst, num_vertices)
    return Graph(
        name=name,
        num_vertices=num_vertices,
        src=src,
        dst=dst,
        features=_features(values, row, alone if name.startswith("nell") else alone[:0]),
        labels=labels,
        train_mask=masks[0],
        val_mask=masks[1],
        test_mask=masks[2],
        source=source,
        checksum=sha256(files),
    )


def _check(values: dict[str, Any], test_ids: NDArray[np.int64]) -> None:
    for part in ("allx", "tx"):
        if not scipy.sparse.issparse(values[part]):
            values[part] = scipy.sparse.csr_matrix(_matrix(values[part], part))
    for part in ("y", "ally", "ty"):
        values[part] = _matrix(values[part], part)
    for rows, labels in (("allx", "ally"), ("tx", "ty")):
        sizes = values[rows].shape[0], values[labels].shape[0]
        if sizes[0] != sizes[1]:
            raise InputError(
                f"{rows} has {sizes[0]} rows and {labels} {sizes[1]}; they must be of one graph"
            )
    sizes = values["tx"].shape[0], test_ids.size
    if sizes[0] != sizes[1]:
        raise InputError(f"tx has {sizes[0]} rows, but test.index lists {sizes[1]} vertices")
    if values["allx"].shape[1] != values["tx"].shape[1]:
        raise InputError("allx and tx have different numbers of columns; they must be of one graph")
    widths = {values[part].shape[1] for part in ("y", "ally", "ty")}
    if len(widths) > 1:
        raise InputError(f"y, ally and ty have {sorted(widths)} columns; they must be of one graph")
    if not 0 < values["y"].shape[0] < values["ally"].shape[0] or test_ids.min() < 0:
        raise InputError(
            f"y has {values['y'].shape[0]} rows and ally {values['ally'].shape[0]}; those of y "
            "are the first of ally's, so there must be more of ally's"
        )
    if int(test_ids.min()) < values["allx"].shape[0]:
        raise InputError(
            f"test.index lists vertex {int(test_ids.min())}, which is a row of allx "
            f"({values['allx'].shape[0]} rows) already; they must be of one graph"
        )


def _matrix(value: Any, part: str) -> NDArray[Any]:
    if not isinstance(value, np.ndarray) or value.ndim != 2 or value.dtype.kind not in "biuf":
        raise InputError(f"{part} must hold a matrix of numbers, got {type(value).__name__}")
    matrix: NDArray[Any] = computable(value)
    return matrix


def _edges(graph: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    is_sound = isinstance(graph, dict) and all(isinstance(row, list) for row in graph.values())
    if not is_sound:
        raise InputError("graph must hold a dict of lists of vertices; it holds something else")
    degree = np.fromiter(map(len, graph.values()), np.int64, len(graph))
    owner, ends = _ids(list(graph)), _ids(list(itertools.chain.from_iterable(graph.values())))
    least = min(int(ids.min(initial=0)) for ids in (owner, ends))
    most = max(int(ids.max(initial=0)) for ids in (owner, ends))
    if least < 0 or most > _most(owner.size + ends.size):
        raise InputError(f"graph has vertex {least if least < 0 else most}; ids are 0, 1, 2, ...")
    return np.repeat(owner, degree), ends


def _most(num_entries: int) -> int:
    """Return the highest number that can be an id, in files with so many rows and entries."""
    return 10 * num_entries + 1000


def _ids(values: list[Any]) -> NDArray[np.int64]:
    try:
        ids = np.array(values)
    except (ValueError, OverflowError) as error:
        raise InputError(f"graph must hold integers ({error}); it holds something else") from error
    if values and (ids.ndim != 1 or ids.dtype.kind not in "iu" or ids.dtype == np.uint64):
        raise InputError(f"graph must hold integers below 2**63, got {ids.dtype}; correct it")
    return ids.astype(np.int64)


def _classes(one_hot: NDArray[Any]) -> NDArray[np.int64]:
    count = (one_hot != 0).sum(axis=1)
    if (count > 1).any():
        row = int(np.argmax(count > 1))
        raise InputError(f"row {row} of ally and ty has {count[row]} labels; it may have one")
    return np.where(count == 0, -1, one_hot.argmax(axis=1)).astype(np.int64)


def _features(
    values: dict[str, Any], row: NDArray[np.int64], own_column: NDArray[np.int64]
) -> scipy.sparse.csr_matrix:
    """Return the rows of the vertices, and a column of its own for each of `own_column`."""
    rows = scipy.sparse.vstack([values["allx"], values["tx"]], format="csr")
    nothing = scipy.sparse.csr_matrix((1, rows.shape[1]), dtype=rows.dtype)
    # Row -1 is the last one.
    features = scipy.sparse.vstack([rows, nothing], format="csr")[row]
    if own_column.size == 0:
        return features
    ones = np.ones(own_column.size, dtype=np.float32)
    shape = (row.size, own_column.size)
    identity = scipy.sparse.csr_matrix((ones, (own_column, np.arange(own_column.size))), shape)
    return scipy.sparse.hstack([features, identity], format="csr")
