"""`distgnn.tune` on real runs: in one job, on several ranks, and as processes of their own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from rank_jobs import ENVIRON, Hold
from ring import ring_arrays

import distgnn as dg
from distgnn.api import source as sources
from distgnn.api.source import SourceOptions
from distgnn.api.training import Training
from distgnn.cli import main, tune_verb
from distgnn.comm.threads import run_ranks
from distgnn.datasets.errors import InputError
from distgnn.pages.study import explained, study_page
from distgnn.training.config.settings import TrainConfig
from distgnn.training.loop import metrics
from distgnn.training.loop.stop import StoppedError
from distgnn.training.run.directory import RunDirectory
from distgnn.tuning import in_job
from distgnn.tuning.in_job import clone_run, read_curve, read_losses
from distgnn.tuning.jobs import Jobs, JobSlots, end_left
from distgnn.tuning.samplers import RandomSampler
from distgnn.tuning.schedulers import rungs
from distgnn.tuning.space import Space
from distgnn.tuning.trial import Trial
from distgnn.tuning.verb import SearchOptions, Tuned, Tuning, sign_of

SHAPE = {"model": "gcn", "hidden": 8}


@pytest.fixture(autouse=True)
def _same_threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def ring(tmp_path_factory):
    path = tmp_path_factory.mktemp("ring") / "ring.npz"
    np.savez(path, **ring_arrays())
    return path


def losses(run):
    lines = (Path(run) / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["loss"] for line in lines]


def search(ring, out, **more):
    words = {"search": {"lr": "log(1e-3,1e-1)"}, "trials": 4, "epochs": 16, "grace": 4}
    return dg.tune(ring, out=out, threads=1, factor=2, **{**SHAPE, **words, **more})


def test_a_trial_is_the_run_that_train_makes(ring, tmp_path, monkeypatch):
    opened = []
    load = sources.load_graph
    monkeypatch.setattr(sources, "load_graph", lambda *words: opened.append(words) or load(*words))
    found = search(ring, tmp_path / "s")
    assert len(opened) == 1
    best = found.summary["best"]
    assert best["epochs"] == 16
    run = dg.train(ring, out=tmp_path / "one", epochs=16, threads=1, **SHAPE, **found.settings)
    # The trial paused twice and continued.
    assert losses(found.best.path) == losses(tmp_path / "one")
    assert found.best.val_metric == run.val_metric == best["val_metric"]
    again = dg.train(ring, out=tmp_path / "two", threads=1, recipe=found.recipe)
    assert losses(tmp_path / "two") == losses(tmp_path / "one")
    assert again.val_metric == run.val_metric
    assert found.summary["epochs_trained"] < found.summary["epochs_of_all"] == 64
    assert "Tuned(" in repr(found)
    assert len(found.trials) == 4


def test_ranks_take_the_trials_together(ring, tmp_path):
    dg.partition_graph(ring, 3, tmp_path / "parts")
    config = TrainConfig.of({**SHAPE, "epochs": 8})

    def tuning(folder, source):
        asked = Training(
            SourceOptions(str(source)), config, folder, lambda line: None, resume=True, quiet=True
        )
        options = SearchOptions({"lr": [0.02, 1e9, 0.001]}, "halving", "grid", factor=2, epochs=8)
        return Tuning(options, asked, {**SHAPE, "epochs": 8}, folder, quiet=True)

    together = tuning(tmp_path / "p3", tmp_path / "parts")
    found = run_ranks(3, together.on_rank)
    assert found[0] == found[1] == found[2]
    (alone,) = run_ranks(1, tuning(tmp_path / "p1", ring).on_rank)
    for of_three, of_one in zip(found[0]["trials"], alone["trials"], strict=True):
        assert of_three["settings"] == of_one["settings"]
        assert of_three["epochs"] == of_one["epochs"]
        assert of_three["score"] == pytest.approx(of_one["score"])
    assert found[0]["best"]["settings"] == alone["best"]["settings"]


def test_a_trial_that_fails_is_not_the_end(ring, tmp_path):
    found = search(
        ring, tmp_path / "s", search={"model": ["gcn", "rgcn"]}, model=None, sampler="grid",
        trials=None, scheduler="none",
    )  # fmt: skip
    failed = [trial for trial in found.trials if trial["failure"]]
    assert [trial["settings"]["model"] for trial in failed] == ["rgcn"]
    assert found.settings == {"model": "gcn"}


def test_what_all_trials_share_may_go_with_searched_values_only(ring, tmp_path):
    found = search(
        ring, tmp_path / "s", search={"model": ["gat", "gatv2"]}, model=None, sampler="grid",
        trials=None, scheduler="none", heads=2, epochs=2, grace=1,
    )  # fmt: skip
    assert [trial["failure"] for trial in found.trials] == [None, None]
    with pytest.raises(InputError, match="--heads 3 has no effect on --model"):
        search(ring, tmp_path / "t", search={"lr": [0.1, 0.2]}, heads=3)
    assert not (tmp_path / "t").exists()


def test_the_fewest_epochs_to_a_goal_are_found(tmp_path):
    words = {"objective": "epochs_to_goal", "goal": 0.6, "scheduler": "none"}
    found = search("cora", tmp_path / "s", search={"lr": [1e-6, 0.01, 0.1]}, sampler="grid",
                   trials=None, **words)  # fmt: skip
    prices = [dg.Run(tmp_path / "s" / t["run"]).summary["epochs_to_goal"] for t in found.trials]
    reached = [price for price in prices if price is not None]
    assert -found.summary["best"]["score"] == min(reached)
    assert None in prices
    assert [t["score"] is None for t in found.trials] == [price is None for price in prices]


def test_epochs_that_were_confirmed_later_have_scores(tmp_path):
    exact = {"epoch": 1, "val_metric": 0.9, "val_loss": 0.4}
    lines = [
        {"epoch": 0, "val_metric": 0.5, "val_loss": 1.0},
        {"epoch": 1, "val_metric": None, "val_loss": None},
        {"epoch": 2, "val_metric": 0.7, "val_loss": 0.8, "confirmed": [exact]},
    ]
    others = dict.fromkeys(metrics._SUMMARISED, 1.0) | dict.fromkeys(metrics._METRICS)
    text = "".join(json.dumps({**others, **line}) + "\n" for line in lines)
    (tmp_path / "metrics.jsonl").write_text(text)
    run = RunDirectory(tmp_path)
    run.write_config({"train": {"metric": "accuracy"}})
    assert read_curve(run) == [(1, 0.5), (2, 0.9), (3, 0.7)]
    assert read_losses(run) == {1: 1.0, 2: 0.4, 3: 0.8}


def test_a_study_continues_only_as_it_began(ring, tmp_path):
    search(ring, tmp_path / "s")
    with pytest.raises(InputError, match="already holds a study; continue it with --resume"):
        search(ring, tmp_path / "s")
    with pytest.raises(InputError, match=r"cannot resume .* with other settings: factor \(begun"):
        dg.tune(
            ring, out=tmp_path / "s", search={"lr": "log(1e-3,1e-1)"}, trials=4, epochs=16,
            grace=4, resume=True, threads=1, **SHAPE,
        )  # fmt: skip
    before = search(ring, tmp_path / "s", resume=True).summary
    assert (
        search(ring, tmp_path / "s", overwrite=True).trials[0]["settings"]
        == (before["trials"][0]["settings"])
    )
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/notes.txt").write_text("mine")
    with pytest.raises(InputError, match="holds files that are not a study's, such as 'notes"):
        search(ring, tmp_path / "mine")
    (tmp_path / "s/study.json").write_text("{")
    with pytest.raises(InputError, match=r"cannot read .*study\.json"):
        search(ring, tmp_path / "s", resume=True)


@pytest.mark.parametrize("text", ["{", "[]", "[" * 200_000])
def test_a_study_whose_settings_are_damaged_is_not_continued(text, ring, tmp_path):
    (tmp_path / "study.json").write_text(text)
    with pytest.raises(InputError, match=r"cannot read .*study\.json': .*; restore it, or begin"):
        search(ring, tmp_path, resume=True)


@pytest.mark.parametrize("scheduler", ["halving", "hyperband"])
def test_a_study_keeps_its_rungs_where_the_default_became_another(
    scheduler, ring, tmp_path, monkeypatch
):
    words = {"grace": None, "scheduler": scheduler, "epochs": 8}
    words["trials"] = None if scheduler == "hyperband" else 4
    log = tmp_path / "s/study.jsonl"
    before = search(ring, tmp_path / "s", **words).summary
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:3]))
    monkeypatch.setattr(SearchOptions, "first", property(lambda options: options.grace or 3))
    after = search(ring, tmp_path / "s", resume=True, **words).summary

    def reached(summary):
        return [(trial["epochs"], trial["score"]) for trial in summary["trials"]]

    assert reached(after) == reached(before)


@pytest.mark.parametrize("factor", [2, 3, 4, 5])
def test_hyperband_has_three_brackets_by_default(factor):
    for epochs in (32, 100, 200, 201):
        options = SearchOptions({}, "hyperband", factor=factor, epochs=epochs)
        first, brackets = options.first, [factor**2, -(-3 * factor // 2), 3]
        assert len(rungs(grace=first, factor=factor, epochs=epochs)) == 3
        sampler = RandomSampler(Space.of({"lr": [0.1]}), seed=0)
        assert options.build_scheduler(sampler).num_trials == sum(brackets)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"scheduler": "best"}, "--scheduler must be one of asha, asha-stop, halving"),
        ({"sampler": "best"}, "--sampler must be one of random, grid, tpe, got 'best'"),
        ({"select_by": "loss"}, "--select-by loss keeps weights whose validation metric is not"),
        ({"objective": "loss"}, "--objective must be one of val_metric, epochs_to_goal, time"),
        ({"objective": "epochs_to_goal"}, "--objective epochs_to_goal needs a goal; give --goal"),
        (
            {"objective": "epochs_to_goal", "goal": 0.5},
            "a scheduler compares trials before; use --scheduler none",
        ),
        ({"factor": 1}, "--factor must be a whole number of at least 2, got 1"),
        ({"trials": 0}, "--trials must be a whole number of at least 1, got 0"),
        ({"grace": 20}, "--grace 20 is above --epochs 16; lower it"),
        ({"scheduler": "hyperband"}, "as many trials as its brackets have; leave --trials out"),
        ({"sampler": "grid"}, "--sampler grid needs values that can be listed"),
        (
            {"sampler": "grid", "search": {"hidden": [4, 8]}},
            "the study begins 4 trials, but the grid has 2 combinations",
        ),
        (
            {"scheduler": "pbt", "search": {"hidden": [4, 8]}},
            "--search hidden cannot change in --scheduler pbt, whose trials continue from",
        ),
        ({"ranks": 2}, "--ranks is about trials that are processes of their own; give --jobs"),
        ({"launcher": "srun"}, "--launcher is about trials that are processes of their own"),
        ({"jobs": 999, "ranks": 2, "threads": 3}, "--jobs 999 needs 999 x --ranks 2 x --threads"),
        ({"colour": 1}, "tune has no setting 'colour'"),
    ],
)
def test_what_cannot_be_is_refused_before_any_work(ring, tmp_path, words, sentence):
    settings = {"search": {"lr": "log(1e-3,1e-1)"}, "trials": 4, "epochs": 16, **SHAPE, **words}
    with pytest.raises(InputError) as caught:
        dg.tune(ring, out=tmp_path / "s", **settings)
    assert sentence in str(caught.value)
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("jobs", [None, 1])
def test_a_source_that_is_not_there_is_no_failure_of_trials(tmp_path, jobs):
    with pytest.raises(InputError, match=r"^\S+no\.npz: there is no such file; check"):
        search(tmp_path / "no.npz", tmp_path / "s", jobs=jobs)
    (tmp_path / "no.npz").write_bytes(b"PK no graph")
    with pytest.raises(InputError, match=r"no\.npz"):
        search(tmp_path / "no.npz", tmp_path / "s", jobs=jobs)
    assert not (tmp_path / "s").exists()


def test_a_source_has_a_part_for_each_rank_of_a_trial(ring, tmp_path, monkeypatch):
    monkeypatch.setattr(JobSlots, "check", lambda self: [])
    dg.partition_graph(ring, 2, tmp_path / "parts")
    for source, ranks, sentence in (
        (tmp_path / "parts", 3, "was made for 2 parts, but trials have --ranks 3; give --ranks 2"),
        (ring, 2, "is not cut into parts, but trials have --ranks 2; leave --ranks out, or"),
    ):
        with pytest.raises(InputError, match=sentence):
            search(source, tmp_path / "s", jobs=1, ranks=ranks)
    assert not (tmp_path / "s").exists()


def test_a_source_may_be_where_only_a_launcher_starts_ranks(tmp_path):
    # The trials fail, since they are not started elsewhere.
    with pytest.raises(InputError, match=r"no trial of the study has a score.*ended with status"):
        search(tmp_path / "no.npz", tmp_path / "s", jobs=1, launcher="false")


def test_a_study_that_cannot_be_written_is_no_failure_of_trials(ring, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"cannot write study .*; choose another with --run"):
        search(ring, tmp_path / "file/s", jobs=1)
    (tmp_path / "s").mkdir()
    (tmp_path / "s/logs").touch()
    jobs = Jobs(JobSlots(1, threads=1), tmp_path / "s", [])
    with pytest.raises(InputError, match=r"cannot write .*logs': File exists; put that right"):
        jobs.start(Trial(0, {}), 3)


def test_a_graph_in_memory_is_not_given_to_processes(ring, tmp_path):
    with pytest.raises(InputError, match="a graph in memory cannot be given to other processes"):
        search(dg.load(ring), tmp_path / "s", jobs=1)


def test_a_copy_has_the_weights_of_its_parent(ring, tmp_path):
    run = {"threads": 1, **SHAPE}
    dg.train(ring, out=tmp_path / "a", epochs=6, lr=0.01, **run)
    dg.train(ring, out=tmp_path / "b", epochs=6, lr=0.3, **run)
    clone_run(tmp_path / "a", tmp_path / "b", {"lr": 0.02})
    (first,) = (tmp_path / "a/checkpoints").glob("epoch-000006/state.safetensors")
    (second,) = (tmp_path / "b/checkpoints").glob("epoch-000006/state.safetensors")
    assert first.read_bytes() == second.read_bytes()
    # It continues under its own settings; with those of the parent it would be the parent.
    dg.train(ring, out=tmp_path / "b", epochs=12, lr=0.02, resume=True, **run)
    dg.train(ring, out=tmp_path / "c", epochs=12, lr=0.01, **run)
    assert losses(tmp_path / "b")[:7] == losses(tmp_path / "c")[:7]
    assert losses(tmp_path / "b")[7:] != losses(tmp_path / "c")[7:]
    clone_run(tmp_path / "a", tmp_path / "b", {"lr": 0.01})
    dg.train(ring, out=tmp_path / "b", epochs=12, lr=0.01, resume=True, **run)
    assert losses(tmp_path / "b") == losses(tmp_path / "c")


def test_a_population_ends_with_all_its_epochs(ring, tmp_path):
    found = search(ring, tmp_path / "s", scheduler="pbt")
    assert [trial["epochs"] for trial in found.trials] == [16] * 4
    events = [json.loads(line) for line in (tmp_path / "s/study.jsonl").read_text().splitlines()]
    assert sum(event["event"] == "cloned" for event in events) == 3


def test_dropout_of_the_input_follows_that_of_a_copy(ring, tmp_path):
    words = {"search": {"dropout": [0.1, 0.2, 0.3, 0.4]}, "epochs": 8, "scheduler": "pbt"}
    found = search(ring, tmp_path / "s", **words)
    assert [(trial["failure"], trial["epochs"]) for trial in found.trials] == [(None, 8)] * 4
    for trial in found.trials:
        model = dg.Run(tmp_path / "s" / trial["run"]).config["train"]["model"]
        assert model["input_dropout"] == model["dropout"] == trial["settings"]["dropout"]


def test_dropout_of_the_input_stays_in_a_copy_if_it_was_given(ring, tmp_path):
    dg.train(ring, out=tmp_path / "trial-0000", epochs=2, threads=1, dropout=0.1, **SHAPE)
    for given, expected in (({}, 0.4), ({"input_dropout": 0.1}, 0.1)):
        config_of = Tuning(SearchOptions({}), None, {**SHAPE, **given}, tmp_path).config_of
        jobs = Jobs(JobSlots(1, threads=1), tmp_path, [], config_of=config_of)
        jobs.clone(Trial(0, {"dropout": 0.1}), Trial(1, {"dropout": 0.4}))
        model = dg.Run(tmp_path / "trial-0001").config["train"]["model"]
        assert (model["dropout"], model["input_dropout"]) == (0.4, expected)


@pytest.mark.parametrize("name", ["dropout", "input_dropout"])
def test_copies_with_rows_of_earlier_epochs_keep_what_the_first_layer_is_told(ring, tmp_path, name):
    words = {"scheduler": "pbt", "halo": "delay(1)", "search": {name: [0.0, 0.5]}}
    with pytest.raises(InputError, match=f"^--search {name} has 0 beside values above 0, but"):
        search(ring, tmp_path / "s", **words)
    space = Space.of(words["search"])
    for allowed in (
        {},
        {"halo": "delay(1)", "static_input": False},
        *([{"halo": "delay(1)", "input_dropout": 0.1}] if name == "dropout" else []),
    ):
        values = {**SHAPE, **allowed}
        options = SearchOptions(words["search"], "pbt")
        options.check_space(space, TrainConfig.of({**values, name: 0.5}), values)


def test_the_command_line_says_what_was_found(ring, tmp_path, capsys):
    words = ["tune", ring, "--run", tmp_path / "s", "--search", "lr=log(1e-3,1e-1)", "--trials", 3]
    more = ["--epochs", 8, "--grace", 2, "--hidden", 4, "--threads", 1]
    assert main([str(word) for word in (*words, *more)]) == 0
    out, err = capsys.readouterr()
    assert "3, 0 failed" in out
    assert "trial-0000" in err
    assert "epochs  best" in err
    assert main([str(word) for word in (*words, *more, "--resume", "--json")]) == 0
    assert json.loads(capsys.readouterr().out)["num_trials"] == 3


def test_a_page_shows_the_rungs_and_what_each_setting_explains(ring, tmp_path):
    search(ring, tmp_path / "s", trials=6, search={"lr": "log(1e-3,1e-1)", "hidden": [4, 8]})
    page = dg.report(tmp_path / "s", tmp_path / "page.html").read_text()
    assert "Rungs" in page
    assert "Share of the spread of scores at epoch 4" in page
    (tmp_path / "s/summary.json").unlink()
    with pytest.raises(InputError, match="has not ended; continue it with the command that began"):
        dg.report(tmp_path / "s", tmp_path / "page.html")


def test_a_page_names_the_best_trial_first_and_then_ties_as_they_began():
    scores = [0.5, 0.9, None, 0.9, 0.9]
    trials = [
        {"run": f"trial-{n}", "epochs": 2, "score": score, "settings": {"lr": n}, "failure": None}
        for n, score in enumerate(scores)
    ]
    best = {**trials[3], "val_metric": 0.9, "test_metric": 0.8}
    counts = dict.fromkeys(("num_trials", "num_failed", "epochs_trained", "epochs_of_all"), 8)
    page = study_page(
        {**counts, "metric": "accuracy", "seconds": 1.0, "best": best, "trials": trials}, {}
    )
    listed = page[page.index("why it failed") :]
    assert re.findall(r"trial-\d", listed) == [f"trial-{n}" for n in (3, 1, 4, 0, 2)]


def test_the_share_that_a_setting_explains_is_that_of_an_analysis_of_variance():
    assert explained(["a", "a", "b", "b"], [1.0, 1.0, 3.0, 3.0]) == 1.0
    assert explained(["a", "b", "a", "b"], [1.0, 1.0, 3.0, 3.0]) == 0.0
    assert explained([1, 2], [1.0, 1.0]) == 0.0
    # Quarters of eight numbers: means 1.5, 3.5, 5.5, 7.5 about 4.5, of a variance sum of 42.
    assert explained(list(range(8)), [float(s) for s in range(1, 9)]) == pytest.approx(40 / 42)


def test_tpe_is_optunas_and_keeps_its_journal(ring, tmp_path):
    optuna = pytest.importorskip("optuna")
    words = {"sampler": "tpe", "trials": 13, "epochs": 2, "scheduler": "none", "grace": 1}
    found = search(ring, tmp_path / "s", **words)
    storage = optuna.storages.JournalStorage(
        optuna.storages.journal.JournalFileBackend(str(tmp_path / "s/optuna.log"))
    )
    (kept,) = optuna.get_all_study_summaries(storage)
    study = optuna.load_study(study_name=kept.study_name, storage=storage)
    assert [trial.params for trial in study.trials] == [t["settings"] for t in found.trials]
    assert study.best_value == found.summary["best"]["score"]
    assert {trial.state.name for trial in study.trials} == {"COMPLETE"}
    again = search(ring, tmp_path / "s", overwrite=True, **words)
    assert [t["settings"] for t in again.trials] == [t["settings"] for t in found.trials]


@pytest.mark.slow
def test_trials_are_processes_of_their_own(ring, tmp_path):
    words = {"scheduler": "halving", "trials": 2, "grace": 8}
    inside = search(ring, tmp_path / "inside", **words)
    found = search(ring, tmp_path / "jobs", jobs=1, force=True, walk_cache="off", **words)
    assert [t["settings"] for t in found.trials] == [t["settings"] for t in inside.trials]
    assert [t["epochs"] for t in found.trials] == [t["epochs"] for t in inside.trials]
    assert [t["score"] for t in found.trials] == [t["score"] for t in inside.trials]
    command = (tmp_path / "jobs/logs/trial-0000.log").read_text()
    assert "distgnn train" in command
    assert "--walk-cache=off" in command
    assert "--force" in command


def processes_of(run):
    """Processes whose command line has the path of a run, by number, with their first words."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (process / "cmdline").read_bytes().split(b"\0")
            if f"--run={run}".encode() in words:
                found[int(process.name)] = Path(words[0].decode()).name
    return found


