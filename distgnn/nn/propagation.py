"""Layers that propagate over several edges: SGC and APPNP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import nn

from distgnn.aggregate.traffic import sum_traffic
from distgnn.nn.convolution import Convolution
from distgnn.nn.gcn import normalised
from distgnn.nn.linear import Linear, map_own, maps_first

if TYPE_CHECKING:
    from torch import Tensor

    from distgnn.aggregate.traffic import LayerTraffic
    from distgnn.graph.local_graph import LocalGraph, Propagation
    from distgnn.nn.linear import Given
    from distgnn.ops.rows import Rows
    from distgnn.settings.names import Degrees


@dataclass(frozen=True)
class _Hops:
    """A propagation, several times; equal ones are one to a graph's memory."""

    propagation: Propagation
    number: int

    def __call__(self, graph: LocalGraph, rows: Tensor) -> Tensor:
        for _ in range(self.number):
            rows = self.propagation(graph, rows)
        return rows


class SGConv(Convolution):
    """Simple graph convolution: H' = S^K H W + b, with the S of `GCNConv`.

    Input that never changes is propagated once, and every epoch is then that of a linear model.

    Args:
        in_width: Columns of the input.
        out_width: Columns of the output.
        hops: K.
        degrees: As in `GCNConv`.

    Shapes:
        input (num_rows, in_width), output (num_rows, out_width); linear.weight (out_width,
        in_width), bias (out_width,).

    References:
        Wu et al., "Simplifying Graph Convolutional Networks", ICML 2019, equation 8.
    """

    def __init__(
        self, in_width: int, out_width: int, *, hops: int = 2, degrees: Degrees = "in"
    ) -> None:
        super().__init__()
        self.linear = Linear(in_width, out_width, bias=False)
        self.bias = nn.Parameter(torch.zeros(out_width))
        self._hops = _Hops(normalised(degrees), hops)

    def traffic(self, given: Given) -> LayerTraffic:
        """Say what a pass moves between ranks."""
        return self.linear.traffic(given).repeated(self._hops.number)

    def forward(self, graph: LocalGraph, rows: Rows) -> Tensor:
        """Apply the convolution; the narrower width travels, or nothing if the input is static."""
        if maps_first(graph, rows, self.linear):
            summed: Tensor = graph.propagate(self._hops, self.linear(rows))
            return summed + self.bias
        mapped: Tensor = self.linear(graph.propagate(self._hops, rows))
        return mapped + self.bias


class APPNPConv(Convolution):
    """A linear map whose result is propagated as personalised PageRank does.

    Z_0 = H W + b, and Z_k+1 = (1 - alpha) S Z_k + alpha Z_0 with the S of `GCNConv`; H' = Z_K.

    Args:
        in_width: Columns of the input.
        out_width: Columns of the output.
        hops: K.
        alpha: Probability of going back to the vertex itself.
        degrees: As in `GCNConv`.

    Shapes:
        input (num_rows, in_width), output (num_rows, out_width); linear.weight (out_width,
        in_width), linear.bias (out_width,).

    References:
        Gasteiger, Bojchevski and Guennemann, "Predict then Propagate: Graph Neural Networks meet
        Personalized PageRank", ICLR 2019, equation 5.
    """

    def __init__(
        self,
        in_width: int,
        out_width: int,
        *,
        hops: int = 10,
        alpha: float = 0.1,
        degrees: Degrees = "in",
    ) -> None:
        super().__init__()
        self.linear = Linear(in_width, out_width)
        self.hops = hops
        self.alpha = alpha
        self._propagation = normalised(degrees)

    def traffic(self, given: Given) -> LayerTraffic:
        """Say what a pass moves between ranks: mapped rows, once a hop."""
        del given
        return sum_traffic(self.linear.out_width).repeated(self.hops)

    def forward(self, graph: LocalGraph, rows: Rows) -> Tensor:
        """Apply the map and the propagation."""
        start = map_own(graph, rows, self.linear)
        back, result = self.alpha * start, start
        for _ in range(self.hops):
            result = torch.add(back, self._propagation(graph, result), alpha=1 - self.alpha)
        return result
