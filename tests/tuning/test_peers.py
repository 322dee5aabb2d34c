"""Schedulers beside those of Ray, and our runs under Ray; left out where Ray is not installed."""

from __future__ import annotations

import json
import subprocess
import sys
import types

import numpy as np
import pytest
from curves import curves
from ring import ring_arrays

from distgnn.datasets.errors import InputError
from distgnn.tuning.ray_tune import trainable
from distgnn.tuning.schedulers import Median, StoppingAsha
from distgnn.tuning.trial import Trial, Visit

PROGRAM = """
import json, sys, warnings
import ray
from ray import tune
from distgnn.tuning.ray_tune import trainable
source, folder = sys.argv[1:]
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
make = trainable(source, every=4, epochs=12, model="gcn", hidden=4, threads=1)
tuner = tune.Tuner(
    make,
    param_space={"lr": tune.grid_search([0.001, 0.03])},
    tune_config=tune.TuneConfig(metric="score", mode="max", scheduler=SCHEDULER),
    run_config=tune.RunConfig(storage_path=folder, verbose=0),
)
found = tuner.fit()
print(json.dumps([[r.config["lr"], r.metrics["score"], r.metrics["epochs"]] for r in found]))
"""


@pytest.mark.parametrize("seed", range(5))
def test_stopping_asha_stops_what_ray_stops(seed):
    rays = pytest.importorskip("ray.tune.schedulers.async_hyperband")
    table = np.maximum.accumulate(curves(20, 64, seed), axis=1)
    scheduler = StoppingAsha(num_trials=20, epochs=64, grace=1, factor=4)
    bracket = rays._Bracket(1, 64, 4, 0)
    random = np.random.default_rng(seed)
    trials, running, ended = [], {}, 0
    while True:
        while len(running) < 3:
            stint = scheduler.next(trials, frozenset(running))
            if stint is None:
                break
            if stint.trial == len(trials):
                trials.append(Trial(stint.trial, {}))
            running[stint.trial] = stint
        if not running:
            break
        stint = running.pop(list(running)[int(random.integers(len(running)))])
        trial = trials[stint.trial]
        trial.curve = list(enumerate(table[trial.number][: stint.epochs].tolist(), 1))
        trial.visits.append(Visit(stint.epochs, ended, trial.best()))
        ended += 1
        theirs = types.SimpleNamespace(trial_id=str(trial.number))
        decision = bracket.on_result(theirs, stint.epochs, trial.best())
        trial.settings["stopped"] = decision == "STOP" and stint.epochs < 64
    for trial in trials:
        assert (trial.epochs < 64) == trial.settings["stopped"]


def test_median_stopping_stops_what_ray_stops():
    rays = pytest.importorskip("ray.tune.schedulers.median_stopping_rule")
    table = curves(8, 20, 1)
    trials = []
    for number in range(8):
        trial = Trial(number, {}, curve=list(enumerate(table[number].tolist(), 1)))
        trial.visits.append(Visit(20, number, trial.best()))
        trials.append(trial)
    last = trials[-1]
    others = [trial.mean(20) for trial in trials[:-1]]
    for score in (np.median(others) - 1e-9, np.median(others) + 1e-9):
        last.curve = [(epoch, min(old, score)) for epoch, old in last.curve[:-1]] + [(20, score)]
        rule = rays.MedianStoppingRule(
            time_attr="training_iteration", metric="score", mode="max", grace_period=0,
            min_samples_required=3,
        )  # fmt: skip
        theirs = [type("Theirs", (), {"trial_id": str(trial.number)})() for trial in trials]
        for trial, their in zip(trials, theirs, strict=True):
            for epoch, value in trial.curve[: None if trial is not last else -1]:
                rule._results[their].append({"training_iteration": epoch, "score": value})
        result = {"training_iteration": 20, "score": score}
        decision = rule.on_trial_result(None, theirs[-1], result)
        scheduler = Median(num_trials=8, epochs=40, grace=20)
        assert (decision == "STOP") == (score < np.median(others))
        job = scheduler.next([*trials[:-1], last], frozenset(range(7)))
        assert (job is None) == (decision == "STOP")


def test_ray_is_asked_for_by_name(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "ray", None)
        with pytest.raises(InputError, match=r"Ray is not installed; install distgnn\[ray\]"):
            trainable("cora", every=1, epochs=2)


def test_steps_are_within_the_epochs_of_a_trial():
    pytest.importorskip("ray.tune")
    with pytest.raises(InputError, match="every must be from 1 to epochs, 2, got 3"):
        trainable("cora", every=3, epochs=2)


@pytest.mark.slow
@pytest.mark.parametrize("scheduler", ["None", "tune.schedulers.ASHAScheduler(grace_period=1)"])
def test_ray_trains_our_runs(scheduler, tmp_path):
    pytest.importorskip("ray.tune")
    np.savez(tmp_path / "ring.npz", **ring_arrays())
    done = subprocess.run(
        [
            *(sys.executable, "-c", PROGRAM.replace("SCHEDULER", scheduler)),
            *(str(tmp_path / "ring.npz"), str(tmp_path / "ray")),
        ],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    import distgnn as dg

    for lr, score, epochs in found:
        run = dg.train(
            tmp_path / "ring.npz", out=tmp_path / f"run-{lr}", epochs=epochs, model="gcn",
            hidden=4, threads=1, lr=lr,
        )  # fmt: skip
        assert run.val_metric == score
