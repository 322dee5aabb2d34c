"""Batch and layer normalisation as one operation with the relu and dropout behind them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn

from distgnn.kernels import norms
from distgnn.kernels.dense import Finish
from distgnn.kernels.norms import Outcome
from distgnn.ops.gradients import differentiable_once

if TYPE_CHECKING:
    from torch import Tensor

    from distgnn.graph.local_graph import LocalGraph
    from distgnn.nn.activation import Activation


class Statistics(NamedTuple):
    """Statistics that columns are normalised by.

    Attributes:
        mean: (width,).
        variance: (width,) The mean squared deviation from it.
        num_vertices: (1,) How many vertices they are of; None for those that a model remembers.
        num_counted: Rows of this rank, the first ones, that they are of.
    """

    mean: Tensor
    variance: Tensor
    num_vertices: Tensor | None
    num_counted: int


def statistics(rows: Tensor, graph: LocalGraph) -> tuple[Tensor, Tensor, Tensor]:
    """Return mean, variance and number of rows of the roots of all ranks; collective.

    Args:
        rows: (num_rows, width), contiguous.
        graph: A whole graph or a part.

    Returns:
        (width,), (width,) and (1,).
    """
    counted = graph.num_roots
    own_mean, deviation = norms.column_moments(rows[:counted])
    sums = torch.cat([own_mean * counted, own_mean.new_full((1,), float(counted))]).to(rows.dtype)
    graph.exchange.all_reduce(sums)
    num_vertices = sums[-1:]
    mean = sums[:-1] / num_vertices
    # Squared deviations after the mean: one message with sums of squares would lose digits.
    squares = (deviation + counted * (own_mean - mean).square()).to(rows.dtype)
    graph.exchange.all_reduce(squares)
    return mean, squares / num_vertices, num_vertices


class _ByColumn(torch.autograd.Function):
    """Normalise columns.

    With N counted rows, y = xhat w + b and S1, S2 the sums of dy and dy xhat over all ranks::

        dx = w rstd (dy - S1 / N - xhat S2 / N)   for counted rows
        dx = w rstd dy                            for the others, which shape no statistic

    Each rank's loss is its share of the whole, so sums over ranks are
    plain sums, and one message carries both.
    """

    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, weight: Tensor, bias: Tensor, by: Statistics, options: _Options
    ) -> Tensor:
        rstd = (by.variance + options.eps).rsqrt()
        out = options.empty(rows, options.dtype)
        norms.normalise_columns(rows, by.mean, weight * rstd, out, finish=options.finish(bias))
        ctx.options, ctx.num_counted = options, by.num_counted
        ctx.save_for_backward(rows, options.kept(out), weight, by.mean, rstd, by.num_vertices)
        return out

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        rows, out, weight, mean, rstd, num_vertices = ctx.saved_tensors
        options: _Options = ctx.options
        outcome = options.outcome(grads[0], out)
        own = norms.column_gradient_sums(rows, mean, rstd, outcome).to(rows.dtype)
        sums = own.clone()
        if num_vertices is not None:
            options.graph.exchange.all_reduce(sums)
            sums /= num_vertices
        factors = weight * rstd * torch.stack([torch.ones_like(mean), sums[0], sums[1] * rstd])
        grad = options.own_gradient(outcome.grad, rows)
        norms.columns_backward(rows, mean, factors, outcome, grad, num_counted=ctx.num_counted)
        return grad, own[1], own[0], None, None


class _ByRow(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor, bias: Tensor, options: _Options) -> Tensor:
        out = options.empty(rows, options.dtype)
        norms.normalise_rows(rows, weight, out, eps=options.eps, finish=options.finish(bias))
        ctx.options = options
        ctx.save_for_backward(rows, options.kept(out), weight)
        return out

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        rows, out, weight = ctx.saved_tensors
        options: _Options = ctx.options
        outcome = options.outcome(grads[0], out)
        grad = options.own_gradient(outcome.grad, rows)
        sums = norms.rows_backward(rows, weight, outcome, grad, eps=options.eps)
        return grad, sums[1], sums[0], None


class _Options(NamedTuple):
    """Graph that a norm runs on, and the activation behind it.

    Attributes:
        graph: A whole graph or a part.
        eps: Added to variances.
        activation: Activation behind it; None for none.
    """

    graph: LocalGraph
    eps: float
    activation: Activation | None

    @property
    def dtype(self) -> torch.dtype | None:
        """Type that the result is stored as; None for that of the input."""
        return self.activation and self.activation.dtype

    def finish(self, bias: Tensor) -> Finish:
        """Return what is done to each row; draws the seed of the dropout."""
        if self.activation is None:
            return Finish(bias=bias)
        return self.activation.finish(self.graph, bias)

    def empty(self, rows: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """Return a buffer like rows."""
        buffers = self.graph.exchange.buffers
        return buffers.empty(rows.shape[0], rows.shape[1], dtype or rows.dtype)

    def kept(self, out: Tensor) -> Tensor | None:
        """Return what backward reads of the result."""
        return None if self.activation is None else out

    def outcome(self, grad: Tensor, out: Tensor | None) -> Outcome:
        """Return the gradient of the result with what says where it is none."""
        scale = 1.0 if self.activation is None else 1 / (1 - self.activation.probability)
        return Outcome(grad.contiguous(), out, scale)

    def own_gradient(self, grad: Tensor, rows: Tensor) -> Tensor:
        """Return where the gradient of the input goes: over that of the result if that is ours."""
        has_one_reader = self.activation is not None and self.activation.has_one_reader
        is_ours = has_one_reader and self.graph.exchange.buffers.owns(grad)
        return grad if is_ours and grad.dtype == rows.dtype else self.empty(rows)


class BatchNorm(nn.Module):
    """Batch normalisation over all vertices of the graph, and the activation behind it.

    Statistics are taken over roots and summed over ranks: a leaf is a copy and must not count
    twice.

    Args:
        width: Columns.
        momentum: Weight of the newest statistics in the running ones.
        eps: Added to the variance.

    Shapes:
        input and output (num_rows, width); weight, bias, running_mean and running_var (width,).

    References:
        Ioffe and Szegedy, "Batch Normalization: Accelerating Deep Network Training by Reducing
        Internal Covariate Shift", ICML 2015.
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, width: int, *, momentum: float = 0.1, eps: float = 1e-5) -> None:
        super().__init__()
        self.momentum = momentum
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.register_buffer("running_mean", torch.zeros(width))
        self.register_buffer("running_var", torch.ones(width))

    def forward(
        self, graph: LocalGraph, rows: Tensor, activation: Activation | None = None
    ) -> Tensor:
        """Normalise each column: in training with this epoch's statistics, else running ones.

        Args:
            graph: A whole graph or a part.
            rows: (num_rows, width), of the type of the weights.
            activation: Activation behind it; None for none.

        Returns:
            (num_rows, width), of the type of the activation.
        """
        rows = rows.contiguous()
        if self.training:
            found = statistics(rows.detach(), graph)
            self._remember(*found)
            by = Statistics(*found, graph.num_roots)
        else:
            by = Statistics(self.running_mean, self.running_var, None, 0)
        options = _Options(graph, self.eps, activation)
        return _ByColumn.apply(rows, self.weight, self.bias, by, options)  # type: ignore[no-any-return, no-untyped-call]

    @property
    def summed_bytes(self) -> tuple[int, int, int]:
        """Bytes of each sum over ranks: two forward, with the number of vertices, one backward."""
        row = self.weight.nbytes
        return row + self.weight.itemsize, row, 2 * row

    def scale_and_shift(self) -> tuple[Tensor, Tensor]:
        """Return what it does to columns where it is not trained: rows * scale + shift."""
        scale = self.weight * (self.running_var + self.eps).rsqrt()
        return scale, self.bias - self.running_mean * scale

    def _remember(self, mean: Tensor, variance: Tensor, count: Tensor) -> None:
        unbiased = variance * count / (count - 1).clamp(min=1)
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), self.momentum)
        self.running_var.lerp_(unbiased.to(self.running_var.dtype), self.momentum)


class LayerNorm(nn.LayerNorm):
    """Layer normalisation of each row, with the call signature of `BatchNorm`."""

    def forward(  # type: ignore[override]
        self, graph: LocalGraph, rows: Tensor, activation: Activation | None = None
    ) -> Tensor:
        """Normalise (num_rows, width) rows; see `BatchNorm.forward`."""
        options = _Options(graph, self.eps, activation)
        return _ByRow.apply(rows.contiguous(), self.weight, self.bias, options)  # type: ignore[no-any-return, no-untyped-call]
