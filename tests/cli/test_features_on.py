from __future__ import annotations

import json

import numpy as np
import pytest
from second_device import DEVICE, SecondDevice, use_second_device

from distgnn.cli import main
from distgnn.kernels import devices
from distgnn.machine import memory_check
from distgnn.ops import host_rows


@pytest.fixture
def _second_device(monkeypatch):
    use_second_device(monkeypatch)
    monkeypatch.setattr(
        devices, "find_device", lambda name, rank: devices.PROCESSOR if name == "cpu" else DEVICE
    )
    monkeypatch.setattr(memory_check, "identity", str)
    monkeypatch.setattr(memory_check, "free_bytes", lambda device: 1 << 30)


# torch takes the device for its own, which has no values to copy; this one copies them.
@pytest.mark.usefixtures("_second_device")
@pytest.mark.filterwarnings("ignore:.*copying from a non-meta parameter")
def test_a_run_with_streamed_features_says_so_and_is_read_again(ring, here, monkeypatch, capsys):
    monkeypatch.setattr(host_rows, "SLICE_BYTES", 64)
    command = ["train", str(ring), "--json", "--hidden", "4", "--dropout", "0", "--epochs", "2"]
    summaries = []
    for where in ("host", "device"):
        with SecondDevice():
            words = ["--run", where, "--device", "cuda", "--features-on", where]
            assert main([*command, *words]) == 0
        shown = capsys.readouterr()
        summaries.append(json.loads(shown.out))
        says = "\nfeatures: in host memory, as --features-on host says; " in shown.err
        assert says == (where == "host")
        assert " more of the device at the peak of rank 0, predicted\n" in shown.err
    assert summaries[0]["test_metric"] == pytest.approx(summaries[1]["test_metric"])
    scores = []
    for where, device in (("host", "cuda"), ("host", "cpu"), ("device", "cuda")):
        with SecondDevice():
            assert main(["evaluate", where, "--json", "--device", device]) == 0
            words = ["--json", "--out", "out.npy", "--device", device]
            assert main(["predict", where, *words]) == 0
        lines = capsys.readouterr().out.splitlines()
        scores.append((json.loads(lines[0])["val_loss"], np.load("out.npy")))
    for loss, output in scores[1:]:
        assert loss == pytest.approx(scores[0][0], rel=1e-5)
        np.testing.assert_allclose(output, scores[0][1], rtol=1e-5)


@pytest.mark.usefixtures("_second_device")
@pytest.mark.filterwarnings("ignore:.*copying from a non-meta parameter")
def test_sums_of_streamed_features_that_fit_no_host_are_refused(ring, here, monkeypatch, capsys):
    asked = iter([1 << 30])
    monkeypatch.setattr(memory_check, "available_by_pool", lambda: {"machine": next(asked, 10)})
    with SecondDevice():
        words = ["--run", "run", "--device", "cuda", "--features-on", "host"]
        assert main(["train", str(ring), *words]) == 2
    error = capsys.readouterr().err
    assert "streaming sums of features needs about " in error
    assert error.endswith("or --force to try nevertheless\n")


def test_the_processor_refuses_to_stream(tmp_path, capsys):
    assert main(["train", "cora", "--run", str(tmp_path / "run"), "--features-on", "host"]) == 2
    assert capsys.readouterr().err == (
        "distgnn: --features-on host streams features to a CUDA device, but --device is cpu, which "
        "reads them where they are; drop it or add --device cuda\n"
    )
