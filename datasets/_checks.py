"""Conversion and validation of the fields of a Graph, one function a field.

Each function returns the converted array or raises `InputError` with the first offending value,
the allowed range and the remedy.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse

from distgnn.datasets.errors import InputError, is_writable
from distgnn.datasets.files import check_room

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

# Finite values are checked in blocks, so that the check needs 16 MiB beside any matrix.
_VALUES_PER_BLOCK = 1 << 24
# Whatever is made of a graph has a number of each vertex.
_VERTEX_BYTES = 8
# More classes than vertices are a mistake that ends as a lack of memory, but a small piece of a
# graph may keep the class numbers of the whole.
_ALWAYS_ALLOWED_CLASSES = 1000
MOST_TYPES = 1 << 16
"""Most relations: each has weights of its own, and more are ids taken for types."""
_OF_VERTICES = ("features", "vertex")
UNKNOWN_FLAG = 255
"""A label of several, as uint8, of which nobody knows whether the vertex has it."""


def _names(value: Sequence[str]) -> tuple[str, ...]:
    names = tuple(str(name) for name in value)
    for name in names:
        if not is_writable(name):
            raise InputError(
                f"the name {name!r} has characters that do not exist in Unicode; write it anew"
            )
    return names


def check_unmasked(fields: Mapping[str, Any]) -> None:
    """Refuse masked values: what is hidden below them would be taken for data.

    Args:
        fields: The fields as they were given.

    Raises:
        InputError: If a value of an array is masked.
    """
    for name, value in fields.items():
        if isinstance(value, np.ma.MaskedArray) and (
            count := np.count_nonzero(np.ma.getmaskarray(value))
        ):
            raise InputError(
                f"{name} has {count} masked values, below which arbitrary numbers lie; replace "
                f"them, for instance by numpy.ma.filled({name}, 0)"
            )


def vertex_count(value: Any) -> int:
    """Return the number of vertices as a positive int."""
    try:
        array = np.asarray(value)
    except ValueError:  # lists of several lengths
        array = np.zeros((0,))
    if array.ndim != 0 or array.dtype.kind not in "iu" or int(array) < 1:
        raise InputError(
            f"num_vertices must be a whole number of at least 1, got {value!r}; "
            "give the number of vertices of the graph"
        )
    # A small file may promise any number.
    check_room(_VERTEX_BYTES * int(array), f"a graph of {int(array)} vertices")
    return int(array)


def edges(src: Any, dst: Any, num_vertices: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return both ends of the edges as (num_edges,) int64, every id in [0, num_vertices)."""
    ends = _integers(src, "src"), _integers(dst, "dst")
    if ends[0].shape != ends[1].shape:
        raise InputError(
            f"src has {ends[0].size} edges and dst has {ends[1].size}; "
            "give one source and one destination for each edge"
        )
    for ids, verb in zip(ends, ("leaves", "points to"), strict=True):
        if ids.size and (int(ids.min()) < 0 or int(ids.max()) >= num_vertices):
            edge = int(np.argmax((ids < 0) | (ids >= num_vertices)))
            raise InputError(
                f"edge {edge} {verb} vertex {ids[edge]}, but the graph has {num_vertices} "
                f"vertices (0..{num_vertices - 1}); correct the id or num_vertices"
            )
    return ends[0].astype(np.int64, copy=False), ends[1].astype(np.int64, copy=False)


def _integers(array: Any, name: str) -> NDArray[np.integer[Any]]:
    array = np.asarray(array)
    if array.ndim != 1:
        raise InputError(
            f"{name} must have shape (num_edges,), got {array.shape}; pass one id for each edge"
        )
    if array.dtype.kind not in "iu" and array.size:
        raise InputError(
            f"{name} must hold integers, got {array.dtype}; number the vertices from 0"
        )
    return np.ascontiguousarray(array if array.size else array.astype(np.int64))


def computable(numbers: Any) -> Any:
    """Return an array or a scipy matrix as scipy can compute with it: in native bytes, no float16.

    Args:
        numbers: Array or matrix of any type of numbers.
    """
    kind = numbers.dtype.newbyteorder("=")
    kind = np.dtype(np.float32) if kind == np.float16 else kind
    return numbers if kind == numbers.dtype else numbers.astype(kind)