def test_processes_that_a_killed_study_left_are_ended(tmp_path):
    run = f"--run={tmp_path / 'trial-0000'}"
    program = [sys.executable, "-c", "import time; time.sleep(600)"]
    left, another = (subprocess.Popen([*program, word]) for word in (run, f"{run}0"))
    # A process that begins has no words for a moment.
    while run not in Path(f"/proc/{left.pid}/cmdline").read_text():
        time.sleep(0.01)
    end_left(run)
    assert left.wait(60) == -signal.SIGTERM
    assert another.poll() is None
    another.kill()
    another.wait()


def test_a_study_that_was_killed_while_its_journal_was_locked_is_replaced(ring, tmp_path):
    words = {"trials": 1, "epochs": 2, "grace": 1, "scheduler": "none"}
    search(ring, tmp_path / "s", **words)
    left = [tmp_path / "s" / f"optuna.log.lock{end}" for end in ("", "0f.rename")]
    for lock in left:
        lock.symlink_to(tmp_path / "s/optuna.log")
    search(ring, tmp_path / "s", overwrite=True, **words)
    assert not any(lock.is_symlink() for lock in left)


def test_a_study_whose_removal_was_interrupted_is_removed_again(ring, tmp_path, monkeypatch):
    words = {"trials": 1, "epochs": 2, "grace": 1, "scheduler": "none"}
    search(ring, tmp_path / "s", **words)

    def interrupted(*names, **how):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("distgnn.tuning.verb.shutil.rmtree", interrupted)
        with pytest.raises(KeyboardInterrupt):
            search(ring, tmp_path / "s", overwrite=True, **words)
    assert len(search(ring, tmp_path / "s", overwrite=True, **words).trials) == 1


