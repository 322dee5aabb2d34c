"""Studies: their log, their end whatever fails, and what they continue with after a kill."""

from __future__ import annotations

import json

import numpy as np
import pytest
from curves import SCHEDULERS, KilledError, Table, curves
from hypothesis import given, settings
from hypothesis import strategies as st

from distgnn.datasets.errors import InputError
from distgnn.tuning.samplers import RandomSampler
from distgnn.tuning.schedulers import Everything, Halving
from distgnn.tuning.space import Space
from distgnn.tuning.study import LOG, Study, StudyLog
from distgnn.tuning.trial import Stint, StintResult

SPACE = Space.of({"lr": "log(1e-4,1e-1)"})


def run(folder, scheduler, trainable):
    study = Study(
        StudyLog(folder),
        space=SPACE,
        sampler=RandomSampler(SPACE, 0),
        scheduler=scheduler,
        trainable=trainable,
        seed=0,
    )
    return study.run(), study.trials


@pytest.mark.parametrize("name", SCHEDULERS)
@given(kills=st.lists(st.integers(0, 25), max_size=6))
@settings(max_examples=10)
def test_a_study_that_is_killed_ends_like_one_that_is_not(name, kills, tmp_path_factory):
    table = curves(12, 16, 0)
    straight, trials = run(
        tmp_path_factory.mktemp("straight"), SCHEDULERS[name](), Table(table, {})
    )
    folder, runs = tmp_path_factory.mktemp("killed"), {}
    for actions in kills:
        try:
            run(folder, SCHEDULERS[name](), Table(table, runs, actions))
        except KilledError:
            with (folder / LOG).open("ab") as file:
                file.write(b'{"event": "e')  # the line that a kill left unfinished
    found, again = run(folder, SCHEDULERS[name](), Table(table, runs))
    assert found.best == straight.best
    assert again == trials


def test_the_best_trial_is_that_with_the_best_score(tmp_path):
    table = curves(6, 8, 1)
    found, trials = run(tmp_path, Everything(num_trials=5, epochs=8), Table(table, {}))
    assert found.best.number == int(table[:5].max(axis=1).argmax())
    assert found.epochs_trained == found.epochs_of_all == 40
    assert all(len(trial.curve) == 8 for trial in trials)


def test_of_equal_scores_the_trial_with_the_lower_loss_is_the_best(tmp_path):
    class Tied(Table):
        def wait(self):
            number, (_, result) = self._waiting[0][0], super().wait()
            return number, result._replace(losses={e: 9.0 - number for e, _ in result.curve})

    found, trials = run(tmp_path, Everything(num_trials=4, epochs=3), Tied(np.zeros((4, 3)), {}))
    assert found.best.number == 3
    # A study that continues has them from its log.
    again, read = run(tmp_path, Everything(num_trials=4, epochs=3), Tied(np.zeros((4, 3)), {}))
    assert again.best == found.best
    assert read == trials


def test_a_copy_with_equal_scores_has_the_losses_of_its_parent(tmp_path):
    log = StudyLog(tmp_path)
    curve = [(1, 0.5), (2, 0.5)]
    for epochs, clone_of, losses in ((2, None, {1: 4.0, 2: 3.0}), (3, 1, {1: 4.0, 2: 1.0})):
        log.begin(Stint(0, epochs, clone_of), {"lr": 0.1})
        log.end(0, StintResult(curve, None, 1.0, losses))
    (read,) = StudyLog(tmp_path).trials
    assert read == log.trials[0]
    assert read.losses == {1: 4.0, 2: 1.0}
    assert read.visits[-1].loss == 1.0
    assert read.curve == curve


def test_a_study_whose_first_trials_all_fail_says_why(tmp_path):
    class Broken(Table):
        def wait(self):
            number, _ = self._waiting.pop(0)
            return number, StintResult([], f"reason {number}", 1.0)

    with pytest.raises(InputError, match="the first 5 trials failed, the first one because: re"):
        run(tmp_path, Everything(num_trials=9, epochs=8), Broken(np.zeros((9, 8)), {}))
    folder = tmp_path / "few"
    folder.mkdir()
    with pytest.raises(InputError, match="no trial of the study has a score, the first one bec"):
        run(folder, Everything(num_trials=2, epochs=8), Broken(np.zeros((9, 8)), {}))


def test_a_damaged_log_is_refused_and_a_half_line_is_not(tmp_path):
    run(tmp_path, Everything(num_trials=3, epochs=4), Table(curves(3, 4, 2), {}))
    lines = (tmp_path / LOG).read_text().splitlines(keepends=True)
    (tmp_path / LOG).write_text("".join(lines) + '{"eve')
    assert len(StudyLog(tmp_path).trials) == 3
    (tmp_path / LOG).write_text("".join([lines[0], "{}\n", *lines[1:]]))
    with pytest.raises(InputError, match=r"study\.jsonl' is damaged in line 2; restore it"):
        StudyLog(tmp_path)


def test_a_curve_is_written_once(tmp_path):
    run(tmp_path, Halving(num_trials=4, epochs=16, grace=1, factor=4), Table(curves(4, 16, 3), {}))
    events = [json.loads(line) for line in (tmp_path / LOG).read_text().splitlines()]
    written = [len(event["curve"]) for event in events if event["event"] == "end"]
    assert written == [1, 1, 1, 1, 3, 12]


class Paced(Table):
    """Takes two seconds an epoch; no trial fails."""

    def wait(self):
        number, epochs = self._waiting.pop(0)
        row, before = self._runs.get(number, (number, 0))
        self._runs[number] = (row, epochs)
        curve = [(epoch + 1, float(self._table[row, epoch])) for epoch in range(epochs)]
        return number, StintResult(curve, None, 2.0 * (epochs - before))


@pytest.mark.parametrize("name", SCHEDULERS)
def test_a_forecast_counts_the_epochs_that_are_left(name, tmp_path):
    seen = []

    def show(study):
        if study.log.num_ended:
            seen.append((sum(trial.epochs for trial in study.trials), *study.forecast()))

    table = curves(12, 16, 0)
    study = Study(
        StudyLog(tmp_path), space=SPACE, sampler=RandomSampler(SPACE, 0),
        scheduler=SCHEDULERS[name](), trainable=Paced(table, {}), seed=0, show=show,
    )  # fmt: skip
    trained = study.run().epochs_trained
    assert seen[-1] == (trained, 0, 0.0)
    for spent, epochs, seconds in seen:
        assert seconds == pytest.approx(2.0 * epochs)
        # Promotions depend on the order of new trials, which nobody knows.
        assert spent + epochs == pytest.approx(trained, rel=0.4 if name == "asha" else 0.0)
