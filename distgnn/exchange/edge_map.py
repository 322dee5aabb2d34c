"""A linear map of the features of edges, made where the edges are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from distgnn.exchange.blocks import Csr


class EdgeMap:
    """Adds e W to a value of each edge, and collects the gradient of W.

    Args:
        weight: (num_edge_features, width).
    """

    def __init__(self, weight: Tensor) -> None:
        self._weight = weight.detach()
        self._gradient = torch.zeros_like(self._weight)

    def add(self, block: Csr, edges: slice, values: Tensor) -> None:
        """Add the mapped features of some edges.

        Args:
            block: Of the forward direction, with features.
            edges: Of it.
            values: (num, width), of the weight's type. Added to.
        """
        values.addmm_(self._features(block)[edges].to(self._weight.dtype), self._weight)

    def add_gradient(self, block: Csr, edges: slice, grad: Tensor) -> None:
        """Collect the gradient from some edges.

        Args:
            block: As in `add`.
            edges: Likewise.
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
