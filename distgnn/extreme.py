"""The largest or smallest neighbour: kernels for graphs whose rows are complete on this rank.

They remember the row that won in 4 bytes. `distgnn.kernels.spmm_max` remembers the edge and the key
of its source in 16, so that results of several ranks can be merged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from distgnn import _kernels
from distgnn.arrays import array, float_type

if TYPE_CHECKING:
    from torch import Tensor

    from distgnn.kernels import Plan


def spmm_extreme(
    indptr: Tensor,
    indices: Tensor,
    x: Tensor,
    out: Tensor,
    *,
    source: Tensor,
    is_max: bool,
    plan: Plan | None = None,
) -> None:
    """Take the maximum or minimum over the source rows of every destination row.

    Of equal values the first in the row wins; a NaN beats any number. Where there is no edge, the
    result is 0 and its source -1.

    Args:
        indptr: (num_rows + 1,) int64.
        indices: (num_edges,) int32. Rows of x.
        x: (num_sources, width) float32 or float64.
        out: (num_rows, width). Written.
        source: (num_rows, width) int32. Row of x that each result came from; written.
        is_max: Take the maximum, else the minimum.
        plan: Of this graph.

    Raises:
        TypeError: If a dtype is not the documented one.
        ValueError: If shapes do not fit, or a tensor is not contiguous or not on the CPU.
    """
    dtype = float_type("x", x)
    _kernels.spmm_extreme(
        array("indptr", indptr, torch.int64, 1),
        array("indices", indices, torch.int32, 1),
        array("x", x, dtype, 2),
        array("out", out, dtype, 2),
        source=array("source", source, torch.int32, 2),
        is_max=is_max,
        plan=None if plan is None else plan.handle,
    )


def spmm_extreme_backward(
    t_indptr: Tensor,
    t_indices: Tensor,
    source: Tensor,
    grad: Tensor,
    *,
    out: Tensor,
    accumulate: bool,
    plan: Plan | None = None,
) -> None:
    """Send the gradient of every result to the row it came from.

    out[source[v, j], j] += grad[v, j], v ascending.

    Args:
        t_indptr: (num_sources + 1,) int64. The graph by source.
        t_indices: (num_edges,) int32. Destinations, ascending in a row: rows of source and grad.
        source: (num_rows, width) int32. As `spmm_extreme` wrote it.
        grad: (num_rows, width) float32 or float64.
        out: (num_sources, width). Written.
        accumulate: Start from the values in `out` instead of zero.
        plan: Of the transpose.

    Raises:
        TypeError: If a dtype is not the documented one.
        ValueError: If shapes do not fit, or a tensor is not contiguous or not on the CPU.
    """
    dtype = float_type("grad", grad)
    _kernels.spmm_extreme_backward(
        array("t_indptr", t_indptr, torch.int64, 1),
        array("t_indices", t_indices, torch.int32, 1),
        array("source", source, torch.int32, 2),
        array("grad", grad, dtype, 2),
        out=array("out", out, dtype, 2),
        accumulate=accumulate,
        plan=None if plan is None else plan.handle,
    )
