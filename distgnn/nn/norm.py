"""Batch normalisation that counts each vertex once, whatever the partition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    from torch import Tensor

    from distgnn.comm.group import Group
    from distgnn.graph import LocalGraph


class _SumOverRanks(torch.autograd.Function):
    """Sum over ranks; each rank's loss is its share of the whole, so gradients sum likewise."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, group: Group) -> Tensor:
        ctx.group = group
        total = values.clone()
        group.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        grad = grads[0].clone()
        ctx.group.all_reduce(grad)
        return grad, None


def _sum_over_ranks(values: Tensor, group: Group) -> Tensor:
    total: Tensor = _SumOverRanks.apply(values, group)  # type: ignore[no-untyped-call]
    return total


class BatchNorm(nn.Module):
    """Batch normalisation over all vertices of the graph.

    Statistics are taken over roots and summed over ranks: a leaf is a copy and must not count
    twice. Mean first, then squared deviations: one pass would lose digits by cancellation.

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
        if self.training:
            mean, variance = self._statistics(graph, rows)
        else:
            mean, variance = self.running_mean, self.running_var
        return (rows - mean) * (variance + self.eps).rsqrt() * self.weight + self.bias

    def _statistics(self, graph: LocalGraph, rows: Tensor) -> tuple[Tensor, Tensor]:
        own = rows[: graph.num_roots]
        count = rows.new_tensor([float(graph.num_roots)])
        sums = _sum_over_ranks(torch.cat([own.sum(dim=0), count]), graph.group)
        num_vertices = sums[-1].detach()
        mean = sums[:-1] / num_vertices
        squares = _sum_over_ranks(((own - mean) ** 2).sum(dim=0), graph.group)
        variance = squares / num_vertices
        with torch.no_grad():
            unbiased = squares / (num_vertices - 1).clamp(min=1)
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), self.momentum)
            self.running_var.lerp_(unbiased.to(self.running_var.dtype), self.momentum)
        return mean, variance


class LayerNorm(nn.LayerNorm):
    """Layer normalisation of each row, with the call signature of `BatchNorm`."""

    def forward(self, graph: LocalGraph, rows: Tensor) -> Tensor:  # type: ignore[override]
        """Normalise (num_rows, width) rows; the graph is not looked at."""
        return super().forward(rows)
