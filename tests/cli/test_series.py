"""Several seeds and splits: one run each, the published figures, and going on in the middle."""

from __future__ import annotations

import json
import os
import signal
import statistics
import time

import numpy as np
import pytest
from ring import ring_arrays

import distgnn as dg
from distgnn.cli import _come, build_parser
from distgnn.datasets.errors import InputError
from distgnn.training.loop.stop import StoppedError
from distgnn.training.run.series import as_published
from distgnn.training.run.signals import StopSignals

QUICK = ("--epochs", 3, "--hidden", 4, "--quiet", "--json")


@pytest.fixture
def splits(here):
    """The ring with two splits."""
    arrays = ring_arrays()
    for name in ("train_mask", "val_mask", "test_mask"):
        arrays[name] = np.stack([arrays[name], arrays[name][::-1]])
    np.savez(here / "splits.npz", **arrays)
    return here / "splits.npz"


def test_seeds_are_runs_of_their_own_and_are_summed_up(distgnn, ring, here):
    found = distgnn("train", ring, "--run", "s", "--seeds", 3, "--seed", 5, *QUICK).json
    assert [run["run"] for run in found["runs"]] == ["seed-5", "seed-6", "seed-7"]
    alone = distgnn("train", ring, "--run", "one", "--seed", 6, *QUICK).json
    assert {key: found["runs"][1][key] for key in ("test_metric", "best_epoch")} == {
        key: alone[key] for key in ("test_metric", "best_epoch")
    }
    values = [run["val_metric"] for run in found["runs"]]
    assert found["val_metric_mean"] == pytest.approx(statistics.fmean(values))
    assert found["val_metric_std"] == pytest.approx(np.std(values, ddof=1))
    assert json.loads((here / "s/series.json").read_text()) == found
    assert (here / "s/seed-7/model.safetensors").is_file()


def test_all_splits_are_trained_on(distgnn, splits, here):
    words = ("--split-index", "all", "--seeds", 2)
    found = distgnn("train", splits, "--run", "s", *words, *QUICK).json
    assert [(run["split_index"], run["seed"]) for run in found["runs"]] == [
        *((0, 0), (0, 1)),
        *((1, 0), (1, 1)),
    ]
    assert sorted(item.name for item in (here / "s").iterdir()) == [
        *("series.json", "split-0-seed-0", "split-0-seed-1", "split-1-seed-0", "split-1-seed-1"),
    ]
    assert distgnn("evaluate", "s/split-1-seed-0", "--json").json["split_index"] == 1


def test_a_series_goes_on_where_it_stopped(distgnn, ring, here):
    command = ["train", ring, "--run", "s", "--seeds", 3, *QUICK]
    straight = distgnn(*command).json
    ended = (here / "s/seed-0/metrics.jsonl").stat().st_mtime_ns
    (here / "s/series.json").unlink()
    (here / "s/seed-1/summary.json").unlink()
    assert "already holds seed-0; continue with --resume" in distgnn(*command).sentence
    again = distgnn(*command, "--resume").json
    assert [run["test_metric"] for run in again["runs"]] == [
        run["test_metric"] for run in straight["runs"]
    ]
    assert (here / "s/seed-0/metrics.jsonl").stat().st_mtime_ns == ended
    changed = distgnn(*command, "--resume", "--lr", 0.5)
    assert changed.sentence.startswith("cannot resume 's/seed-0' with other settings: lr")


def test_a_summary_that_lacks_a_value_is_made_anew(distgnn, ring, here):
    command = ["train", ring, "--run", "s", "--seeds", 2, *QUICK]
    straight = distgnn(*command).json
    (here / "s/seed-0/summary.json").write_text('{"a": 1}')
    again = distgnn(*command, "--resume").json
    assert again["runs"][0]["test_metric"] == straight["runs"][0]["test_metric"]


