from __future__ import annotations

import argparse
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
    rows = list(script.compare_sums("products", widths=(16, 33), **common))
    names = [row[1:3] for row in rows]
    for width in (16, 33):
        for contestant in ("distgnn", "distgnn bf16", "torch.sparse"):
            assert (width, contestant) in names
    assert all(taken > 0 and share > 0 for *_, taken, share in rows)


def test_an_epoch_is_timed_and_taken_apart(script):
    common = {"scale": 0.0005, "rounds": 1, "device": torch.device("cpu")}
    first, *_, phases, table = script.measure_epoch("reddit", **common)
    assert first.startswith("epoch of reddit: distgnn ")
    assert phases.startswith("epoch of reddit: aggregate ")
    assert "Self CPU" in table


def test_losses_are_compared_epoch_by_epoch(script, capsys):
    script.run_losses(argparse.Namespace(scale=0.002), torch.device("cpu"))
    models = [line.partition(": ") for line in capsys.readouterr().out.splitlines()]
    assert [name for name, _, _ in models] == ["sage", "gcn", "gat"]
    assert all(text == "losses of 20 epochs differ by 0.0e+00 at most" for _, _, text in models)
    assert script.difference([1.0, 2.0], [1.0, 1.5]).endswith("differ by 2.5e-01 at most")
