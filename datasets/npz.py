"""Reader and writer of the `.npz` graph file.

A file holds `edge_index` (2, num_edges), and optionally:

- `num_vertices`
- `features`, or the CSR arrays `features_indptr`, `features_indices`, `features_data` and
  `features_shape`
- `labels`, and the three masks (or two, without `val_mask`)
- `edge_weight`, and `edge_features` (num_edges, num_edge_features)
- the types `edge_type` and `vertex_type`, and `relation_names`
- `vertex_id`, `class_names`, `metric`
- links that are held out of the edges, `val_links` and `test_links` (num, 2)

Nothing in it is ever unpickled.
"""

from __future__ import annotations

import hashlib
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse

from distgnn.datasets.archive import array_names, read_arrays
from distgnn.datasets.errors import InputError, one_line
from distgnn.datasets.graph import Graph
from distgnn.datasets.held_out import num_leaking

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from numpy.typing import NDArray

_LOGGER = logging.getLogger(__name__)

_CSR_KEYS = ("features_indptr", "features_indices", "features_data", "features_shape")
_OPTIONAL_KEYS = (
    "labels",
    "train_mask",
    "val_mask",
    "test_mask",
    "edge_weight",
    "edge_features",
    "edge_type",
    "vertex_type",
    "relation_names",
    "vertex_id",
    "class_names",
    "val_links",
    "test_links",
)
_KNOWN_KEYS = {"edge_index", "num_vertices", "metric", "features", *_CSR_KEYS, *_OPTIONAL_KEYS}
_BLOCK_BYTES = 1 << 20


def read_npz(path: str | Path) -> Graph:
    """Read a graph from an `.npz` file.

    Arrays that a Graph cannot hold (`time`, ...) are listed in `Graph.unused` and named in
    one log record.

    Args:
        path: The file. Its stem becomes the name of the graph.

    Raises:
        InputError: If the file is missing, damaged, of another kind, or contradicts itself.
    """
    path = Path(path)
    try:
        arrays = read_arrays(path, only=_KNOWN_KEYS)
        graph = graph_of_arrays(
            arrays,
            None,
            name=path.stem,
            source=str(path),
            checksum=sha256([path]),
            unused=array_names(path) - _KNOWN_KEYS,
        )
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    log_unused(graph)
    log_leaks(graph)
    return graph


def log_unused(graph: Graph) -> None:
    """Say in the log which arrays of its source a graph does not hold, if there are any."""
    if graph.unused:
        _LOGGER.warning(
            "%s: %s not used",
            graph.source,
            one_line(" and ".join(graph.unused)) + (" is" if len(graph.unused) == 1 else " are"),
        )


def log_leaks(graph: Graph) -> None:
    """Say in the log how many links that a graph holds out are among its edges all the same."""
    count = num_leaking(graph) if graph.has_links else 0
    if count:
        _LOGGER.warning(
            "%s: %d of the links that are held out are edges as well, which gives them away",
            graph.source,
            count,
        )