@pytest.mark.parametrize("is_cut", [False, True])
def test_a_series_that_has_ended_is_not_shown_for_another_graph(distgnn, ring, here, is_cut):
    other = ring_arrays()
    other["features"] = other["features"] + 1
    np.savez(here / "other.npz", **other)
    first, second = ring, here / "other.npz"
    if is_cut:
        for source, out in ((first, "a"), (second, "b")):
            assert distgnn("partition", source, "--parts", 1, "--out", out).status == 0
        first, second = "a", "b"
    command = ["--run", "s", "--seeds", 2, *QUICK]
    assert distgnn("train", first, *command).status == 0
    assert distgnn("train", first, *command, "--resume").status == 0
    refused = distgnn("train", second, *command, "--resume").sentence
    assert refused.startswith("cannot resume 's/seed-0' with other settings: features (begun with")


def test_figures_of_runs_that_are_replaced_do_not_stay(distgnn, ring, here):
    command = ["train", ring, "--run", "s", "--seeds", 2, *QUICK]
    assert distgnn(*command).status == 0
    # A file in the way of the first run ends the command in the middle.
    (here / "s/seed-0/checkpoints").rename(here / "kept")
    (here / "s/seed-0/checkpoints").write_text("")
    assert distgnn(*command, "--overwrite").status == 2
    assert not (here / "s/series.json").exists()


def test_runs_that_are_replaced_are_removed_before_the_first_begins(distgnn, ring, here):
    command = ["train", ring, "--run", "s", "--seeds", 3, "--quiet", "--json", "--hidden", 4]
    assert distgnn(*command, "--epochs", 5).status == 0
    new = [*command, "--epochs", 3, "--lr", 0.5]
    # A directory in the way of the second run ends the command in the middle.
    (here / "s/seed-1/model.safetensors").unlink()
    (here / "s/seed-1/model.safetensors/kept").mkdir(parents=True)
    assert distgnn(*new, "--overwrite").status == 2
    (here / "s/seed-1/model.safetensors/kept").rmdir()
    (here / "s/seed-1/model.safetensors").rmdir()
    assert distgnn(*new, "--overwrite").status == 0
    for seed in range(3):
        config = json.loads((here / f"s/seed-{seed}/config.json").read_text())
        assert (config["train"]["lr"], config["train"]["epochs"]) == (0.5, 3)


def test_a_series_that_cannot_be_replaces_nothing(distgnn, ring, here):
    command = ["train", ring, "--run", "s", "--seeds", 2, *QUICK]
    assert distgnn(*command).status == 0
    assert distgnn(*command, "--overwrite", "--metric", "rmse").status == 2
    assert distgnn("train", "rong.npz", *command[2:], "--overwrite").status == 2
    for seed in range(2):
        assert (here / f"s/seed-{seed}/model.safetensors").exists()
    assert (here / "s/series.json").exists()


class StruckInItsLastEpoch:
    """Progress of a run that is asked to stop as it ends."""

    def __init__(self, monkeypatch):
        self.listening = []
        heard = StopSignals.heard

        def kept(stop):
            self.listening.append(stop)
            return heard(stop)

        monkeypatch.setattr(StopSignals, "heard", kept)

    def epoch(self, record):
        if record["epoch"] == 2:
            os.kill(os.getpid(), signal.SIGTERM)
            while not any(stop.signal_number for stop in self.listening):
                time.sleep(0.01)

    def __getattr__(self, name):
        return lambda *words: None


def test_a_series_that_is_asked_to_stop_in_the_last_epoch_of_a_run_begins_no_other(
    ring, here, monkeypatch
):
    words = {"out": "s", "seeds": 2, "epochs": 3, "hidden": 4}
    with pytest.raises(StoppedError, match="was asked to stop by SIGTERM: the checkpoint of epo"):
        dg.train(str(ring), progress=StruckInItsLastEpoch(monkeypatch), **words)
    assert (here / "s/seed-0/summary.json").exists()
    assert not (here / "s/seed-1").exists()
    assert len(dg.train(str(ring), quiet=True, resume=True, **words).runs) == 2


@pytest.mark.parametrize("seeds", [0, -1])
def test_a_series_has_a_seed_at_least(ring, here, seeds):
    with pytest.raises(InputError, match=rf"^--seeds must be 1 or more, got {seeds}$"):
        dg.train(str(ring), out="s", seeds=seeds, epochs=3)
    assert not (here / "s").exists()


