"""Cross-entropy of softmax in torch; see `distgnn.kernels.cross_entropy`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


def cross_entropy(scores: Tensor, label: Tensor, loss: Tensor, gradient: Tensor | None) -> None:
    """Compute `distgnn.kernels.cross_entropy`.

    Args:
        scores: (num_rows, num_classes).
        label: (num_rows,) int64. Classes.
        loss: (num_rows,). Written.
        gradient: (num_rows, num_classes), or None. Written.
    """
    logarithms = scores.log_softmax(dim=1)
    torch.neg(logarithms.gather(1, label[:, None])[:, 0], out=loss)
    if gradient is not None:
        torch.exp(logarithms, out=gradient)
        gradient[torch.arange(len(label), device=label.device), label] -= 1
