"""Contracts of convolutions: the plain one, and those that take work of their neighbours in.

`Convolution` is what a model calls. An `ActivatedConvolution` also does the activation behind it. A
`FusedConvolution` is one operation from its input to its activation, where its input allows it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from torch import nn

from distgnn.aggregate.traffic import NO_TRAFFIC
from distgnn.nn.linear import Linear, is_multiplied_here, map_own, maps_first
from distgnn.nn.update import Layer, Watch, update

if TYPE_CHECKING:
    from typing import TypeGuard

    import torch
    from torch import Tensor

    from distgnn.aggregate.sums import Weighting
    from distgnn.aggregate.traffic import LayerTraffic
    from distgnn.graph.local_graph import LocalGraph, Propagation
    from distgnn.nn.activation import Activation
    from distgnn.nn.linear import Given
    from distgnn.nn.update import Maps
    from distgnn.ops.rows import Rows


class Convolution(nn.Module, ABC):
    """A layer that computes a vertex's row from the rows of its neighbourhood."""

    takes_activation: ClassVar[bool] = False
    """Whether `forward` takes the relu and dropout behind the layer as a third argument."""
    recomputes = False
    """Whether backward recomputes what it needs besides input and output."""

    def runs_again(self, given: Given) -> bool | None:
        """Return whether a layer that recomputes aggregates once more in backward.

        Args:
            given: Input of the layer.

        Returns:
            None for a layer of separate operations, which is recomputed as a whole.
        """
        del given
        return None

    @property
    def edge_bytes(self) -> int:
        """Bytes of an edge while the layer runs, besides those of its ends."""
        return 0

    @property
    def walk_bytes(self) -> int:
        """Bytes of an edge that a device keeps to walk edges one by one."""
        return 0

    def is_one_operation(self, rows: Rows) -> bool:
        """Return whether layer and activation are one operation, which decides what it keeps.

        Args:
            rows: (num_sources, in_channels) input.
        """
        del rows
        return False

    @abstractmethod
    def forward(self, graph: LocalGraph, rows: Rows) -> Tensor:
        """Apply the convolution.

        Args:
            graph: A whole graph or a part.
            rows: (num_sources, in_channels) input.

        Returns:
            (num_rows, out_channels).
        """

    @abstractmethod
    def traffic(self, given: Given) -> LayerTraffic:
        """Return what a pass moves between ranks.

        Args:
            given: Input of the layer.
        """

    def table_rows(self, graph: LocalGraph) -> list[tuple[nn.Parameter, Tensor]]:
        """Return the rows of learned tables that a training pass of this rank reads.

        Rows that no rank reads have a gradient of zero in every epoch.

        Args:
            graph: The graph that the layer runs on in training.

        Returns:
            Each table with (num_read,) int64 rows of it; none for layers without tables.
        """
        del graph
        return []

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw the weights again that are no linear map, which draws its own; here none.

        Args:
            generator: Source of random numbers; torch's global one if None.
        """
        del generator


class ActivatedConvolution(Convolution):
    """A convolution whose `forward` takes the relu and dropout behind it."""

    takes_activation: ClassVar[bool] = True

    @abstractmethod
    def runs_again(self, given: Given) -> bool | None:
        """See `Convolution`."""

    @abstractmethod
    def forward(
        self, graph: LocalGraph, rows: Rows, activation: Activation | None = None
    ) -> Tensor:
        """Apply the convolution.

        Args:
            graph: A whole graph or a part.
            rows: (num_sources, in_channels) input.
            activation: Activation behind the convolution; None for none.

        Returns:
            (num_rows, out_channels).
        """


class FusedConvolution(ActivatedConvolution):
    """A linear map of a weighted sum over neighbours: one `update.Layer` for rows that allow it."""

    @property
    @abstractmethod
    def sum_map(self) -> Linear:
        """Map of the sums."""

    @property
    @abstractmethod
    def maps(self) -> Maps:
        """Weights of the layer as one operation."""

    @abstractmethod
    def weighted_sum(self, graph: LocalGraph) -> tuple[Propagation, Weighting]:
        """Return the sum over neighbours: a function of graph and rows, and its factors.

        The function is the same object at every call, so that a graph can remember its results.

        Args:
            graph: A whole graph or a part.
        """

    def mapped(
        self, graph: LocalGraph, rows: Tensor, maps: Maps, activation: Activation | None
    ) -> Tensor:
        """Apply the layer as one operation, with other weights.

        Args:
            graph: A whole graph or a part.
            rows: (num_sources, in_channels) input for which `is_one_operation` holds.
            maps: Weights instead of those of the layer.
            activation: Activation behind the layer; None for none.

        Returns:
            (num_rows, out_channels).
        """
        propagation, weighting = self.weighted_sum(graph)
        observer, watch = self.sum_map.observer, None
        if observer is not None:
            watch = Watch(observer, maps.root_parts, self.sum_map.weight)
        layer = Layer(
            graph,
            propagation,
            weighting,
            maps_first=maps_first(graph, rows, self.sum_map),
            activation=activation,
            recomputes=self.recomputes,
            watch=watch,
        )
        return update(rows, maps, layer)

    def is_one_operation(self, rows: Rows) -> TypeGuard[Tensor]:
        """Return whether these rows get layer and activation as one operation.

        Args:
            rows: (num_sources, in_channels) input.
        """
        return is_multiplied_here(rows, self.sum_map.weight)

    def runs_again(self, given: Given) -> bool | None:
        """Return whether backward aggregates again; passing a gradient back does not count."""
        if not self._will_be_one_operation(given):
            return None
        return not (given.is_static or self._passes_gradient_back(given))

    def traffic(self, given: Given) -> LayerTraffic:
        """Return what a pass moves between ranks."""
        if not self._will_be_one_operation(given):
            return self._traffic_apart(given)
        # See Layer.inner_dtype.
        inner = min(given.item_bytes, given.out_bytes)
        goes_back = given.has_gradient or self._passes_gradient_back(given)
        return self.sum_map.traffic(
            given._replace(has_gradient=goes_back),
            item_bytes=given.item_bytes,
            gradient_bytes=inner,
            mapped_bytes=inner,
        )

    @abstractmethod
    def _traffic_apart(self, given: Given) -> LayerTraffic:
        """Return what a pass moves as separate operations."""

    def _will_be_one_operation(self, given: Given) -> bool:
        # Rows are computed with as the type of the weight, whatever they are stored as.
        return not given.is_sparse and self.is_one_operation(self.sum_map.weight)

    def _passes_gradient_back(self, given: Given) -> bool:
        """Return whether the gradient of the map is made from what is passed back."""
        return not given.is_static and self.sum_map.out_channels <= self.sum_map.in_channels


class Dense(Convolution):
    """A layer that reads no neighbour: h'_v = W h_v + b.

    Args:
        in_channels: Columns of the input.
        out_channels: Columns of the output.

    Shapes:
        input (num_rows, in_channels), output (num_rows, out_channels).
    """

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.linear = Linear(in_channels, out_channels)

    def traffic(self, given: Given) -> LayerTraffic:
        """Return what a pass moves between ranks: nothing."""
        del given
        return NO_TRAFFIC

    def forward(self, graph: LocalGraph, rows: Rows) -> Tensor:
        """Map the rows of the vertices that the layer makes rows of."""
        return map_own(graph, rows, self.linear)
