"""Set-up of wide rows: some columns at a time, so that a cache holds what edges read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from distgnn.exchange.base import all_reduce_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from distgnn.comm.group import Group

SLICE_BYTES = 64
"""Bytes of a row of a slice: a line of the cache, which an edge reads whole."""
CACHE_BYTES = 1 << 25
"""Bytes of rows that a processor's last cache is taken to hold."""
LEAST_DEGREE = 32
"""Mean number of edges that read a row from which on two more copies of it pay."""
_INDIFFERENT, _GAINS, _FORBIDS = range(3)


def num_bytes_to_agree(rows: Tensor, group: Group) -> int:
    """Return the payload bytes that `in_slices` sends from a rank beside what the function does.

    Args:
        rows: (num_rows, width).
        group: All ranks.
    """
    return all_reduce_bytes(8, group.size) if _is_wide(rows) else 0


def in_slices(
    function: Callable[[Tensor], Tensor], rows: Tensor, num_edges: int, group: Group
) -> Tensor:
    """Apply a function to some columns of rows at a time, if that is faster; collective.

    An edge reads a whole row of its source. A cache does not hold wide rows of many vertices, so
    each edge waits for memory. A slice has one cache line of every row. Where it fits in the cache,
    it costs two copies. Rows that fit whole gain nothing, and few edges gain less than the copies
    cost.

    Args:
        function: Sums over edges, for example. It makes each column of that column alone.
        rows: (num_rows, width), of this rank.
        num_edges: Number of edges that read these rows.
        group: All ranks; they call the function equally often.

    Returns:
        function(rows), in the type of the rows.
    """
    if not (_is_wide(rows) and _is_faster(rows, num_edges, group)):
        return function(rows).to(rows.dtype)
    made, width = None, _slice_columns(rows)
    for first in range(0, rows.shape[1], width):
        columns = slice(first, first + width)
        result = function(rows[:, columns].contiguous())
        if made is None:
            made = rows.new_empty(len(result), rows.shape[1])
        made[:, columns] = result
    assert made is not None, "there are columns"
    return made


def _is_wide(rows: Tensor) -> bool:
    return rows.device.type == "cpu" and rows.shape[1] >= 2 * _slice_columns(rows)


def _slice_columns(rows: Tensor) -> int:
    return SLICE_BYTES // rows.element_size()


def _is_faster(rows: Tensor, num_edges: int, group: Group) -> bool:
    """Return whether slices are faster on some rank, and fit in a cache on every rank."""
    column_bytes = len(rows) * rows.element_size()
    vote = _INDIFFERENT
    if len(rows) * SLICE_BYTES > CACHE_BYTES:
        vote = _FORBIDS
    elif column_bytes * rows.shape[1] > CACHE_BYTES and num_edges >= LEAST_DEGREE * len(rows):
        vote = _GAINS
    agreed = torch.tensor([vote])
    group.all_reduce(agreed, "max")
    return int(agreed) == _GAINS
