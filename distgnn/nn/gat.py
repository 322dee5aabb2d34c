"""The graph attention network."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import nn

from distgnn.aggregate.attention import Ending
from distgnn.aggregate.traffic import ITEM_BYTES, attention_traffic
from distgnn.kernels.dense import Factor, GradientFactor, multiply, multiply_transposed
from distgnn.nn.convolution import ActivatedConvolution
from distgnn.nn.linear import Linear, is_multiplied_here, set_bias
from distgnn.nn.recompute import made_again
from distgnn.ops.gradients import differentiable_once

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from torch import Tensor

    from distgnn.aggregate.traffic import LayerTraffic
    from distgnn.graph.local_graph import LocalGraph
    from distgnn.nn.activation import Activation
    from distgnn.nn.linear import Given
    from distgnn.ops.rows import Rows

SLOPE = 0.2
"""Slope of the leaky ReLU of scores below 0, as in the paper."""
# The key of the mask of a dropped weight, and the row of the edge that it is made of.
_KEY_BYTES = 12


class AttentionConvolution(ActivatedConvolution):
    """Base of attention layers: it joins the heads and applies what follows them.

    Args:
        heads: Attention heads.
        out_channels: Columns of each head.
        concat: Concatenate the heads; else average them.
        negative_slope: Slope of the leaky ReLU of scores below 0.
        dropout: Probability of dropping a weight of an edge, in training.
        bias: Whether the bias of the output is learned; else it is 0.
    """

    bias: Tensor

    num_mapped: ClassVar[int] = 1
    """Tables of mapped rows that are kept for backward, unless it recomputes."""

    def __init__(
        self,
        heads: int,
        out_channels: int,
        *,
        concat: bool,
        negative_slope: float,
        dropout: float,
        bias: bool,
    ) -> None:
        super().__init__()
        self.heads = heads
        self.concat = concat
        self.dropout = dropout
        self.negative_slope = negative_slope
        set_bias(self, heads * out_channels if concat else out_channels, is_learned=bias)

    @property
    @abstractmethod
    def num_edge_values(self) -> int:
        """Values of each head that an edge has at once, at most; backward has most of them."""

    @property
    def columns(self) -> int:
        """Columns of the rows that are averaged: those of all heads."""
        return self.bias.numel() * (1 if self.concat else self.heads)

    @property
    def edge_bytes(self) -> int:
        """See `Convolution`."""
        scores = self.num_edge_values * self.heads * self.bias.element_size()
        return scores + _KEY_BYTES * (self.dropout > 0)

    def is_one_operation(self, rows: Rows) -> bool:
        """Whether the layer sees to what is kept of it: always."""
        del rows
        return True

    def runs_again(self, given: Given) -> bool | None:
        """See `ActivatedConvolution.runs_again`: rows are mapped again, which moves none."""
        del given
        return False

    def keeping(self, *mapped: tuple[Tensor, Callable[[], Tensor]]) -> AbstractContextManager[None]:
        """Return a block whose operations keep mapped rows for backward, unless it recomputes.

        Args:
            mapped: Rows, and what maps them again.
        """
        return made_again(*mapped) if self.recomputes else nullcontext()

    def ending(
        self, graph: LocalGraph, activation: Activation | None
    ) -> Callable[[], Ending] | None:
        """Return a function that gives the end of the attention itself; None for no such end.

        Args:
            graph: A whole graph or a part.
            activation: Activation behind the layer; None for none.
        """
        if activation is None or not self.concat:
            return None
        return lambda: Ending(
            activation.finish(graph, self.bias), activation.has_one_reader, activation.dtype
        )

    def ended(
        self,
        graph: LocalGraph,
        means: Tensor,
        activation: Activation | None,
        ending: Callable[[], Ending] | None,
    ) -> Tensor:
        """Apply what the attention has left: joined heads, bias and activation.

        Args:
            graph: A whole graph or a part.
            means: (num_rows, heads * width) from the attention.
            activation: Activation behind the layer; None for none.
            ending: End that the attention has done; None for none.

        Returns:
            (num_rows, heads * width), or (num_rows, width) if heads are averaged.
        """
        if ending is not None:
            return means
        if not self.concat:
            means = means.view(len(means), self.heads, len(self.bias)).mean(dim=1)
        result = means + self.bias
        return result if activation is None else activation.apply(graph, result)


class GATConv(AttentionConvolution):
    """Graph attention: each head averages the mapped rows of in-neighbours as their scores say.

    Per vertex v and head k, with z = W_k h::

        h'_v = sum over in-edges uv of alpha_uv z_u
        alpha_uv = softmax over in-edges uv of leaky_relu(source_k . z_u + target_k . z_v)

    Features e of edges add edge_k . U_k e_uv before the ReLU. The heads are concatenated, or
    averaged, and the bias is added. In
    training, weights alpha are dropped with probability `dropout` and the others scaled up. A
    vertex without a self-loop gets one, as in PyG, with the mean of the features of its in-edges;
    one that has any keeps them. Duplicate edges count as often as they are there, and edge weights
    do not count.

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
        (num_rows, out_channels); linear.weight (heads * out_channels, in_channels), head after
        head; source and target (heads, out_channels); bias as wide as the output;
        edge_linear.weight (heads * out_channels, edge_dim) and edge (heads, out_channels), where
        features of edges count. Their product, of edge_dim x heads, is all that meets an edge.

    References:
        Velickovic et al., "Graph Attention Networks", ICLR 2018, equations 1 to 6; features of
        edges as in PyG's GATConv(edge_dim=...).
    """

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
        self.linear = Linear(in_channels, heads * out_channels, bias=False)
        self.source = nn.Parameter(torch.empty(heads, out_channels))
        self.target = nn.Parameter(torch.empty(heads, out_channels))
        self.edge_linear: Linear | None = None
        if edge_dim:
            self.edge_linear = Linear(edge_dim, heads * out_channels, bias=False)
            self.edge = nn.Parameter(torch.empty(heads, out_channels))
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw the vectors of the scores again, Glorot-uniform; the linear map draws its own.

        Args:
            generator: Source of random numbers; torch's global one if None.
        """
        for vectors in (
            self.source,
            self.target,
            *(() if self.edge_linear is None else (self.edge,)),
        ):
            nn.init.xavier_uniform_(vectors, generator=generator)

    @property
    def num_edge_values(self) -> int:
        """One: the addend of features, or the gradient of the score in its place."""
        return 1

    def traffic(self, given: Given) -> LayerTraffic:
        """Return what a pass moves between ranks: mapped rows, whatever the input."""
        is_here = not given.is_sparse and is_multiplied_here(self.source, self.source)
        row_bytes = min(given.item_bytes, given.out_bytes) if is_here else ITEM_BYTES
        gradient_bytes = given.out_bytes if self.concat else ITEM_BYTES
        return attention_traffic(
            *self.source.shape, row_bytes=row_bytes, gradient_bytes=gradient_bytes
        )

    def forward(
        self, graph: LocalGraph, rows: Rows, activation: Activation | None = None
    ) -> Tensor:
        """Apply the convolution; mapped rows travel, with their scores.

        They are stored as the narrower of what the layer reads and makes.
        """
        stored = (activation and activation.dtype) or self.source.dtype
        stored = min(stored, rows.dtype, key=lambda dtype: dtype.itemsize)

        def mapped_rows(rows: Rows) -> Tensor:
            return self.linear.multiply(rows, graph.exchange.buffers, stored)

        mapped, ending = mapped_rows(rows), self.ending(graph, activation)
        with self.keeping((mapped, partial(mapped_rows, rows.detach()))):
            mapped, source_score, target_score = with_scores(mapped, self.source, self.target)
            result = graph.attend(
                mapped,
                source_score=source_score,
                target_score=graph.own(target_score),
                slope=self.negative_slope,
                edge_map=self._edge_map(),
                dropout=self.dropout if self.training else 0.0,
                ending=ending,
            )
        return self.ended(graph, result, activation, ending)

    def _edge_map(self) -> Tensor | None:
        """Return (edge_dim, heads): what makes scores of features, which are linear in them."""
        if self.edge_linear is None:
            return None
        weight = self.edge_linear.weight.view(*self.edge.shape, -1)
        return torch.einsum("hwe,hw->eh", weight, self.edge)


