"""Tensors as the kernels of their device take them, checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from distgnn.kernels.devices import kernels_on
from distgnn.settings.names import DtypeName

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

DTYPES: dict[DtypeName, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16}
FLOATS = (torch.float32, torch.float64)
STORED = (*FLOATS, torch.bfloat16)
COMPUTED = {torch.bfloat16: torch.float32}
"""Types that are computed with, where others are stored."""


def array(name: str, tensor: Tensor, dtype: torch.dtype, num_dims: int) -> Any:
    """View a tensor as the kernels take it, after checking what they rely on.

    Args:
        name: Name of the argument, for messages.
        tensor: Any tensor.
        dtype: It must have.
        num_dims: It must have.

    Returns:
        On the CPU a numpy view, the bits of bfloat16 values as int16; on a CUDA device the tensor.

    Raises:
        TypeError: If the dtype is another one.
        ValueError: If the tensor has another number of dimensions, is not contiguous, on a device
            without kernels, or requires a gradient where autograd is on.
    """
    kernels = kernels_on(name, tensor)
    if tensor.dtype != dtype:
        message = f"{name} must be {dtype}, got {tensor.dtype}; call {name}.to({dtype})"
        raise TypeError(message)
    if tensor.dim() != num_dims:
        message = f"{name} must have {num_dims} dimensions, got shape {tuple(tensor.shape)}"
        raise ValueError(message)
    if not tensor.is_contiguous():
        message = f"{name} must be contiguous, got strides {tensor.stride()}; call .contiguous()"
        raise ValueError(message)
    if tensor.requires_grad and torch.is_grad_enabled():
        message = (
            f"{name} requires a gradient, which kernels do not track; use the differentiable "
            f"operations of distgnn.ops, or pass {name}.detach()"
        )
        raise ValueError(message)
    return kernels.view(tensor)


def float_type(name: str, tensor: Tensor, allowed: tuple[torch.dtype, ...] = FLOATS) -> torch.dtype:
    """Return the dtype of a tensor of values.

    Args:
        name: Name of the argument, for messages.
        tensor: Any tensor.
        allowed: Its possible dtypes.

    Returns:
        The one it has.

    Raises:
        TypeError: If it has another one.
    """
    if tensor.dtype not in allowed:
        names = " or ".join(str(dtype) for dtype in allowed)
        raise TypeError(f"{name} must be {names}, got {tensor.dtype}")
    return tensor.dtype


def stored_rows(name: str, rows: Tensor, dtype: torch.dtype) -> Any:
    """View rows as `array` does that are stored as a type, or as one that is computed with as it.

    Args:
        name: Name of the argument, for messages.
        rows: (num_rows, width).
        dtype: Type that is computed with.

    Returns:
        See `array`.

    Raises:
        TypeError: If the dtype is another one.
        ValueError: As `array`.
    """
    stored = float_type(name, rows, STORED)
    return array(name, rows, stored if computed(stored) == dtype else dtype, 2)


def computed(dtype: torch.dtype) -> torch.dtype:
    """Return the type that values are computed with which are stored as another.

    Args:
        dtype: Type of the stored values.
    """
    return COMPUTED.get(dtype, dtype)


def own(values: NDArray[Any], dtype: type[np.generic]) -> Tensor:
    """Take an array in memory as a tensor as it is; copy one that is mapped from a file.

    Args:
        values: Any array; the tensor may share its memory.
        dtype: It is to have.

    Returns:
        A contiguous tensor.
    """
    values = np.ascontiguousarray(values, dtype).reshape(values.shape)
    return torch.from_numpy(values.copy() if _is_foreign(values) else values)


def _is_foreign(values: NDArray[Any]) -> bool:
    """Whether an array lies in a file, or may not be written."""
    base: Any = values
    while isinstance(base, np.ndarray):
        if isinstance(base, np.memmap):
            return True
        base = base.base
    return not values.flags.writeable


def column(values: NDArray[np.generic]) -> Tensor:
    """Return (num_values, 1) float32."""
    return torch.from_numpy(np.array(values, dtype=np.float32)[:, None])
