"""Identity of a graph, however it is cut, and of a part."""

from __future__ import annotations

import hashlib
import itertools
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from distgnn.comm.group import Group
    from distgnn.partition.directory.store import Part

    Words = NDArray[np.uint64]

_BLOCK = 1 << 18
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def identify_graph(part: Part, group: Group) -> dict[str, Any]:
    """Describe the graph of which the ranks hold the parts; collective.

    Each value is a sum, modulo 2**64, of a contribution of each vertex and each edge under its
    global id. No order and no cut changes it, but another edge, feature, label or split does. The
    sums distinguish graphs that differ by accident; they are no signature.

    Args:
        part: This rank's part; read once, block by block.
        group: One rank per part.

    Returns:
        JSON values by name, the same on every rank: counts, and 16 hexadecimal digits for edges,
        features, labels and splits.
    """
    key = _keys(part.global_id)
    roots = key[: part.num_roots]
    masks = (part.train_mask, part.val_mask, part.test_mask)
    own = {
        "num_vertices": part.num_roots,
        "num_edges": part.num_edges,
        "edges": _sum_of_edges(part, key),
        "features": _sum_of_features(part.features, roots) + _sum_of_types(part, roots),
        "labels": 0 if part.labels is None else _sum_of_columns(part.labels, roots),
        "splits": sum(
            _sum_of_columns(np.asarray(mask).T, roots * np.uint64(2 * number + 1))
            for number, mask in enumerate(masks)
            if mask is not None
        )
        + _sum_of_links(part.val_links, 7)
        + _sum_of_links(part.test_links, 9),
    }
    rows = [json.loads(text) for text in group.all_gather_bytes(json.dumps(own).encode())]
    total = {name: sum(int(row[name]) for row in rows) for name in own}
    return {
        name: value if name.startswith("num_") else f"{value % 2**64:016x}"
        for name, value in total.items()
    }


def layout_of(part: Part) -> str:
    """Return 16 hexadecimal digits that a part has only if its rows lie and travel the same way.

    Args:
        part: Any.
    """
    digest = hashlib.sha256(f"{part.part}/{part.num_parts}".encode())
    for array in (
        part.global_id,
        part.leaf_counts,
        part.is_reading,
        part.is_writing,
        part.send_counts,
        part.send_rows,
        part.reduce_counts,
        part.reduce_rows,
        part.indptr,
        part.indices,
    ):
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()[:16]


def _keys(number: NDArray[Any]) -> Words:
    """A random odd word for each number (the finalizer of splitmix64)."""
    word = (np.asarray(number).astype(np.uint64) + np.uint64(1)) * _GOLDEN
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    odd: Words = (word ^ (word >> np.uint64(31))) | np.uint64(1)
    return odd


def _blocks(num_rows: int, rows_per_block: int) -> Iterator[slice]:
    step = max(rows_per_block, 1)
    return (slice(start, min(start + step, num_rows)) for start in range(0, num_rows, step))


def _sum_of_edges(part: Part, key: Words) -> int:
    """The sum of key(source) * key'(destination), times what else edges have."""
    total = 0
    as_destination = _keys(~np.asarray(part.global_id))
    indptr = np.asarray(part.indptr)
    bounds = np.searchsorted(indptr, np.arange(0, part.num_edges, _BLOCK), side="right") - 1
    for first, last in itertools.pairwise([*bounds.tolist(), part.num_clones]):
        edges = slice(int(indptr[first]), int(indptr[last]))
        value = key[part.indices[edges]]
        if part.edge_weight is not None:
            value *= _bits(part.edge_weight[edges])
        if part.edge_features is not None:
            value *= _keys(_mixed(part.edge_features[edges]))
        if part.edge_type is not None:
            value *= _keys(part.edge_type[edges])
        value *= np.repeat(as_destination[first:last], np.diff(indptr[first : last + 1]))
        total += _sum(value)
    return total


def _sum_of_features(features: Any, roots: Words) -> int:
    if features is None:
        return 0
    if not sp.issparse(features):
        return _sum_of_columns(features, roots)
    total = 0
    column = _keys(np.arange(features.shape[1]))
    row_key = np.repeat(roots, np.diff(features.indptr))
    for entries in _blocks(features.data.size, _BLOCK):
        value = _bits(features.data[entries]) * column[features.indices[entries]]
        total += _sum(value * row_key[entries])
    return total


def _sum_of_links(links: NDArray[Any] | None, odd: int) -> int:
    if links is None:
        return 0
    return _sum(_keys(links[:, 0]) * _keys(~links[:, 1]) * np.uint64(odd))


def _sum_of_types(part: Part, roots: Words) -> int:
    return (
        0 if part.vertex_type is None else _sum(_keys(part.vertex_type[: part.num_roots]) * roots)
    )


def _sum_of_columns(values: NDArray[Any], roots: Words) -> int:
    """The sum of key(row) * key(column) * bits(value)."""
    table = values[:, None] if values.ndim == 1 else values
    total = 0
    for rows in _blocks(len(table), _BLOCK // max(table.shape[1], 1)):
        total += _sum(_mixed(table[rows]) * roots[rows])
    return total


def _mixed(table: NDArray[Any]) -> Words:
    """(num_rows,) The sums of key(column) * bits(value) of each row."""
    column = _keys(np.arange(table.shape[1]))
    mixed: Words = (_bits(table) * column).sum(axis=1, dtype=np.uint64)
    return mixed


def _bits(values: NDArray[Any]) -> Words:
    """The bits of each value; those of a dense zero are 0, as if it were not stored."""
    if values.dtype.kind == "f":
        return np.ascontiguousarray(values, dtype=np.float32).view(np.uint32).astype(np.uint64)
    return values.astype(np.uint64)


def _sum(words: Words) -> int:
    return int(words.sum(dtype=np.uint64))