def features(value: Any, num_vertices: int) -> NDArray[np.float32] | scipy.sparse.csr_matrix:
    """Return (num_vertices, num_features) float32, dense C-contiguous or canonical CSR."""
    is_sparse = scipy.sparse.issparse(value)
    matrix = value if is_sparse else np.asarray(value)
    if matrix.ndim != 2 or matrix.shape[0] != num_vertices or matrix.shape[1] == 0:
        raise InputError(
            f"features must have shape ({num_vertices}, num_features) with at least one column, "
            f"got {matrix.shape}; give one row for each vertex, or no features at all"
        )
    if matrix.dtype.kind not in "fiub":
        raise InputError(
            f"features must hold numbers, got {matrix.dtype}; encode categories as numbers"
        )
    if not is_sparse:
        with np.errstate(over="ignore"):  # what overflows float32 is reported as not finite
            dense = np.ascontiguousarray(matrix, dtype=np.float32)
        _check_finite(dense, None)
        return dense
    return _sparse_features(matrix)


def _sparse_features(matrix: Any) -> scipy.sparse.csr_matrix:
    try:
        # Before it is converted as well: to convert a CSC matrix, scipy writes where it points.
        if matrix.format == "csc":
            check_compressed(matrix)
        sparse = scipy.sparse.csr_matrix(computable(matrix))
        check_compressed(sparse)
    except ValueError as error:
        raise InputError(
            f"the sparse features are not a valid CSR matrix ({error}); build them with scipy "
            "and store its indptr, indices and data"
        ) from error
    with np.errstate(over="ignore"):
        sparse = sparse.astype(np.float32, copy=False)
    if not sparse.has_canonical_format:
        # Sorting happens in place, and the arrays may belong to the caller.
        sparse = sparse.copy()
        sparse.sum_duplicates()
    _check_finite(sparse.data, sparse.indptr)
    return sparse


def check_compressed(matrix: Any) -> None:
    """Check the arrays of a CSR or CSC matrix, so that scipy reads and writes within them.

    scipy's own check looks at no array of a matrix whose row pointer ends at 0 or below, and
    subtracts neighbours of the pointer, which overflows. Of such a matrix, scipy would sort memory
    that is not the matrix's own.

    Args:
        matrix: (rows, columns), of `scipy.sparse`.

    Raises:
        ValueError: If one of the arrays is unsound.
    """
    if (matrix.indptr[1:] < matrix.indptr[:-1]).any():
        raise ValueError("indptr must be a non-decreasing sequence")
    matrix.check_format(full_check=True)


def _check_finite(
    values: NDArray[np.float32], indptr: NDArray[Any] | None, of: tuple[str, str] = _OF_VERTICES
) -> None:
    """Reject NaN and infinity in a dense matrix, or in CSR values with their row pointer.

    The message names the matrix and what has a row in it, as `of` does.
    """
    flat = values.reshape(-1)
    num_bad, first = 0, -1
    for begin in range(0, flat.size, _VALUES_PER_BLOCK):
        bad = ~np.isfinite(flat[begin : begin + _VALUES_PER_BLOCK])
        in_block = int(np.count_nonzero(bad))
        if in_block and first < 0:
            first = begin + int(np.argmax(bad))
        num_bad += in_block
    if num_bad:
        if indptr is None:
            row = first // values.shape[1]
        else:
            row = int(np.searchsorted(indptr, first, side="right")) - 1
        raise InputError(
            f"{of[0]} have {num_bad} values that are NaN or infinite in float32, the first at "
            f"{of[1]} {row} ({flat[first]}); every value must be finite, so replace or drop them"
        )


def labels(
    value: Any, num_vertices: int
) -> NDArray[np.int64] | NDArray[np.uint8] | NDArray[np.float32]:
    """Return classes (num_vertices,) int64, flags (num_vertices, T) uint8, or values float32."""
    array = np.asarray(value)
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    if array.ndim not in (1, 2) or array.shape[0] != num_vertices or 0 in array.shape:
        raise InputError(
            f"labels must have shape ({num_vertices},) or ({num_vertices}, num_labels), "
            f"got {array.shape}; give one label or one row of 0 and 1 for each vertex"
        )
    # One column of values may hold nothing but 0 and 1; a Graph made of a Graph keeps it.
    is_column = array.ndim == 1 or array.shape[1] == 1
    if array.dtype == np.float32 and (is_column or not _flags(array).all()):
        return _values(array.reshape(len(array), -1))
    return _classes(array) if array.ndim == 1 else _multilabel(array)


def _values(array: NDArray[np.float32]) -> NDArray[np.float32]:
    if np.isinf(array).any():
        vertex, column = (int(i) for i in np.argwhere(np.isinf(array))[0])
        raise InputError(
            f"vertex {vertex} has the value {array[vertex, column]} in label column {column}, but "
            "values to be learned are finite, or NaN where they are not known; correct it"
        )
    return np.ascontiguousarray(array)


