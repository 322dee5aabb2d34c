"""Dropout whose masks no partition changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

if TYPE_CHECKING:
    from torch import Tensor

    from distgnn.graph.local_graph import LocalGraph


class Dropout(nn.Module):
    """Dropout: y = m x / (1 - p), where each entry of m is 0 with probability p, else 1.

    An entry of m depends on the run's seed, the epoch, the call, the vertex and the column alone.
    So a vertex gets the same mask whatever the partition and the number of ranks.

    Args:
        p: Probability of dropping an entry, in [0, 1).

    Shapes:
        input and output (num_rows, width).

    Raises:
        ValueError: If p is not in [0, 1).

    References:
        Srivastava et al., "Dropout: A Simple Way to Prevent Neural Networks from Overfitting", JMLR
        2014.
    """

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        if not 0 <= p < 1:
            raise ValueError(f"p must be at least 0 and below 1, got {p}")
        self.p = p

    def forward(self, graph: LocalGraph, x: Tensor) -> Tensor:
        """Drop entries of (num_rows, width) rows in training; return them as they are otherwise."""
        return graph.dropout(x, self.p, training=self.training).to_dense()

    def extra_repr(self) -> str:
        """Return the probability, for `repr`."""
        return f"p={self.p}"
