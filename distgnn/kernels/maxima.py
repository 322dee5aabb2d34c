"""The largest or smallest neighbour, and which one it was.

Maxima over different edges of the same rows, of this rank or of others, can be merged: of equal
values the source with the smaller global id wins, however the edges were divided. That is also what
"the first in the row" means where sources ascend by global id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from distgnn.kernels.devices import kernels_on
from distgnn.kernels.tensors import array, float_type

if TYPE_CHECKING:
    from torch import Tensor

    from distgnn.kernels.walk_order import WalkOrder


def spmm_extreme(
    indptr: Tensor,
    indices: Tensor,
    x: Tensor,
    out: Tensor,
    *,
    source: Tensor,
    is_max: bool,
    plan: WalkOrder | None = None,
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
        ValueError: If shapes do not fit, or a tensor is not contiguous or on another device.
    """
    dtype = float_type("x", x)
    kernels_on("x", x).functions.spmm_extreme(
        array("indptr", indptr, torch.int64, 1),
        array("indices", indices, torch.int32, 1),
        array("x", x, dtype, 2),
        array("out", out, dtype, 2),
        source=array("source", source, torch.int32, 2),
        is_max=is_max,
        plan=None if plan is None else plan.handle,
    )


def follows_plan(t_indptr: Tensor, t_indices: Tensor, *, num_rows: int, width: int) -> bool:
    """Whether the backward of a maximum walks the edges, so that a plan of them is of use.

    Where edges are many it walks the results.

    Args:
        t_indptr: (num_sources + 1,) int64. The graph by source.
        t_indices: (num_edges,) int32.
        num_rows: Results.
        width: Columns of a result.

    Raises:
        TypeError: If a dtype is not the documented one.
        ValueError: If shapes do not fit, or a tensor is not contiguous or on another device.
    """
    scratch = kernels_on("t_indptr", t_indptr).functions.extreme_scratch(
        array("t_indptr", t_indptr, torch.int64, 1),
        array("t_indices", t_indices, torch.int32, 1),
        num_rows=num_rows,
        width=width,
    )
    return bool(scratch == 0)


def spmm_extreme_backward(
    t_indptr: Tensor,
    t_indices: Tensor,
    source: Tensor,
    grad: Tensor,
    *,
    out: Tensor,
    accumulate: bool,
    first_source: int = 0,
    plan: WalkOrder | None = None,
) -> None:
    """Send the gradient of every result to the row it came from.

    out[source[v, j] - first_source, j] += grad[v, j]; other sources are passed over. Additions come
    in the order of v, or, where edges are few, in that of `t_indices`: the graph and the width
    alone decide which.
    Where edges are many it takes scratch memory, at most about the size of out.

    Args:
        t_indptr: (num_sources + 1,) int64. The graph by source.
        t_indices: (num_edges,) int32. Destinations: rows of source and grad.
        source: (num_rows, width) int32. As `spmm_extreme` wrote it, or with merged sources.
        grad: (num_rows, width) float32 or float64.
        out: (num_sources, width). Written.
        accumulate: Start from the values in `out` instead of zero.
        first_source: Number of row 0 of out in `source`.
        plan: Of the transpose.

    Raises:
        TypeError: If a dtype is not the documented one.
        ValueError: If shapes do not fit, or a tensor is not contiguous or on another device.
    """
    dtype = float_type("grad", grad)
    graph = (
        array("t_indptr", t_indptr, torch.int64, 1),
        array("t_indices", t_indices, torch.int32, 1),
    )
    num_scratch = kernels_on("t_indptr", t_indptr).functions.extreme_scratch(
        *graph, num_rows=grad.shape[0], width=out.shape[1]
    )
    kernels_on("grad", grad).functions.spmm_extreme_backward(
        *graph,
        array("source", source, torch.int32, 2),
        array("grad", grad, dtype, 2),
        out=array("out", out, dtype, 2),
        scratch=array("scratch", grad.new_empty(num_scratch), dtype, 1),
        accumulate=accumulate,
        first_source=first_source,
        plan=None if plan is None else plan.handle,
    )


def merge_max(
    out: Tensor,
    source: Tensor,
    other: Tensor,
    other_source: Tensor,
    *,
    source_id: Tensor,
    first_source: int,
) -> None:
    """Merge the maxima over another block of edges into the same rows.

    Args:
        out: (num_rows, width) float32 or float64. As `spmm_extreme` wrote it; written.
        source: (num_rows, width) int32. Likewise.
        other: (num_rows, width). What `spmm_extreme` wrote for the other block.
        other_source: (num_rows, width) int32. Likewise.
        source_id: (num_sources,) int64. Global id of every source.
        first_source: Number in `source` and `source_id` of the other block's source 0.

    Raises:
        TypeError: If a dtype is not the documented one.
        ValueError: If shapes do not fit, or a tensor is not contiguous or on another device.
    """
    dtype = float_type("out", out)
    kernels_on("out", out).functions.merge_max(
        array("out", out, dtype, 2),
        array("source", source, torch.int32, 2),
        array("other", other, dtype, 2),
        array("other_source", other_source, torch.int32, 2),
        source_id=array("source_id", source_id, torch.int64, 1),
        first_source=first_source,
    )


def merge_received_max(
    out: Tensor,
    source: Tensor,
    rows: Tensor,
    received: Tensor,
    received_id: Tensor,
    *,
    source_id: Tensor,
) -> None:
    """Merge maxima that arrived from other ranks.

    Where row k of them wins, the source becomes -2 - k.

    Args:
        out: (num_rows, width) float32 or float64. Written.
        source: (num_rows, width) int32. Written.
        rows: (num_received,) int32. Row of out that each received row belongs to; may repeat.
        received: (num_received, width). Maxima.
        received_id: (num_received, width) int64. Global id of each winner plus 1; 0 where there is
            no edge, or the row never arrived.
        source_id: (num_sources,) int64. Global id of every source.

    Raises:
        TypeError: If a dtype is not the documented one.
        ValueError: If shapes do not fit, or a tensor is not contiguous or on another device.
    """
    dtype = float_type("out", out)
    kernels_on("out", out).functions.merge_received_max(
        array("out", out, dtype, 2),
        array("source", source, torch.int32, 2),
        array("rows", rows, torch.int32, 1),
        array("received", received, dtype, 2),
        array("received_id", received_id, torch.int64, 2),
        source_id=array("source_id", source_id, torch.int64, 1),
    )
