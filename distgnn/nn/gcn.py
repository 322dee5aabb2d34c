"""The graph convolution of Kipf and Welling."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from distgnn.nn.linear import Linear
from distgnn.ops import SparseRows

if TYPE_CHECKING:
    from torch import Tensor

    from distgnn.graph import LocalGraph
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

    def forward(self, graph: LocalGraph, rows: Rows) -> Tensor:
        """Apply the convolution; the narrower of input and output is what travels."""
        if isinstance(rows, SparseRows) or self.linear.in_width > self.linear.out_width:
            return self._propagate(graph, self.linear(rows)) + self.bias
        mapped: Tensor = self.linear(self._propagate(graph, rows))
        return mapped + self.bias

    @staticmethod
    def _propagate(graph: LocalGraph, rows: Tensor) -> Tensor:
        added = (graph.self_loops == 0).to(rows.dtype)
        degree = graph.in_weight.to(rows.dtype) + added
        scale = torch.where(degree > 0, degree.clamp(min=torch.finfo(rows.dtype).tiny).rsqrt(), 0)
        scaled = rows * scale
        return (graph.aggregate(scaled) + scaled * added) * scale
