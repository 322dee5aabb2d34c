"""The largest or smallest neighbor, and which one it was.

Maxima over different edges of the same rows, of this rank or of others, can be merged. Of equal
values the source with the smaller global id wins, however the edges were divided. That is the first
in the row where sources ascend by global id. The rules of `distgnn.kernels` hold here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from distgnn.kernels.csr import ends, handle
from distgnn.kernels.devices import kernels_on
from distgnn.kernels.tensors import array, float_type

if TYPE_CHECKING:
    from torch import Tensor

    from distgnn.kernels.csr import Csr


def spmm_extreme(
    graph: Csr,
    x: Tensor,
    out: Tensor,
    *,
    source: Tensor,
    is_max: bool,
) -> None:
    """Take the maximum or minimum over the source rows of every destination row.

    Of equal values the first in the row wins; a NaN beats any number. Where there is no edge, the
    result is 0 and its source -1.

    Args:
        graph: Edges by destination; columns are rows of x.
        x: (num_sources, width) float32 or float64.
        out: (num_rows, width). Written.
        source: (num_rows, width) int32. Row of x that each result came from; written.
        is_max: Take the maximum, else the minimum.
    """
    dtype = float_type("x", x)
    kernels_on("x", x).functions.spmm_extreme(
        *ends(graph),
        array("x", x, dtype, 2),
        array("out", out, dtype, 2),
        source=array("source", source, torch.int32, 2),
        is_max=is_max,
        walk=handle(graph),
    )


def spmm_extreme_backward(
    graph: Csr,
    source: Tensor,
    grad: Tensor,
    *,
    out: Tensor,
    accumulate: bool,
    first_source: int = 0,
) -> None:
    """Send the gradient of every result to the row it came from.

    out[source[v, j] - first_source, j] += grad[v, j]; other sources are passed over. Additions come
    in the order of v, or, where edges are few, in that of `indices`: the graph and the width
    alone decide which. Where edges are many it takes scratch memory, at most about the size of out.

    Args:
        graph: Edges by source; columns are destinations, rows of grad.
        source: (num_rows, width) int32. As `spmm_extreme` wrote it, or with merged sources.
        grad: (num_rows, width) float32 or float64.
        out: (num_sources, width). Written.
        accumulate: Start from the values in `out` instead of zero.
        first_source: Number of row 0 of out in `source`.
    """
    dtype, functions = float_type("grad", grad), kernels_on("grad", grad).functions
    given = ends(graph)
    num_scratch = functions.extreme_scratch(*given, num_rows=grad.shape[0], width=out.shape[1])
    functions.spmm_extreme_backward(
        *given,
        array("source", source, torch.int32, 2),
        array("grad", grad, dtype, 2),
        out=array("out", out, dtype, 2),
        scratch=array("scratch", grad.new_empty(num_scratch), dtype, 1),
        accumulate=accumulate,
        first_source=first_source,
        # With scratch memory it walks the results: an order of the edges is of no use, nor made.
        walk=None if num_scratch else handle(graph),
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
