"""A study: the trials of a search, their log, and the loop that drives them."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from distgnn.datasets.errors import InputError
from distgnn.datasets.files import read_whole
from distgnn.tuning.samplers import changed_settings
from distgnn.tuning.schedulers import ranked
from distgnn.tuning.trial import WORST, Stint, StintResult, Trial, Visit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from distgnn.tuning.space import Space
    from distgnn.tuning.trial import Sampler, Scheduler, Trainable

LOG = "study.jsonl"
BEST = "best.json"
MOST_FAILURES = 5
"""Failed trials at the beginning after which a study without any good one ends."""


class StudyLog:
    """The file of a study: a line when a stint begins, and one when it ends.

    Everything else follows from these lines, so a study that was killed at any moment continues
    from them.

    Args:
        folder: Directory of the study.

    Attributes:
        trials: All trials, by number.
        pending: Jobs that began and did not end, by number of the trial.
        num_ended: Number of stints that ended.
        first_rung: Epochs of the first stint, to which every scheduler trains trials before it
            compares any; None before it.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOG
        self.trials: list[Trial] = []
        self.pending: dict[int, Stint] = {}
        self.num_ended = 0
        self.first_rung: int | None = None
        self._read()

    def _read(self) -> None:
        try:
            data = read_whole(self._path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise InputError(f"cannot read '{self._path}': {error.strerror}") from error
        whole, _, rest = data.rpartition(b"\n")
        if rest:  # a line that a killed study left unfinished
            with self._path.open("r+b") as file:
                file.truncate(len(data) - len(rest))
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                event = json.loads(line)
                self._take(event)
            except (ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
                raise InputError(
                    f"'{self._path}' is damaged in line {number}; restore it, or begin another "
                    "study with --run"
                ) from error

    def _write(self, event: dict[str, Any]) -> None:
        try:
            with self._path.open("ab") as file:
                file.write(json.dumps(event).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise InputError(
                f"cannot write '{self._path}': {error.strerror}; put that right and continue with "
                "the same command and --resume"
            ) from error
        self._take(event)

    def _take(self, event: Mapping[str, Any]) -> None:
        kind, number = event["event"], event["trial"]
        if kind == "begin":
            if self.first_rung is None:
                self.first_rung = event["epochs"]
            if number == len(self.trials):
                self.trials.append(Trial(number, event["settings"]))
            trial = self.trials[number]
            self.pending[number] = Stint(number, event["epochs"], event["clone_of"])
            if event["clone_of"] is not None:
                trial.settings = event["settings"]
        elif kind == "cloned":
            trial = self.trials[number]
            trial.num_clones += 1
            self.pending[number] = self.pending[number]._replace(clone_of=None)
        elif kind == "end":
            trial = self.trials[number]
            first = event["first"]
            trial.curve = [pair for pair in trial.curve if pair[0] < first]
            trial.curve += [(epoch, score) for epoch, score in event["curve"]]
            trial.losses = {epoch: loss for epoch, loss in trial.losses.items() if epoch < first}
            # Studies that began before losses were kept have none.
            trial.losses.update(event.get("losses", []))
            trial.failure = event["failure"]
            trial.seconds += event["seconds"]
            place = (trial.best(), trial.loss())
            trial.visits.append(Visit(event["epochs"], self.num_ended, *place))
            self.num_ended += 1
            del self.pending[number]
        else:
            raise ValueError(kind)

    def begin(self, stint: Stint, settings: Mapping[str, Any]) -> None:
        """Record that a stint begins.

        Args:
            stint: The stint.
            settings: Settings of its trial from now on.
        """
        values = {"epochs": stint.epochs, "clone_of": stint.clone_of, "settings": dict(settings)}
        self._write({"event": "begin", "trial": stint.trial, **values})

    def cloned(self, number: int) -> None:
        """Record that a trial now has a copy of the run of another.

        Args:
            number: Number of the trial.
        """
        self._write({"event": "cloned", "trial": number})

    def end(self, number: int, outcome: StintResult) -> None:
        """Record that a stint ended.

        Args:
            number: Number of the trial.
            outcome: Result of the stint.
        """
        stint, trial = self.pending[number], self.trials[number]
        known = dict(trial.curve)
        # Only what is new is written: a curve may be long, and a trial may have many stints.
        fresh = [epoch for epoch, score in outcome.curve if known.get(epoch) != score]
        # A copy of another trial may have the scores of its own past, but other losses.
        fresh += [e for e, loss in outcome.losses.items() if trial.losses.get(e) != loss]
        first = min(fresh, default=stint.epochs + 1)
        tail = [pair for pair in outcome.curve if pair[0] >= first]
        self._write(
            {
                "event": "end",
                "trial": number,
                "epochs": stint.epochs,
                "first": first,
                "curve": tail,
                "losses": [pair for pair in outcome.losses.items() if pair[0] >= first],
                "failure": outcome.failure,
                "seconds": round(outcome.seconds, 3),
            }
        )


class Found(NamedTuple):
    """Result of a study.

    Attributes:
        best: Trial with the best score.
        epochs_trained: Epochs that all trials trained together.
        epochs_of_all: Epochs that they would have trained without a scheduler.
    """

    best: Trial
    epochs_trained: int
    epochs_of_all: int


class Study:
    """Drives trials until the scheduler has no more stints.

    Args:
        log: Log of the study.
        space: Settings that are searched.
        sampler: Chooses the settings of new trials.
        scheduler: Chooses the stints.
        trainable: Runs the stints.
        seed: Seed of changed settings.
        show: Called with the study after every change.
    """

    def __init__(
        self,
        log: StudyLog,
        *,
        space: Space,
        sampler: Sampler,
        scheduler: Scheduler,
        trainable: Trainable,
        seed: int,
        show: Callable[[Study], None] = lambda study: None,
    ) -> None:
        self.log = log
        self.scheduler = scheduler
        self._space = space
        self._sampler = sampler
        self._trainable = trainable
        self._seed = seed
        self._show = show

    @property
    def trials(self) -> list[Trial]:
        """All trials that were begun, by number."""
        return self.log.trials

    def forecast(self) -> tuple[int, float]:
        """Predict how much is left to train.

        The scheduler is asked what it would do if new trials went like those before them, and if
        trials that continue stayed where they are.

        Returns:
            Epochs, and seconds. What a stint that runs has trained already counts as left.
        """
        trials = [replace(trial, visits=list(trial.visits)) for trial in self.trials]
        known = [trial.curve for trial in trials if trial.curve]
        waiting, num_ended, epochs = list(self.log.pending.values()), self.log.num_ended, 0
        while stint := waiting.pop() if waiting else self.scheduler.next(trials, frozenset()):
            if stint.trial == len(trials):
                trials.append(Trial(stint.trial, {}))
            trial = trials[stint.trial]
            epochs += stint.epochs - trial.epochs
            if not trial.curve:
                trial.curve = known[stint.trial % len(known)] if known else [(1, 0.0)]
            trial.visits.append(Visit(stint.epochs, num_ended, trial.best(stint.epochs)))
            num_ended += 1
        trained = sum(trial.epochs for trial in self.trials)
        pace_s = sum(trial.seconds for trial in self.trials) / max(1, trained)
        return epochs, epochs * pace_s / self._trainable.num_slots

    def run(self) -> Found:
        """Run all stints.

        Returns:
            The best trial.

        Raises:
            InputError: If all trials failed, or the first ones did; it says why the first one did.
        """
        for left in list(self.log.pending.values()):  # by a study that was killed
            self._start(left)
        while True:
            running = self.log.pending
            while len(running) < self._trainable.num_slots:
                stint = self.scheduler.next(self.trials, frozenset(running))
                if stint is None:
                    break
                self._begin(stint)
            if not running:
                break
            number, outcome = self._trainable.wait()
            self.log.end(number, outcome)
            self._show(self)
            self._check_failures()
        return self.found()

    def _begin(self, stint: Stint) -> None:
        if stint.trial == len(self.trials):
            settings = self._sampler.suggest(stint.trial, self.trials)
        else:
            settings = self.trials[stint.trial].settings
        if stint.clone_of is not None:
            parent = self.trials[stint.clone_of]
            settings = changed_settings(self._space, self.trials[stint.trial], parent, self._seed)
        self.log.begin(stint, settings)
        self._start(self.log.pending[stint.trial])

    def _start(self, stint: Stint) -> None:
        trial = self.trials[stint.trial]
        if stint.clone_of is not None:
            self._trainable.clone(self.trials[stint.clone_of], trial)
            self.log.cloned(trial.number)
        self._show(self)
        self._trainable.start(trial, stint.epochs)

    def _check_failures(self) -> None:
        failures = [trial.failure for trial in self.trials if trial.failure is not None]
        ended = [trial for trial in self.trials if trial.visits]
        if len(failures) == len(ended) >= MOST_FAILURES:
            raise InputError(
                f"the first {len(failures)} trials failed, the first one because: {failures[0]}"
            )

    def found(self) -> Found:
        """Return the result so far.

        Raises:
            InputError: If no trial has a score.
        """
        trained = [trial for trial in self.trials if trial.best() != WORST]
        if not trained:
            failures = [trial.failure for trial in self.trials if trial.failure is not None]
            why = (
                f"the first one because: {failures[0]}"
                if failures
                else "none was evaluated, or none reached its goal"
            )
            raise InputError(f"no trial of the study has a score, {why}")
        best = ranked(trained)[0]
        epochs = sum(trial.epochs for trial in self.trials)
        return Found(best, epochs, self.scheduler.epochs * len(self.trials))
