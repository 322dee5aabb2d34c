"""Set-up of wide rows: some columns at a time, so that a cache holds what edges read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from distgnn.exchange.base import all_reduce_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from distgnn.comm.group import Group

COLUMNS = 32
"""Columns of a slice: two cache lines of float32, one of bfloat16."""
CACHE_BYTES = 1 << 25
"""Bytes of a slice that a processor's last cache is taken to hold."""


def num_bytes_to_agree(rows: Tensor, group: Group) -> int:
    """Return the payload bytes that `by_columns` sends from a rank beside what the function does.

    Args:
        rows: (num_rows, width).
        group: All ranks.
    """
    return all_reduce_bytes(8, group.size) if _is_wide(rows) else 0


def by_columns(function: Callable[[Tensor], Tensor], rows: Tensor, group: Group) -> Tensor:
    """Apply a function to some columns of rows at a time, if that is faster; collective.

    An edge reads a whole row of its source. Wide rows of many vertices fill no cache, so each edge
    waits for memory. A slice of 32 columns of all rows may fit, and then costs two copies.

    Args:
        function: Sums over edges, for example. It makes each column of that column alone.
        rows: (num_rows, width), of this rank.
        group: All ranks; they call the function equally often.

    Returns:
        function(rows), in the type of the rows.
    """
    if not (_is_wide(rows) and _is_cached(rows, group)):
        return function(rows).to(rows.dtype)
    made = None
    for first in range(0, rows.shape[1], COLUMNS):
        columns = slice(first, first + COLUMNS)
        result = function(rows[:, columns].contiguous())
        if made is None:
            made = rows.new_empty(len(result), rows.shape[1])
        made[:, columns] = result
    assert made is not None, "there are columns"
    return made


def _is_wide(rows: Tensor) -> bool:
    return rows.device.type == "cpu" and rows.shape[1] >= 2 * COLUMNS


def _is_cached(rows: Tensor, group: Group) -> bool:
    """Return whether a cache holds a slice on every rank."""
    longest = torch.tensor([len(rows)])
    group.all_reduce(longest, "max")
    return int(longest) * COLUMNS * rows.element_size() <= CACHE_BYTES
