from __future__ import annotations

import sys

import pytest
import torch

from distgnn import kernels
from distgnn.datasets import InputError
from distgnn.kernels import devices


def test_a_device_that_is_not_there_is_one_sentence(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert devices.find_device("cpu", 3) == torch.device("cpu")
    with pytest.raises(InputError, match=r"no CUDA device was found \(torch .*\); use"):
        devices.find_device("cuda", 0)
    with pytest.raises(InputError, match=r"--device must be cpu or cuda, got 'tpu'; leave it out"):
        devices.find_device("tpu", 0)


def test_a_device_without_triton_is_another_sentence(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for name in [name for name in sys.modules if name.startswith("distgnn.gpu")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr(sys.modules["distgnn"], "gpu", raising=False)
    monkeypatch.setitem(sys.modules, "triton", None)
    with pytest.raises(
        InputError, match=r"need Triton, which cannot be imported .* install distgnn\[gpu\], or use"
    ):
        devices.find_device("cuda", 0)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_device_on_which_triton_cannot_start_is_a_third(monkeypatch):
    pytest.importorskip("triton")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    # Here it finds no driver.
    with pytest.raises(
        InputError, match=r"--device cuda: Triton, .*, cannot start .* \(.+\); it needs a C compi"
    ):
        devices.find_device("cuda", 0)


def test_ranks_take_the_devices_of_their_host_in_turn(monkeypatch):
    chosen = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    monkeypatch.setattr(devices, "triton_kernels", lambda: None)
    monkeypatch.setattr(devices, "_start_triton", lambda name: None)
    found = [devices.find_device("cuda", local_rank) for local_rank in range(3)]
    assert found == chosen == [torch.device("cuda", number) for number in (0, 1, 0)]


def test_tensors_elsewhere_are_named():
    x, rows = torch.ones(2, 2, device="meta"), torch.zeros(1, dtype=torch.int32)
    with pytest.raises(ValueError, match=r"x must be on the CPU or a CUDA device, got device meta"):
        kernels.gather_rows(x, rows, torch.ones(1, 2))
