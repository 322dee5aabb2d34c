"""How much memory a run takes on the device of `second_device`, whose kernels do nothing then."""

from __future__ import annotations

import weakref
from collections import Counter
from typing import Any

import on_device
import pytest
import second_device
import torch
from torch.utils._pytree import tree_leaves


class Meter:
    """Counts the bytes of the tensors of the device, and of those its kernels make there.

    Attributes:
        now: Bytes that are taken.
        peak: Most bytes that were taken at once.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = self.peak = 0
        self._holders: Counter[int] = Counter()
        self._depth = 0
        kernels, run = on_device.OneAtATime.__getattr__, second_device._run

        def watched(module: Any, name: str) -> Any:
            function = kernels(module, name)

            def inside(*args: Any, **options: Any) -> Any:
                self._depth += 1
                try:
                    return function(*args, **options)
                finally:
                    self._depth -= 1

            return inside

        def metered(function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
            results = run(function, args, kwargs)
            for value in tree_leaves(results):
                if isinstance(value, second_device.FarTensor):
                    self._hold(value.near)
                elif self._depth and isinstance(value, torch.Tensor):
                    self._hold(value)
            return results

        monkeypatch.setattr(on_device.OneAtATime, "__getattr__", watched)
        monkeypatch.setattr(second_device, "_run", metered)
        # What kernels write is not looked at, and the interpreter takes a millisecond for an edge.
        monkeypatch.setattr(
            "triton.runtime.interpreter.InterpretedFunction.__getitem__",
            lambda kernel, grid: lambda *args, **options: None,
        )

    def _hold(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        address, num_bytes = storage.data_ptr(), storage.nbytes()
        if num_bytes == 0 or hasattr(tensor, "is_metered"):
            return
        tensor.is_metered = True  # type: ignore[attr-defined]
        self.now += num_bytes * (self._holders[address] == 0)
        self.peak = max(self.peak, self.now)
        self._holders[address] += 1
        weakref.finalize(tensor, self._let_go, address, num_bytes)

    def _let_go(self, address: int, num_bytes: int) -> None:
        self._holders[address] -= 1
        self.now -= num_bytes * (self._holders[address] == 0)
