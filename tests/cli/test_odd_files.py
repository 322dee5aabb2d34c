"""Files of a run or of parts that are no files, are nested, or lack something: one sentence."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from typing import TYPE_CHECKING, Any

import pytest
import torch

from distgnn.training.run.directory import RunDirectory

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def run(ring_run: Path, tmp_path: Path) -> Path:
    """A run of three epochs."""
    return shutil.copytree(ring_run, tmp_path / "run")


@pytest.fixture
def parts(ring_parts: Path, tmp_path: Path) -> Path:
    """A partition directory."""
    return shutil.copytree(ring_parts, tmp_path / "parts")


def last_line(outcome: Any) -> str:
    """Return the sentence of a command that had begun."""
    assert outcome.status == 2, outcome
    assert "Traceback" not in outcome.err
    line = outcome.err.splitlines()[-1]
    assert line.startswith("distgnn: ")
    return str(line)


def pipe(path: Path) -> None:
    """Put a named pipe in place of a file."""
    path.unlink(missing_ok=True)
    os.mkfifo(path)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_pipe_in_place_of_a_file_of_the_run_is_refused(distgnn, run, name):
    pipe(run / name)
    words = ("evaluate", run, "--threads", torch.get_num_threads())
    assert f"{name}': it is a named pipe, not a file" in distgnn(*words).sentence


def test_a_pipe_in_place_of_a_manifest_is_refused(distgnn, parts):
    pipe(parts / "manifest.json")
    assert "it is a named pipe, not a file" in distgnn("inspect", parts).sentence


def test_a_pipe_in_place_of_an_array_of_a_part_is_refused(distgnn, parts):
    pipe(next(parts.glob("part-*/indptr.npy")))
    outcome = distgnn("inspect", parts, "--verify")
    assert "indptr.npy' of the partition cannot be read: it is a named pipe" in last_line(outcome)


def test_a_pipe_in_place_of_a_recipe_is_refused(distgnn, tmp_path, ring):
    pipe(tmp_path / "r.json")
    words = ("train", ring, "--recipe", tmp_path / "r.json", "--run", "run")
    assert "it is a named pipe, not a file" in distgnn(*words).sentence


def test_links_in_a_circle_are_refused(distgnn, parts, tmp_path):
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for words in (("inspect", loop), ("evaluate", loop), ("train", loop, "--run", "run")):
        assert "loop" in distgnn(*words).sentence
    file = parts / "part-0000" / "indptr.npy"
    file.unlink()
    file.symlink_to(file)
    words = ("repartition", parts, "--parts", 1, "--out", tmp_path / "out")
    assert "cannot be read: Too many levels of symbolic links" in last_line(distgnn(*words))


def test_a_nested_line_of_the_metrics_is_none(run):
    with (run / "metrics.jsonl").open("a") as file:
        file.write("[" * 200_000 + "\n")
    assert len(RunDirectory(run).read_metrics()) == 3


def test_a_number_that_is_no_figure_makes_a_line_none(run):
    lines = (run / "metrics.jsonl").read_text().splitlines()
    record = {**json.loads(lines[0]), "loss": 10**400}
    with (run / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(record) + "\n")
    assert len(RunDirectory(run).read_metrics()) == 3


def signed(values: dict[str, Any]) -> str:
    """Return a manifest of a checkpoint with the digest of what is in it."""
    values.pop("digest", None)
    digest = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
    return json.dumps({**values, "digest": digest})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda values: values.pop("progress"), "has no readable checkpoint.json"),
        (lambda values: values.update(progress=[]), "was altered"),
        (lambda values: values.update(files=[]), "has no readable|was altered"),
        (lambda values: values["progress"].pop("lr"), "lacks what the run had reached"),
        (lambda values: values["progress"].update(patience=7), "lacks what the run had reached"),
    ],
)
def test_a_checkpoint_that_lacks_something_is_refused(distgnn, run, ring, change, message):
    (folder,) = (run / "checkpoints").iterdir()
    values = json.loads((folder / "checkpoint.json").read_text())
    change(values)
    (folder / "checkpoint.json").write_text(signed(values))
    threads = torch.get_num_threads()
    words = ("--epochs", 5, "--hidden", 4, "--threads", threads, "--resume")
    sentence = last_line(distgnn("train", ring, "--run", run, *words))
    assert any(part in sentence for part in message.split("|")), sentence
