"""A device beside the processor, for tests where there is none: torch calls it `meta`.

Its tensors hold values, unlike those of torch's own meta device. As with CUDA, an operation on
tensors of both devices fails, and so does numpy; so does a kernel of either device that is given
what lies on the other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from on_device import INTERPRETED, OneAtATime
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

from distgnn.kernels import devices

DEVICE = torch.device("meta")
# CUDA takes indices of the processor, too.
_TAKES_BOTH = {"aten::copy_", "aten::index.Tensor", "aten::_to_copy"}


class FarTensor(torch.Tensor):
    """A tensor of the device; `near` has its values."""

    near: torch.Tensor

    @staticmethod
    def __new__(cls, near: torch.Tensor) -> FarTensor:
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            near.shape,
            strides=near.stride(),
            storage_offset=near.storage_offset(),
            dtype=near.dtype,
            device=DEVICE,
        )
        made.near = near
        return made

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        return _run(function, args, kwargs or {})


def _near(value: Any) -> Any:
    return value.near if isinstance(value, FarTensor) else value


def _run(function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    tensors = [v for v in tree_flatten((args, kwargs))[0] if isinstance(v, torch.Tensor)]
    far = [tensor for tensor in tensors if isinstance(tensor, FarTensor)]
    name = function._schema.name + ("." if function._schema.overload_name else "")
    name += function._schema.overload_name
    is_mixed = far and any(t.dim() and not isinstance(t, FarTensor) for t in tensors)
    assert not is_mixed or name in _TAKES_BOTH, f"{name} mixes devices"
    wanted = kwargs.get("device")
    is_far = bool(far) if wanted is None else torch.device(wanted) == DEVICE
    if name == "aten::copy_":
        is_far = isinstance(args[0], FarTensor)
    options = {k: v for k, v in kwargs.items() if k not in ("device", "pin_memory")}
    if wanted is not None:
        options["device"] = "cpu"
    result = function(*tree_map(_near, args), **tree_map(_near, options))

    def found(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or not is_far:
            return value
        for tensor in far:
            if tensor.near is value:
                return tensor
        return FarTensor(value)

    return tree_map(found, result)


class SecondDevice(TorchDispatchMode):
    """Makes the device exist in this thread."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return _run(function, args, kwargs or {})


class _Near(OneAtATime):
    """Functions that are given what tensors of the device hold."""

    def __getattr__(self, name: str) -> Any:
        function = super().__getattr__(name)
        return lambda *args, **options: function(*tree_map(_near, args), **tree_map(_near, options))


class _Refusing:
    """Functions of one device, which cannot read what is of a type that lies on the other."""

    def __init__(self, module: Any, refused: type) -> None:
        self._module, self._refused = module, refused

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._module, name)
        if not callable(function):
            return function

        def checked(*args: Any, **options: Any) -> Any:
            for value in (*args, *options.values()):
                assert not isinstance(value, self._refused), f"{name} is given the other device's"
            return function(*args, **options)

        return checked


def _far_view(tensor: torch.Tensor) -> torch.Tensor:
    assert isinstance(tensor, FarTensor), "a kernel of the device is given the processor's"
    return tensor.near


def use_second_device(monkeypatch: pytest.MonkeyPatch) -> torch.device:
    """Give the device kernels, those in Triton, until the test ends."""
    pytest.importorskip("triton")
    if not INTERPRETED:
        pytest.skip("there is a CUDA device, for which kernels are compiled")
    loaded = devices.triton_kernels()
    far = _Refusing(OneAtATime(loaded.functions), np.ndarray)
    monkeypatch.setitem(
        devices._LOADED, DEVICE.type, devices.Kernels(far, _far_view, _Near(loaded.dense))
    )
    near = devices._LOADERS["cpu"]()
    near = near._replace(functions=_Refusing(near.functions, torch.Tensor))
    monkeypatch.setitem(devices._LOADED, "cpu", near)
    return DEVICE
