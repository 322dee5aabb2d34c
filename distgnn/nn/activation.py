"""Activations behind hidden layers: relu or elu, then dropout."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from distgnn import ops
from distgnn.kernels.dense import Finish

if TYPE_CHECKING:
    from torch import Tensor

    from distgnn.graph.local_graph import LocalGraph


class Activation(NamedTuple):
    """Relu, then dropout, which other operations can do on the way.

    Attributes:
        probability: Probability of dropping an entry; 0 for relu alone.
        has_one_reader: Whether only the backward pass of the next layer holds the gradient of the
            result. It may then be overwritten.
        dtype: Type that the result is stored as; None for the type of the computation.
    """

    probability: float
    has_one_reader: bool = False
    dtype: torch.dtype | None = None

    def apply(self, graph: LocalGraph, rows: Tensor) -> Tensor:
        """Apply it to (num_rows, width) rows as a separate operation."""
        if self.probability == 0 and self.dtype is None:
            return torch.relu(rows)
        return graph.relu_dropout(rows, self.probability, self.dtype)

    def finish(self, graph: LocalGraph, bias: Tensor) -> Finish:
        """Return what a kernel does to each row: bias, relu and dropout; draws the mask's seed."""
        if self.probability == 0:
            return Finish(bias=bias, has_relu=True)
        return Finish(
            bias=bias,
            has_relu=True,
            row_key=graph.row_id,
            seed=graph.mask_seeds.next_seed(),
            probability=self.probability,
        )


class Elu(NamedTuple):
    """Elu, then dropout, as separate operations.

    Attributes:
        probability: Probability of dropping an entry; 0 for elu alone.
        dtype: Type that the result is stored as; None for the type of the computation.
    """

    probability: float
    dtype: torch.dtype | None = None

    def apply(self, graph: LocalGraph, rows: Tensor) -> Tensor:
        """Apply it to (num_rows, width) rows."""
        result = torch.nn.functional.elu(rows)
        if self.probability > 0:
            result = ops.dropout(
                result,
                graph.row_id,
                seed=graph.mask_seeds.next_seed(),
                probability=self.probability,
            )
        return result if self.dtype is None else result.to(self.dtype)
