"""Recorded curves of trials, for tests of searches."""

from __future__ import annotations

import numpy as np

from distgnn.tuning.schedulers import Asha, Halving, Population
from distgnn.tuning.trial import StintResult, Trial, Visit


def curves(num_trials, num_epochs, seed):
    """(num_trials, num_epochs) scores that rise with noise; no two are equal."""
    random = np.random.default_rng(seed)
    limits = random.uniform(size=(num_trials, 1))
    speeds = random.uniform(0.02, 0.5, size=(num_trials, 1))
    epochs = np.arange(1, num_epochs + 1)
    noise = 0.02 * random.normal(size=(num_trials, num_epochs))
    return limits * (1 - np.exp(-speeds * epochs)) + noise


def play(scheduler, table, *, slots=1, fails=(), seed=0, losses=None):
    """Run a scheduler on a table; return the trials and the stints in order of their ends."""
    random = np.random.default_rng(seed)
    trials, running, ended = [], {}, []
    while True:
        while len(running) < slots:
            stint = scheduler.next(trials, frozenset(running))
            if stint is None:
                break
            assert stint.trial not in running
            assert stint.trial <= len(trials) < scheduler.num_trials + 1
            if stint.trial == len(trials):
                trials.append(Trial(stint.trial, {}))
            if stint.clone_of is not None:
                parent = trials[stint.clone_of]
                table[stint.trial] = table[parent.number]
                trials[stint.trial].num_clones += 1
            running[stint.trial] = stint
        if not running:
            return trials, ended
        number = list(running)[int(random.integers(len(running)))]
        stint = running.pop(number)
        trial = trials[number]
        assert stint.epochs > trial.epochs
        assert stint.epochs <= scheduler.epochs
        if number in fails:
            trial.failure = "it failed"
        trial.curve = list(enumerate(table[number][: stint.epochs].tolist(), 1))
        if losses is not None:
            trial.losses = dict(enumerate(losses[number][: stint.epochs].tolist(), 1))
        trial.visits.append(Visit(stint.epochs, len(ended), trial.best(), trial.loss()))
        ended.append(stint)


class KilledError(Exception):
    """Stands for kill -9: nothing that the study would do afterwards happens."""


class Table:
    """Runs stints on recorded curves, and is killed after a number of actions.

    A run is the row of the table that its curve follows, and the epochs that it has. It is kept in
    a dictionary that outlives a kill, as a RUN directory does.
    """

    num_slots = 1

    def __init__(self, table, runs, actions=None):
        self._table, self._runs, self._actions = table, runs, actions
        self._waiting = []

    def _act(self):
        if self._actions is not None:
            self._actions -= 1
            if self._actions < 0:
                raise KilledError

    def start(self, trial, epochs):
        self._act()
        self._waiting.append((trial.number, epochs))

    def wait(self):
        number, epochs = self._waiting.pop(0)
        self._act()
        row, done = self._runs.get(number, (number, 0))
        assert done <= epochs
        self._runs[number] = (row, epochs)
        self._act()
        if number % 7 == 5:
            return number, StintResult([], "its loss is not finite", 1.0)
        curve = [(epoch + 1, float(self._table[row, epoch])) for epoch in range(epochs)]
        return number, StintResult(curve, None, 1.0)

    def clone(self, parent, child):
        self._act()
        row, epochs = self._runs[parent.number]
        # A parent that had trained on would give its child what it must not know yet.
        assert epochs == parent.epochs
        self._runs[child.number] = (row, epochs)
        self._act()


SCHEDULERS = {
    "asha": lambda: Asha(num_trials=12, epochs=16, grace=1, factor=2),
    "halving": lambda: Halving(num_trials=12, epochs=16, grace=1, factor=2),
    "pbt": lambda: Population(num_trials=12, epochs=16, grace=4, seed=0),
}
