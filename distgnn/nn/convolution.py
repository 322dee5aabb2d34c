"""What every convolution offers to models."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from torch import nn

from distgnn.aggregate.traffic import NO_TRAFFIC
from distgnn.nn.linear import Linear, map_own

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from distgnn.aggregate.traffic import LayerTraffic
    from distgnn.graph.local_graph import LocalGraph
    from distgnn.nn.linear import Given
    from distgnn.nn.update import Activation
    from distgnn.ops.rows import Rows


class Convolution(nn.Module, ABC):
    """A layer that makes a vertex's row of the rows of its neighbourhood."""

    takes_activation: ClassVar[bool] = False
    """Whether `forward` takes the relu and dropout behind it, as a third argument."""

    def is_one_operation(self, rows: Rows) -> bool:
        """Whether the layer and what follows are one operation, which sees to what is kept of it.

        Args:
            rows: (num_sources, in_width).
        """
        del rows
        return False

    @abstractmethod
    def forward(self, graph: LocalGraph, rows: Rows) -> Tensor:
        """Apply the convolution.

        Args:
            graph: A whole graph or a part.
            rows: (num_sources, in_width).

        Returns:
            (num_rows, out_width).
        """

    @abstractmethod
    def traffic(self, given: Given) -> LayerTraffic:
        """Say what a pass moves between ranks.

        Args:
            given: The layer's input.
        """

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw again what is no linear map, which draws its own; here nothing.

        Args:
            generator: Where random numbers come from; torch's global one if None.
        """
        del generator


class ActivatedConvolution(Convolution):
    """One whose `forward` takes the relu and dropout behind it, to do them on the way."""

    takes_activation: ClassVar[bool] = True
    recomputes = False
    """Whether backward computes again what it needs besides input and output, instead of it being
    kept."""

    @abstractmethod
    def runs_again(self, given: Given) -> bool | None:
        """Whether a layer that recomputes aggregates once more in backward.

        Args:
            given: The layer's input.

        Returns:
            None where it is made of separate operations.
        """

    @abstractmethod
    def forward(
        self, graph: LocalGraph, rows: Rows, activation: Activation | None = None
    ) -> Tensor:
        """Apply the convolution.

        Args:
            graph: A whole graph or a part.
            rows: (num_sources, in_width).
            activation: Follows the convolution.

        Returns:
            (num_rows, out_width).
        """


class Dense(Convolution):
    """No convolution: h'_v = W h_v + b, where a model has layers that look at no neighbour.

    Args:
        in_width: Columns of the input.
        out_width: Columns of the output.

    Shapes:
        input (num_rows, in_width), output (num_rows, out_width).
    """

    def __init__(self, in_width: int, out_width: int) -> None:
        super().__init__()
        self.linear = Linear(in_width, out_width)

    def traffic(self, given: Given) -> LayerTraffic:
        """Say what a pass moves between ranks: nothing."""
        del given
        return NO_TRAFFIC

    def forward(self, graph: LocalGraph, rows: Rows) -> Tensor:
        """Map the rows."""
        return map_own(graph, rows, self.linear)
