"""Run directories with bytes changed, cut off or gone: the same result or one sentence."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from distgnn.cli import main

if TYPE_CHECKING:
    from pathlib import Path

EPOCHS, STOP = 6, 4
FUZZ = settings(
    max_examples=40,
    derandomize=True,
)


def command(*words):
    return main([str(word) for word in words])


def train(ring, run, *words):
    threads = torch.get_num_threads()
    length = ("--hidden", 4, "--checkpoint-every", 2, "--threads", threads, "--quiet", "--json")
    return command("train", ring, "--run", run, "--algorithm", "cd-2", *length, *words)


@pytest.fixture(scope="module")
def runs(ring, tmp_path_factory):
    """A run that was halted after its second checkpoint, and the same that was not."""
    folder = tmp_path_factory.mktemp("runs")
    assert train(ring, folder / "halted", "--epochs", STOP) == 0
    shutil.copytree(folder / "halted", folder / "ended")
    assert train(ring, folder / "ended", "--epochs", EPOCHS, "--resume") == 0
    return folder


def files_of(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def damage(path: Path, data: st.DataObject) -> None:
    """Change a byte, cut the file off, put something in between, or take it away."""
    content = bytearray(path.read_bytes())
    kind = data.draw(st.sampled_from(["flip", "cut", "insert", "overwrite", "remove", "folder"]))
    place = data.draw(st.integers(0, max(len(content) - 1, 0)))
    if kind in ("remove", "folder"):
        path.unlink()
        if kind == "folder":
            path.mkdir()
        return
    if kind == "flip":
        content[place] ^= 1 << data.draw(st.integers(0, 7))
    elif kind == "cut":
        del content[place:]
    elif kind == "insert":
        content[place:place] = data.draw(st.binary(min_size=1, max_size=9))
    else:
        junk = data.draw(st.binary(min_size=1, max_size=9))
        content[place : place + len(junk)] = junk
    path.write_bytes(content)


def outcome(capsys, status):
    """Read the output of a command that went well; another may have said one sentence."""
    out, err = capsys.readouterr()
    if status == 0:
        return json.loads(out)
    assert (status, out) == (2, "")
    last = err.splitlines()[-1]
    assert last.startswith("distgnn: ")
    assert "Traceback" not in err
    return None


SAME = ("test_metric", "best_epoch", "final_loss", "halo_bytes_per_epoch")


@FUZZ
@given(data=st.data())
def test_a_damaged_run_resumes_to_the_same_end_or_says_why_not(
    data, runs, ring, tmp_path_factory, capsys
):
    folder = tmp_path_factory.mktemp("damaged") / "run"
    shutil.copytree(runs / "halted", folder)
    name = data.draw(st.sampled_from(files_of(folder)))
    damage(folder / name, data)
    capsys.readouterr()
    found = outcome(capsys, train(ring, folder, "--epochs", EPOCHS, "--resume"))
    if found is not None and name != "metrics.jsonl":
        expected = json.loads((runs / "ended/summary.json").read_text())
        assert {key: found[key] for key in SAME} == {key: expected[key] for key in SAME}
        model = (folder / "model.safetensors").read_bytes()
        assert model == (runs / "ended/model.safetensors").read_bytes()


@FUZZ
@given(data=st.data())
def test_a_damaged_model_is_never_evaluated(data, runs, tmp_path_factory, capsys):
    folder = tmp_path_factory.mktemp("damaged") / "run"
    shutil.copytree(runs / "ended", folder)
    before = (folder / "model.safetensors").read_bytes()
    damage(folder / "model.safetensors", data)
    capsys.readouterr()
    threads = torch.get_num_threads()
    found = outcome(capsys, command("evaluate", folder, "--threads", threads, "--json"))
    path = folder / "model.safetensors"
    is_same = path.is_file() and path.read_bytes() == before
    if found is not None and not is_same:
        expected = json.loads((runs / "ended/summary.json").read_text())
        assert found["test_metric"] == expected["test_metric"]


@FUZZ
@given(data=st.data())
def test_a_run_whose_configuration_is_damaged_is_evaluated_or_says_why_not(
    data, runs, tmp_path_factory, capsys
):
    folder = tmp_path_factory.mktemp("damaged") / "run"
    shutil.copytree(runs / "ended", folder)
    damage(folder / "config.json", data)
    capsys.readouterr()
    threads = torch.get_num_threads()
    outcome(capsys, command("evaluate", folder, "--threads", threads, "--json"))
