"""A linear map of the features of edges, made where the edges are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from distgnn.edges.blocks import Csr
    from distgnn.ops.buffers import Buffers


class EdgeMap:
    """Makes e W for each edge, and collects the gradient of W.

    Args:
        weight: (num_edge_features, width).
        buffers: Give what holds values of all edges of a block.
    """

    def __init__(self, weight: Tensor, buffers: Buffers) -> None:
        self._weight = weight.detach()
        self._buffers = buffers
        self._gradient = torch.zeros_like(self._weight)

    def mapped(self, block: Csr) -> Tensor:
        """Return (num_edges, width): the mapped features of all edges.

        Args:
            block: As in `write`.
        """
        width, dtype = self._weight.shape[1], self._weight.dtype
        values = self._buffers.empty(block.num_edges, width, dtype)
        self.write(block, values)
        return values

    def write(self, block: Csr, values: Tensor) -> None:
        """Map the features of all edges.

        Args:
            block: Of the forward direction, with features.
            values: (num_edges, width), of the weight's type. Written.
        """
        features = self._features(block).to(self._weight.dtype)
        torch.mm(features, self._weight, out=values)

    def add(self, block: Csr, edges: slice, values: Tensor) -> None:
        """Add the mapped features of some edges.

        Args:
            block: As in `write`.
            edges: Of it.
            values: (num, width), of the weight's type. Added to.
        """
        values.addmm_(self._features(block)[edges].to(self._weight.dtype), self._weight)

    def add_gradient(self, block: Csr, edges: slice, grad: Tensor) -> None:
        """Collect the gradient from some edges.

        Args:
            block: As in `write`.
            edges: Of it.
            grad: (num, width). Of the values.
        """
        features = self._features(block)[edges].to(self._weight.dtype)
        self._gradient.addmm_(features.t(), grad)

    def take_gradient(self) -> Tensor:
        """Return the gradient of the weight, from the edges so far, and forget it."""
        found, self._gradient = self._gradient, torch.zeros_like(self._weight)
        return found

    def _features(self, block: Csr) -> Tensor:
        assert block.edge_features is not None, (
            "the blocks of a model that reads features have them"
        )
        return block.edge_features
