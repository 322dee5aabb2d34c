"""Losses of rows of scores, for autograd."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from distgnn import kernels
from distgnn.ops.gradients import differentiable_once

if TYPE_CHECKING:
    from torch import Tensor


class _CrossEntropy(torch.autograd.Function):
    """Cross-entropy that computes its gradient with the loss; backward only scales it."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, label: Tensor) -> Tensor:
        scores = scores.contiguous()
        loss = scores.new_empty(len(scores))
        gradient = torch.empty_like(scores) if ctx.needs_input_grad[0] else None
        kernels.cross_entropy(scores, label, loss, gradient)
        ctx.held = [] if gradient is None else [gradient]
        return loss

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        if not ctx.held:
            raise RuntimeError("the backward pass of a cross-entropy runs once only")
        gradient: Tensor = ctx.held.pop()
        kernels.scale_rows(gradient, grads[0].contiguous(), gradient)
        return gradient, None


def cross_entropy(scores: Tensor, label: Tensor) -> Tensor:
    """Return -log softmax(scores)[label] of each row, with the same bits for any number of threads.

    Args:
        scores: (num_rows, num_classes), float32 or float64.
        label: (num_rows,) int64. Classes.

    Returns:
        (num_rows,). Its backward pass runs once only.
    """
    result: Tensor = _CrossEntropy.apply(scores, label)  # type: ignore[no-untyped-call]
    return result
