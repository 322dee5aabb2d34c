"""The graph convolution of Kipf and Welling."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

import torch
from torch import nn

from distgnn.arrays import computed
from distgnn.nn.convolution import Convolution
from distgnn.nn.linear import Linear, dense, maps_first

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from distgnn.exchange.traffic import LayerTraffic
    from distgnn.graph import LocalGraph, Propagation
    from distgnn.nn.linear import Given
    from distgnn.ops import Rows

Degrees = Literal["in", "out-in"]


class GCNConv(Convolution):
    """Graph convolution: H' = S H W + b with S = D^-1/2 (A + I) D^-1/2.

    Per vertex: h'_v = b + W^T (s_v h_v / d_v + sum over in-edges uv of h_u w_uv / sqrt(d_u d_v)),
    where d_v is 1 plus the sum of the weights of v's in-edges, as in PyG. A vertex that has a
    self-loop already keeps it and gets no other (s_v is then 0, and d_v has no 1).

    Where edges have directions, `degrees` says which count: "in" is the above; with "out-in" the
    d_u of an edge's source sums the weights of its out-edges, as in DGL, and s_v h_v is divided by
    the root of both degrees of v. The two are the same if each edge has its reverse.

    Args:
        in_width: Columns of the input.
        out_width: Columns of the output.
        degrees: in or out-in.

    Shapes:
        input (num_rows, in_width), output (num_rows, out_width); weight (out_width, in_width),
        bias (out_width,).

    Raises:
        ValueError: If the degrees are others.

    References:
        Kipf and Welling, "Semi-Supervised Classification with Graph Convolutional Networks", ICLR
        2017, equation 2.
    """

    def __init__(self, in_width: int, out_width: int, *, degrees: Degrees = "in") -> None:
        super().__init__()
        self._propagation = normalised(degrees)
        self.linear = Linear(in_width, out_width, bias=False)
        self.bias = nn.Parameter(torch.zeros(out_width))

    def traffic(self, given: Given) -> LayerTraffic:
        """Say what a pass moves between ranks."""
        return self.linear.traffic(given)

    def forward(self, graph: LocalGraph, rows: Rows) -> Tensor:
        """Apply the convolution; the narrower width travels, or nothing if the input is static."""
        if maps_first(graph, rows, self.linear):
            return graph.propagate(self._propagation, self.linear(rows)) + self.bias
        mapped: Tensor = self.linear(graph.propagate(self._propagation, dense(rows)))
        return mapped + self.bias


def normalised(degrees: Degrees) -> Propagation:
    """Return the multiplication by S; see `GCNConv`.

    Args:
        degrees: in or out-in.

    Raises:
        ValueError: If they are others.
    """
    if degrees not in get_args(Degrees):
        raise ValueError(f"degrees must be in or out-in, got '{degrees}'")
    return _by_in_degrees if degrees == "in" else _by_out_and_in_degrees


def _by_in_degrees(graph: LocalGraph, rows: Tensor) -> Tensor:
    return _propagated(graph, rows, _in_scale)


def _by_out_and_in_degrees(graph: LocalGraph, rows: Tensor) -> Tensor:
    return _propagated(graph, rows, _out_scale)


def _propagated(
    graph: LocalGraph, rows: Tensor, source_scale: Callable[[LocalGraph], Tensor]
) -> Tensor:
    dtype = computed(rows.dtype)
    scaled = rows * graph.once_at_sources(source_scale, dtype)
    loops = graph.own(scaled) * graph.once(_added_loops, dtype)
    total = graph.aggregate(scaled) + loops
    return total * graph.once(_in_scale, dtype)


def _added_loops(graph: LocalGraph) -> Tensor:
    """(num_rows, 1): 1 where a self-loop is added."""
    return (graph.self_loops == 0).double()


def _in_scale(graph: LocalGraph) -> Tensor:
    return inverse_root(graph.in_weight.double() + _added_loops(graph))


def _out_scale(graph: LocalGraph) -> Tensor:
    return inverse_root(graph.out_weight.double() + _added_loops(graph))


def inverse_root(degree: Tensor) -> Tensor:
    """Return D^-1/2, and 0 where the degree is not positive.

    Args:
        degree: (num_rows, 1) float64.
    """
    tiny = torch.finfo(torch.float64).tiny
    return torch.where(degree > 0, degree.clamp(min=tiny).rsqrt(), 0)
