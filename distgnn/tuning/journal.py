"""The journal of a study for optuna-dashboard: its trials, while they are trained."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from distgnn.datasets.errors import one_line
from distgnn.datasets.files import read_whole
from distgnn.training.loop.progress import Lines
from distgnn.tuning.trial import WORST

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from distgnn.tuning.study import Study
    from distgnn.tuning.trial import Trial

JOURNAL = "optuna.log"
"""File of a study that optuna-dashboard opens."""
_NAME = "distgnn"
_LOCK = ".lock"
_PATIENCE_S = 10.0
_LOOK_S = 0.01
# Of the file, of its lock, and of what somebody writes or deletes there in the dashboard.
_FAILURES = (OSError, RuntimeError, ValueError, LookupError)


def drop_lock(folder: Path) -> None:
    """Remove the lock of Optuna that a process left which was killed.

    Args:
        folder: Directory of the study, which is owned by this process.
    """
    # Optuna renames its lock before it removes it.
    for left in folder.glob(f"{JOURNAL}{_LOCK}*"):
        left.unlink(missing_ok=True)


class _Lock:
    """A lock that keeps out those of Optuna, of which no wait is without limit.

    Optuna's own ones wait forever for a link that leads nowhere, such as that of a dashboard that
    was killed and had been given a relative path.

    Args:
        path: The file that is locked.
    """

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(path.name + _LOCK)

    def acquire(self) -> bool:
        """Take the lock.

        Raises:
            OSError: If somebody else holds it for seconds, or it cannot be made.
        """
        until = time.monotonic() + _PATIENCE_S
        while True:
            try:
                os.close(os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            except FileExistsError:
                if time.monotonic() > until:
                    raise
                time.sleep(_LOOK_S)
            else:
                return True

    def release(self) -> None:
        """Give the lock back; a dashboard may have taken it by force."""
        self._path.unlink(missing_ok=True)


class NoJournal:
    """Keeps no journal."""

    def show(self, study: Study) -> None:
        """Ignore the study."""

    def end(self, study: Study) -> None:
        """Ignore the study."""


class OptunaJournal:
    """Journal storage of Optuna: a file of JSON lines that only grows.

    A trial is RUNNING from its first stint on, with a value for each evaluation, and COMPLETE or
    FAIL once it trains no more. A dashboard that is open follows the file. The study keeps what it
    needs itself. So the journal of a study that was killed is completed from the study, and one
    that is lost or damaged is written anew. One that cannot be written is given up with a warning.

    Args:
        folder: Directory of the study, which is there and owned by this process.
        spans: Distributions of Optuna, by the name of their setting.
    """

    def __init__(self, folder: Path, spans: Mapping[str, Any]) -> None:
        self._path = folder.resolve() / JOURNAL
        self._is_given_up = False
        self._spans = dict(spans)
        self._kept: list[Any] = []
        self._shown: dict[int, tuple[object, ...]] = {}
        self._is_open = False

    def show(self, study: Study) -> None:
        """Write what changed.

        Args:
            study: The study.
        """
        self._write(study, is_over=False)

    def end(self, study: Study) -> None:
        """Write that no trial is trained any more; see `show`."""
        self._write(study, is_over=True)

    def _write(self, study: Study, *, is_over: bool) -> None:
        if self._is_given_up:
            return
        try:
            if not self._is_open:
                self._open(study.trials)
            for trial in study.trials:
                ends = is_over or trial.failure is not None
                ends = ends or trial.epochs >= study.scheduler.epochs
                self._sync(trial, ends=ends)
        except _FAILURES as error:
            self._is_given_up = True
            Lines().warn(
                f"cannot write '{self._path}': {one_line(str(error))}; the study goes on without "
                "it, and the same command with --resume completes it"
            )

    def _open(self, trials: list[Trial]) -> None:
        """Open the journal that is there if it is one of these trials; else begin another."""
        drop_lock(self._path.parent)
        if self._path.exists():
            _drop_unfinished_line(self._path)
            try:
                self._load()
            except (ValueError, KeyError, TypeError):
                self._kept = []
            if not self._kept or not self._is_of(trials):
                self._path.unlink()
        if not self._path.exists():
            self._load()
        self._is_open = True

    def _load(self) -> None:
        from optuna import create_study
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend

        lock: Any = _Lock(self._path)
        self._storage = JournalStorage(JournalFileBackend(str(self._path), lock))
        study = create_study(
            study_name=_NAME, direction="maximize", storage=self._storage, load_if_exists=True
        )
        self._study = self._storage.get_study_id_from_name(study.study_name)
        self._kept = self._storage.get_all_trials(self._study)

    def _is_of(self, trials: list[Trial]) -> bool:
        """Whether the trials of the journal are the first ones of these, with the same settings."""
        if len(self._kept) > len(trials):
            return False
        pairs = zip(self._kept, trials, strict=False)
        return all(kept.params == trial.settings or trial.num_clones for kept, trial in pairs)

    def _sync(self, trial: Trial, *, ends: bool) -> None:
        """Write how a trial differs from what the journal has of it."""
        from optuna.exceptions import UpdateFinishedTrialError

        version = (len(trial.visits), trial.num_clones, str(trial.settings), ends)
        if self._shown.get(trial.number) == version:
            return
        if trial.number == len(self._kept):
            self._begin(trial)
        kept = self._kept[trial.number]
        if not kept.state.is_finished():
            # Somebody may call a trial failed in the dashboard, which ends it in the journal alone.
            with suppress(UpdateFinishedTrialError):
                self._update(kept._trial_id, kept, trial)
                if ends:
                    self._finish(kept._trial_id, trial)
            self._kept[trial.number] = self._storage.get_trial(kept._trial_id)
        self._shown[trial.number] = version

    def _begin(self, trial: Trial) -> None:
        from optuna.trial import TrialState, create_trial

        begun = create_trial(
            state=TrialState.RUNNING,
            params=trial.settings,
            distributions=self._spans,
            user_attrs={"run": trial.name},
        )
        number = self._storage.create_new_trial(self._study, template_trial=begun)
        self._kept.append(self._storage.get_trial(number))

    def _update(self, number: int, kept: Any, trial: Trial) -> None:
        for name, value in trial.settings.items():
            if kept.params[name] != value:  # a copy of another trial, under changed settings
                span = self._spans[name]
                internal = span.to_internal_repr(value)
                self._storage.set_trial_param(number, name, internal, span)
        for epoch, score in trial.curve:
            if kept.intermediate_values.get(epoch) != score:
                self._storage.set_trial_intermediate_value(number, epoch, score)
        if kept.user_attrs.get("epochs") != trial.epochs:
            self._storage.set_trial_user_attr(number, "epochs", trial.epochs)

    def _finish(self, number: int, trial: Trial) -> None:
        from optuna.trial import TrialState

        score = trial.best()
        if score == WORST:
            why = trial.failure or "it was not evaluated, or did not reach its goal"
            self._storage.set_trial_user_attr(number, "failure", why)
            self._storage.set_trial_state_values(number, TrialState.FAIL)
        else:
            self._storage.set_trial_state_values(number, TrialState.COMPLETE, [score])


def _drop_unfinished_line(path: Path) -> None:
    """Remove the end of a file that a process was killed at."""
    data = read_whole(path)
    whole = data.rfind(b"\n") + 1
    if whole < len(data):
        with path.open("r+b") as file:
            file.truncate(whole)
