"""The kernels of each kind of device, and how they take tensors."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor


PROCESSOR = torch.device("cpu")


class Kernels(NamedTuple):
    """Kernels of one kind of device.

    Attributes:
        functions: The kernels, by the names that the compiled module gives them.
        view: Returns a checked tensor as they take it.
        dense: Module that multiplies dense matrices as they are; None where `kernels.dense`
            packs them for the compiled functions.
    """

    functions: Any
    view: Callable[[Tensor], Any]
    dense: Any = None


_LOADED: dict[str, Kernels] = {}


def kernels_on(name: str, tensor: Tensor) -> Kernels:
    """Return the kernels of the device that a tensor is on, loaded at the first call.

    Args:
        name: Name of the tensor, for messages.
        tensor: On the CPU or a CUDA device.

    Raises:
        InputError: If it is on a CUDA device, and Triton is not installed.
        ValueError: If it is on another device.
    """
    device = tensor.device.type
    if device not in _LOADED:
        if device not in _LOADERS:
            message = (
                f"{name} must be on the CPU or a CUDA device, got device {tensor.device}; "
                f"call {name}.cpu()"
            )
            raise ValueError(message)
        _LOADED[device] = _LOADERS[device]()
    return _LOADED[device]


def _compiled() -> Kernels:
    from distgnn import _kernels

    return Kernels(_kernels, _as_numpy)


def _as_numpy(tensor: Tensor) -> Any:
    tensor = tensor.detach()
    # numpy has no bfloat16; the kernels take its bits as int16.
    return (tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor).numpy()


def triton_kernels() -> Kernels:
    """Return the kernels in Triton, which run on CUDA tensors.

    Raises:
        InputError: If Triton is not installed.
    """
    try:
        from distgnn import gpu
        from distgnn.gpu import dense
    except ImportError as error:
        from distgnn.datasets.errors import InputError

        raise InputError(
            f"kernels for CUDA devices need Triton, which cannot be imported ({error}); install "
            "distgnn[gpu], or use --device cpu"
        ) from error
    # As it is: schedules are kept by tensor.
    return Kernels(gpu, lambda tensor: tensor, dense)


_LOADERS = {"cpu": _compiled, "cuda": triton_kernels}


def moved(holder: Any, device: torch.device) -> dict[str, Any]:
    """Return on a device what a dataclass holds and can be moved there, for `replace`.

    Args:
        holder: A dataclass; of its values those with a method `to` are moved.
        device: Where to.

    Returns:
        Values by the names of their fields.
    """
    values = {item.name: getattr(holder, item.name) for item in fields(holder) if item.init}
    return {name: value.to(device) for name, value in values.items() if hasattr(value, "to")}


def find_device(name: str, local_rank: int) -> torch.device:
    """Return the device that a rank computes on, and make it the current one.

    Args:
        name: cpu or cuda.
        local_rank: The rank's number on its host; ranks take the host's devices in turn.

    Raises:
        InputError: If there is no such device here, or its kernels cannot be loaded.
    """
    from distgnn.datasets.errors import InputError

    if name not in _LOADERS:
        raise InputError(f"--device must be cpu or cuda, got '{name}'; leave it out for cpu")
    if name == "cpu":
        return PROCESSOR
    if not torch.cuda.is_available():
        raise InputError(
            f"--device {name}: no CUDA device was found (torch {torch.__version__}); "
            "use --device cpu"
        )
    triton_kernels()
    device = torch.device(name, local_rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    _start_triton(name)
    return device


def _start_triton(name: str) -> None:
    """Let Triton build what starts its kernels; else the first of them would, minutes later.

    Args:
        name: Name of the kind of device, for messages.

    Raises:
        InputError: If it cannot.
    """
    from triton.runtime import driver

    from distgnn.datasets.errors import InputError

    try:
        driver.active.get_current_target()
    # Of a compiler that is missing or fails, of a library that is not found, of no driver.
    except Exception as error:
        line = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(
            f"--device {name}: Triton, which builds the kernels, cannot start on this machine "
            f"({line}); it needs a C compiler, Python's headers and the driver of the device, as "
            "from apt install gcc python3-dev; or use --device cpu"
        ) from error


def identity(device: torch.device) -> str:
    """Return a name that no other device has; processes may number devices differently.

    Args:
        device: A CUDA device.
    """
    return str(torch.cuda.get_device_properties(device).uuid)


def free_bytes(device: torch.device) -> int:
    """Return the bytes of a device that this process can still take.

    Args:
        device: A CUDA device.
    """
    kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(torch.cuda.mem_get_info(device)[0]) + kept
