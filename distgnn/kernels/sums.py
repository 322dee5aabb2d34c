"""Sums over the in-edges of every row.

The rules of `distgnn.kernels` hold here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from distgnn import _kernels
from distgnn.kernels.csr import ends, handle
from distgnn.kernels.devices import kernels_on
from distgnn.kernels.tensors import STORED, array, computed, float_type

if TYPE_CHECKING:
    from torch import Tensor

    from distgnn.kernels.csr import Csr


def spmm_sum(
    graph: Csr,
    weight: Tensor | None,
    x: Tensor,
    out: Tensor,
    *,
    accumulate: bool,
    row_factor: Tensor | None = None,
    source_factor: Tensor | None = None,
) -> None:
    """Sum the source rows of every destination row.

    out[v] = row_factor[v] * sum over k in row v of weight[k] * x[indices[k]], in the order of k.
    With source_factor its entry indices[k] takes the place of weight[k].

    Args:
        graph: Edges by destination; columns are rows of x.
        weight: (num_edges,), or None for ones.
        x: (num_sources, width). May be bfloat16.
        out: (num_rows, width). Written. float32 or bfloat16 if x is bfloat16.
        accumulate: Start the sums from the values in `out` instead of zero.
        row_factor: (num_rows,), or None for ones. A mean has 1 / degree here.
        source_factor: (num_sources,), or None for ones; None where there is a weight.
    """
    stored = float_type("x", x, STORED)
    dtype = computed(stored)
    out_dtype = torch.bfloat16 if stored == out.dtype == torch.bfloat16 else dtype
    named = {"row_factor": row_factor, "source_factor": source_factor}
    factors = {
        name: None if values is None else array(name, values, dtype, 1)
        for name, values in named.items()
    }
    kernels_on("x", x).functions.spmm_sum(
        *ends(graph),
        None if weight is None else array("weight", weight, dtype, 1),
        array("x", x, stored, 2),
        array("out", out, out_dtype, 2),
        accumulate=accumulate,
        **factors,
        walk=handle(graph),
    )


def gather_roof(graph: Csr, x: Tensor, out: Tensor) -> None:
    """Read the source row of every edge as `spmm_sum` does, and hardly do anything with it.

    Its time is what a sum over the same graph cannot go below.

    Args:
        graph: Edges by destination; columns are rows of x.
        x: (num_sources, width) float32, at least 16 wide.
        out: (num_rows, 16) float32. Some rows are added to, so that nothing is optimised away.
    """
    _kernels.gather_roof(
        *ends(graph),
        array("x", x, torch.float32, 2),
        array("out", out, torch.float32, 2),
        walk=handle(graph),
    )
