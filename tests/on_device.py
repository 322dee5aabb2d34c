"""The kernels of CUDA devices in tests: on the CPU by Triton's interpreter where there is none."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import torch

from distgnn.kernels import devices

INTERPRETED = not torch.cuda.is_available()
"""Whether kernels run in Triton's interpreter."""


class OneAtATime:
    """The functions of a module under one lock: the interpreter is one for all ranks as threads."""

    _lock = threading.RLock()

    def __init__(self, module: Any) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._module, name)

        def locked(*args: Any, **options: Any) -> Any:
            with self._lock:
                return function(*args, **options)

        return locked


def use_triton(monkeypatch: pytest.MonkeyPatch) -> torch.device:
    """Return the device whose kernels are those of CUDA until the test ends."""
    pytest.importorskip("triton")
    if not INTERPRETED:
        return torch.device("cuda")
    # Rows are cut into pieces much sooner, as the interpreter takes a millisecond for an edge.
    monkeypatch.setattr("distgnn.gpu.schedule.PIECE_EDGES", 16)
    loaded = devices.triton_kernels()
    kernels = loaded._replace(functions=OneAtATime(loaded.functions))
    monkeypatch.setitem(devices._LOADED, "cpu", kernels)
    return torch.device("cpu")


def put(device: torch.device, *values: Any) -> list[Any]:
    """Copies on a device; None stays None."""
    return [
        None if value is None else torch.as_tensor(np.array(value)).to(device) for value in values
    ]


def hub_graph(num_rows: int, num_sources: int, hub_edges: int, *, seed: int) -> Any:
    """Few edges into most rows, none into the last, and very many into row 1."""
    import reference

    rng = np.random.default_rng(seed)
    rows = np.concatenate([rng.integers(0, num_rows - 1, 3 * num_rows), np.full(hub_edges, 1)])
    sources = rng.integers(0, num_sources, rows.size)
    return reference.csr_of(sources, rows, num_rows)
