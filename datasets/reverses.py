"""The reverses of edges that lack them, for edges on disk."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np

from distgnn.datasets.buckets import Buckets
from distgnn.datasets.edge_file import finite_weights
from distgnn.datasets.flat_array import FlatWriter

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from distgnn.datasets.edge_file import EdgeFile
    from distgnn.datasets.flat_array import FlatArray

# Edges that are compared at once: about 200 MiB.
_BUCKET_EDGES = 1 << 21
_MOST_BUCKETS = 512
# Factors of Stafford's mixer 13, as in SplitMix64.
_FACTORS = np.array([0xBF58476D1CE4E5B9, 0x94D049BB133111EB], np.uint64)
_EDGE = np.dtype([("key", np.int64), ("weight", np.float32)])


def add_reverses(
    edges: EdgeFile, weights: FlatArray | None, folder: Path, *, bucket_edges: int = _BUCKET_EDGES
) -> None:
    """Write the edges, then the reverse of every edge whose reverse is missing, of equal weight.

    Self-loops are their own reverse. The outcome has the edges of `sources.add_reverse_edges`.

    Args:
        edges: The edges.
        weights: (num_edges,) numbers on disk, or None.
        folder: Where `src.npy`, `dst.npy` and perhaps `edge_weight.npy` are written, and up to 12
            bytes an edge while it works.
        bucket_edges: How many of them are compared at once, about; about 100 bytes each.

    Raises:
        InputError: If a weight is not finite in float32, or a file has become shorter.
        OSError: If the disk is full.
    """
    num_buckets = min(max(-(-edges.num_edges // bucket_edges), 1), _MOST_BUCKETS)
    num_vertices = edges.num_vertices
    with ExitStack() as stack:
        buckets = stack.enter_context(Buckets(folder, num_buckets, _EDGE))
        kinds = [("src", edges.src.dtype), ("dst", edges.src.dtype)]
        if weights is not None:
            kinds.append(("edge_weight", np.dtype(np.float32)))
        writers = [
            stack.enter_context(FlatWriter(folder / f"{name}.npy", kind)) for name, kind in kinds
        ]
        for start, src, dst in edges.chunks():
            records = np.zeros(src.size, _EDGE)
            records["key"] = src.astype(np.int64) * num_vertices + dst
            if weights is not None:
                weight = weights.read(start, start + src.size)
                records["weight"] = finite_weights(weight, weights.path, start)
            for writer, values in zip(writers, (src, dst, records["weight"]), strict=False):
                writer.append(values)
            buckets.throw(records, buckets_of(src, dst, num_vertices, num_buckets))
        for bucket in range(num_buckets):
            records = buckets.take(bucket)
            src, dst = np.divmod(records["key"], num_vertices)
            is_missing = ~np.isin(dst * num_vertices + src, records["key"])
            for writer, values in zip(writers, (dst, src, records["weight"]), strict=False):
                writer.append(values[is_missing])


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