def test_a_page_shows_the_runs_of_the_series_alone(distgnn, ring, here):
    command = ["train", ring, "--run", "s", *QUICK, "--seeds"]
    assert distgnn(*command, 3).status == 0
    assert distgnn(*command, 2, "--overwrite").status == 0
    assert (here / "s/seed-2").exists()
    assert distgnn("report", "s", "--out", "p.html").status == 0
    assert "seed-1" in (here / "p.html").read_text()
    assert "seed-2" not in (here / "p.html").read_text()


def test_a_page_of_a_series_shows_its_runs_side_by_side(distgnn, ring, here):
    assert distgnn("train", ring, "--run", "s", "--seeds", 2, *QUICK).status == 0
    shown = distgnn("report", "s", "--out", "p.html", "--json").json
    assert shown["kind"] == "runs"
    assert all(f"seed-{seed}" in (here / "p.html").read_text() for seed in range(2))
    assert "As a leaderboard asks" in (here / "p.html").read_text()
    assert distgnn("report", "s/seed-0", "--out", "p.html").status == 0
    assert "As a leaderboard asks" not in (here / "p.html").read_text()


def test_evaluate_shows_what_a_leaderboard_asks_of_a_series(distgnn, ring, here):
    series = distgnn("train", ring, "--run", "s", "--seeds", 2, *QUICK).json
    shown = distgnn("evaluate", "s", "--json").json
    numbers = ["seeds", "splits", "parameters", "ranks"]
    figures = ["test accuracy", "validation accuracy"]
    assert list(shown) == [*figures, *numbers, "processor", "command"]
    means = series["test_metric_mean"], series["test_metric_std"]
    assert shown["test accuracy"] == as_published(*means, "accuracy")
    assert (shown["seeds"], shown["splits"], shown["ranks"]) == ("2", "1", "1")
    summary = json.loads((here / "s/seed-0/summary.json").read_text())
    assert shown["parameters"] == str(summary["num_parameters"])
    assert shown["processor"] == summary["processor"]
    assert shown["command"].startswith(f"distgnn train {ring} --run RUN")
    assert shown["command"].endswith("--seeds 2")
    refused = distgnn("evaluate", "s", "--split-index", 0)
    assert refused.sentence.startswith("'s' is a series, whose runs are scored already; leave out")


@pytest.mark.parametrize("is_ended", [False, True])
def test_ranks_meet_to_evaluate_a_run_but_not_to_show_a_series(here, monkeypatch, is_ended):
    if is_ended:
        (here / "series.json").write_text("{}")
    meetings = []
    monkeypatch.setattr("distgnn.comm.early.come", lambda **words: meetings.append(words))
    _come(build_parser().parse_args(["evaluate", str(here)]))
    assert len(meetings) == (0 if is_ended else 1)


def test_what_several_runs_cannot_share_is_refused(distgnn, ring, ring_run, here):
    command = ["train", ring, "--seeds", 2]
    assert distgnn(*command, "--run", "s", "--trace", "t.json").sentence.startswith(
        "--trace shows one run, but --seeds"
    )
    assert "holds a run of its own" in distgnn(*command, "--run", ring_run).sentence
    assert distgnn("train", ring, "--run", "s", "--split-index", "some").sentence.startswith(
        "--split-index must be a whole number from 0 to 2147483647, got 'some', or all"
    )


def test_figures_are_written_as_they_are_published(distgnn, ring):
    assert as_published(0.71741, 0.00291, "accuracy") == "71.74 \u00b1 0.29"
    assert as_published(0.5, None, "accuracy") == "50.00"
    assert as_published(1.25, 0.5, "mse") == "1.2500 \u00b1 0.5000"
    assert as_published(None, None, "roc-auc") == "-"
    outcome = distgnn("train", ring, "--run", "s", "--seeds", 2, *QUICK[:-1])
    (line,) = [line for line in outcome.out.splitlines() if line.startswith("test metric")]
    assert " \u00b1 " in line
