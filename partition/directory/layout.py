"""The arrays of one part's folder: their names, dtypes and shapes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from distgnn.datasets.errors import InputError
from distgnn.partition.build import Part
from distgnn.partition.directory.manifest import Manifest

SPARSE_FEATURES = ("features_indptr", "features_indices", "features_data")
MASKS = ("train_mask", "val_mask", "test_mask")
LINKS = ("val_links", "test_links")


@dataclass(frozen=True)
class ArraySpec:
    """Type and shape that a file must have. A size of None is not known before it is read."""

    dtype: str
    shape: tuple[int | None, ...]

    def mismatch(self, array: NDArray[Any]) -> str:
        """Say how an array differs from this, in words, or return "" if it does not."""
        # The name of a string's dtype contains its length, which is free.
        dtype = "str" if array.dtype.kind == "U" else array.dtype.name
        if dtype not in self.dtype.split(" or "):
            return f"is {dtype}, not {self.dtype}"
        if len(array.shape) != len(self.shape) or any(
            expected is not None and got != expected
            for got, expected in zip(array.shape, self.shape, strict=True)
        ):
            return f"has shape {array.shape}, not {self.shape}"
        return ""


def part_folder(part: int) -> str:
    """Name of a part's folder inside a partition directory."""
    return f"part-{part:04d}"


def part_specs(manifest: Manifest, part: int) -> dict[str, ArraySpec]:
    """List the arrays of one part.

    Args:
        manifest: The manifest of the partition.
        part: Number of the part.

    Returns:
        Specification per array name, optional ones only where the manifest has their file.
    """
    counts, parts = manifest.parts[part], manifest.num_parts
    roots, leaves, edges = counts.num_roots, counts.num_leaves, counts.num_edges
    clones, splits = roots + leaves, manifest.num_splits
    specs = {
        "global_id": ArraySpec("int64", (clones,)),
        "indptr": ArraySpec("int64", (clones + 1,)),
        "indices": ArraySpec("int32", (edges,)),
        "t_indptr": ArraySpec("int64", (clones + 1,)),
        "t_indices": ArraySpec("int32", (edges,)),
        "t_edge": ArraySpec("int64", (edges,)),
        "leaf_counts": ArraySpec("int64", (parts,)),
        "is_reading": ArraySpec("bool", (leaves,)),
        "is_writing": ArraySpec("bool", (leaves,)),
        "send_counts": ArraySpec("int64", (parts,)),
        "send_rows": ArraySpec("int32", (None,)),
        "reduce_counts": ArraySpec("int64", (parts,)),
        "reduce_rows": ArraySpec("int32", (None,)),
        "in_degree": ArraySpec("int64", (clones,)),
        "out_degree": ArraySpec("int64", (clones,)),
        "self_loops": ArraySpec("int32", (roots,)),
    }
    if manifest.has_sparse_features:
        nnz = counts.feature_nnz
        specs["features_indptr"] = ArraySpec("int64", (roots + 1,))
        specs["features_indices"] = ArraySpec("int32", (nnz,))
        specs["features_data"] = ArraySpec("float32", (nnz,))
    elif manifest.num_features:
        specs["features"] = ArraySpec("float32", (roots, manifest.num_features))
    if manifest.is_multilabel:
        specs["labels"] = ArraySpec("uint8", (roots, manifest.num_classes))
    elif manifest.is_regression:
        specs["labels"] = ArraySpec("float32", (roots, manifest.num_classes))
    elif manifest.has_labels:
        specs["labels"] = ArraySpec("int64", (roots,))
    if splits:
        specs.update({name: ArraySpec("bool", (splits, roots)) for name in MASKS})
    if manifest.num_edge_features:
        specs["edge_features"] = ArraySpec("float32", (edges, manifest.num_edge_features))
    if manifest.num_relations:
        specs["edge_type"] = specs["relation_degree"] = ArraySpec("int32", (edges,))
    if manifest.num_vertex_types:
        specs["vertex_type"] = ArraySpec("int64", (clones,))
    for name, spec in {
        "edge_weight": ArraySpec("float32", (edges,)),
        "vertex_id": ArraySpec("int64 or str", (roots,)),
        "val_links": ArraySpec("int64", (None, 2)),
        "test_links": ArraySpec("int64", (None, 2)),
    }.items():
        if f"{part_folder(part)}/{name}.npy" in manifest.files:
            specs[name] = spec
    return specs


