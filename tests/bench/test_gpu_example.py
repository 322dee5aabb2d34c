from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest
import torch


@pytest.fixture(scope="module")
def script(repository):
    path = repository / "examples/bench/gpu.py"
    spec = importlib.util.spec_from_file_location("gpu_example", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_gpu_it_says_so(repository):
    done = subprocess.run(
        [sys.executable, repository / "examples/bench/gpu.py"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("gpu.py: no CUDA device was found (torch ")
    assert done.stderr.count("\n") == 1


# CSR tensors announce that they are in beta.
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
def test_all_contestants_compute_the_same(script):
    common = {"scale": 0.0005, "rounds": 1, "device": torch.device("cpu")}
    lines = script.compare_sums("products", widths=(16, 33), **common)
    names = [line.split(" | ")[1:3] for line in lines]
    for width in ("16", "33"):
        for contestant in ("distgnn", "distgnn bf16", "torch.sparse"):
            assert [width, contestant] in names


def test_an_epoch_is_timed_and_taken_apart(script):
    common = {"scale": 0.0005, "rounds": 1, "device": torch.device("cpu")}
    first, table = script.measure_epoch("reddit", **common)
    assert first.startswith("epoch of reddit: ")
    assert "Self CPU" in table