def test_a_study_that_is_asked_to_stop_as_a_stint_ends_stops(ring, tmp_path, monkeypatch):
    train_one, begun = in_job.train_one, []

    def asked(training, group, stop):
        begun.append(training.folder)
        found = train_one(training, group, stop)
        stop.signal_number = signal.SIGTERM
        return found

    words = {"trials": 2, "epochs": 2, "grace": 1, "scheduler": "none"}
    with monkeypatch.context() as patched:
        patched.setattr(in_job, "train_one", asked)
        with pytest.raises(StoppedError, match="was asked to stop by SIGTERM"):
            search(ring, tmp_path / "s", **words)
    assert len(begun) == 1
    assert len(search(ring, tmp_path / "s", resume=True, **words).trials) == 2


def test_a_study_that_fails_between_trials_leaves_none_running(ring, tmp_path, monkeypatch):
    suggest, begun = RandomSampler.suggest, []

    def interrupted(self, number, trials):
        if number == 1:
            while not begun:  # a process that begins has no words for a moment
                begun.extend(processes_of(tmp_path / "s/trial-0000"))
            raise KeyboardInterrupt
        return suggest(self, number, trials)

    monkeypatch.setattr(RandomSampler, "suggest", interrupted)
    with pytest.raises(KeyboardInterrupt):
        search(ring, tmp_path / "s", jobs=2, launcher="sh -c 'sleep 60; exit'")
    assert begun
    assert not processes_of(tmp_path / "s/trial-0000")