def part_arrays(part: Part) -> dict[str, NDArray[Any]]:
    """Take a part apart into the arrays that are stored.

    Args:
        part: The part.

    Returns:
        Array per name; absent data has no entry.
    """
    values = {name: value for name, value in vars(part).items() if isinstance(value, np.ndarray)}
    if part.features is not None and not isinstance(part.features, np.ndarray):
        values["features_indptr"] = part.features.indptr.astype(np.int64)
        values["features_indices"] = part.features.indices.astype(np.int32)
        values["features_data"] = part.features.data
    return values


def check_ranges(part: Part, manifest: Manifest, *, every_edge: bool) -> None:
    """Check that no row number of a part leads outside its arrays, and no type is unknown.

    Args:
        part: The part as read.
        manifest: Manifest of its partition.
        every_edge: Whether to look at what has one entry per edge, too.

    Raises:
        InputError: If one does. The message names the array, the caller adds the directory.
    """
    ids = part.global_id
    check_below("global_id", ids, manifest.num_vertices)
    for name in ("indptr", "t_indptr"):
        _check_pointers(name, getattr(part, name), part.num_edges)
    for rows, counts in (("send_rows", "send_counts"), ("reduce_rows", "reduce_counts")):
        check_below(rows, getattr(part, rows), part.num_roots)
        _check_total(counts, getattr(part, counts), getattr(part, rows).size)
    _check_total("leaf_counts", part.leaf_counts, part.num_leaves)
    if every_edge:
        check_below("indices", part.indices, part.num_clones)
        check_below("t_indices", part.t_indices, part.num_clones)
        check_below("t_edge", part.edges_of_transpose(), part.num_edges)
        if part.edge_type is not None:
            check_below("edge_type", part.edge_type, manifest.num_relations)
    for name in LINKS:
        links = getattr(part, name)
        if links is not None:
            check_below(name, links, manifest.num_vertices)
    if part.vertex_type is not None:
        check_below("vertex_type", part.vertex_type, manifest.num_vertex_types)


def sparse_features(arrays: dict[str, NDArray[Any]], num_features: int) -> sp.csr_matrix:
    """Put sparse features together again.

    Args:
        arrays: Holds the three arrays of SPARSE_FEATURES.
        num_features: Number of columns.

    Returns:
        (num_roots, num_features) CSR that shares the arrays' memory.

    Raises:
        InputError: If the row pointers do not fit the entries or a column is out of range.
    """
    indptr, indices, data = (arrays[name] for name in SPARSE_FEATURES)
    _check_pointers("features_indptr", indptr, indices.size)
    check_below("features_indices", indices, num_features)
    return sp.csr_matrix((data, indices, indptr), shape=(indptr.size - 1, num_features), copy=False)


def _check_pointers(name: str, pointers: NDArray[np.int64], total: int) -> None:
    if pointers[0] != 0 or pointers[-1] != total or np.any(pointers[1:] < pointers[:-1]):
        raise InputError(f"{name} does not ascend from 0 to {total}")


def check_below(name: str, values: NDArray[Any], limit: int) -> None:
    """Check that row numbers, or ids, are at least 0 and below a limit.

    Args:
        name: Name of the array, for the message.
        values: Whole numbers.
        limit: One more than the largest that is allowed.

    Raises:
        InputError: If one is not.
    """
    if values.size and (values.min() < 0 or values.max() >= limit):
        raise InputError(
            f"{name} holds {values.min()}..{values.max()}, but may hold 0..{limit - 1}"
        )


def _check_total(name: str, counts: NDArray[np.int64], total: int) -> None:
    # A count above the total could make the sum wrap round.
    if counts.size and (counts.min() < 0 or counts.max() > total or counts.sum() != total):
        raise InputError(f"{name} does not add up to {total}")
