"""Layers that propagate over several edges: SGC and APPNP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import nn

from distgnn.aggregate.traffic import sum_traffic
from distgnn.nn.convolution import Convolution
from distgnn.nn.gcn import normalised
from distgnn.nn.linear import Linear, map_own, propagate_mapped, set_bias

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
        in_channels: Columns of the input.
        out_channels: Columns of the output.
        K: Edges that rows travel over.
        bias: Whether b is learned; else it is 0.
        degrees: Degrees that S divides by, as in `GCNConv`.

    Shapes:
        input (num_rows, in_channels), output (num_rows, out_channels); linear.weight (out_channels,
        in_channels), bias (out_channels,).

    References:
        Wu et al., "Simplifying Graph Convolutional Networks", ICML 2019, equation 8.
    """

    bias: Tensor

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        K: int = 1,
        bias: bool = True,
        degrees: Degrees = "in",
    ) -> None:
        super().__init__()
        self.K = K
        self.linear = Linear(in_channels, out_channels, bias=False)
        set_bias(self, out_channels, is_learned=bias)
        self._hops = _Hops(normalised(degrees), K)

    def traffic(self, given: Given) -> LayerTraffic:
        """Return what a pass moves between ranks."""
        return self.linear.traffic(given).repeated(self._hops.number)

    def forward(self, graph: LocalGraph, rows: Rows) -> Tensor:
        """Apply the convolution; the narrower width travels, or nothing if the input is static."""
        return propagate_mapped(graph, rows, self.linear, self._hops) + self.bias


class APPNP(nn.Module):
    """Propagation of rows as in personalised PageRank, without weights.

    Z_0 = H, and Z_k+1 = (1 - alpha) S Z_k + alpha Z_0 with the S of `GCNConv`; H' = Z_K.

    Args:
        K: Steps.
        alpha: Probability of returning to the vertex itself.
        degrees: Degrees that S divides by, as in `GCNConv`.

    Shapes:
        input and output (num_rows, width).

    References:
        Gasteiger, Bojchevski and Guennemann, "Predict then Propagate: Graph Neural Networks meet
        Personalized PageRank", ICLR 2019, equation 5.
    """

    def __init__(self, K: int = 10, alpha: float = 0.1, *, degrees: Degrees = "in") -> None:
        super().__init__()
        self.K = K
        self.alpha = alpha
        self._propagation = normalised(degrees)

    def forward(self, graph: LocalGraph, rows: Tensor) -> Tensor:
        """Propagate (num_rows, width) rows over K edges."""
        back, result = self.alpha * rows, rows
        for _ in range(self.K):
            result = torch.add(back, self._propagation(graph, result), alpha=1 - self.alpha)
        return result


class APPNPConv(Convolution):
    """A linear map, then `APPNP`: H' = APPNP(H W + b).

    Args:
        in_channels: Columns of the input.
        out_channels: Columns of the output.
        K: Steps.
        alpha: Probability of returning to the vertex itself.
        degrees: Degrees that S divides by, as in `GCNConv`.

    Shapes:
        input (num_rows, in_channels), output (num_rows, out_channels); linear.weight (out_channels,
        in_channels), linear.bias (out_channels,).

    References:
        See `APPNP`.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        K: int = 10,
        alpha: float = 0.1,
        degrees: Degrees = "in",
    ) -> None:
        super().__init__()
        self.linear = Linear(in_channels, out_channels)
        self.propagation = APPNP(K, alpha, degrees=degrees)

    def traffic(self, given: Given) -> LayerTraffic:
        """Return what a pass moves between ranks: mapped rows, once a step."""
        del given
        return sum_traffic(self.linear.out_channels).repeated(self.propagation.K)

    def forward(self, graph: LocalGraph, rows: Rows) -> Tensor:
        """Map the rows and propagate the result."""
        return self.propagation(graph, map_own(graph, rows, self.linear))  # type: ignore[no-any-return]
