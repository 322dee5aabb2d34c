"""From the rows of two vertices to the score of a link between them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from distgnn.nn.linear import Linear

if TYPE_CHECKING:
    from torch import Tensor


class DotDecoder(nn.Module):
    """The inner product of both rows; it has no weights.

    Args:
        width: Columns of the rows.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        """Score pairs.

        Args:
            first: (num, width).
            second: (num, width).

        Returns:
            (num,), before the sigmoid; the same if both are swapped.
        """
        return (first * second).sum(dim=1)


class MlpDecoder(nn.Module):
    """Three linear layers with ReLU between them, on the product of both rows column by column.

    Args:
        width: Columns of the rows, and of the hidden layers.

    References:
        Hu et al., "Open Graph Benchmark: Datasets for Machine Learning on Graphs", NeurIPS 2020:
        the predictor of its link examples.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.maps = nn.ModuleList([Linear(width, width), Linear(width, width), Linear(width, 1)])

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        """Score pairs; shapes are those of `DotDecoder.forward`."""
        rows = first * second
        for number, linear in enumerate(self.maps):
            assert isinstance(linear, Linear), "these are all"
            rows = linear(torch.relu(rows) if number else rows)
        return rows[:, 0]


DECODERS: dict[str, type[DotDecoder | MlpDecoder]] = {"dot": DotDecoder, "mlp": MlpDecoder}
"""By name of --decoder."""