class _WithScores(torch.autograd.Function):
    """Rows, and their products with vectors, whose gradient is added to that of the rows.

    Left to autograd, the two gradients of the rows are made apart and then added, which takes five
    times as long.
    """

    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, source: Tensor, target: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        vectors = torch.cat([_spread(source), _spread(target)])
        ctx.save_for_backward(rows, vectors)
        ctx.shape = source.shape
        if rows.dtype == vectors.dtype:
            scores = nn.functional.linear(rows, vectors)
        else:
            scores = vectors.new_empty((len(rows), len(vectors)))
            multiply([Factor(rows, vectors.t())], scores)
        heads = len(source)
        return rows, scores[:, :heads].contiguous(), scores[:, heads:].contiguous()

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        rows, vectors = ctx.saved_tensors
        # Nobody else holds the gradient that attention made.
        grad, *score_grads = grads
        of_scores = torch.cat(score_grads, dim=1)
        if rows.dtype == vectors.dtype:
            grad.addmm_(of_scores, vectors)
            products = of_scores.t() @ rows
        else:
            multiply([Factor(of_scores, vectors)], grad, accumulate=True)
            products = torch.empty_like(vectors)
            multiply_transposed([GradientFactor(rows, products)], of_scores)
        of_vectors = products.view(2, len(vectors) // 2, *ctx.shape)
        source_grad, target_grad = of_vectors.diagonal(dim1=1, dim2=2).transpose(1, 2)
        return grad, source_grad, target_grad


def _spread(vectors: Tensor) -> Tensor:
    """Turn (heads, width) vectors into (heads, heads * width), 0 outside of a row's own head."""
    heads, width = vectors.shape
    own = torch.eye(heads, dtype=vectors.dtype, device=vectors.device)[:, :, None]
    return (vectors[:, None] * own).view(heads, heads * width)


def with_scores(rows: Tensor, source: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return (num_rows, heads * width) rows again, and twice (num_rows, heads) scores."""
    result: tuple[Tensor, Tensor, Tensor] = _WithScores.apply(rows, source, target)  # type: ignore[no-untyped-call]
    return result