def test_what_a_launcher_said_is_found(tmp_path):
    jobs = Jobs(JobSlots(1, launcher="false"), tmp_path, [])
    jobs.start(Trial(0, {}), 3)
    log = tmp_path / "logs/trial-0000.log"
    assert jobs.wait()[1].failure == f"it ended with status 1; see '{log}'"
    # An earlier start said this; the last one did not.
    log.write_text(f"$ one\ndistgnn: rank 1 died\n{log.read_text()}")
    jobs.start(Trial(0, {}), 3)
    assert jobs.wait()[1].failure == f"it ended with status 1; see '{log}'"


def test_ranks_need_an_mpirun(monkeypatch):
    monkeypatch.setattr("distgnn.tuning.jobs.find_mpirun", lambda: None)
    with pytest.raises(InputError, match="--ranks 2 needs mpirun, which is not installed; pip"):
        JobSlots(1, ranks=2).words([])


@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=[pytest.mark.mpi, pytest.mark.slow])])
def test_a_process_that_dies_is_started_again(ranks, ring, tmp_path, monkeypatch):
    for name in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"):
        monkeypatch.setenv(name, ENVIRON[name])
    # A virtual environment that was not activated has its mpirun beside its Python.
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    dg.partition_graph(ring, ranks, tmp_path / "parts")
    words = [str(tmp_path / "parts"), "--model=gcn", "--hidden=8", "--epochs=400"]
    words += ["--checkpoint-every=20"]
    slots = JobSlots(1, ranks, threads=1)
    monkeypatch.setattr(JobSlots, "check", lambda self: [])
    hold = Hold(tmp_path / "hold")
    hold.at(20)
    for name, value in hold.environ.items():
        monkeypatch.setenv(name, value)
    jobs = Jobs(slots, tmp_path, words)
    trial = Trial(0, {"lr": 0.01})
    jobs.start(trial, 400)
    (running,) = jobs._running
    first = running.process.pid
    hold.wait()
    found = processes_of(tmp_path / "trial-0000")
    pythons = [number for number, name in found.items() if name.startswith("python")]
    assert len(pythons) == ranks
    os.kill(pythons[-1], signal.SIGKILL)
    hold.end()
    number, result = jobs.wait()
    assert running.process.pid != first
    assert (number, result.failure) == (0, None)
    assert result.curve[-1][0] == 400


