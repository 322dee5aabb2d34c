"""Runs that turn between cuts of one graph."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from rank_jobs import BIN, ENVIRON, HANG_S, MPIRUN
from ring import ring_arrays

import distgnn as dg
from distgnn.api.verbs import _cuts_of
from distgnn.cli import main
from distgnn.comm.threads import run_ranks
from distgnn.datasets.errors import InputError
from distgnn.forecast import estimate
from distgnn.partition.directory.store import read_manifest, read_part
from distgnn.training.config.settings import TrainConfig
from distgnn.training.data.info import DataInfo
from distgnn.training.loop.progress import Silent
from distgnn.training.loop.stop import StoppedError
from distgnn.training.loop.trainer import Trainer
from distgnn.training.run.directory import RunDirectory

WORDS = ("--preset", "grappa", "--cut-every", "3", "--hidden", "4", "--threads", "1")
RANKS, EVERY, EPOCHS = 2, 3, 8


@pytest.fixture(scope="module")
def cuts(tmp_path_factory):
    """A graph file, and three cuts of it into as many parts as there are ranks."""
    folder = tmp_path_factory.mktemp("cuts")
    np.savez(folder / "ring.npz", **ring_arrays())
    for seed in range(3):
        words = [folder / "ring.npz", "--parts", RANKS, "--method", "random", "--seed", seed]
        words += ["--out", folder / f"parts-{seed}", "--json"]
        assert main(["partition", *map(str, words)]) == 0
    return [folder / f"parts-{seed}" for seed in range(3)]


def job(cuts, out, *words):
    """Train under mpirun; the records, and the notes."""
    command = [*MPIRUN, "-n", str(RANKS), BIN / "distgnn", "train", cuts[0], "--run", out, *WORDS]
    command += ["--cuts", ",".join(map(str, cuts[1:])), "--epochs", str(EPOCHS), *words]
    done = subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        timeout=HANG_S,
        env=ENVIRON,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return RunDirectory(out).read_metrics(), done.stderr


def shown(records):
    names = ("epoch", "loss", "train_metric", "val_metric", "test_metric", "halo_bytes_sent")
    return [[record[name] for name in names] for record in records]


@pytest.mark.slow
def test_a_run_on_cuts_in_turn_is_exact_when_it_resumes(mpirun, cuts, tmp_path):
    straight, said = job(cuts, tmp_path / "straight")
    turns = [line for line in said.splitlines() if line.startswith("cut ")]
    assert turns == [f"cut {n + 1} of 3, '{cuts[n]}'" for n in range(3)]
    assert "paused after" not in said
    assert [record["epoch"] for record in straight] == list(range(EPOCHS))
    assert all(record["halo_bytes_sent"] == 0 for record in straight)
    # In the middle of the second turn.
    _, said = job(cuts, tmp_path / "run", "--pause-after", "4")
    assert "paused after epoch 4 of 8" in said
    resumed, said = job(cuts, tmp_path / "run", "--resume")
    assert f"cut 2 of 3, '{cuts[1]}'" in said
    assert shown(resumed) == shown(straight)
    model = "model.safetensors"
    assert (tmp_path / "run" / model).read_bytes() == (tmp_path / "straight" / model).read_bytes()
    # A replica: trainers that go on from each other's checkpoints, a cut each.
    expected = replica(cuts, tmp_path / "replica")
    losses = [record["loss"] for record in straight]
    assert losses == pytest.approx([record["loss"] for record in expected], rel=1e-5)
    kept = json.loads((tmp_path / "run/config.json").read_text())
    assert kept["source"]["source"] == str(cuts[0])
    assert kept["cuts"] == [read_manifest(cut).fingerprint for cut in cuts]


def replica(cuts, folder):
    """Records of trainers of which each goes on from the checkpoint of the one before."""
    records = []
    for number, directory in enumerate(cuts):
        manifest = read_manifest(directory)
        until = min(EVERY * (number + 1), EPOCHS)
        config = TrainConfig.of({"preset": "grappa", "hidden": 4, "epochs": until})

        def on_rank(group, directory=directory, manifest=manifest, config=config):
            part = read_part(directory, group.rank, manifest=manifest)
            trainer = Trainer(config, DataInfo.of(manifest), part, group)
            trainer.resume(trainer.checkpoints(folder))
            found = list(trainer.epochs())
            trainer.save(trainer.checkpoints(folder))
            return found

        folder.mkdir(exist_ok=True)
        records += run_ranks(RANKS, on_rank)[0]
    return records


REFUSED = [
    (("--algorithm", "cd-0", "--cuts", "x"), "--cuts has an effect with --algorithm 0c only, got "),
    (("--preset", "grappa", "--cut-every", "5"), "--cut-every 5 has an effect with --cuts only; "),
    (("--algorithm", "0c", "--cut-every", "10"), "--cut-every 10 has an effect with --cuts only; "),
    (
        ("--preset", "grappa", "--cuts", "x", "--seeds", "2"),
        "--seeds and --split-index all make several runs, but --cuts names 1 more of one run; ",
    ),
    (
        ("--preset", "grappa", "--cuts", "x,y", "--merge-parts"),
        "--merge-parts merges the parts of one cut, but --cuts names 2 more of one run; ",
    ),
    (
        ("--algorithm", "0c", "--cuts", "x", "--weights", "every(4)"),
        "--weights every(4)+mean lets each rank have a model of its part, but --cuts names 1 more ",
    ),
    (
        ("--algorithm", "0c", "--dropout", "0", "--optimizer", "lbfgs", "--cuts", "x"),
        "--optimizer lbfgs compares losses of one function, and another cut has another, but ",
    ),
    (
        ("--preset", "grappa", "--cuts", "x"),
        "--cuts turns between partition directories, but 'x' is none; cut the graph with ",
    ),
    (
        ("--preset", "grappa", "--cuts", "OTHER"),
        "which has 3 parts where '",
    ),
]


@pytest.mark.parametrize(("words", "sentence"), REFUSED)
def test_cuts_that_cannot_be_are_refused(distgnn, ring, ring_parts, words, sentence):
    one = ring.parent / "parts-1"
    if not one.exists():
        assert main(["partition", str(ring), "--parts", "1", "--out", str(one), "--json"]) == 0
    words = [str(ring_parts) if word == "OTHER" else word for word in words]
    refused = distgnn("train", one, "--run", "r", *words)
    assert refused.status == 2
    assert sentence in refused.sentence


class Acts(Silent):
    """Does something after an epoch, or when a turn on a cut begins."""

    def __init__(self, when, act):
        self._when, self._act = when, act

    def epoch(self, record):
        if record["epoch"] == self._when:
            self._act()

    def note(self, line):
        if line.startswith(f"{self._when},"):
            self._act()


class Noted(Silent):
    """Remembers the notes."""

    def __init__(self):
        self.lines = []

    def note(self, line):
        self.lines.append(line)


@pytest.fixture(scope="module")
def whole_cuts(tmp_path_factory):
    """Two cuts of a graph into one part, so that a run needs one rank."""
    folder = tmp_path_factory.mktemp("whole-cuts")
    np.savez(folder / "ring.npz", **ring_arrays())
    for name in ("a", "b"):
        words = [folder / "ring.npz", "--parts", 1, "--out", folder / name, "--json"]
        assert main(["partition", *map(str, words)]) == 0
    return folder / "a", folder / "b"


def trained(whole_cuts, folder, progress=None, **settings):
    """Train in turns of three epochs, on this process."""
    first, other = whole_cuts
    values = {"preset": "grappa", "cut_every": 3, "hidden": 4, "threads": 1, "epochs": 8}
    values |= {"out": folder / "run", "quiet": False, "progress": progress or Silent()}
    return dg.train(first, cuts=[other], **{**values, **settings})


@pytest.fixture
def nobody_ends(monkeypatch):
    """Let a signal that nobody hears be lost rather than end the tests."""
    before = signal.signal(signal.SIGTERM, lambda number, frame: None)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize(
    ("when", "num_epochs"),
    [
        (1, 3),  # in the last epoch of a turn
        (2, 3),  # after it, while it is evaluated and written
        ("cut 2 of 2", 4),  # while the next part is read
        (3, 5),
    ],
)
@pytest.mark.usefixtures("nobody_ends")
def test_a_signal_at_any_time_of_a_turn_ends_the_run_in_order(
    whole_cuts, tmp_path, when, num_epochs
):
    def ask():
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.05)  # until it is heard

    with pytest.raises(StoppedError, match=f"SIGTERM: the checkpoint of epoch {num_epochs} is wr"):
        trained(whole_cuts, tmp_path, Acts(when, ask))
    records = RunDirectory(tmp_path / "run").read_metrics()
    assert [record["epoch"] for record in records] == list(range(num_epochs))
    run = trained(whole_cuts, tmp_path, resume=True)
    assert run.summary["num_epochs"] == 8


def test_no_turn_goes_on_from_a_checkpoint_that_was_not_written(whole_cuts, tmp_path):
    in_the_way = tmp_path / "run/checkpoints/.epoch-000006.tmp"
    with pytest.raises(
        InputError, match=r"cannot write .*; make room there, and continue with the same"
    ):
        trained(whole_cuts, tmp_path, Acts(5, in_the_way.touch))
    in_the_way.unlink()
    said = Noted()
    run = trained(whole_cuts, tmp_path, said, resume=True)
    assert run.summary["num_epochs"] == 8
    kept = json.loads((tmp_path / "run/config.json").read_text())
    assert kept["other_cuts"] == [str(whole_cuts[1])]
    assert said.lines[0].startswith("cut 2 of 2, ")


def test_the_first_turn_alone_estimates_an_epoch(whole_cuts, tmp_path, monkeypatch):
    estimates = [0.5, 0.25, 0.125]
    monkeypatch.setattr(estimate, "estimate_epoch", lambda *_: estimates.pop(0))
    found = trained(whole_cuts, tmp_path, estimate=True)
    assert found.summary["num_epochs"] == 8
    assert found.summary["estimated_epoch_s"] == 0.5
    assert estimates == [0.25, 0.125]


@pytest.mark.parametrize("given", [Path("b"), "b", "b,", ["b"], (Path("b"),)])
def test_cuts_are_a_path_a_text_or_several_paths(given):
    assert _cuts_of(given) == ("b",)


def test_a_run_that_took_the_usual_turns_goes_on_where_they_are_named(whole_cuts, tmp_path):
    trained(whole_cuts, tmp_path, epochs=12, pause_after=11, cut_every=None)
    said = Noted()
    trained(whole_cuts, tmp_path, said, epochs=12, resume=True, cut_every=10)
    assert said.lines[0].startswith("cut 2 of 2, ")


def test_a_run_that_lost_records_of_epochs_that_are_done_goes_on_to_the_end(whole_cuts, tmp_path):
    trained(whole_cuts, tmp_path, pause_after=4)
    metrics = tmp_path / "run/metrics.jsonl"
    lines = metrics.read_text().splitlines(keepends=True)
    metrics.write_text("".join(lines[:2]))
    run = trained(whole_cuts, tmp_path, resume=True)
    records = RunDirectory(tmp_path / "run").read_metrics()
    assert [record["epoch"] for record in records] == [0, 1, 4, 5, 6, 7]
    assert run.summary["num_epochs"] == 8
