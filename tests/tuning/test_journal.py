"""The journal of a study that optuna-dashboard reads, while the study runs and after a kill."""

from __future__ import annotations

import pytest
from curves import SCHEDULERS, KilledError, Table, curves

from distgnn.tuning.journal import JOURNAL, OptunaJournal
from distgnn.tuning.samplers import RandomSampler, TpeSampler
from distgnn.tuning.space import Space
from distgnn.tuning.study import Study, StudyLog

optuna = pytest.importorskip("optuna")
SPACE = Space.of({"lr": "log(1e-4,1e-1)"})
STATES = optuna.trial.TrialState


def run(folder, name, runs, actions=None, journal=OptunaJournal):
    journal = journal(folder, TpeSampler(SPACE, 0).spans)
    study = Study(
        StudyLog(folder), space=SPACE, sampler=RandomSampler(SPACE, 0),
        scheduler=SCHEDULERS[name](), trainable=Table(curves(12, 16, 0), runs, actions), seed=0,
        show=journal.show,
    )  # fmt: skip
    study.run()
    journal.end(study)
    return study.trials


def trials_of(folder):
    backend = optuna.storages.journal.JournalFileBackend(str(folder / JOURNAL))
    (study,) = optuna.get_all_study_summaries(optuna.storages.JournalStorage(backend))
    storage = optuna.storages.JournalStorage(backend)
    return optuna.load_study(study_name=study.study_name, storage=storage).trials


def content(trials):
    return [(t.state, t.value, t.params, t.intermediate_values, t.user_attrs) for t in trials]


@pytest.mark.parametrize("name", SCHEDULERS)
def test_the_journal_of_a_study_that_was_killed_is_completed(name, tmp_path):
    (tmp_path / "straight").mkdir()
    trials = run(tmp_path / "straight", name, {})
    found = trials_of(tmp_path / "straight")
    for trial, kept in zip(trials, found, strict=True):
        is_failed = trial.failure is not None
        assert kept.state == (STATES.FAIL if is_failed else STATES.COMPLETE)
        assert kept.value == (None if is_failed else trial.best())
        assert kept.intermediate_values == dict(trial.curve)
        assert kept.params == trial.settings
        assert kept.user_attrs["run"] == trial.name
    folder, runs = tmp_path / "killed", {}
    folder.mkdir()
    for actions in (1, 8, 20, 9):
        with pytest.raises(KilledError):
            run(folder, name, runs, actions)
        # What a kill leaves that comes while a line is written: its beginning, and the lock.
        with (folder / JOURNAL).open("ab") as file:
            file.write(b'{"op_code":')
        (folder / f"{JOURNAL}.lock").symlink_to(folder / JOURNAL)
    before = (folder / JOURNAL).read_bytes()
    run(folder, name, runs)
    assert content(trials_of(folder)) == content(found)
    # A dashboard that is open follows a file that only grows.
    assert (folder / JOURNAL).read_bytes().startswith(before.rpartition(b"\n")[0])


def test_a_trial_that_is_trained_shows_its_values(tmp_path):
    # 12 begin, and three of them continue: one ran to epoch 2 and one to epoch 4 when it ended.
    with pytest.raises(KilledError):
        run(tmp_path, "halving", {}, actions=3 * 14 + 1)
    states = [kept.state for kept in trials_of(tmp_path)]
    assert states == [STATES.FAIL if n % 7 == 5 else STATES.RUNNING for n in range(12)]
    assert max(len(kept.intermediate_values) for kept in trials_of(tmp_path)) == 2
    assert {kept.user_attrs.get("epochs") for kept in trials_of(tmp_path)} == {1, 2}


@pytest.mark.parametrize("damage", [b"", b"no journal\n", None])
def test_a_journal_that_is_not_of_the_study_is_written_anew(damage, tmp_path):
    trials = run(tmp_path, "halving", {})
    before = content(trials_of(tmp_path))
    if damage is None:  # of a study with other settings
        text = (tmp_path / JOURNAL).read_text().replace(str(trials[0].settings["lr"]), "0.0123")
        (tmp_path / JOURNAL).write_text(text)
        assert content(trials_of(tmp_path)) != before
    else:
        (tmp_path / JOURNAL).write_bytes(damage)
    run(tmp_path, "halving", {})
    assert content(trials_of(tmp_path)) == before


class Held(OptunaJournal):
    """Somebody takes the lock once the journal is open, and never gives it back."""

    def _open(self, trials):
        super()._open(trials)
        # As that of a dashboard that was given a relative path and was killed.
        self._path.with_name(f"{JOURNAL}.lock").symlink_to("study/optuna.log")


class Deleted(OptunaJournal):
    """Somebody deletes the study in the dashboard."""

    def _open(self, trials):
        super()._open(trials)
        self._storage.delete_study(self._study)


@pytest.mark.parametrize("journal", [OptunaJournal, Held, Deleted])
def test_a_study_goes_on_without_a_journal_that_cannot_be_written(
    journal, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr("distgnn.tuning.journal._PATIENCE_S", 0.1)
    if journal is OptunaJournal:
        (tmp_path / JOURNAL).mkdir()
    trials = run(tmp_path, "halving", {}, journal=journal)
    assert len(trials) == 12
    err = capsys.readouterr().err
    assert err.count("warning: cannot write '") == 1
    assert "; the study goes on without it, and the same command with --resume completes it" in err
    if journal is OptunaJournal:
        (tmp_path / JOURNAL).rmdir()
    again = run(tmp_path, "halving", {})
    assert [kept.params for kept in trials_of(tmp_path)] == [trial.settings for trial in again]


def test_no_links_are_needed(tmp_path, monkeypatch, capsys):
    def refused(*words):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("os.symlink", refused)
    run(tmp_path, "halving", {})
    assert len(trials_of(tmp_path)) == 12
    assert not capsys.readouterr().err


def test_a_trial_that_the_dashboard_calls_failed_trains_on(tmp_path):
    runs = {}
    with pytest.raises(KilledError):
        run(tmp_path, "halving", runs, actions=8)
    backend = optuna.storages.journal.JournalFileBackend(str(tmp_path / JOURNAL))

    class Dashboard(OptunaJournal):
        def _open(self, trials):
            super()._open(trials)
            optuna.storages.JournalStorage(backend).set_trial_state_values(1, STATES.FAIL)

    trials = run(tmp_path, "halving", runs, journal=Dashboard)
    assert trials[1].failure is None
    found = trials_of(tmp_path)
    assert [kept.state for kept in found[:3]] == [STATES.COMPLETE, STATES.FAIL, STATES.COMPLETE]
