"""GraphSAGE."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

import torch

from distgnn.aggregate.sums import Weighting
from distgnn.aggregate.traffic import NO_TRAFFIC, maximum_traffic
from distgnn.graph.local_graph import inverse_in_degree
from distgnn.kernels.tensors import computed
from distgnn.nn.convolution import FusedConvolution
from distgnn.nn.linear import Linear, map_own, propagate_mapped
from distgnn.nn.update import Maps
from distgnn.settings.names import Aggregator

if TYPE_CHECKING:
    from typing import TypeGuard

    from torch import Tensor

    from distgnn.aggregate.traffic import LayerTraffic
    from distgnn.graph.local_graph import LocalGraph, Propagation
    from distgnn.nn.activation import Activation
    from distgnn.nn.linear import Given
    from distgnn.ops.rows import Rows


class SAGEConv(FusedConvolution):
    """GraphSAGE convolution.

    By `aggr`::

        mean, max   h'_v = W_root h_v + W_neighbour reduce over in-neighbours u of h_u + b
        pool        max of relu(W_pool h_u + b_pool) instead, which is as wide as the input
        gcn         h'_v = W_neighbour (h_v + sum over in-neighbours u of h_u) / (in-degree + 1) + b

    Sums and means take rows times the weights of edges; maxima do not read these.

    Args:
        in_channels: Columns of the input.
        out_channels: Columns of the output.
        aggr: How rows are reduced: mean, max, pool or gcn.

    Shapes:
        input (num_rows, in_channels), output (num_rows, out_channels).

    Raises:
        ValueError: If aggr is another.

    References:
        Hamilton, Ying and Leskovec, "Inductive Representation Learning on Large Graphs", NeurIPS
        2017, section 3.3.
    """

    def __init__(self, in_channels: int, out_channels: int, *, aggr: Aggregator = "mean") -> None:
        super().__init__()
        if aggr not in get_args(Aggregator):
            raise ValueError(f"aggr must be mean, gcn, max or pool, got '{aggr}'")
        self.aggr = aggr
        self.neighbour = Linear(in_channels, out_channels)
        self.root = None if aggr == "gcn" else Linear(in_channels, out_channels, bias=False)
        self.pool = Linear(in_channels, in_channels) if aggr == "pool" else None

    def forward(
        self, graph: LocalGraph, rows: Rows, activation: Activation | None = None
    ) -> Tensor:
        """Apply the convolution; of a mean the narrower width travels."""
        if self.is_one_operation(rows):
            return self.mapped(graph, rows, self.maps, activation)
        result = self._convolve(graph, rows)
        return result if activation is None else activation.apply(graph, result)

    @property
    def maps(self) -> Maps:
        """The weights of a mean."""
        assert self.root is not None, "a mean has both maps"
        assert self.neighbour.bias is not None, "a mean has both maps"
        root = self.root.weight
        return Maps(root, self.neighbour.weight, self.neighbour.bias, (root,))

    def weighted_sum(self, graph: LocalGraph) -> tuple[Propagation, Weighting]:
        """Return the mean, as a multiplication and as a weighted sum."""
        return _mean, Weighting(graph.once(inverse_in_degree, self.neighbour.weight.dtype))

    @property
    def sum_map(self) -> Linear:
        """The map of the neighbours' rows."""
        return self.neighbour

    def is_one_operation(self, rows: Rows) -> TypeGuard[Tensor]:
        """Whether these rows get the layer with all that follows as one operation.

        Args:
            rows: (num_sources, in_channels).
        """
        return self.aggr == "mean" and super().is_one_operation(rows)

    def _traffic_apart(self, given: Given) -> LayerTraffic:
        item_bytes = given.item_bytes
        if self.pool is not None:
            return maximum_traffic(self.pool.out_channels)
        if self.aggr != "max":
            return self.neighbour.traffic(given, item_bytes=item_bytes, gradient_bytes=item_bytes)
        traffic = NO_TRAFFIC if given.is_static else maximum_traffic(self.neighbour.in_channels)
        return traffic if given.has_gradient else traffic.without_gradient()

    def _convolve(self, graph: LocalGraph, rows: Rows) -> Tensor:
        if self.root is None:
            return propagate_mapped(graph, rows, self.neighbour, _mean_with_self)
        own = map_own(graph, rows, self.root)
        if self.aggr == "mean":
            return own + propagate_mapped(graph, rows, self.neighbour, _mean)
        if self.pool is None:
            neighbours = self.neighbour(graph.propagate(_maximum, rows))
        else:
            neighbours = self.neighbour(_maximum(graph, torch.relu(self.pool(rows))))
        return own + neighbours  # type: ignore[no-any-return]


def _mean(graph: LocalGraph, rows: Tensor) -> Tensor:
    return graph.aggregate(rows, "mean")


def _mean_with_self(graph: LocalGraph, rows: Tensor) -> Tensor:
    factor = graph.once(_inverse_closed_degree, computed(rows.dtype))
    return (graph.aggregate(rows) + graph.own(rows)) * factor


def _inverse_closed_degree(graph: LocalGraph) -> Tensor:
    return 1 / (graph.in_degree.double() + 1)


def _maximum(graph: LocalGraph, rows: Tensor) -> Tensor:
    return graph.aggregate(rows, "max")