def test_a_setting_that_train_refuses_fails_the_trial_with_its_sentence(ring, tmp_path):
    jobs = Jobs(JobSlots(1, threads=1), tmp_path, [str(ring), "--model=gcn", "--epochs=3"])
    jobs.start(Trial(1, {"lr": -1.0}), 3)
    number, result = jobs.wait()
    assert number == 1
    assert "--lr must be positive" in result.failure


def test_the_best_settings_are_a_recipe_of_the_command_line(ring, tmp_path):
    words = ["tune", ring, "--run", tmp_path / "s", "--search", "lr=choice(0.1,0.01)"]
    words += ["--sampler", "grid", "--scheduler", "none", "--model", "gcn", "--hidden", 8]
    words += ["--epochs", 3, "--overlap", "off", "--residual", "--threads", 1, "--quiet"]
    assert main([str(word) for word in words]) == 0
    recipe = tmp_path / "s/best.json"
    flags = json.loads(recipe.read_text())["flags"]
    assert flags.pop("lr") in (0.1, 0.01)
    assert flags == {"model": "gcn", "hidden": 8, "residual": True, "overlap": "off", "epochs": 3}
    words = ["train", ring, "--run", tmp_path / "r", "--recipe", recipe, "--threads", 1, "--quiet"]
    assert main([str(word) for word in words]) == 0
    best = json.loads((tmp_path / "s/summary.json").read_text())["best"]["run"]
    assert losses(tmp_path / "r") == losses(tmp_path / "s" / best)