def _flags(array: NDArray[Any]) -> NDArray[np.bool_]:
    """Return where an array holds 0, 1, or its type's mark for unknown values."""
    is_unknown = array == UNKNOWN_FLAG if array.dtype == np.uint8 else array != array
    found: NDArray[np.bool_] = (array == 0) | (array == 1) | is_unknown
    return found


def _classes(array: NDArray[Any]) -> NDArray[np.int64]:
    if array.dtype.kind not in "iub":
        raise InputError(
            f"labels must hold integers, got {array.dtype}; number the classes from 0 and write "
            "-1 for an unlabelled vertex, or give float32 for values to be learned"
        )
    limit = max(array.size, _ALWAYS_ALLOWED_CLASSES)
    if int(array.max()) >= limit:
        vertex = int(np.argmax(array))
        raise InputError(
            f"vertex {vertex} has label {array[vertex]}, but the labels of {array.size} vertices "
            f"may be at most {limit - 1}; number the classes from 0 without gaps, "
            "or store float32 for values to be learned (--task regression of a table)"
        )
    converted = np.ascontiguousarray(array, dtype=np.int64)
    if int(converted.min()) < -1:
        vertex = int(np.argmax(converted < -1))
        raise InputError(
            f"vertex {vertex} has label {array[vertex]}, but labels are -1 (unlabelled), 0, 1, "
            "...; correct it, or store float32 for values to be learned (--task regression of a "
            "table)"
        )
    return converted


def _multilabel(array: NDArray[Any]) -> NDArray[np.uint8]:
    if array.dtype.kind not in "iubf":
        raise InputError(
            f"labels of shape {array.shape} must hold 0 and 1, got {array.dtype}; write one "
            "column of 0 and 1 for each label"
        )
    bad = ~_flags(array)
    if bad.any():
        vertex, column = (int(i) for i in np.argwhere(bad)[0])
        raise InputError(
            f"vertex {vertex} has value {array[vertex, column]} in label column {column}, but "
            "labels with several columns are 0 or 1; correct it, or give one column of classes"
        )
    # Only floats have NaN, and not every integer has room for the word that stands for it.
    known = np.where(array != array, UNKNOWN_FLAG, array) if array.dtype.kind == "f" else array
    return np.ascontiguousarray(known, dtype=np.uint8)


def edge_weight(value: Any, num_edges: int) -> NDArray[np.float32]:
    """Return the weights as finite (num_edges,) float32."""
    array = np.asarray(value)
    if array.shape != (num_edges,) or array.dtype.kind not in "fiub":
        raise InputError(
            f"edge_weight must hold {num_edges} numbers, one for each edge, got {array.dtype} of "
            f"shape {array.shape}; correct it or leave it out"
        )
    with np.errstate(over="ignore"):
        weight = np.ascontiguousarray(array, dtype=np.float32)
    bad = ~np.isfinite(weight)
    if bad.any():
        raise InputError(
            f"edge_weight has {int(np.count_nonzero(bad))} values that are NaN or infinite in "
            f"float32, the first at edge {int(np.argmax(bad))}; every weight must be finite"
        )
    return weight


def edge_features(value: Any, num_edges: int) -> NDArray[np.float32]:
    """Return the features of edges, (num_edges, num_edge_features) float32, C-contiguous."""
    matrix = np.asarray(value)
    is_table = matrix.ndim == 2 and matrix.shape[0] == num_edges and matrix.shape[1] > 0
    if not is_table or matrix.dtype.kind not in "fiub":
        raise InputError(
            f"edge_features must hold numbers of shape ({num_edges}, num_edge_features) with at "
            f"least one column, got {matrix.dtype} of shape {matrix.shape}; give one row for each "
            "edge, or leave them out"
        )
    with np.errstate(over="ignore"):  # what overflows float32 is reported as not finite
        dense = np.ascontiguousarray(matrix, dtype=np.float32)
    _check_finite(dense, None, ("edge_features", "edge"))
    return dense


def types(value: Any, name: str, count: int, *, start: int = 0) -> NDArray[np.int64]:
    """Return the types of edges or vertices as (count,) int64, each at least 0.

    Args:
        value: The types.
        name: edge_type or vertex_type.
        count: How many there must be.
        start: Number of the first edge or vertex, for messages.
    """
    array = np.asarray(value)
    one = name.removesuffix("_type")
    if array.shape != (count,) or array.dtype.kind not in "iu":
        raise InputError(
            f"{name} must hold {count} integers, one for each {one}, got {array.dtype} of shape "
            f"{array.shape}; number the types from 0, or leave it out"
        )
    converted = np.ascontiguousarray(array, dtype=np.int64)
    bad = (converted < 0) | (converted >= MOST_TYPES)
    if bad.any():
        first = int(np.argmax(bad))
        raise InputError(
            f"{one} {start + first} has type {array[first]}, but types are 0, 1, 2, ..., at most "
            f"{MOST_TYPES - 1}; number them from 0 without gaps"
        )
    return converted


