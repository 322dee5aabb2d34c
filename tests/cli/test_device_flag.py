from __future__ import annotations

import json
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from second_device import DEVICE, SecondDevice, use_second_device

from distgnn.cli import main
from distgnn.kernels import devices
from distgnn.machine import memory_check
from distgnn.training.run.tensors import read_tensors

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


def test_kernels_of_the_processor_are_not_tuned_for_a_device(tmp_path, capsys):
    run = ["--run", str(tmp_path / "run"), "--device", "cuda", "--tune-kernels"]
    assert sentence(capsys, "train", "cora", *run) == (
        "distgnn: --tune-kernels tries kernels of the processor, got --device cuda; drop "
        "--tune-kernels or use --device cpu\n"
    )


def evaluated(capsys, *words):
    """Return the scores and the predictions of a run's weights."""
    with SecondDevice() if words else nullcontext():
        assert main(["evaluate", "straight", "--json", *words]) == 0
        assert main(["predict", "straight", "--json", "--out", "out.npy", *words]) == 0
    return json.loads(capsys.readouterr().out.splitlines()[0]) | {"output": np.load("out.npy")}


# torch takes the device for its own, which has no values to copy; this one copies them.
@pytest.mark.filterwarnings("ignore:.*copying from a non-meta parameter")
def test_a_run_on_a_device_is_written_resumed_and_read_there(ring, here, monkeypatch, capsys):
    use_second_device(monkeypatch)
    monkeypatch.setattr(devices, "find_device", lambda name, rank: DEVICE)
    monkeypatch.setattr(memory_check, "identity", str)
    monkeypatch.setattr(memory_check, "free_bytes", lambda device: 1 << 30)
    command = ["train", str(ring), "--json", "--hidden", "4", "--dropout", "0"]
    summaries = {}
    for name, epochs in (("straight", "4"), ("resumed", "2"), ("resumed", "4")):
        with SecondDevice():
            words = ["--run", name, "--epochs", epochs, "--device", "cuda", "--resume"]
            assert main([*command, *words]) == 0
        shown = capsys.readouterr()
        summaries[name] = json.loads(shown.out)
        assert summaries[name]["estimated_epoch_s"] is None
        assert "\nmemory: " in shown.err
        assert "\ntime: " not in shown.err
    scored = {"far": evaluated(capsys, "--device", "cuda")}
    monkeypatch.undo()
    monkeypatch.chdir(here)
    scored["near"] = evaluated(capsys)
    assert scored["far"].pop("metric") == scored["near"].pop("metric")
    for name, value in scored["near"].items():
        assert scored["far"][name] == pytest.approx(value, rel=1e-5), name
    assert main([*command, "--run", "near", "--epochs", "4"]) == 0
    summaries["near"] = json.loads(capsys.readouterr().out)
    metrics = [summary["test_metric"] for summary in summaries.values()]
    assert metrics[0] == metrics[1] == pytest.approx(metrics[2])
    weights = [read_tensors(here / name / "model.safetensors") for name in summaries]
    for name, value in weights[0].items():
        assert torch.equal(value, weights[1][name])
        torch.testing.assert_close(value, weights[2][name], rtol=1e-4, atol=1e-4)


@pytest.mark.gpu
@pytest.mark.parametrize("model", ["sage", "gcn", "gat"])
def test_losses_on_a_gpu_are_those_of_the_processor(model, tmp_path, capsys):
    summaries, losses = [], []
    for device in ("cpu", "cuda"):
        run = tmp_path / device
        command = ["train", "cora", "--run", str(run), "--model", model, "--epochs", "20"]
        assert main([*command, "--device", device, "--quiet", "--json"]) == 0
        summaries.append(json.loads(capsys.readouterr().out))
        lines = (run / "metrics.jsonl").read_text().splitlines()
        losses.append([json.loads(line)["loss"] for line in lines])
    # Where GAT has learned its graph by heart, rounding is a large part of what is left of a loss.
    assert losses[1] == pytest.approx(losses[0], rel=1e-4, abs=1e-4)
    assert summaries[1]["test_metric"] == pytest.approx(summaries[0]["test_metric"], abs=0.02)
