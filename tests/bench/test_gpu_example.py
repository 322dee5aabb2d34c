from __future__ import annotations

import argparse
import subprocess
import sys
import weakref

import pytest
import torch

from distgnn.bench import shapes
from distgnn.bench.epoch import twin_graph


@pytest.fixture(scope="module")
def script(load_script):
    return load_script("examples/bench/gpu.py")


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
# PyG, where it is installed, calls what torch has deprecated.
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
def test_all_contestants_compute_the_same(script):
    shape = shapes.make("products", scale=0.0005, order="community")
    common = {"rounds": 1, "device": torch.device("cpu")}
    rows = list(script.compare_sums(shape, widths=(16, 33), **common))
    names = [row[1:3] for row in rows]
    for width in (16, 33):
        for contestant in ("distgnn", "distgnn bf16", "torch.sparse"):
            assert (width, contestant) in names
    assert all(taken > 0 and share > 0 for *_, taken, share in rows)


def test_an_epoch_is_timed_and_taken_apart(script):
    race = script.race_of("reddit", 0.0005)
    first, *_, phases, table = script.measure_epoch(race, twin_graph(race), torch.device("cpu"))
    assert first.startswith("epoch of sage on reddit: distgnn ")
    assert phases.startswith("epoch of sage on reddit: aggregate ")
    assert "Self CPU" in table
    assert "\npeak of the epoch on the device: 0.00 GiB, predicted 0.0" in table


def test_the_memory_of_what_ran_out_of_it_is_free_for_the_next_try(script, monkeypatch):
    measure, held, is_held = script.measure_epochs, [], []

    def scarce(race, **options):
        is_held.append(any(tensor() is not None for tensor in held))
        if race.peers:
            tensor = torch.empty(8)
            held.append(weakref.ref(tensor))
            raise torch.OutOfMemoryError
        return measure(race, **options)

    monkeypatch.setattr(script, "measure_epochs", scarce)
    race = script.race_of("reddit", 0.0005, peers=("distgnn-bf16", "pyg"))
    first, second, *rest = script.measure_epoch(race, twin_graph(race), torch.device("cpu"))
    assert first == "epoch of sage on reddit: ours beside distgnn-bf16, pyg runs out of memory"
    assert second == "epoch of sage on reddit: ours beside distgnn-bf16 runs out of memory"
    assert rest[0].startswith("epoch of sage on reddit: distgnn ")
    assert is_held == [False] * 3


def test_ours_may_run_out_of_memory_as_well(script, monkeypatch):
    def scarce(race, **options):
        raise torch.OutOfMemoryError

    monkeypatch.setattr(script, "measure_epochs", scarce)
    race = script.race_of("reddit", 0.0005)
    lines = script.measure_epoch(race, twin_graph(race), torch.device("cpu"))
    assert lines == ["epoch of sage on reddit: ours alone runs out of memory"]


def test_a_twin_is_made_once(script, tmp_path):
    options = argparse.Namespace(scale=0.0005, twins=tmp_path)
    script.make_twin("reddit", options)
    made = shapes.make("reddit", scale=0.0005, order="community")
    kept = script.twin("reddit", argparse.Namespace(scale=1, twins=tmp_path))
    for name in ("indptr", "indices", "t_edge"):
        assert (getattr(kept, name) == getattr(made, name)).all()


def test_losses_are_compared_epoch_by_epoch(script, capsys):
    script.run_losses(argparse.Namespace(scale=0.002), torch.device("cpu"))
    models = [line.partition(": ") for line in capsys.readouterr().out.splitlines()]
    assert [name for name, _, _ in models[::2]] == ["sage", "gcn", "gat"]
    same = "differ by 0.0e+00 at most, 0.0e+00 of a loss"
    assert all(text.endswith(same) for _, _, text in models[::2])
    assert [name for name, _, _ in models[1::2]] == [
        f"{model}, weights changed by 1e-07" for model in ("sage", "gcn", "gat")
    ]
    assert not any(text.endswith(same) for _, _, text in models[1::2])
    found = script.difference([1.0, 2.0], [1.0, 1.5])
    assert found == "losses of 2 epochs, 1 to 2, differ by 5.0e-01 at most, 2.5e-01 of a loss"
