"""Values per edge and head: sums with such weights, and what is made of the rows at both ends.

Rows have `num_heads` heads of equal width, one after the other. The rules of `distgnn.kernels` hold
here.
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


def spmm_heads(
    graph: Csr,
    weight: Tensor,
    x: Tensor,
    out: Tensor,
    *,
    accumulate: bool,
) -> None:
    """Sum the source rows of every destination row, each head with a weight of its own.

    out[v, h] = sum over k in row v of weight[k, h] * x[indices[k], h], in the order of k.

    Args:
        graph: Edges by destination; columns are rows of x.
        weight: (num_edges, num_heads) float32 or float64, as all values.
        x: (num_sources, num_heads * width).
        out: (num_rows, num_heads * width). Written.
        accumulate: Start the sums from the values in `out` instead of zero.
    """
    dtype = float_type("x", x)
    kernels_on("x", x).functions.spmm_heads(
        *ends(graph),
        array("weight", weight, dtype, 2),
        array("x", x, dtype, 2),
        array("out", out, dtype, 2),
        accumulate=accumulate,
        walk=handle(graph),
    )


def sddmm_dot(
    graph: Csr,
    x: Tensor,
    y: Tensor,
    out: Tensor,
) -> None:
    """Multiply the rows at both ends of every edge, head by head.

    out[k, h] = dot product of x[indices[k], h] and y[v, h], for edge k of row v.

    Args:
        graph: Edges by destination; columns are rows of x.
        x: (num_sources, num_heads * width) float32 or float64, as all values.
        y: (num_rows, num_heads * width).
        out: (num_edges, num_heads). Written.
    """
    dtype = float_type("x", x)
    kernels_on("x", x).functions.sddmm_dot(
        *ends(graph),
        array("x", x, dtype, 2),
        array("y", y, dtype, 2),
        array("out", out, dtype, 2),
        walk=handle(graph),
    )


def sddmm_leaky(
    graph: Csr,
    x: Tensor,
    y: Tensor,
    factor: Tensor,
    out: Tensor,
    *,
    slope: float,
) -> None:
    """Score every edge as GATv2 does, head by head.

    out[k, h] = factor[h] . leaky_relu(x[indices[k], h] + y[v, h]), for edge k of row v.

    Args:
        graph: Edges by destination; columns are rows of x.
        x: (num_sources, num_heads * width) float32 or float64, as all values.
        y: (num_rows, num_heads * width).
        factor: (num_heads * width,).
        out: (num_edges, num_heads). Written.
        slope: Slope of the leaky ReLU below 0.

    References:
        Brody, Alon and Yahav, "How Attentive are Graph Attention Networks?", ICLR 2022, equation 7.
    """
    dtype = float_type("x", x)
    kernels_on("x", x).functions.sddmm_leaky(
        *ends(graph),
        array("x", x, dtype, 2),
        array("y", y, dtype, 2),
        array("factor", factor, dtype, 1),
        array("out", out, dtype, 2),
        slope=slope,
        walk=handle(graph),
    )


def sddmm_leaky_backward(
    graph: Csr,
    value: Tensor,
    x: Tensor,
    y: Tensor,
    out: Tensor,
    *,
    slope: float,
) -> None:
    """Sum the gradients of `sddmm_leaky` at one end of the edges, before their factor.

    out[v, h] = sum over k in row v of value[position[k], h] * (x[indices[k], h] + y[v, h] > 0 ? 1 :
    slope), in the order of k. Times the factor that is the gradient of y[v]; over the graph by
    source, with x and y changed, that of x. Times y and summed over v, and likewise for x, both
    together are the gradient of the factor.

    Args:
        graph: Edges by destination, or by source with positions: where each edge stands in `value`.
            Columns are rows of x.
        value: (num_edges, num_heads) float32 or float64, as all values. Gradients of the scores.
        x: (num_sources, num_heads * width).
        y: (num_rows, num_heads * width).
        out: (num_rows, num_heads * width). Written.
        slope: Slope of the leaky ReLU below 0.
    """
    dtype, position = float_type("x", x), graph.position
    kernels_on("x", x).functions.sddmm_leaky_backward(
        *ends(graph),
        None if position is None else array("position", position, torch.int64, 1),
        array("value", value, dtype, 2),
        array("x", x, dtype, 2),
        array("y", y, dtype, 2),
        array("out", out, dtype, 2),
        slope=slope,
        walk=handle(graph),
    )


def sddmm_add(
    graph: Csr,
    x: Tensor,
    y: Tensor,
    out: Tensor,
) -> None:
    """Add the values at both ends of every edge: out[k] = x[indices[k]] + y[v], for k in row v.

    Args:
        graph: Edges by destination; columns are rows of x.
        x: (num_sources, num_heads) float32 or float64, as all values.
        y: (num_rows, num_heads).
        out: (num_edges, num_heads). Written.
    """
    dtype = float_type("x", x)
    kernels_on("x", x).functions.sddmm_add(
        *ends(graph),
        array("x", x, dtype, 2),
        array("y", y, dtype, 2),
        array("out", out, dtype, 2),
        walk=handle(graph),
    )
