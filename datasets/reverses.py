"""The reverses of edges that lack them, for edges on disk."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from distgnn.datasets.array_folder import (
    allowed_types,
    edge_features_of,
    edge_type_of,
    weight_of,
)
from distgnn.datasets.buckets import Buckets
from distgnn.datasets.edge_file import CHUNK_EDGES, finite_weights
from distgnn.datasets.errors import InputError
from distgnn.datasets.flat_array import FlatWriter

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from distgnn.datasets.edge_file import EdgeFile
    from distgnn.datasets.flat_array import FlatArray

# Edges that are compared at once: about 200 MiB.
_BUCKET_EDGES = 1 << 21
_COMPARED_BYTES = 100
_MOST_BUCKETS = 512
# Factors of Stafford's mixer 13, as in SplitMix64.
_FACTORS = np.array([0xBF58476D1CE4E5B9, 0x94D049BB133111EB], np.uint64)
_PLAIN_BYTES = 12


@dataclass(frozen=True)
class EdgeValues:
    """Values of edges on disk; None for those that they do not have."""

    weights: FlatArray | None = None
    """(num_edges,) numbers."""
    features: FlatArray | None = None
    """(num_edges * num_features,) numbers, row by row."""
    types: FlatArray | None = None
    """(num_edges,) integers."""
    num_features: int = 0

    def record(self) -> np.dtype[Any]:
        """Return the record of an edge: its key, and its values by the name of their file."""
        fields: list[Any] = [("key", np.int64)]
        if self.weights is not None:
            fields.append(("edge_weight", np.float32))
        if self.features is not None:
            fields.append(("edge_features", np.float32, (self.num_features,)))
        if self.types is not None:
            fields.append(("edge_type", np.int32))
        return np.dtype(fields)

    def read(self, start: int, records: NDArray[Any]) -> None:
        """Read the values of edges into their records.

        Args:
            start: The first edge.
            records: (any size,) of the dtype `record`.

        Raises:
            InputError: If a value is not finite in float32, a type is out of range, or a file has
                become shorter.
        """
        stop = start + records.size
        if self.weights is not None:
            weight = self.weights.read(start, stop)
            records["edge_weight"] = finite_weights(weight, self.weights.path, start)
        if self.features is not None:
            width = self.num_features
            rows = self.features.read(start * width, stop * width).reshape(-1, width)
            records["edge_features"] = _finite_features(rows, self.features.path, start)
        if self.types is not None:
            records["edge_type"] = allowed_types(self.types, start, stop)


def values_of(folder: Path, num_edges: int) -> EdgeValues:
    """Open what the edges of an array folder have beside their ends.

    Args:
        folder: The folder.
        num_edges: How many edges it has.

    Raises:
        InputError: If an array is damaged or does not fit the edges.
    """
    features, num_features = edge_features_of(folder, num_edges)
    return EdgeValues(
        weights=weight_of(folder, num_edges),
        features=features,
        types=edge_type_of(folder, num_edges),
        num_features=num_features,
    )


def add_reverses(
    edges: EdgeFile, values: EdgeValues, folder: Path, *, bucket_edges: int = _BUCKET_EDGES
) -> None:
    """Write the edges, then the reverse of every edge whose reverse is missing, of equal values.

    Self-loops are their own reverse, and the reverse of an edge has its type. The outcome has the
    edges of `sources.add_reverse_edges`.

    Args:
        edges: The edges.
        values: Their weights, features and types.
        folder: Where `src.npy`, `dst.npy` and an array for each of the values are written. While it
            works, 8 bytes an edge are there besides, and 4 for its weight, its type and each of its
            features.
        bucket_edges: How many of them are compared at once, about; about 100 bytes each. With
            types or features they are fewer, and take no more.

    Raises:
        InputError: If a weight or a feature is not finite in float32, a type is out of range, or a
            file has become shorter.
        OSError: If the disk is full.
    """
    kind = values.record()
    names = kind.names or ()
    more_bytes = 8 * values.num_features + _COMPARED_BYTES * (values.types is not None)
    bucket_edges = max(bucket_edges * _COMPARED_BYTES // (_COMPARED_BYTES + more_bytes), 1)
    chunk_edges = CHUNK_EDGES * _PLAIN_BYTES // max(kind.itemsize, _PLAIN_BYTES)
    num_buckets = min(max(-(-edges.num_edges // bucket_edges), 1), _MOST_BUCKETS)
    num_vertices = edges.num_vertices
    with ExitStack() as stack:
        buckets = stack.enter_context(Buckets(folder, num_buckets, kind))
        writers = [
            stack.enter_context(FlatWriter(folder / f"{name}.npy", edges.src.dtype))
            for name in ("src", "dst")
        ]
        for name in names[1:]:
            base, shape = kind[name].base, kind[name].shape
            writer = FlatWriter(folder / f"{name}.npy", base, num_columns=sum(shape))
            writers.append(stack.enter_context(writer))
        for start, src, dst in edges.chunks(max(chunk_edges, 1)):
            records = np.zeros(src.size, kind)
            records["key"] = src.astype(np.int64) * num_vertices + dst
            values.read(start, records)
            columns = (src, dst, *(records[name] for name in names[1:]))
            for writer, column in zip(writers, columns, strict=True):
                writer.append(column)
            buckets.throw(records, buckets_of(src, dst, num_vertices, num_buckets))
        for bucket in range(num_buckets):
            records = buckets.take(bucket)
            src, dst = np.divmod(records["key"], num_vertices)
            key, reverse = records["key"], dst * num_vertices + src
            if values.types is not None:
                key, reverse = _typed(key, reverse, records["edge_type"])
            is_missing = ~np.isin(reverse, key)
            columns = (dst, src, *(records[name] for name in names[1:]))
            for writer, column in zip(writers, columns, strict=True):
                writer.append(column[is_missing])


def _typed(
    key: NDArray[np.int64], reverse: NDArray[np.int64], types: NDArray[np.int32]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return keys of edges and their reverses that differ where the types do."""
    # Numbered first: ends and a type of a large graph do not fit into 64 bits together.
    _, number = np.unique(np.concatenate([key, reverse]), return_inverse=True)
    keys = number.reshape(2, -1) * (int(types.max(initial=0)) + 1) + types
    return keys[0], keys[1]


