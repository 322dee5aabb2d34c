"""Values per edge and head: sums with such weights, and what is made of the rows at both ends.

Rows have `num_heads` heads of equal width, one after the other. As in `distgnn.kernels`, results
have the same bits for any number of threads, on any instruction set and with any plan, nothing is
allocated, and autograd sees nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from distgnn.kernels.devices import kernels_on
from distgnn.kernels.tensors import array, float_type

if TYPE_CHECKING:
    from torch import Tensor

    from distgnn.kernels.walk_order import WalkOrder


def spmm_heads(
    indptr: Tensor,
    indices: Tensor,
    weight: Tensor,
    x: Tensor,
    out: Tensor,
    *,
    accumulate: bool,
    plan: WalkOrder | None = None,
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
    plan: WalkOrder | None = None,
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


def sddmm_leaky(
    indptr: Tensor,
    indices: Tensor,
    x: Tensor,
    y: Tensor,
    factor: Tensor,
    out: Tensor,
    *,
    slope: float,
    plan: WalkOrder | None = None,
) -> None:
    """Score every edge as GATv2 does, head by head.

    out[k, h] = factor[h] . leaky_relu(x[indices[k], h] + y[v, h]), for edge k of row v.

    Args:
        indptr: (num_rows + 1,) int64.
        indices: (num_edges,) int32. Rows of x.
        x: (num_sources, num_heads * width) float32 or float64, as all values.
        y: (num_rows, num_heads * width).
        factor: (num_heads * width,).
        out: (num_edges, num_heads). Written.
        slope: Of the leaky ReLU, below 0.
        plan: Of this graph.

    Raises:
        TypeError: If a dtype is not the documented one.
        ValueError: If shapes do not fit, or a tensor is not contiguous or on another device.

    References:
        Brody, Alon and Yahav, "How Attentive are Graph Attention Networks?", ICLR 2022, equation 7.
    """
    dtype = float_type("x", x)
    kernels_on("x", x).functions.sddmm_leaky(
        array("indptr", indptr, torch.int64, 1),
        array("indices", indices, torch.int32, 1),
        array("x", x, dtype, 2),
        array("y", y, dtype, 2),
        array("factor", factor, dtype, 1),
        array("out", out, dtype, 2),
        slope=slope,
        plan=None if plan is None else plan.handle,
    )


def sddmm_leaky_backward(
    indptr: Tensor,
    indices: Tensor,
    edge: Tensor | None,
    value: Tensor,
    x: Tensor,
    y: Tensor,
    out: Tensor,
    *,
    slope: float,
    plan: WalkOrder | None = None,
) -> None:
    """Sum the gradients of `sddmm_leaky` at one end of the edges, before their factor.

    out[v, h] = sum over k in row v of value[edge[k], h] * (x[indices[k], h] + y[v, h] > 0 ? 1 :
    slope), in the order of k. Times the factor that is the gradient of y[v]; over the graph by
    source, with x and y changed, that of x. Times y and summed over v, and likewise for x, both
    together are the gradient of the factor.

    Args:
        indptr: (num_rows + 1,) int64.
        indices: (num_edges,) int32. Rows of x.
        edge: (num_edges,) int64. Position of each edge in `value`; None for k.
        value: (num_edges, num_heads) float32 or float64, as all values. Gradients of the scores.
        x: (num_sources, num_heads * width).
        y: (num_rows, num_heads * width).
        out: (num_rows, num_heads * width). Written.
        slope: Of the leaky ReLU, below 0.
        plan: Of this graph.

    Raises:
        TypeError: If a dtype is not the documented one.
        ValueError: If shapes do not fit, or a tensor is not contiguous or on another device.
    """
    dtype = float_type("x", x)
    kernels_on("x", x).functions.sddmm_leaky_backward(
        array("indptr", indptr, torch.int64, 1),
        array("indices", indices, torch.int32, 1),
        None if edge is None else array("edge", edge, torch.int64, 1),
        array("value", value, dtype, 2),
        array("x", x, dtype, 2),
        array("y", y, dtype, 2),
        array("out", out, dtype, 2),
        slope=slope,
        plan=None if plan is None else plan.handle,
    )


def sddmm_add(
    indptr: Tensor,
    indices: Tensor,
    x: Tensor,
    y: Tensor,
    out: Tensor,
    *,
    plan: WalkOrder | None = None,
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
