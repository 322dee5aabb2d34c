"""Batch normalisation that counts each vertex once, whatever the partition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable

if TYPE_CHECKING:
    from torch import Tensor

    from distgnn.graph import LocalGraph


class _Normalise(torch.autograd.Function):
    """Normalise columns by statistics over the counted rows of all ranks.

    With N counted rows, y = xhat w + b and S1, S2 the sums of dy and dy xhat over all rows of all
    ranks, dx = w rstd (dy - S1 / N - xhat S2 / N) for counted rows and w rstd dy for the others,
    which shape no statistic. Each rank's loss is its share of the whole, so sums over ranks are
    plain sums, and one message carries both.
    """

    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, weight: Tensor, bias: Tensor, graph: LocalGraph, eps: float
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        counted = graph.num_roots
        sums = torch.cat([rows[:counted].sum(dim=0), rows.new_full((1,), float(counted))])
        graph.exchange.all_reduce(sums)
        num_vertices = sums[-1]
        mean = sums[:-1] / num_vertices
        normal = rows - mean
        # Squared deviations after the mean: one pass would lose digits by cancellation.
        variance = normal[:counted].square().sum(dim=0)
        graph.exchange.all_reduce(variance)
        variance /= num_vertices
        rstd = (variance + eps).rsqrt()
        normal *= rstd
        ctx.graph, ctx.num_vertices = graph, num_vertices
        ctx.save_for_backward(normal, weight, rstd)
        ctx.mark_non_differentiable(mean, variance, num_vertices)
        return torch.addcmul(bias, normal, weight), mean, variance, num_vertices

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        normal, weight, rstd = ctx.saved_tensors
        grad = grads[0]
        own = torch.stack([grad.sum(dim=0), (grad * normal).sum(dim=0)])
        sums = own.clone()
        ctx.graph.exchange.all_reduce(sums)
        sums /= ctx.num_vertices
        result = grad.clone()
        counted = slice(ctx.graph.num_roots)
        result[counted] -= torch.addcmul(sums[0], normal[counted], sums[1])
        return result.mul_(weight * rstd), own[1], own[0], None, None


class BatchNorm(nn.Module):
    """Batch normalisation over all vertices of the graph.

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

    def forward(self, graph: LocalGraph, rows: Tensor) -> Tensor:
        """Normalise each column: in training with this epoch's statistics, else running ones."""
        if not self.training:
            scale = self.weight * (self.running_var + self.eps).rsqrt()
            return torch.addcmul(self.bias - self.running_mean * scale, rows, scale)
        result, mean, variance, num_vertices = _Normalise.apply(  # type: ignore[no-untyped-call]
            rows, self.weight, self.bias, graph, self.eps
        )
        with torch.no_grad():
            unbiased = variance * num_vertices / (num_vertices - 1).clamp(min=1)
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), self.momentum)
            self.running_var.lerp_(unbiased.to(self.running_var.dtype), self.momentum)
        return result  # type: ignore[no-any-return]


class LayerNorm(nn.LayerNorm):
    """Layer normalisation of each row, with the call signature of `BatchNorm`."""

    def forward(self, graph: LocalGraph, rows: Tensor) -> Tensor:  # type: ignore[override]
        """Normalise (num_rows, width) rows; the graph is not looked at."""
        return super().forward(rows)
