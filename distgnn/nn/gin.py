"""The graph isomorphism network, without and with features of edges."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from distgnn.aggregate.traffic import sum_traffic
from distgnn.kernels.tensors import computed
from distgnn.nn.convolution import Convolution
from distgnn.nn.linear import Linear, maps_first
from distgnn.ops.rows import is_tensor

if TYPE_CHECKING:
    from torch import Tensor

    from distgnn.aggregate.traffic import LayerTraffic
    from distgnn.graph.local_graph import LocalGraph
    from distgnn.nn.linear import Given
    from distgnn.ops.rows import Rows


class GINConv(Convolution):
    """Graph isomorphism convolution: a sum, and two maps with a ReLU between them.

    h'_v = W_2 relu(W_1 ((1 + eps) h_v + sum over in-edges uv of w_uv h_u) + b_1) + b_2, with
    w_uv = 1 where edges have no weights.

    Args:
        in_channels: Columns of the input.
        out_channels: Columns of the output.
        hidden_channels: Columns between the maps; those of the output if None.
        eps: Fixed, or where it starts.
        train_eps: Whether eps is a weight.

    Shapes:
        input (num_rows, in_channels), output (num_rows, out_channels); first.weight
        (hidden_channels, in_channels), second.weight (out_channels, hidden_channels); eps (1,) if
        it is learned.

    References:
        Xu, Hu, Leskovec and Jegelka, "How Powerful are Graph Neural Networks?", ICLR 2019,
        equation 4.1.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        hidden_channels: int | None = None,
        eps: float = 0.0,
        train_eps: bool = False,
    ) -> None:
        super().__init__()
        inner = hidden_channels or out_channels
        self.first = Linear(in_channels, inner)
        self.second = Linear(inner, out_channels)
        self.eps = nn.Parameter(torch.full((1,), eps)) if train_eps else eps

    def traffic(self, given: Given) -> LayerTraffic:
        """Return what a pass moves between ranks."""
        size = given.item_bytes
        return self.first.traffic(given, item_bytes=size, gradient_bytes=size)

    def forward(self, graph: LocalGraph, rows: Rows) -> Tensor:
        """Apply the convolution; the narrower width of the first map travels."""
        if maps_first(graph, rows, self.first):
            inner = self._sum(graph, self.first.multiply(rows))
            if self.first.bias is not None:
                inner = inner + self.first.bias
        elif not is_tensor(rows):
            # Static rows and their sums are in host memory; their products are added on the device.
            inner = self.first(graph.propagate(_neighbours, rows))
            inner = inner + self.first.multiply(graph.own(rows)) * (1 + self.eps)
        else:
            inner = self.first(self._sum(graph, rows.to_dense()))
        result: Tensor = self.second(torch.relu(inner))
        return result

    def _sum(self, graph: LocalGraph, rows: Tensor) -> Tensor:
        dtype = computed(rows.dtype)
        neighbours = graph.propagate(_neighbours, rows).to(dtype)
        return neighbours + graph.own(rows).to(dtype) * (1 + self.eps)


class GINEConv(GINConv):
    """Graph isomorphism convolution of edges with features, which join the row that is passed on.

    h'_v = W_2 relu(W_1 ((1 + eps) h_v + sum over in-edges uv of w_uv relu(h_u + U e_uv + c)) +
    b_1) + b_2, with w_uv = 1 where edges have no weights.

    Args:
        in_channels: Columns of the input.
        out_channels: Columns of the output.
        edge_dim: Columns of the features of edges.
        hidden_channels: Columns between the maps; those of the output if None.
        eps: Fixed, or where it starts.
        train_eps: Whether eps is a weight.

    Shapes:
        as of `GINConv`; edge_linear.weight (in_channels, edge_dim), edge_linear.bias
        (in_channels,).

    References:
        Hu et al., "Strategies for Pre-training Graph Neural Networks", ICLR 2020; the map U as in
        PyG's GINEConv(edge_dim=...).
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        edge_dim: int,
        hidden_channels: int | None = None,
        eps: float = 0.0,
        train_eps: bool = False,
    ) -> None:
        super().__init__(
            in_channels, out_channels, hidden_channels=hidden_channels, eps=eps, train_eps=train_eps
        )
        self.edge_linear = Linear(edge_dim, in_channels)

    def traffic(self, given: Given) -> LayerTraffic:
        """Return what a pass moves between ranks: rows of the input's width, whatever the input."""
        traffic = sum_traffic(self.first.in_channels)
        return traffic if given.has_gradient else traffic.without_row_gradient()

    def forward(self, graph: LocalGraph, rows: Rows) -> Tensor:
        """Apply the convolution; rows of the input travel, features of edges do not."""
        x = rows.to_dense()
        x = x.to(computed(x.dtype))
        bias = self.edge_linear.bias
        assert bias is not None, "it was built with one"
        neighbours = graph.sum_with_features(x, self.edge_linear.weight, bias)
        inner = self.first(neighbours + graph.own(x) * (1 + self.eps))
        result: Tensor = self.second(torch.relu(inner))
        return result


def _neighbours(graph: LocalGraph, rows: Tensor) -> Tensor:
    return graph.aggregate(rows)
