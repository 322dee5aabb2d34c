"""Checksums of the bytes of tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from distgnn.kernels.devices import PROCESSOR, kernels_on

if TYPE_CHECKING:
    from torch import Tensor


def checksum(values: Tensor) -> int:
    """Return the CRC-32C of the bytes of a tensor, below 2**32; 0 for no bytes.

    Every flip of up to three bits changes it in less than 2**28 - 4 bytes, and so does every run of
    altered bits that spans at most 32. Of other changes it misses one in 2**32.

    Args:
        values: Any shape and dtype, on the CPU, contiguous.

    Raises:
        ValueError: If the tensor is not contiguous, or on another device.

    References:
        Castagnoli et al., "Optimization of cyclic redundancy-check codes with 24 and 32 parity
        bits", IEEE Transactions on Communications, 1993.
    """
    if values.device != PROCESSOR:
        message = f"values must be on the CPU, got device {values.device}; call values.cpu()"
        raise ValueError(message)
    if not values.is_contiguous():
        message = f"values must be contiguous, got strides {values.stride()}; call .contiguous()"
        raise ValueError(message)
    kernels = kernels_on("values", values)
    flat = values.detach().reshape(-1).view(torch.uint8)
    return int(kernels.functions.crc32c(kernels.view(flat)))