def relation_names(value: Sequence[str], edge_type: NDArray[Any] | None) -> tuple[str, ...]:
    """Return the names of the relations, at least one for each type of edges in use."""
    names = _names(value)
    used = 0 if edge_type is None else int(edge_type.max(initial=-1)) + 1
    if edge_type is None or len(names) < max(used, 1) or len(names) > MOST_TYPES:
        raise InputError(
            f"relation_names has {len(names)} names, but edge_type uses {used} relations; give "
            "one name for each relation"
        )
    return names


def vertex_id(value: Any, num_vertices: int) -> NDArray[np.int64] | NDArray[np.str_]:
    """Return the ids of the input as (num_vertices,) int64 or str without repetitions."""
    array = np.asarray(value)
    if array.shape != (num_vertices,) or array.dtype.kind not in "iuU":
        raise InputError(
            f"vertex_id must hold {num_vertices} integers or strings, got {array.dtype} of shape "
            f"{array.shape}; give one id for each vertex"
        )
    if array.dtype.kind == "u" and array.size and int(array.max()) > np.iinfo(np.int64).max:
        array = array.astype(np.str_)  # as tables have them
    # Parts are written, and read again slice by slice, in the byte order of this machine.
    kind = array.dtype.newbyteorder("=") if array.dtype.kind == "U" else np.dtype(np.int64)
    ids = np.ascontiguousarray(array, dtype=kind)
    in_order = np.sort(ids)
    repeated = in_order[1:] == in_order[:-1]
    if repeated.any():
        raise InputError(
            f"vertex id {in_order[int(np.argmax(repeated))]!s} occurs more than once among "
            f"{num_vertices} vertices; every vertex needs its own id, so drop the repetitions"
        )
    return ids


def links(value: Any, name: str, num_vertices: int) -> NDArray[np.int64]:
    """Return links as (num, 2) int64, the smaller id first.

    Args:
        value: (num, 2) integers.
        name: Name of the array, for messages.
        num_vertices: Number of vertices of the graph.

    Raises:
        InputError: If they have another shape or type, or one leads outside the graph or to itself.
    """
    pairs = np.asarray(value)
    if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind not in "iu":
        raise InputError(
            f"{name} must hold integers of shape (num, 2), got {pairs.dtype} of shape "
            f"{pairs.shape}; give both ends of each link in a row"
        )
    is_bad = ((pairs < 0) | (pairs >= num_vertices)).any(axis=1) | (pairs[:, 0] == pairs[:, 1])
    if is_bad.any():
        row = int(np.argmax(is_bad))
        raise InputError(
            f"{name} holds the link {pairs[row].tolist()} in row {row}, but a link joins two "
            f"different vertices of 0..{num_vertices - 1}; correct it"
        )
    ordered: NDArray[np.int64] = np.sort(pairs.astype(np.int64), axis=1)
    return ordered


def class_names(value: Sequence[str], labels: NDArray[Any] | None) -> tuple[str, ...]:
    """Return the names of the classes, at least one for each class in use."""
    names = _names(value)
    used = 0
    if labels is not None:
        used = int(labels.shape[1]) if labels.ndim == 2 else int(labels.max()) + 1
    is_wrong = len(names) < used or (labels is not None and labels.ndim == 2 and len(names) > used)
    if labels is None or is_wrong:
        raise InputError(
            f"class_names has {len(names)} names, but the labels use {used} classes; give one "
            "name for each class"
        )
    return names


def masks(
    given: Mapping[str, Any], labels: NDArray[Any] | None, num_vertices: int
) -> dict[str, NDArray[np.bool_]]:
    """Return the masks as (num_splits, num_vertices) bool, disjoint and non-empty; {} for none.

    Some published splits have no validation vertices: without a val_mask no vertex is in it.
    """
    missing = [key for key, mask in given.items() if mask is None]
    if len(missing) == len(given):
        return {}
    if missing == ["val"]:
        given = {**given, "val": np.zeros_like(np.asarray(given["train"]), dtype=bool)}
    elif missing:
        raise InputError(
            f"{missing[0]}_mask is missing, but a split has train_mask, test_mask and perhaps "
            "val_mask; give them, or none and choose a random split"
        )
    if labels is None:
        raise InputError(
            "the graph has train_mask, val_mask and test_mask but no labels; give labels or "
            "leave out the masks"
        )
    converted = {key: _mask(mask, key, num_vertices) for key, mask in given.items()}
    counts = {mask.shape[0] for mask in converted.values()}
    if len(counts) > 1:
        shapes = ", ".join(f"{key}_mask {mask.shape}" for key, mask in converted.items())
        raise InputError(f"the masks have different numbers of splits ({shapes}); make them equal")
    if labels.dtype == np.uint8:
        converted = _without_unknown_flags(converted, labels)
    _check_splits(converted)
    _check_labelled(converted, labels)
    return converted


