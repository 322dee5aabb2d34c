"""Convolutions that run as one operation with the activation behind them."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from distgnn.nn.convolution import ActivatedConvolution
from distgnn.nn.linear import is_multiplied_here, maps_first
from distgnn.nn.update import Layer, update

if TYPE_CHECKING:
    from typing import TypeGuard

    from torch import Tensor

    from distgnn.aggregate.sums import Weighting
    from distgnn.aggregate.traffic import LayerTraffic
    from distgnn.graph.local_graph import LocalGraph, Propagation
    from distgnn.nn.linear import Given, Linear
    from distgnn.nn.update import Activation, Maps
    from distgnn.ops.rows import Rows


class FusedConvolution(ActivatedConvolution):
    """A linear map of a weighted sum over neighbours; where it may, one `update.Layer`."""

    @property
    @abstractmethod
    def sum_map(self) -> Linear:
        """The map of the sums."""

    @property
    @abstractmethod
    def maps(self) -> Maps:
        """The weights of the layer as one operation."""

    @abstractmethod
    def weighted_sum(self, graph: LocalGraph) -> tuple[Propagation, Weighting]:
        """Return the sum over neighbours: what makes it, the same object always, and its factors.

        Args:
            graph: A whole graph or a part.
        """

    def mapped(
        self, graph: LocalGraph, rows: Tensor, maps: Maps, activation: Activation | None
    ) -> Tensor:
        """Apply the layer as one operation, with other weights.

        Args:
            graph: A whole graph or a part.
            rows: (num_sources, in_width), for which `is_one_operation` holds.
            maps: Instead of those of the layer.
            activation: Follows the layer.

        Returns:
            (num_rows, out_width).
        """
        propagation, weighting = self.weighted_sum(graph)
        layer = Layer(
            graph,
            propagation,
            weighting,
            maps_first=maps_first(graph, rows, self.sum_map),
            activation=activation,
            recomputes=self.recomputes,
        )
        return update(rows, maps, layer)

    def is_one_operation(self, rows: Rows) -> TypeGuard[Tensor]:
        """Whether these rows get the layer with all that follows as one operation.

        Args:
            rows: (num_sources, in_width).
        """
        return is_multiplied_here(rows, self.sum_map.weight)

    def runs_again(self, given: Given) -> bool | None:
        """See `ActivatedConvolution.runs_again`; sums that are passed back are none."""
        if not self._will_be_one_operation(given):
            return None
        return not (given.is_static or self._passes_gradient_back(given))

    def traffic(self, given: Given) -> LayerTraffic:
        """Say what a pass moves between ranks."""
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
        """Say what a pass moves as separate operations."""

    def _will_be_one_operation(self, given: Given) -> bool:
        # Rows of whatever type are taken that are computed with as the weight's.
        return not given.is_sparse and self.is_one_operation(self.sum_map.weight)

    def _passes_gradient_back(self, given: Given) -> bool:
        """Whether the gradient of the map is made of what is passed back."""
        return not given.is_static and self.sum_map.out_width <= self.sum_map.in_width