@pytest.mark.parametrize("jobs", [None, pytest.param(1, marks=pytest.mark.slow)])
def test_a_pause_is_not_the_end_of_what_depends_on_all_epochs(ring, tmp_path, jobs):
    # Both would be refused, or end early, in a run of the 4 epochs of the first rung.
    dg.partition_graph(ring, 1, tmp_path / "parts")
    shared = {"lr_schedule": "cosine", "halo": "warmup(5)+int8"}
    found = search(
        tmp_path / "parts", tmp_path / "s", scheduler="halving", grace=4, jobs=jobs, **shared
    )
    assert min(trial["epochs"] for trial in found.trials) == 4
    assert not [trial for trial in found.trials if trial["failure"]]
    whole = {**SHAPE, **shared, **found.settings, "epochs": 16, "threads": 1}
    dg.train(tmp_path / "parts", out=tmp_path / "straight", **whole)
    assert losses(tmp_path / "s" / found.summary["best"]["run"]) == losses(tmp_path / "straight")


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two jobs need two cores")
def test_killed_studies_end_like_the_straight_one(repository, tmp_path):
    script = repository / "examples/tuning/random_kills.py"
    command = [sys.executable, script, tmp_path / "s", "--kills", "2", "--kinds", "study,trial"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1700, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    # A study may also end before the kill, which is said first then.
    assert "\nstudy: 1 kills, " in f"\n{done.stdout}"


def test_a_study_of_another_graph_is_not_continued(tmp_path):
    words = {"scheduler": "none", "trials": 1, "epochs": 2, "grace": None}
    first, second = ring_arrays(), ring_arrays()
    second["features"] = second["features"] + 1
    graphs = []
    for name, arrays in (("first", first), ("second", second)):
        np.savez(tmp_path / f"{name}.npz", **arrays)
        graphs.append(dg.load(tmp_path / f"{name}.npz"))
    search(graphs[0], tmp_path / "s", **words)
    assert len(search(graphs[0], tmp_path / "s", resume=True, **words).trials) == 1
    with pytest.raises(InputError, match=r"cannot resume '.*' with other settings: graph \(begun"):
        search(graphs[1], tmp_path / "s", resume=True, **words)
    study = json.loads((tmp_path / "s/study.json").read_text())
    del study["graph"]  # of an earlier version
    (tmp_path / "s/study.json").write_text(json.dumps(study))
    search(graphs[0], tmp_path / "s", resume=True, **words)


def test_numbers_of_numpy_are_searched_and_kept(ring, tmp_path):
    words = {"scheduler": "none", "sampler": "grid", "trials": None, "epochs": 1, "grace": None}
    found = search(ring, tmp_path / "s", search={"hidden": np.arange(2, 4)}, **words)
    assert sorted(trial["settings"]["hidden"] for trial in found.trials) == [2, 3]
    found = search(ring, tmp_path / "t", search={"hidden": [np.int64(2)]}, **words)
    assert found.settings == {"hidden": 2}


def test_the_best_run_of_a_graph_in_memory_predicts(ring, tmp_path):
    words = {"scheduler": "none", "trials": 1, "epochs": 1, "grace": None}
    assert len(search(dg.load(ring), tmp_path / "s", **words).best.predict()) > 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"resume": True, "overwrite": True}, "resume continues what is there, and overwrite repl"),
        ({"jobs": 0}, "--jobs must be at least 1, got 0"),
        ({"jobs": 1.5}, "jobs must be a whole number, got 1.5"),
        ({"force": "maybe"}, "force must be True or False, got 'maybe'"),
    ],
)
def test_arguments_of_a_study_that_mean_nothing_are_refused(words, sentence, ring, tmp_path):
    with pytest.raises(InputError, match=re.escape(sentence)):
        search(ring, tmp_path / "s", **words)


