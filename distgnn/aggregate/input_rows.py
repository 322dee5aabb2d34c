"""Input rows of leaves, which travel once, before the first epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from scipy.sparse import csr_matrix

from distgnn.aggregate.overlap import send_to_leaves
from distgnn.exchange.route import plan_route
from distgnn.ops import SparseRows

if TYPE_CHECKING:
    from torch import Tensor

    from distgnn.edges.blocks import Half
    from distgnn.exchange.base import Synchronous
    from distgnn.ops import LoadedRows


def leaf_inputs(half: Half, exchange: Synchronous, rows: LoadedRows) -> LoadedRows:
    """Fetch the constant input rows of this part's reading leaves.

    Collective. Unlike DistGNN, whose parts store the features of all clones, a partition directory
    stores each vertex's features once; 0c fetches the rest here.

    Args:
        half: Which roots go to whom.
        exchange: Any synchronous exchange whose tags are free.
        rows: (num_roots, width), dense or sparse.

    Returns:
        (num_leaves, width), of the same kind, in the order of the half's leaves.
    """
    if not isinstance(rows, SparseRows):
        return send_to_leaves(half, exchange, rows).wait()
    lengths = rows.indptr.diff()
    roots = half.root_rows.long()
    sent_lengths = lengths[roots]
    arrived = exchange.begin(
        half.route, sent_lengths[:, None].contiguous(), exchange.new_channel()
    ).wait()
    arrived_lengths = arrived[:, 0]
    entries = _entries_of(rows, roots)
    out_counts = [0] * exchange.group.size
    in_counts = [0] * exchange.group.size
    for segment in half.route.outgoing:
        out_counts[segment.peer] = int(sent_lengths[segment.start : segment.stop].sum())
    for segment in half.route.incoming:
        in_counts[segment.peer] = int(arrived_lengths[segment.start : segment.stop].sum())
    route = plan_route(exchange.group, out_counts, in_counts)
    columns, values = (
        exchange.begin(route, part[entries][:, None].contiguous(), exchange.new_channel()).wait()
        for part in (rows.columns, rows.values)
    )
    indptr = np.concatenate([[0], np.cumsum(arrived_lengths.numpy())])
    arrays = (values[:, 0].numpy(), columns[:, 0].numpy(), indptr)
    return SparseRows.from_scipy(csr_matrix(arrays, shape=(half.num_leaves, rows.shape[1])))


def _entries_of(rows: SparseRows, picked: Tensor) -> Tensor:
    """Positions of all stored entries of the picked rows, row after row."""
    lengths = rows.indptr.diff()[picked]
    starts = rows.indptr[:-1][picked]
    firsts = torch.repeat_interleave(starts - (lengths.cumsum(0) - lengths), lengths)
    return firsts + torch.arange(int(lengths.sum()))


def place_leaves(rows: LoadedRows, leaves: LoadedRows, is_reading: Tensor) -> LoadedRows:
    """Put leaf rows under root rows; leaves that nobody reads from get zeros.

    Args:
        rows: (num_roots, width).
        leaves: (num_reading_leaves, width), of the same kind.
        is_reading: (num_leaves,) bool.

    Returns:
        (num_roots + num_leaves, width), of the same kind.
    """
    if isinstance(rows, SparseRows):
        assert isinstance(leaves, SparseRows), "roots and leaves hold rows of one kind"
        lengths = torch.zeros(is_reading.shape[0], dtype=torch.int64)
        lengths[is_reading] = leaves.indptr.diff()
        indptr = torch.cat([rows.indptr, rows.indptr[-1] + lengths.cumsum(0)]).numpy()
        columns = torch.cat([rows.columns, leaves.columns]).numpy()
        values = torch.cat([rows.values, leaves.values]).numpy()
        shape = (indptr.shape[0] - 1, rows.shape[1])
        return SparseRows.from_scipy(csr_matrix((values, columns, indptr), shape=shape))
    assert not isinstance(leaves, SparseRows), "roots and leaves hold rows of one kind"
    below = torch.zeros((is_reading.shape[0], rows.shape[1]), dtype=rows.dtype)
    below[is_reading] = leaves
    return torch.cat([rows, below])
