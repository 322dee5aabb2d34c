"""The graph convolution of Kipf and Welling."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from distgnn.arrays import computed
from distgnn.nn.linear import Linear, dense, maps_first

if TYPE_CHECKING:
    from torch import Tensor

    from distgnn.exchange.traffic import LayerTraffic
    from distgnn.graph import LocalGraph
    from distgnn.nn.linear import Given
    from distgnn.ops import Rows


class GCNConv(nn.Module):
    """Graph convolution: H' = D^-1/2 (A + I) D^-1/2 H W + b.

    Per vertex: h'_v = b + W^T (s_v h_v / d_v + sum over in-edges uv of h_u w_uv / sqrt(d_u d_v)),
    where d_v is 1 plus the sum of the weights of v's in-edges, as in PyG. A vertex that has a
    self-loop already keeps it and gets no other (s_v is then 0, and d_v has no 1).

    Args:
        in_width: Columns of the input.
        out_width: Columns of the output.

    Shapes:
        input (num_rows, in_width), output (num_rows, out_width); weight (out_width, in_width),
        bias (out_width,).

    References:
        Kipf and Welling, "Semi-Supervised Classification with Graph Convolutional Networks", ICLR
        2017, equation 2.
    """

    def __init__(self, in_width: int, out_width: int) -> None:
        super().__init__()
        self.linear = Linear(in_width, out_width, bias=False)
        self.bias = nn.Parameter(torch.zeros(out_width))

    def traffic(self, given: Given) -> LayerTraffic:
        """Say what a pass moves between ranks."""
        return self.linear.traffic(given)

    def forward(self, graph: LocalGraph, rows: Rows) -> Tensor:
        """Apply the convolution; the narrower width travels, or nothing if the input is static."""
        if maps_first(graph, rows, self.linear):
            return graph.propagate(symmetric, self.linear(rows)) + self.bias
        mapped: Tensor = self.linear(graph.propagate(symmetric, dense(rows)))
        return mapped + self.bias


def symmetric(graph: LocalGraph, rows: Tensor) -> Tensor:
    """Multiply by D^-1/2 (A + I) D^-1/2; see `GCNConv`.

    Args:
        graph: A whole graph or a part.
        rows: (num_rows, width).

    Returns:
        (num_rows, width).
    """
    dtype = computed(rows.dtype)
    scaled = rows * graph.once_at_sources(_scale, dtype)
    loops = graph.own(scaled) * graph.once(_added_loops, dtype)
    total = graph.aggregate(scaled) + loops
    return total * graph.once(_scale, dtype)


def _added_loops(graph: LocalGraph) -> Tensor:
    """(num_rows, 1): 1 where a self-loop is added."""
    return (graph.self_loops == 0).double()


def _scale(graph: LocalGraph) -> Tensor:
    """(num_rows, 1): D^-1/2, and 0 where the degree is not positive."""
    degree = graph.in_weight.double() + _added_loops(graph)
    tiny = torch.finfo(torch.float64).tiny
    return torch.where(degree > 0, degree.clamp(min=tiny).rsqrt(), 0)