def write_npz(graph: Graph, path: str | Path) -> None:
    """Write a graph as a compressed `.npz` file that `read_npz` reads back.

    The file appears under its name only when it is complete. The same graph gives the same bytes.

    Args:
        graph: The graph. Its name, source and checksum are not stored.
        path: The file to write; one that exists is replaced.

    Raises:
        InputError: If the folder of the file does not exist, or the file cannot be written.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise InputError(f"{path}: the folder {path.parent} does not exist; create it first")
    # An .npz suffix keeps numpy from appending one to the temporary name.
    temporary = path.with_name(f".{path.name}.{os.getpid()}.npz")
    try:
        with temporary.open("wb") as file:
            np.savez_compressed(file, **arrays_of(graph))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise InputError(
            f"{path}: the file cannot be written ({error.strerror}); choose another path or make "
            "room for it"
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


def sha256(paths: Iterable[Path]) -> str:
    """Return the SHA-256 of the contents of the files, one after the other, in hexadecimal."""
    digest = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            while block := file.read(_BLOCK_BYTES):
                digest.update(block)
    return digest.hexdigest()


def graph_of_arrays(
    arrays: Mapping[str, NDArray[Any]],
    ends: tuple[NDArray[Any], NDArray[Any]] | None,
    *,
    name: str,
    source: str,
    checksum: str,
    unused: Collection[str] = (),
) -> Graph:
    """Build a graph from the arrays of a graph file.

    Args:
        arrays: By name, as the file has them.
        ends: Sources and destinations, where they are no array `edge_index`.
        name: Name of the graph.
        source: The file or folder.
        checksum: SHA-256 of the source.
        unused: Names of arrays of the source that were not read.

    Raises:
        InputError: If an array is missing or they contradict each other.
    """
    ends = _ends(arrays, unused) if ends is None else ends
    features = _features(arrays)
    fields: dict[str, Any] = {key: arrays[key] for key in _OPTIONAL_KEYS if key in arrays}
    for key in ("class_names", "relation_names"):
        if key in fields:
            fields[key] = texts_of(key, fields[key])
    if "metric" in arrays:
        fields["metric"] = "".join(texts_of("metric", arrays["metric"])[:1])
    return Graph(
        name=name,
        num_vertices=_num_vertices(arrays, ends, features),
        src=ends[0],
        dst=ends[1],
        features=features,
        unused=tuple(sorted({*arrays, *unused} - _KNOWN_KEYS)),
        source=source,
        checksum=checksum,
        **fields,
    )


def texts_of(name: str, array: NDArray[Any]) -> tuple[str, ...]:
    """Turn an array of names into texts.

    Args:
        name: Name of the array, for messages.
        array: Names, of any shape.

    Returns:
        The names.

    Raises:
        InputError: If the array holds something else.
    """
    if array.dtype.kind not in "USiufb":
        raise InputError(f"{name} must hold texts, got {array.dtype}; write one text for each")
    try:
        texts = array.reshape(-1).astype(str).tolist()
    except UnicodeDecodeError as error:
        raise InputError(f"{name} has texts that are not ASCII; write them as str") from error
    return tuple(texts)


def _ends(
    arrays: Mapping[str, NDArray[Any]], unused: Collection[str]
) -> tuple[NDArray[Any], NDArray[Any]]:
    if "edge_index" not in arrays:
        found = ", ".join(sorted({*arrays, *unused})) or "nothing"
        raise InputError(
            f"edge_index is missing; a graph file has edge_index of shape (2, num_edges), and "
            f"this one has {found}"
        )
    edge_index = arrays["edge_index"]
    if edge_index.ndim != 2 or edge_index.shape[0] != 2:
        raise InputError(
            f"edge_index must have shape (2, num_edges), got {edge_index.shape}; put sources in "
            "the first row and destinations in the second"
        )
    return edge_index[0], edge_index[1]


def _features(arrays: Mapping[str, NDArray[Any]]) -> Any:
    present = [key for key in _CSR_KEYS if key in arrays]
    if not present:
        return arrays.get("features")
    if "features" in arrays:
        raise InputError(f"features and {present[0]} are both there; keep the dense or the CSR one")
    if len(present) < len(_CSR_KEYS):
        missing = next(key for key in _CSR_KEYS if key not in arrays)
        raise InputError(
            f"{missing} is missing; sparse features are {', '.join(_CSR_KEYS)}, so add it"
        )
    indptr, indices, data, shape = (arrays[key] for key in _CSR_KEYS)
    if not all(array.dtype.kind in "iu" for array in (indptr, indices, shape)):
        raise InputError(
            "features_indptr, features_indices and features_shape must hold integers, got "
            f"{indptr.dtype}, {indices.dtype} and {shape.dtype}; write them as integers"
        )
    # scipy chooses between int32 and int64 by value, but only if none of the arrays is unsigned.
    indptr, indices = indptr.astype(np.int64), indices.astype(np.int64)
    try:
        matrix = scipy.sparse.csr_matrix((data, indices, indptr), shape=tuple(shape.tolist()))
    except (ValueError, TypeError, OverflowError) as error:
        raise InputError(
            f"the CSR arrays of the features contradict each other ({error}); write indptr, "
            "indices, data and shape of one scipy.sparse.csr_matrix"
        ) from error
    return matrix


def _num_vertices(
    arrays: Mapping[str, NDArray[Any]], ends: tuple[NDArray[Any], NDArray[Any]], features: Any
) -> Any:
    """Return `num_vertices`, or what the rows of the other arrays or the ids imply."""
    if "num_vertices" in arrays:
        value = arrays["num_vertices"]
        return value.item() if value.size == 1 else value
    if features is not None and features.ndim > 0:
        return int(features.shape[0])
    if arrays.get("labels") is not None and arrays["labels"].ndim > 0:
        return int(arrays["labels"].shape[0])
    for key in ("vertex_id", "train_mask"):
        if key in arrays and arrays[key].ndim > 0:
            return int(arrays[key].shape[-1])
    given = [ids for ids in ends if ids.size]
    if any(ids.dtype.kind not in "iu" for ids in given):
        return 1  # These are refused by name, once they are checked.
    return max((int(ids.max()) for ids in given), default=-1) + 1


def arrays_of(graph: Graph) -> dict[str, Any]:
    """Return the arrays of a graph file, by name."""
    is_small = graph.num_vertices <= np.iinfo(np.int32).max
    edge_index = np.stack([graph.src, graph.dst]).astype(np.int32 if is_small else np.int64)
    arrays: dict[str, Any] = {
        "edge_index": edge_index,
        "num_vertices": np.asarray(graph.num_vertices),
    }
    if scipy.sparse.issparse(graph.features):
        csr: Any = graph.features
        arrays["features_indptr"] = csr.indptr
        arrays["features_indices"] = csr.indices
        arrays["features_data"] = csr.data
        arrays["features_shape"] = np.asarray(csr.shape, dtype=np.int64)
    elif graph.features is not None:
        arrays["features"] = np.asarray(graph.features)
    for key in _OPTIONAL_KEYS:
        value = getattr(graph, key)
        if value is not None and not (key == "val_mask" and not value.any()):
            arrays[key] = np.asarray(value)
    if graph.metric:
        arrays["metric"] = np.asarray(graph.metric)
    return arrays