def _finite_features(rows: NDArray[Any], path: Path, start: int) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):
        found = rows.astype(np.float32)
    is_bad = ~np.isfinite(found)
    if is_bad.any():
        row, column = (int(one) for one in np.argwhere(is_bad)[0])
        raise InputError(
            f"{path}: edge {start + row} has {rows[row, column]:g} in column {column}, but every "
            "feature must be finite in float32; correct it"
        )
    return found


def buckets_of(
    src: NDArray[np.integer[Any]],
    dst: NDArray[np.integer[Any]],
    num_vertices: int,
    num_buckets: int,
) -> NDArray[np.uint64]:
    """Choose buckets of about equal size for edges, whatever the degrees of the vertices.

    Args:
        src: (num_edges,) integers.
        dst: (num_edges,) integers.
        num_vertices: At least 1.
        num_buckets: From 1 to 65536.

    Returns:
        (num_edges,) The same for an edge, its copies and its reverse.
    """
    key: NDArray[np.uint64] = np.minimum(src, dst).astype(np.uint64)
    key *= np.uint64(num_vertices)
    key += np.maximum(src, dst).astype(np.uint64)
    # Ids of hubs are often beside each other: buckets by ranges of ids would not be equal.
    for factor in _FACTORS:
        key ^= key >> np.uint64(30)
        key *= factor
    key >>= np.uint64(48)
    key *= np.uint64(num_buckets)
    key >>= np.uint64(16)
    return key
