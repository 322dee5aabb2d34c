"""An edge from each vertex to itself, among the edges between roots."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from distgnn import kernels
from distgnn.kernels.attention import edge_sum

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from distgnn.edges.blocks import Blocks, Direction
    from distgnn.exchange.base import Synchronous
    from distgnn.kernels.csr import Csr


def with_loops(blocks: Blocks, num_loops: Tensor, columns: Tensor, exchange: Synchronous) -> Blocks:
    """Give each root without an edge to itself one; collective where edges have features.

    An edge costs one row more to gather. That is less than to start the sums of a layer from the
    vertices' own rows, and to add the gradients of these.

    Args:
        blocks: Edges and routes of both directions.
        num_loops: (num_rows,) edges that each root among the rows has from itself, on any part.
        columns: (num_rows,) int64, ascending. Position of each root among the columns.
        exchange: Any synchronous exchange whose tags are free.

    Returns:
        Blocks that share all else with the given ones. New edges weigh 1. Their features are the
        mean over the in-edges of their vertex on all parts, as in PyG; 0 where there are none.
    """
    rows = torch.nonzero(num_loops == 0)[:, 0]
    columns = columns[rows]
    features = None
    if blocks.forward.root_from_root.edge_features is not None:
        features = _mean_features(blocks.forward, exchange)[rows].numpy()
    forward, backward = blocks.forward.root_from_root, blocks.backward.root_from_root
    places = t_places = _places(forward, rows, columns)
    ends = t_ends = _ends(forward, rows, columns, places)
    # An undirected graph is its own transpose, and is held once.
    if backward.indices is not forward.indices or not torch.equal(rows, columns):
        t_places = _places(backward, columns, rows)
        t_ends = _ends(backward, columns, rows, t_places)
    added = _added(forward, ends, places)
    if features is not None:
        assert forward.edge_features is not None, "features were averaged"
        more = np.insert(forward.edge_features.numpy(), places, features, axis=0)
        added = replace(added, edge_features=torch.from_numpy(more))
    t_added = _added(backward, t_ends, t_places)
    if backward.position is not None:
        position = _moved(backward.position.numpy(), places, t_places)
        t_added = replace(t_added, position=position)
    return type(blocks)(
        replace(blocks.forward, root_from_root=added, has_loops=True),
        replace(blocks.backward, root_from_root=t_added, has_loops=True),
    )


def _mean_features(direction: Direction, exchange: Synchronous) -> Tensor:
    """Return (num_rows, num_edge_features) means over the in-edges of each root, on all parts."""
    partial = _sums(direction.leaf_from_root) + _sums(direction.leaf_from_leaf)
    total = _sums(direction.root_from_root) + _sums(direction.root_from_leaf)
    route, channel = direction.reduce.route.reversed(), exchange.new_channel()
    received = exchange.begin(route, partial, channel).wait()
    kernels.scatter_add_rows(received, direction.reduce.root_rows, total)
    return total[:, :-1] / total[:, -1:].clamp(min=1)


def _sums(block: Csr) -> Tensor:
    """Return (num_rows, num_edge_features + 1) sums over the edges of each row, and their count."""
    features = block.edge_features
    assert features is not None, "all blocks of a part have features, or none"
    out = features.new_empty(block.num_rows, features.shape[1])
    edge_sum(block.indptr, features, out, accumulate=False)
    return torch.cat([out, block.indptr.diff()[:, None].to(out.dtype)], dim=1)


def _places(block: Csr, rows: Tensor, columns: Tensor) -> NDArray[np.int64]:
    """Return the edge before which each new one stands, so that global ids keep ascending."""
    rank = np.arange(block.num_columns)
    if block.column_id is not None:
        rank[block.column_id.argsort().numpy()] = np.arange(block.num_columns)
    indices, wanted = block.indices.numpy(), rank[columns.numpy()]
    begin, end = block.indptr[rows].numpy(), block.indptr[rows + 1].numpy()
    # All rows are bisected at once: keys of all edges would take long and 16 bytes an edge.
    while (is_open := begin < end).any():
        middle = np.where(is_open, (begin + end) // 2, 0)
        is_before = rank[indices[middle]] < wanted
        begin = np.where(is_open & is_before, middle + 1, begin)
        end = np.where(is_open & ~is_before, middle, end)
    return begin


def _ends(
    block: Csr, rows: Tensor, columns: Tensor, places: NDArray[np.int64]
) -> tuple[Tensor, Tensor]:
    """Return where rows begin, and their columns, with the new edges."""
    longer = torch.bincount(rows + 1, minlength=block.num_rows + 1).cumsum(0)
    indices = np.insert(block.indices.numpy(), places, columns.numpy())
    return block.indptr + longer, torch.from_numpy(indices)


def _added(block: Csr, ends: tuple[Tensor, Tensor], places: NDArray[np.int64]) -> Csr:
    weight = block.weight
    if weight is not None:
        weight = torch.from_numpy(np.insert(weight.numpy(), places, np.float32(1)))
    return replace(block, indptr=ends[0], indices=ends[1], weight=weight)


def _moved(
    position: NDArray[np.int64], places: NDArray[np.int64], t_places: NDArray[np.int64]
) -> Tensor:
    """Return the positions after the new edges were inserted in both orders."""
    num_before = np.cumsum(np.bincount(places, minlength=len(position) + 1))
    moved = position + num_before[position]
    return torch.from_numpy(np.insert(moved, t_places, places + np.arange(len(places))))
