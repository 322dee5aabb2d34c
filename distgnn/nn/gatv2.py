"""Graph attention whose ranking of sources depends on the target."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch
from torch import nn

from distgnn.aggregate.traffic import attention_traffic
from distgnn.nn.gat import SLOPE, AttentionConvolution
from distgnn.nn.linear import Linear, map_own

if TYPE_CHECKING:
    from torch import Tensor

    from distgnn.aggregate.traffic import LayerTraffic
    from distgnn.graph.local_graph import LocalGraph
    from distgnn.nn.activation import Activation
    from distgnn.nn.linear import Given
    from distgnn.ops.rows import Rows

# Of an edge on a device: the row that a kernel finds it by, and what chunks are walked by.
_ROW_BYTES = 8
_CHUNK_BYTES = 20


class GATv2Conv(AttentionConvolution):
    """Graph attention whose scores are no sum of a part of each end.

    Per vertex v and head k, with z = W_source,k h + b_source,k and y = W_target,k h + b_target,k::

        h'_v = sum over in-edges uv of alpha_uv z_u
        alpha_uv = softmax over in-edges uv of vector_k . leaky_relu(z_u + y_v)

    Features e of edges add U_k e_uv before the ReLU.
    The heads are concatenated, or averaged, and the bias is added. Self-loops, duplicate edges,
    edge weights and dropout are as in `GATConv`.

    Args:
        in_channels: Columns of the input.
        out_channels: Columns of each head.
        heads: Attention heads.
        concat: Concatenate the heads; else average them.
        negative_slope: Slope of the leaky ReLU of scores below 0.
        dropout: Probability of dropping a weight of an edge, in training.
        edge_dim: Columns of the features of edges; None where they do not count.
        bias: Whether the bias of the output is learned; else it is 0.

    Shapes:
        input (num_rows, in_channels), output (num_rows, heads * out_channels) or, averaged,
        (num_rows, out_channels); source.weight and target.weight (heads * out_channels,
        in_channels), head after head, source.bias and target.bias (heads * out_channels,); vectors
        (heads, out_channels); bias as wide as the output; edge_linear.weight (heads * out_channels,
        edge_dim), where features count.

    References:
        Brody, Alon and Yahav, "How Attentive are Graph Attention Networks?", ICLR 2022, equation 7;
        features of edges as in PyG's GATv2Conv(edge_dim=...).
    """

    num_mapped: ClassVar[int] = 2

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        heads: int = 1,
        concat: bool = True,
        negative_slope: float = SLOPE,
        dropout: float = 0.0,
        edge_dim: int | None = None,
        bias: bool = True,
    ) -> None:
        super().__init__(
            heads,
            out_channels,
            concat=concat,
            negative_slope=negative_slope,
            dropout=dropout,
            bias=bias,
        )
        self.source = Linear(in_channels, heads * out_channels)
        self.target = Linear(in_channels, heads * out_channels)
        self.vectors = nn.Parameter(torch.empty(heads, out_channels))
        self.edge_linear: Linear | None = None
        if edge_dim:
            self.edge_linear = Linear(edge_dim, heads * out_channels, bias=False)
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw the vectors of the scores again, Glorot-uniform; the linear maps draw their own.

        Args:
            generator: Source of random numbers; torch's global one if None.
        """
        nn.init.xavier_uniform_(self.vectors, generator=generator)

    @property
    def num_edge_values(self) -> int:
        """Scores, or their gradients in their place.

        With features, also weights, and gradients of scores as they are made of those of the
        weights; where weights are dropped, both twice. What is added up before the ReLU is there
        for a chunk of edges at a time.
        """
        if self.edge_linear is None:
            return 1
        return 4 if self.dropout == 0 else 6

    @property
    def walk_bytes(self) -> int:
        """Its row; with features, also its place in a chunk by source and by target."""
        return _ROW_BYTES if self.edge_linear is None else _ROW_BYTES + _CHUNK_BYTES

    def traffic(self, given: Given) -> LayerTraffic:
        """Return what a pass moves between ranks: mapped rows, whatever the input."""
        del given
        return attention_traffic(*self.vectors.shape, is_additive=True)

    def forward(
        self, graph: LocalGraph, rows: Rows, activation: Activation | None = None
    ) -> Tensor:
        """Apply the convolution; mapped rows of sources and of targets travel."""
        ending, given = self.ending(graph, activation), rows.detach()
        mapped = self.source(rows, graph.exchange.buffers)
        target_rows = map_own(graph, rows, self.target)
        with self.keeping(
            (mapped, lambda: self.source(given, graph.exchange.buffers)),
            (target_rows, lambda: map_own(graph, given, self.target)),
        ):
            result = graph.attend_additive(
                mapped,
                target_rows=target_rows,
                vectors=self.vectors,
                slope=self.negative_slope,
                edge_map=None if self.edge_linear is None else self.edge_linear.weight.t(),
                dropout=self.dropout if self.training else 0.0,
                ending=ending,
            )
        return self.ended(graph, result, activation, ending)
