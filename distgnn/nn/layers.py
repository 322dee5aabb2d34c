"""Hidden layers: which operations one runs as is decided here, once, when a model is built.

A hidden layer is h' = dropout(act(norm(conv(h) [+ residual(h)]))). It runs in one of three forms,
the first that fits:

- `Chained`: the convolution does the activation on the way.
- `MappedAtOnce`: residual, norm and activation join the one operation of the convolution.
- `Separate`: one operation after the other.

`Recomputed` wraps a form whose inner values backward computes again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import torch
from torch import nn

from distgnn.nn.activation import Activation
from distgnn.nn.convolution import ActivatedConvolution, FusedConvolution
from distgnn.nn.linear import Linear, map_own
from distgnn.nn.norm import BatchNorm
from distgnn.nn.recompute import again_in_backward

if TYPE_CHECKING:
    from torch import Tensor

    from distgnn.graph.local_graph import LocalGraph
    from distgnn.nn.activation import Elu
    from distgnn.nn.convolution import Convolution
    from distgnn.nn.norm import LayerNorm
    from distgnn.ops.rows import Rows

    Norm = BatchNorm | LayerNorm
    Following = Activation | Elu


class HiddenLayer(ABC):
    """A hidden layer in one of its forms; its weights belong to the model."""

    @abstractmethod
    def __call__(self, graph: LocalGraph, rows: Rows, activation: Following) -> Tensor:
        """Apply the layer.

        Args:
            graph: A whole graph or a part.
            rows: (num_sources, in_channels) input.
            activation: Activation behind the layer.

        Returns:
            (num_rows, out_channels).
        """

    def frees_inner_values(self, rows: Rows) -> bool:
        """Return whether the layer itself can recompute what it needs in backward.

        Args:
            rows: (num_sources, in_channels) input.
        """
        del rows
        return False


class Chained(HiddenLayer):
    """A convolution that does the activation on the way.

    Args:
        conv: The convolution.
    """

    def __init__(self, conv: ActivatedConvolution) -> None:
        self._conv = conv

    def __call__(self, graph: LocalGraph, rows: Rows, activation: Following) -> Tensor:
        """See `HiddenLayer`."""
        return self._conv(graph, rows, activation)  # type: ignore[no-any-return]

    def frees_inner_values(self, rows: Rows) -> bool:
        """See `HiddenLayer`."""
        return self._conv.is_one_operation(rows)


class Separate(HiddenLayer):
    """One operation after the other.

    Args:
        conv: The convolution.
        norm: Norm behind it; None for none.
        residual: Map of the input that is added, or the identity; None for none.
    """

    def __init__(self, conv: Convolution, norm: Norm | None, residual: nn.Module | None) -> None:
        self._conv, self._norm, self._residual = conv, norm, residual

    def __call__(self, graph: LocalGraph, rows: Rows, activation: Following) -> Tensor:
        """See `HiddenLayer`."""
        result = self._conv(graph, rows)
        if self._residual is not None:
            result = result + map_own(graph, rows, self._residual)
        return _finished(graph, self._norm, result, activation)


class MappedAtOnce(Separate):
    """A convolution as one operation with what follows: a residual is a second map in it.

    Rows that the operation does not take, such as sparse ones, get separate operations.

    Args:
        conv: The convolution.
        norm: Norm behind it; None for none.
        residual: Map of the input that is added; None for none.
    """

    def __init__(self, conv: FusedConvolution, norm: Norm | None, residual: Linear | None) -> None:
        super().__init__(conv, norm, residual)
        self._fused, self._map = conv, residual

    def __call__(self, graph: LocalGraph, rows: Rows, activation: Following) -> Tensor:
        """See `HiddenLayer`."""
        if not self._fused.is_one_operation(rows):
            return super().__call__(graph, rows, activation)
        maps, norm = self._fused.maps, self._norm
        if self._map is not None:
            maps = maps.plus(self._map.weight, self._map.bias)
        # Batch norm in evaluation scales and shifts columns, so the maps can do it. Not beside rows
        # in bfloat16: weights are rounded there, and scaled weights are rounded to others than the
        # norm's statistics were taken with, which shows where these are far from zero.
        if isinstance(norm, BatchNorm) and not norm.training and rows.dtype == norm.weight.dtype:
            maps, norm = maps.scaled(*norm.scale_and_shift()), None
        # A layer that stores its result as a narrower type would send narrower rows, too, which
        # only layers of a chain are said to do.
        is_end = norm is None and isinstance(activation, Activation) and activation.dtype is None
        if is_end:
            return self._fused.mapped(graph, rows, maps, activation)  # type: ignore[arg-type]
        return _finished(graph, norm, self._fused.mapped(graph, rows, maps, None), activation)


class Recomputed(HiddenLayer):
    """A layer whose inner values are not kept: backward computes them again.

    Args:
        layer: The layer; norms that remember statistics would count them twice.

    Attributes:
        inner: The layer.
    """

    def __init__(self, layer: HiddenLayer) -> None:
        self.inner = layer

    def __call__(self, graph: LocalGraph, rows: Rows, activation: Following) -> Tensor:
        """See `HiddenLayer`."""
        if not torch.is_grad_enabled() or self.inner.frees_inner_values(rows):
            return self.inner(graph, rows, activation)

        def apply(again: Rows) -> Tensor:
            return self.inner(graph, again, activation)

        return again_in_backward(apply, graph, rows)


def hidden_layer(
    conv: Convolution, norm: nn.Module, residual: nn.Module | None, *, is_chain: bool
) -> HiddenLayer:
    """Choose the form of a hidden layer.

    Args:
        conv: Convolution of the layer.
        norm: `BatchNorm`, `LayerNorm` or the identity.
        residual: Map of the input that is added, or the identity; None for none.
        is_chain: Whether relu and dropout are all that follows the convolution.

    Returns:
        The layer, which holds these modules and none of its own.
    """
    if is_chain and isinstance(conv, ActivatedConvolution):
        return Chained(conv)
    found: Norm | None = None if isinstance(norm, nn.Identity) else norm  # type: ignore[assignment]
    if isinstance(conv, FusedConvolution) and (residual is None or isinstance(residual, Linear)):
        return MappedAtOnce(conv, found, residual)
    return Separate(conv, found, residual)


def _finished(graph: LocalGraph, norm: Norm | None, rows: Tensor, activation: Following) -> Tensor:
    """Apply norm and activation, together where the norm can take the activation in."""
    if norm is None:
        return activation.apply(graph, rows)
    if isinstance(activation, Activation):
        return norm(graph, rows, activation)  # type: ignore[no-any-return]
    return activation.apply(graph, norm(graph, rows))
