"""Values per edge and head: sums with such weights, and dot products and sums of both ends.

Rows have `num_heads` heads of equal width, one after the other. As in `distgnn.kernels`, results
have the same bits for any number of threads, on any instruction set and with any plan, nothing is
allocated, and autograd sees nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from distgnn.arrays import array, float_type
from distgnn.devices import kernels_on

if TYPE_CHECKING:
    from torch import Tensor

    from distgnn.kernels import Plan


def spmm_heads(
    indptr: Tensor,
    indices: Tensor,
    weight: Tensor,
    x: Tensor,
    out: Tensor,
    *,
    accumulate: bool,
    plan: Plan | None = None,
) -> None:
    """Sum the source rows of every destination row, each head with a weight of its own.

    out[v, h] = sum over k in row v of weight[k, h] * x[indices[k], h], in the order of k.

    Args:
        indptr: (num_rows + 1,) int64.
        indices: (num_edges,) int32. Rows of x.
        weight: (num_edges, num_heads) float32 or float64, as all values.
        x: (num_sources, num_heads * width).
        out: (num_rows, num_heads * width). Written.
        accumulate: Start the sums from the values in `out` instead of zero.
        plan: Of this graph.

    Raises:
        TypeError: If a dtype is not the documented one.
        ValueError: If shapes do not fit, or a tensor is not contiguous or on another device.
    """
    dtype = float_type("x", x)
    kernels_on("x", x).functions.spmm_heads(
        array("indptr", indptr, torch.int64, 1),
        array("indices", indices, torch.int32, 1),
        array("weight", weight, dtype, 2),
        array("x", x, dtype, 2),
        array("out", out, dtype, 2),
        accumulate=accumulate,
        plan=None if plan is None else plan.handle,
    )


def sddmm_dot(
    indptr: Tensor,
    indices: Tensor,
    x: Tensor,
    y: Tensor,
    out: Tensor,
    *,
    plan: Plan | None = None,
) -> None:
    """Multiply the rows at both ends of every edge, head by head.

    out[k, h] = dot product of x[indices[k], h] and y[v, h], for edge k of row v.

    Args:
        indptr: (num_rows + 1,) int64.
        indices: (num_edges,) int32. Rows of x.
        x: (num_sources, num_heads * width) float32 or float64, as all values.
        y: (num_rows, num_heads * width).
        out: (num_edges, num_heads). Written.
        plan: Of this graph.

    Raises:
        TypeError: If a dtype is not the documented one.
        ValueError: If shapes do not fit, or a tensor is not contiguous or on another device.
    """
    dtype = float_type("x", x)
    kernels_on("x", x).functions.sddmm_dot(
        array("indptr", indptr, torch.int64, 1),
        array("indices", indices, torch.int32, 1),
        array("x", x, dtype, 2),
        array("y", y, dtype, 2),
        array("out", out, dtype, 2),
        plan=None if plan is None else plan.handle,
    )


def sddmm_add(
    indptr: Tensor,
    indices: Tensor,
    x: Tensor,
    y: Tensor,
    out: Tensor,
    *,
    plan: Plan | None = None,
) -> None:
    """Add the values at both ends of every edge: out[k] = x[indices[k]] + y[v], for k in row v.

    Args:
        indptr: (num_rows + 1,) int64.
        indices: (num_edges,) int32. Rows of x.
        x: (num_sources, num_heads) float32 or float64, as all values.
        y: (num_rows, num_heads).
        out: (num_edges, num_heads). Written.
        plan: Of this graph.

    Raises:
        TypeError: If a dtype is not the documented one.
        ValueError: If shapes do not fit, or a tensor is not contiguous or on another device.
    """
    dtype = float_type("x", x)
    kernels_on("x", x).functions.sddmm_add(
        array("indptr", indptr, torch.int64, 1),
        array("indices", indices, torch.int32, 1),
        array("x", x, dtype, 2),
        array("y", y, dtype, 2),
        array("out", out, dtype, 2),
        plan=None if plan is None else plan.handle,
    )
