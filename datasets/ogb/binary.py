"""OGB's binary layout, of ogbn-papers100M.

    raw/data.npz          edge_index (2, E), node_feat (V, F), num_nodes_list, num_edges_list (1,)
    raw/node-label.npz    node_label (V, 1) floats, NaN for an unlabelled vertex
    split/NAME/{train,valid,test}.csv.gz

Memory is that of a byte for each vertex, beside buffers: the arrays pass through slices of 32 MiB.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from distgnn.datasets.errors import InputError
from distgnn.datasets.flat_array import FlatWriter
from distgnn.datasets.ogb.arrays import (
    ENDS,
    FEATURES,
    LABELS,
    MASKS,
    Stage,
    check_ids,
    classes,
    id_type,
    write_masks,
    write_rows,
)
from distgnn.datasets.ogb.catalogue import BINARY
from distgnn.datasets.ogb.member import Member, open_member

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from distgnn.datasets.ogb.arrays import Target
    from distgnn.datasets.ogb.catalogue import Published

# Even, so that a slice of edges stored pair by pair has whole pairs.
_AT_ONCE = 1 << 22


def sizes(raw: Path) -> tuple[int, int]:
    """Return the numbers of vertices and edges.

    Args:
        raw: The folder raw/.

    Raises:
        InputError: If the file is missing or damaged, or holds several graphs.
    """
    found = []
    for key, least in (("num_nodes_list", 1), ("num_edges_list", 0)):
        member = open_member(raw / BINARY, key)
        if math.prod(member.shape) != 1 or member.dtype.kind not in "iu":
            raise _wrong(member, "one whole number, that of the only graph")
        number = int(member.read()[0])
        if number < least:
            raise InputError(
                f"{raw / BINARY}: {key} must be at least {least}, got {number}; prepare the data "
                "set again"
            )
        found.append(number)
    return found[0], found[1]


def stages(published: Published, folder: Path, target: Target) -> list[Stage]:
    """List the stages of this layout, as `arrays.Stages` says."""
    raw, split = folder / "raw", folder / "split" / published.split
    num_vertices, num_edges = sizes(raw)
    edges = open_member(raw / BINARY, "edge_index")
    features = open_member(raw / BINARY, "node_feat")
    labels = open_member(raw / "node-label.npz", "node_label")
    if edges.shape != (2, num_edges) or edges.dtype.kind not in "iu":
        raise _wrong(edges, f"whole numbers of shape (2, {num_edges})")
    has_rows = len(features.shape) == 2 and features.shape[0] == num_vertices and features.shape[1]
    if not has_rows or features.dtype.kind not in "fiu" or features.is_fortran:
        raise _wrong(features, f"numbers of shape ({num_vertices}, num_features), row by row")
    if math.prod(labels.shape) != num_vertices or labels.dtype.kind not in "fiu":
        raise _wrong(labels, f"{num_vertices} numbers")
    return [
        Stage(ENDS, lambda: _write_edges(edges, target, num_vertices)),
        Stage((FEATURES,), lambda: write_rows(target, FEATURES, _rows(features), num_vertices)),
        Stage((LABELS,), lambda: write_rows(target, LABELS, _labels(labels), num_vertices)),
        Stage(MASKS, lambda: write_masks(split, num_vertices, target.folder)),
    ]


def _wrong(member: Member, wanted: str) -> InputError:
    order = " column by column" if member.is_fortran else ""
    return InputError(
        f"{member.path}: {member.key} must hold {wanted}, got {member.dtype} of shape "
        f"{member.shape}{order}; prepare the data set again from OGB's archive"
    )


def _write_edges(edges: Member, target: Target, num_vertices: int) -> None:
    kind = id_type(num_vertices)
    num_edges = edges.shape[1]
    done = 0
    with (
        FlatWriter(target.folder / ENDS[0], kind) as src,
        FlatWriter(target.folder / ENDS[1], kind) as dst,
    ):
        for ids in edges.slices(_AT_ONCE):
            check_ids(ids, num_vertices, (f"{edges.path}: edge_index", done))
            if edges.is_fortran:
                src.append(ids[0::2])
                dst.append(ids[1::2])
            else:
                # All sources are stored before the first destination.
                num_src = min(max(num_edges - done, 0), ids.size)
                src.append(ids[:num_src])
                dst.append(ids[num_src:])
            done += ids.size
            target.report("ends of edges", done, ids.size, 2 * num_edges)


def _rows(features: Member) -> Iterator[NDArray[Any]]:
    width = features.shape[1]
    for values in features.slices(max(_AT_ONCE // width, 1) * width):
        yield values.reshape(-1, width)


def _labels(labels: Member) -> Iterator[NDArray[np.int64]]:
    row = 0
    for values in labels.slices(_AT_ONCE):
        yield classes(values.astype(np.float64), (f"{labels.path}: node_label", row))
        row += values.size
