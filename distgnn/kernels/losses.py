"""Losses of rows of scores.

The rules of `distgnn.kernels` hold here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from distgnn.kernels.devices import kernels_on
from distgnn.kernels.tensors import array, float_type

if TYPE_CHECKING:
    from torch import Tensor


def cross_entropy(scores: Tensor, label: Tensor, loss: Tensor, gradient: Tensor | None) -> None:
    """Compute -log softmax(scores)[label] of each row, and its gradient in the same pass.

    Args:
        scores: (num_rows, num_classes).
        label: (num_rows,) int64. Checked on the CPU.
        loss: (num_rows,). Written.
        gradient: (num_rows, num_classes), or None. Written: softmax(scores), less 1 at the label.

    Raises:
        TypeError: If a dtype is not the documented one.
        ValueError: If a label is no class, shapes do not fit, or a tensor is not contiguous or on
            another device.
    """
    dtype = float_type("scores", scores)
    kernels_on("scores", scores).functions.cross_entropy(
        array("scores", scores, dtype, 2),
        array("label", label, torch.int64, 1),
        array("loss", loss, dtype, 1),
        None if gradient is None else array("gradient", gradient, dtype, 2),
    )
