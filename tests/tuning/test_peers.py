"""Schedulers beside those of Ray and Optuna, and our runs under Ray.

Tests are left out where the library is not installed. Optuna cannot pause a trial: its pruners are
asked once for each trial at a rung, and the rules are compared there.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from curves import curves
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from ring import ring_arrays

from distgnn.datasets.errors import InputError
from distgnn.tuning.ray_tune import trainable
from distgnn.tuning.schedulers import Asha, Halving, HyperBand, Median, StoppingAsha
from distgnn.tuning.trial import Stint, Trial, Visit

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

RECORDED = sorted((Path(__file__).parent / "recorded").glob("*.npz"))


@pytest.fixture(params=RECORDED, ids=lambda path: path.stem)
def best(request):
    """(64, num_epochs) best score so far of recorded trials; no two are equal.

    Equal scores are set apart: Optuna promotes all of them, and our rules look at their losses.
    """
    table = np.load(request.param)["scores"].astype(float)
    table += 1e-9 * np.random.default_rng(0).permutation(len(table))[:, None]
    return np.maximum.accumulate(table, axis=1)


def arrived(number, epochs, table):
    """Return a trial that reached an epoch, after those of lower number."""
    trial = Trial(number, {}, curve=list(enumerate(table[number, :epochs].tolist(), 1)))
    trial.visits.append(Visit(epochs, number, trial.best()))
    return trial


def asked(study, value, epochs):
    """Report a score of a new trial to Optuna; return whether it is pruned."""
    trial = study.ask()
    trial.report(value, step=epochs)
    return trial.should_prune()


@pytest.mark.parametrize("factor", [2, 3, 4])
def test_asha_promotes_what_optuna_does_not_prune(factor, best):
    optuna = pytest.importorskip("optuna")
    pruner = optuna.pruners.SuccessiveHalvingPruner(min_resource=2, reduction_factor=factor)
    study = optuna.create_study(direction="maximize", pruner=pruner)
    num_promoted = 0
    for number in range(64):
        trials = [arrived(earlier, 2, best) for earlier in range(number + 1)]
        words = {"num_trials": len(trials), "epochs": 2 * factor, "grace": 2, "factor": factor}
        stint = Asha(**words).next(trials, frozenset(range(number)))
        is_pruned = asked(study, best[number, 1], 2)
        # Optuna lets the best of the first few continue at once, as it cannot continue them later.
        if number + 1 >= factor:
            assert (stint == Stint(number, 2 * factor)) == (not is_pruned)
            num_promoted += not is_pruned
    assert num_promoted


@pytest.mark.parametrize("factor", [2, 3, 4])
def test_halving_keeps_what_optuna_does_not_prune_among_all(factor, best):
    optuna = pytest.importorskip("optuna")
    trials = [arrived(number, 2, best) for number in range(64)]
    words = {"num_trials": 64, "epochs": 2 * factor, "grace": 2, "factor": factor}
    kept, running = set(), frozenset[int]()
    while (stint := Halving(**words).next(trials, running)) is not None:
        kept.add(stint.trial)
        running |= {stint.trial}
    for last in range(64):
        pruner = optuna.pruners.SuccessiveHalvingPruner(min_resource=2, reduction_factor=factor)
        study = optuna.create_study(direction="maximize", pruner=pruner)
        for number in range(64):
            if number != last:
                # As the pruner would have written: the score at the first rung.
                done = optuna.trial.create_trial(
                    value=0.0, system_attrs={"completed_rung_0": best[number, 1]}
                )
                study.add_trial(done)
        assert (last in kept) == (not asked(study, best[last, 1], 2))
    assert len(kept) == 64 // factor


def build_hyperband(epochs, grace, factor):
    return HyperBand(epochs=epochs, grace=grace, factor=factor)


@given(st.integers(1, 300), st.integers(1, 9), st.integers(2, 5))
@settings(max_examples=100)
def test_hyperband_has_the_brackets_of_optuna(epochs, grace, factor):
    optuna = pytest.importorskip("optuna")
    assume(grace <= epochs)
    # Where epochs / factor^s is not a whole number, ours may have a bracket that begins with it
    # rounded up.
    spans = [epochs / factor**kept for kept in range(10)]
    assume(not any(1 <= span < grace <= np.ceil(span) for span in spans))
    # Optuna rounds a logarithm down, which may fall just short of a whole number: that of 243 to 3.
    most = max(kept for kept in range(10) if grace * factor**kept <= epochs)
    assume(math.floor(math.log(epochs / grace, factor)) == most)
    ours = [bracket.num_trials for bracket in build_hyperband(epochs, grace, factor)._brackets]
    pruner = optuna.pruners.HyperbandPruner(
        min_resource=grace, max_resource=epochs, reduction_factor=factor
    )
    pruner._try_initialization(None)
    assert ours == pruner._trial_allocation_budgets


@pytest.mark.parametrize("factor", [2, 3, 4])
@pytest.mark.parametrize("epochs", [81, 64, 100])
def test_hyperband_begins_the_trials_of_ray(epochs, factor):
    rays = pytest.importorskip("ray.tune.schedulers.hyperband")
    theirs = rays.HyperBandScheduler("epochs", max_t=epochs, reduction_factor=factor)
    ours = build_hyperband(epochs, 1, factor)._brackets
    # Ray rounds the number of brackets to the nearest, where the paper rounds it down.
    theirs._s_max_1 = len(ours)
    for kept, bracket in zip(range(len(ours) - 1, -1, -1), ours, strict=True):
        assert bracket.num_trials == theirs._get_n0(kept)
        # Ray rounds epochs down.
        assert bracket._rungs[0] - theirs._get_r0(kept) in (0, 1)


def test_median_stopping_stops_what_optuna_prunes_where_curves_are_flat(best):
    optuna = pytest.importorskip("optuna")
    # Ours compares with the mean of a curve, and Optuna with its score at that epoch.
    flat = np.repeat(best[:, -1:], 4, axis=1)
    pruner = optuna.pruners.MedianPruner(n_startup_trials=3, n_min_trials=3)
    study = optuna.create_study(direction="maximize", pruner=pruner)
    num_stopped = 0
    for number in range(64):
        trials = [arrived(earlier, 4, flat) for earlier in range(number + 1)]
        stint = Median(num_trials=64, epochs=8, grace=4).next(trials, frozenset(range(number)))
        is_pruned = asked(study, flat[number, 3], 4)
        assert (stint is None or stint.trial != number) == is_pruned
        num_stopped += is_pruned
        # Optuna compares with trials that are complete.
        study.tell(number, flat[number, 3])
    assert num_stopped


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