def check_links_apart(
    val_links: NDArray[np.int64], test_links: NDArray[np.int64], num_vertices: int
) -> None:
    """Reject a link that chooses the best epoch and is measured on as well.

    Args:
        val_links: (num, 2), the smaller id first.
        test_links: (num, 2), like these.
        num_vertices: Number of vertices of the graph.
    """
    val, test = (pairs[:, 0] * num_vertices + pairs[:, 1] for pairs in (val_links, test_links))
    both = np.isin(test, val)
    if both.any():
        row = int(np.argmax(both))
        raise InputError(
            f"the link {test_links[row].tolist()} in row {row} of test_links is in val_links, too "
            f"({int(both.sum())} rows are); a link may be in one of them, so take it out of the "
            "other"
        )


def _without_unknown_flags(
    given: Mapping[str, NDArray[np.bool_]], labels: NDArray[Any]
) -> dict[str, NDArray[np.bool_]]:
    """Take vertices whose flags are all unknown out of masks, which earlier splits drew from."""
    is_unknown = without_label(labels)
    num_taken = int((is_unknown & np.any([m.any(axis=0) for m in given.values()], axis=0)).sum())
    if not num_taken:
        return dict(given)
    warnings.warn(
        f"the masks select {num_taken} vertices whose flags are all unknown; they are left out",
        stacklevel=5,  # whoever makes the graph
    )
    return {key: mask & ~is_unknown for key, mask in given.items()}


def _mask(value: Any, key: str, num_vertices: int) -> NDArray[np.bool_]:
    array = np.asarray(value)
    if array.dtype.kind != "b":
        raise InputError(
            f"{key}_mask must be bool, got {array.dtype}; mark each vertex with True or False "
            "rather than listing vertices"
        )
    if array.ndim not in (1, 2) or array.shape[-1] != num_vertices or array.shape[0] == 0:
        raise InputError(
            f"{key}_mask must have shape ({num_vertices},) or (num_splits, {num_vertices}), "
            f"got {array.shape}; give one value for each vertex"
        )
    return np.ascontiguousarray(np.atleast_2d(array))


def _check_splits(given: Mapping[str, NDArray[np.bool_]]) -> None:
    for key, mask in given.items():
        empty = ~mask.any(axis=1)
        if key == "val" and empty.all():
            continue  # a source without validation vertices
        if empty.any():
            raise InputError(
                f"{key}_mask of split {int(np.argmax(empty))} selects no vertex; it needs at "
                "least one, so choose another split"
            )
    for first, second in (("train", "val"), ("train", "test"), ("val", "test")):
        both = given[first] & given[second]
        if both.any():
            split, vertex = (int(i) for i in np.argwhere(both)[0])
            raise InputError(
                f"vertex {vertex} is in both {first}_mask and {second}_mask of split {split} "
                f"({int(both[split].sum())} vertices are); a vertex may be in one of them, so "
                "clear it in the other"
            )


def without_label(labels: NDArray[Any]) -> NDArray[np.bool_]:
    """Say of each vertex whether nothing is known of its label.

    Args:
        labels: Labels of a graph: classes, flags or values.

    Returns:
        (num_vertices,) bool. A row of flags that are all 0 is an answer: none of the labels.
    """
    if labels.dtype == np.uint8:
        return np.asarray((labels == UNKNOWN_FLAG).all(axis=1))
    return labels < 0 if labels.ndim == 1 else np.asarray(np.isnan(labels).all(axis=1))


def _check_labelled(given: Mapping[str, NDArray[np.bool_]], labels: NDArray[Any]) -> None:
    is_unlabelled = without_label(labels)
    for key, mask in given.items():
        unlabelled = mask & is_unlabelled
        if unlabelled.any():
            split, vertex = (int(i) for i in np.argwhere(unlabelled)[0])
            raise InputError(
                f"{key}_mask of split {split} selects vertex {vertex}, which has no label "
                f"({int(unlabelled[split].sum())} vertices are so); clear it or give it a label"
            )
