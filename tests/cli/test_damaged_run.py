"""Run directories with bytes changed, cut off or gone: the same result or one sentence."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from training import make_config

from distgnn.api.reports import report
from distgnn.cli import main
from distgnn.datasets import InputError
from distgnn.training.run.beginning import prepare
from distgnn.training.run.directory import RunDirectory
from distgnn.tuning.study import StudyLog

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


def report_of(folder: Path) -> None:
    report(folder, folder / "page.html")


def resume_in(folder: Path) -> None:
    """Continue a run on parts that train on their own, whose number is part of the graph."""
    config = make_config(algorithm="0c")
    begin = {
        "task": {"name": "single-label"},
        "graph": "g",
        "source": "a.npz",
        "num_ranks": 2,
        "train": config.to_json(),
    }
    file = folder / "config.json"
    file.write_text(json.dumps({"format": 1, **begin, **json.loads(file.read_text())}))
    run_dir = RunDirectory(folder)
    try:
        prepare(run_dir, config, begin, is_resuming=True, overwrites=False)
    finally:
        run_dir.lock.release()


SERIES, STUDY, RESUMED = "series.json", "study.json", "cannot resume '.*' with other settings: "
LACKS = "is damaged: a value is missing or of another kind"
RUN = {"seed-0/config.json": "{}"}


@pytest.mark.parametrize(
    ("files", "action", "message"),
    [
        ({**RUN, SERIES: "{}"}, report_of, f"series.json' {LACKS}"),
        ({**RUN, SERIES: '{"runs": []}'}, report_of, f"series.json' {LACKS}"),
        ({**RUN, SERIES: '{"runs": [{"run": 5}]}'}, report_of, f"series.json' {LACKS}"),
        ({STUDY: "{}", "summary.json": "{}"}, report_of, f"summary.json' {LACKS}"),
        ({STUDY: "{}", "summary.json": '{"trials": [1]}'}, report_of, f"summary.json' {LACKS}"),
        ({"study.jsonl": "[" * 200_000 + "\n"}, StudyLog, "study.jsonl' is damaged in line 1"),
        ({"config.json": '{"graph": {}}'}, resume_in, f"{RESUMED}graph "),
        ({"config.json": '{"num_ranks": {}}'}, resume_in, f"{RESUMED}num_ranks "),
        ({"config.json": '{"graph": 1, "source": {}}'}, resume_in, f"{RESUMED}graph .*source "),
        ({"config.json": '{"task": 7}'}, resume_in, f"{RESUMED}task "),
    ],
)
def test_json_of_another_shape_is_one_sentence(files, action, message, tmp_path):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=message):
        action(tmp_path)