@pytest.mark.parametrize(
    ("launcher", "sentence"),
    [
        ("srun 'x", "--launcher must be a command as a shell takes it, got .*; close its quotat"),
        ("", "--launcher must be a command such as 'srun -n 4', got ''; name one, or leave"),
        ("  ", "--launcher must be a command such as"),
    ],
)
def test_a_launcher_that_is_no_command_is_refused(ring, tmp_path, launcher, sentence):
    with pytest.raises(InputError, match=sentence):
        search(ring, tmp_path / "s", jobs=1, launcher=launcher)
    assert not (tmp_path / "s").exists()


def test_scores_of_what_is_to_be_small_are_shown_as_they_are():
    assert sign_of({"objective": "val_metric", "metric": "accuracy"}) == 1
    assert sign_of({"objective": "val_metric", "metric": "mae"}) == -1
    assert sign_of({"objective": "epochs_to_goal", "metric": "accuracy"}) == -1
    trial = {"run": "t", "settings": {"lr": 0.1}, "epochs": 4, "score": -0.25}
    best = {**trial, "val_metric": 0.25, "test_metric": None}
    counts = dict.fromkeys(("num_trials", "num_failed", "epochs_trained", "epochs_of_all"), 1)
    found = {"objective": "val_metric", "metric": "mae", "trials": [trial], "best": best}
    lines = tune_verb._lines({**found, **counts}, Path("best.toml"))
    assert lines[1].split() == ["t", "4", "0.2500", "0.1"]
    assert "best: 0.2500" in repr(Tuned("s", {**found, **counts}))
