"""The `.npz` archives of Amazon, Coauthor and the citation graphs of gnn-benchmark.

The adjacency matrix and the features are CSR matrices, each as four arrays (`adj_data`,
`adj_indices`, `adj_indptr`, `adj_shape`, `attr_data`, ...). Recompressed copies have one pickled
scipy matrix instead (`adj_matrix`, `node_attr` or `attr_matrix`), which `read_pickle` reads.

References:
    Shchur, Mumme, Bojchevski, Guennemann, "Pitfalls of Graph Neural Network Evaluation", 2018.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse

from distgnn.datasets._checks import check_compressed, computable
from distgnn.datasets.archive import arrays_in
from distgnn.datasets.errors import InputError
from distgnn.datasets.graph import Graph
from distgnn.datasets.npz import sha256
from distgnn.datasets.simple_edges import simple_edges

if TYPE_CHECKING:
    from collections.abc import Mapping

_LABELS = ("labels", "label", "node_label")
_FEATURES = ("attr_matrix", "node_attr")
_MATRICES = ("adj_matrix", *_FEATURES, *_LABELS)
_NAMES = "class_names"
_CSR = ("data", "indices", "indptr", "shape")
# Names of vertices and words, which are pickled lists, too, are left unread.
_WANTED = frozenset(
    {*_MATRICES, _NAMES, *(f"{kind}_{part}" for kind in ("adj", "attr") for part in _CSR)}
)


def is_gnn_benchmark(names: frozenset[str]) -> bool:
    """Return whether an archive with arrays of these names is one of gnn-benchmark's."""
    return bool(names & {"adj_data", "adj_matrix"})


def read_gnn_benchmark(path: str | Path) -> Graph:
    """Read a graph of gnn-benchmark.

    Edges are taken both ways, once, without self-loops and weights, as its authors do; features are
    left as they are. The file has no split.

    Args:
        path: The `.npz` file.

    Raises:
        InputError: If the file is damaged, an array is missing, or they contradict each other.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            arrays = arrays_in(file, pickled=(*_MATRICES, _NAMES), only=_WANTED)
        adjacency = csr_of(arrays, "adj")
        if adjacency is None or adjacency.shape[0] != adjacency.shape[1]:
            raise InputError(
                "it must have a square adjacency matrix, as adj_data, adj_indices, adj_indptr and "
                f"adj_shape or as adj_matrix; it has {', '.join(sorted(arrays))}"
            )
        coo = adjacency.tocoo()
        src, dst = simple_edges(coo.row, coo.col, adjacency.shape[0])
        features = csr_of(arrays, "attr")
        if features is None:
            features = _first(arrays, _FEATURES)
        return Graph(
            name=path.stem,
            num_vertices=adjacency.shape[0],
            src=src,
            dst=dst,
            features=features,
            labels=_column(_first(arrays, _LABELS)),
            class_names=_names(arrays.get(_NAMES)),
            source=str(path),
            checksum=sha256([path]),
        )
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def csr_of(arrays: Mapping[str, Any], kind: str) -> scipy.sparse.csr_matrix | None:
    """Return a matrix of an archive.

    Args:
        arrays: Arrays of the archive, by name.
        kind: Beginning of the names of its arrays: adj or attr.

    Returns:
        The matrix; None if the archive has none of that kind.

    Raises:
        InputError: If one of its arrays is missing, or they contradict each other.
    """
    whole = arrays.get(f"{kind}_matrix")
    if scipy.sparse.issparse(whole):
        return scipy.sparse.csr_matrix(_numbers(whole, f"{kind}_matrix"))
    keys = [f"{kind}_{part}" for part in _CSR]
    if not any(key in arrays for key in keys):
        return None
    missing = [key for key in keys if key not in arrays]
    if missing:
        raise InputError(f"{missing[0]} is missing beside {keys[0]}; fetch the whole file again")
    data, indices, indptr, shape = (_numbers(arrays[key], key) for key in keys)
    try:
        matrix = scipy.sparse.csr_matrix((data, indices, indptr), shape=tuple(shape.tolist()))
        check_compressed(matrix)
    except (ValueError, TypeError, OverflowError) as error:
        raise InputError(
            f"{', '.join(keys)} are no CSR matrix ({error}); fetch the file again"
        ) from error
    return matrix


def _numbers(value: Any, key: str) -> Any:
    """Return an array or a scipy matrix of an archive, checked to hold numbers."""
    try:
        array = value if scipy.sparse.issparse(value) else np.asarray(value)
    except ValueError as error:
        raise InputError(f"{key} has rows of several lengths; fetch the file again") from error
    if array.dtype.kind not in "biuf":
        raise InputError(
            f"{key} must hold numbers, got {type(value).__name__} of {array.dtype}; fetch the file "
            "again"
        )
    return computable(array)


def _first(arrays: Mapping[str, Any], keys: tuple[str, ...]) -> Any:
    """Return what an archive has under the first of these names that it has; None if none."""
    key = next((key for key in keys if key in arrays), None)
    return None if key is None else _numbers(arrays[key], key)


def _column(labels: Any) -> Any:
    """Return labels that are a single column as a vector."""
    is_column = isinstance(labels, np.ndarray) and labels.ndim == 2 and labels.shape[1] == 1
    return labels[:, 0] if is_column else labels


def _names(names: Any) -> tuple[str, ...] | None:
    """Return the names of classes, a plain or a pickled array; None where they are none."""
    values = names.tolist() if isinstance(names, np.ndarray) else names
    is_text = isinstance(values, list) and all(isinstance(value, str) for value in values)
    return tuple(values) if is_text and values else None
