from __future__ import annotations

import pytest
import torch

from distgnn.cli import main

NO_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")


def sentence(capsys, *arguments):
    assert main(list(arguments)) == 2
    return capsys.readouterr().err


@NO_GPU
def test_a_device_that_is_not_there_is_refused(tmp_path, capsys):
    run = tmp_path / "run"
    error = sentence(capsys, "train", "cora", "--run", str(run), "--device", "cuda")
    assert error.startswith("distgnn: --device cuda: no CUDA device was found (torch ")
    assert error.endswith("); use --device cpu\n")
    assert not run.exists()


def test_another_device_is_refused(tmp_path, capsys):
    error = sentence(capsys, "train", "cora", "--run", str(tmp_path / "run"), "--device", "tpu")
    assert error == "distgnn: --device must be cpu or cuda, got 'tpu'; leave it out for cpu\n"


@pytest.mark.parametrize("verb", ["train", "evaluate"])
def test_nccl_without_a_device_is_refused(verb, tmp_path, capsys):
    arguments = ["cora", "--run", str(tmp_path)] if verb == "train" else [str(tmp_path)]
    error = sentence(capsys, verb, *arguments, "--backend", "nccl")
    assert error == (
        "distgnn: backend 'nccl' moves rows of CUDA devices, but this command computes on the cpu; "
        "add --device cuda where it is taken, or choose --backend gloo\n"
    )


@pytest.mark.gpu
def test_a_gpu_trains_as_the_processor_does(tmp_path, capsys):
    import json

    summaries = []
    for device in ("cpu", "cuda"):
        run = str(tmp_path / device)
        common = ["train", "cora", "--run", run, "--epochs", "20", "--quiet", "--json"]
        assert main([*common, "--device", device]) == 0
        summaries.append(json.loads(capsys.readouterr().out))
    assert summaries[1]["test_metric"] == pytest.approx(summaries[0]["test_metric"], abs=0.02)
