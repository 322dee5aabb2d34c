"""Limit on the length of a gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.nn.utils import clip_grad_norm_

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from torch import Tensor


def build_clip(max_norm: float) -> Callable[[Iterable[Tensor]], None]:
    """Build what shortens a gradient before a step.

    It runs after the sum over ranks, so that all ranks shorten the same gradient alike. It waits
    for no device, and so may be part of a CUDA graph.

    Args:
        max_norm: Largest Euclidean norm of the gradient of all weights together; 0 for no limit.

    Returns:
        A function of the weights, which changes their gradients in place.

    References:
        Pascanu et al., "On the difficulty of training recurrent neural networks", ICML 2013.
    """

    def clip(weights: Iterable[Tensor]) -> None:
        clip_grad_norm_(weights, max_norm)

    return clip if max_norm else lambda _: None
