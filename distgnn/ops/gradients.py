"""Backward functions of which there is no derivative."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch.autograd.function import once_differentiable

if TYPE_CHECKING:
    from collections.abc import Callable

Result = TypeVar("Result")


def differentiable_once(backward: Callable[..., Result]) -> Callable[..., Result]:
    """Have a derivative of gradients refused that depend on more than the gradients given.

    That of torch refuses it only where a given gradient asks for one, and the gradient of a sum
    does not. Weights and rows that were saved would then count as constants.

    Args:
        backward: Static method of an autograd function, which reads what it saved.
    """
    once: Callable[..., Result] = once_differentiable(backward)

    @wraps(backward)
    def refusing(ctx: Any, *grads: Any) -> Result:
        if torch.is_grad_enabled():
            grads = tuple(_asking(grad) for grad in grads)
        return once(ctx, *grads)

    return refusing


def _asking(grad: Any) -> Any:
    if not isinstance(grad, torch.Tensor) or grad.requires_grad or not grad.is_floating_point():
        return grad
    return grad.detach().requires_grad_()
