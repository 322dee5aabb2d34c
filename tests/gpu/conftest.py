from __future__ import annotations

import on_device
import pytest
import torch


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> torch.device:
    """Where the Triton kernels run."""
    return on_device.use_triton(monkeypatch)
