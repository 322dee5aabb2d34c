"""The reverses of edges that lack them, for edges on disk."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import numpy as np

from distgnn.datasets.buckets import Buckets
from distgnn.datasets.edge_file import finite_weights
from distgnn.datasets.flat_array import FlatWriter

if TYPE_CHECKING:
    from pathlib import Path

    from distgnn.datasets.edge_file import EdgeFile
    from distgnn.datasets.flat_array import FlatArray

# Edges that are compared at once: about 200 MiB.
_BUCKET_EDGES = 1 << 21
_MOST_BUCKETS = 512
_EDGE = np.dtype([("key", np.int64), ("weight", np.float32)])


def add_reverses(edges: EdgeFile, weights: FlatArray | None, folder: Path) -> None:
    """Write the edges, then the reverse of every edge whose reverse is missing, of equal weight.

    Self-loops are their own reverse. The outcome has the edges of `sources.add_reverse_edges`.

    Args:
        edges: The edges.
        weights: (num_edges,) numbers on disk, or None.
        folder: Where `src.npy`, `dst.npy` and perhaps `edge_weight.npy` are written, and up to 12
            bytes an edge while it works.

    Raises:
        InputError: If a weight is not finite in float32, or a file has become shorter.
        OSError: If the disk is full.
    """
    num_buckets = min(max(-(-edges.num_edges // _BUCKET_EDGES), 1), _MOST_BUCKETS)
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
            # An edge and its reverse fall into the same bucket.
            low = np.minimum(src, dst).astype(np.int64)
            buckets.throw(records, low * num_buckets // num_vertices)
        for bucket in range(num_buckets):
            records = buckets.take(bucket)
            src, dst = np.divmod(records["key"], num_vertices)
            is_missing = ~np.isin(dst * num_vertices + src, records["key"])
            for writer, values in zip(writers, (dst, src, records["weight"]), strict=False):
                writer.append(values[is_missing])
