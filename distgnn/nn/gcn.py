"""The graph convolution of Kipf and Welling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

import torch

from distgnn.aggregate.sums import Weighting
from distgnn.graph.local_graph import added_loops, gcn_scale, inverse_root
from distgnn.kernels.tensors import column, computed
from distgnn.nn.convolution import FusedConvolution
from distgnn.nn.linear import Linear, propagate_mapped, set_bias
from distgnn.nn.update import Maps
from distgnn.settings.names import Degrees

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from distgnn.aggregate.traffic import LayerTraffic
    from distgnn.graph.local_graph import LocalGraph, Propagation
    from distgnn.nn.activation import Activation
    from distgnn.nn.linear import Given
    from distgnn.ops.rows import Rows

_LOOPS = Weighting(has_loops=True)


class GCNConv(FusedConvolution):
    """Graph convolution: H' = S H W + b with S = D^-1/2 (A + I) D^-1/2.

    Per vertex::

        h'_v = b + W^T (s_v h_v / d_v + sum over in-edges uv of h_u w_uv / sqrt(d_u d_v))

    As in PyG, d_v is 1 plus the sum of the weights of v's in-edges. A vertex that has a
    self-loop already keeps it and gets no other (s_v is then 0, and d_v has no 1).

    Where edges have directions, `degrees` says which of them count. "in" is the above. With
    "out-in", as in DGL, the d_u of an edge's source sums the weights of its out-edges, and s_v h_v
    is divided by the root of both degrees of v. The two are the same if each edge has its reverse.

    Args:
        in_channels: Columns of the input.
        out_channels: Columns of the output.
        bias: Whether b is learned; else it is 0.
        degrees: in or out-in.

    Shapes:
        input (num_rows, in_channels), output (num_rows, out_channels); weight (out_channels,
        in_channels), bias (out_channels,).

    Raises:
        ValueError: If the degrees are others.

    References:
        Kipf and Welling, "Semi-Supervised Classification with Graph Convolutional Networks", ICLR
        2017, equation 2.
    """

    bias: Tensor

    def __init__(
        self, in_channels: int, out_channels: int, *, bias: bool = True, degrees: Degrees = "in"
    ) -> None:
        super().__init__()
        self._propagation = normalised(degrees)
        self.linear = Linear(in_channels, out_channels, bias=False)
        set_bias(self, out_channels, is_learned=bias)

    def forward(
        self, graph: LocalGraph, rows: Rows, activation: Activation | None = None
    ) -> Tensor:
        """Apply the convolution; nothing travels where the input is static."""
        if self.is_one_operation(rows):
            return self.mapped(graph, rows, self.maps, activation)
        result = propagate_mapped(graph, rows, self.linear, self._propagation) + self.bias
        return result if activation is None else activation.apply(graph, result)

    @property
    def maps(self) -> Maps:
        """The weights."""
        return Maps(None, self.linear.weight, self.bias)

    def weighted_sum(self, graph: LocalGraph) -> tuple[Propagation, Weighting]:
        """Return the multiplication by S, and S."""
        return self._propagation, self._propagation.weighting(graph, self.bias.dtype)

    @property
    def sum_map(self) -> Linear:
        """The map of the sums."""
        return self.linear

    def _traffic_apart(self, given: Given) -> LayerTraffic:
        return self.linear.traffic(given)


@dataclass(frozen=True)
class Normalised:
    """The multiplication by S; see `GCNConv`. Equal ones are one to a graph's memory.

    Attributes:
        source_scale: Function that gives the factor of each row where edges start.
    """

    source_scale: Callable[[LocalGraph], Tensor]

    def weighting(self, graph: LocalGraph, dtype: torch.dtype) -> Weighting:
        """Return S as a weighted sum.

        Args:
            graph: A whole graph or a part.
            dtype: Type of the factors.
        """
        source_factor = graph.once_at_sources(self.source_scale, dtype)
        return Weighting(graph.once(gcn_scale, dtype), source_factor, has_loops=True)

    def __call__(self, graph: LocalGraph, rows: Tensor) -> Tensor:
        """Multiply rows, as a type that is computed with; at set-up as they are stored."""
        dtype = computed(rows.dtype)
        if not graph.is_setup:
            rows = rows.to(dtype)
        return graph.sum_weighted(rows, self.weighting(graph, dtype))


def normalised(degrees: Degrees) -> Normalised:
    """Return the multiplication by S; see `GCNConv`.

    Args:
        degrees: in or out-in.

    Raises:
        ValueError: If they are others.
    """
    if degrees not in get_args(Degrees):
        raise ValueError(f"degrees must be in or out-in, got '{degrees}'")
    return Normalised(gcn_scale if degrees == "in" else _out_scale)


def _out_scale(graph: LocalGraph) -> Tensor:
    """(num_rows,): collective in a weighted graph."""
    if graph.part.edge_weight is None:
        degree = column(graph.part.out_degree[: graph.num_rows]).to(graph.device)
        return inverse_root(degree.double() + added_loops(graph))[:, 0]
    sums = graph.at_setup(_sum_at_sources, _ones(graph))
    return inverse_root(sums.double())[:, 0]


def _ones(graph: LocalGraph) -> Tensor:
    return torch.ones(graph.num_rows, 1, device=graph.device)


def _sum_at_sources(graph: LocalGraph, ones: Tensor) -> Tensor:
    return graph.sum_backward(ones, _LOOPS)
