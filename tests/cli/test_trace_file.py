"""Where a trace may lie: beside the files of its run, never in their place."""

from __future__ import annotations

import json
import shutil

import pytest

OWN = ["config.json", "metrics.jsonl", "summary.json", "model.safetensors", "checkpoints"]
TAKEN = "the run keeps files of its own there; choose another file with --trace"


def train(distgnn, ring, *words):
    return distgnn("train", ring, "--epochs", 2, "--hidden", 4, "--quiet", *words)


def contents(folder):
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.mark.parametrize("again", ["--resume", "--overwrite"])
@pytest.mark.parametrize(
    "trace",
    [*(f"r/{name}" for name in OWN), "r/checkpoints/epoch-000003", "other/../r/config.json"],
)
def test_a_file_of_the_run_is_not_overwritten(trace, again, distgnn, ring, ring_run, here):
    shutil.copytree(ring_run, here / "r")
    (here / "other").mkdir()
    before = contents(here)
    outcome = train(distgnn, ring, "--run", "r", "--trace", trace, again)
    assert outcome.sentence == f"cannot write trace '{trace}': {TAKEN}"
    assert contents(here) == before


@pytest.mark.parametrize("name", OWN)
def test_a_file_of_a_run_that_begins_is_refused_before_anything_is_written(
    name, distgnn, ring, here
):
    outcome = train(distgnn, ring, "--run", "r", "--trace", here / "r" / name)
    assert outcome.sentence == f"cannot write trace '{here / 'r' / name}': {TAKEN}"
    assert not (here / "r").exists()


@pytest.mark.parametrize(("trace", "run"), [("r", "r"), ("./r", "r"), ("r", "r/s")])
def test_the_directory_of_the_run_is_no_trace_and_the_corrected_command_runs(
    trace, run, distgnn, ring, here
):
    outcome = train(distgnn, ring, "--run", run, "--trace", trace)
    shown = trace.removeprefix("./")
    assert outcome.sentence == (
        f"cannot write trace '{shown}': it is a directory, of --run '{run}' or above it; give a "
        "file's name"
    )
    assert list(here.iterdir()) == []
    again = train(distgnn, ring, "--run", run, "--trace", f"{here}/{run}/trace.json")
    assert again.status == 0
    assert json.loads((here / run / "trace.json").read_text())["traceEvents"]


def test_a_trace_may_be_called_like_a_file_of_the_run_elsewhere(distgnn, ring, here):
    assert train(distgnn, ring, "--run", "r", "--trace", "config.json").status == 0
    assert json.loads((here / "config.json").read_text())["traceEvents"]


def test_links_in_a_circle_are_refused_in_a_sentence(distgnn, ring, here):
    (here / "a").symlink_to("b")
    (here / "b").symlink_to("a")
    outcome = train(distgnn, ring, "--run", "r", "--trace", "a/trace.json")
    assert outcome.sentence.startswith("cannot write trace 'a/trace.json': Too many levels of sym")
