"""Schedulers: which trial is trained next, and up to which epoch.

Each one is a function of what the trials recorded. A study that was killed therefore continues with
the same decisions, and a recorded table of curves tests them.

References:
    Jamieson and Talwalkar, AISTATS 2016, for successive halving; Li et al., JMLR 2018, for
    HyperBand; Li et al., MLSys 2020, for ASHA; Golovin et al., KDD 2017, for median stopping;
    Jaderberg et al., arXiv:1711.09846, for population based training; Liaw et al.,
    arXiv:1807.05118, for the waist that they share.
"""

from __future__ import annotations

import itertools
import math
import statistics
from typing import TYPE_CHECKING

import numpy as np

from distgnn.tuning.trial import WORST, Stint, Trial

if TYPE_CHECKING:
    from collections.abc import Sequence

MIN_CURVES = 3
"""Number of other curves that median stopping compares with, at least."""
QUANTILE = 0.25
"""Share of the population that population based training replaces, and that it copies."""
BUDGET = 0.125
"""Share of the epochs of all trials that the first rung is chosen for."""


def rungs(*, grace: int, factor: int, epochs: int) -> list[int]:
    """Return the epochs at which trials are compared: grace times powers of factor, then the last.

    Args:
        grace: Epochs of the first rung.
        factor: Ratio of two rungs.
        epochs: Epochs of the last rung.
    """
    found = []
    rung = grace
    while rung < epochs:
        found.append(rung)
        rung *= factor
    return [*found, epochs]


def first_rung(*, factor: int, epochs: int) -> int:
    """Return the longest first rung with which halving trains at most `BUDGET` of all epochs.

    A first rung that is too short compares trials before they have learned anything, and one that
    is too long trains many bad ones. Only the second can be known before the first epoch.

    Args:
        factor: Ratio of two rungs.
        epochs: Epochs of the last rung.

    Returns:
        Epochs; 1 where even that costs more.
    """
    found = 1
    while _cost(found + 1, factor, epochs) <= BUDGET * epochs:
        found += 1
    return found


def _cost(grace: int, factor: int, epochs: int) -> float:
    """Return the mean number of epochs that halving trains a trial, of many trials."""
    spans = itertools.pairwise([0, *rungs(grace=grace, factor=factor, epochs=epochs)])
    # A share of grace / end of all trials is trained up to the end of a span; see num_promoted.
    return sum((end - begun) * grace / end for begun, end in spans)


def ranked(trials: Sequence[Trial], epochs: int | None = None) -> list[Trial]:
    """Sort trials by their best score, best first.

    Of equal scores the one with the lower loss comes first, and of equal losses the earlier trial.

    Args:
        trials: Trials of a study.
        epochs: Number of the epochs that count; None for all.
    """
    return sorted(trials, key=lambda t: (-t.best(epochs), t.loss(epochs), t.number))


def num_promoted(num_trials: int, rung: int, above: int) -> int:
    """Return how many trials of a rung continue, so that no rung costs more than the one below.

    That is 1 / factor of them between powers of factor. The last rung may be nearer, and then more
    of them continue: where it has twice the epochs, a half.

    Args:
        num_trials: Number of trials at the rung.
        rung: Epochs of the rung.
        above: Epochs of the rung above.
    """
    return num_trials * rung // above


class Everything:
    """Trains every trial to its end.

    Args:
        num_trials: Number of trials.
        epochs: Epochs of a trial.
    """

    def __init__(self, *, num_trials: int, epochs: int) -> None:
        self.num_trials = num_trials
        self.epochs = epochs

    def next(self, trials: Sequence[Trial], running: frozenset[int]) -> Stint | None:
        """Return the next stint; see `Scheduler`."""
        return _first_short(trials, running, self.num_trials, self.epochs)


def _first_short(
    trials: Sequence[Trial], running: frozenset[int], num_trials: int, epochs: int
) -> Stint | None:
    """Return a stint of the first trial that has not reached an epoch, or of a new trial."""
    for trial in trials:
        if trial.number not in running and not trial.has_reached(epochs):
            return Stint(trial.number, epochs)
    return Stint(len(trials), epochs) if len(trials) < num_trials else None


class Halving:
    """Trains all trials to a rung, and a share of 1 / factor of them, the best, to the next.

    See `num_promoted` for the share where the last rung is nearer.

    Args:
        num_trials: Number of trials.
        epochs: Epochs of the last rung.
        grace: Epochs of the first rung.
        factor: Ratio of two rungs, and of the numbers of trials that reach them.
        first: Number of the first trial, where several brackets share a study.
    """

    def __init__(
        self, *, num_trials: int, epochs: int, grace: int, factor: int, first: int = 0
    ) -> None:
        self.num_trials = num_trials
        self.epochs = epochs
        self._first = first
        self._rungs = rungs(grace=grace, factor=factor, epochs=epochs)

    def next(self, trials: Sequence[Trial], running: frozenset[int]) -> Stint | None:
        """Return the next stint; see `Scheduler`."""
        own = trials[self._first : self._first + self.num_trials]
        stint = _first_short(own, running, self.num_trials, self._rungs[0])
        if stint is not None:
            is_new = stint.trial == len(own)
            return stint._replace(trial=self._first + len(own)) if is_new else stint
        kept, num_kept = list(own), self.num_trials
        for rung, above in itertools.pairwise(self._rungs):
            if not all(trial.has_reached(rung) for trial in kept):
                return None
            num_kept = max(1, num_promoted(num_kept, rung, above))
            kept = [trial for trial in ranked(kept, rung) if trial.failure is None][:num_kept]
            for trial in kept:
                if trial.number not in running and not trial.has_reached(above):
                    return Stint(trial.number, above)
        return None


class HyperBand:
    """Runs brackets of successive halving, from many short trials to few long ones.

    Algorithm 1 of the paper has, with R for epochs and eta for factor, brackets

        s = s_max, ..., 0    of    ceil((s_max + 1) * eta^s / (s + 1))    trials,

    which begin with R / eta^s epochs each. Those are rounded up, or a rung would lie just below the
    last one. The first bracket is the longest that begins with grace epochs or more.

    Args:
        epochs: Epochs of a trial that is never stopped.
        grace: Epochs of the first rung of the first bracket, at least.
        factor: Ratio of two rungs.

    Attributes:
        num_trials: Number of trials of all brackets.
    """

    def __init__(self, *, epochs: int, grace: int, factor: int) -> None:
        self.epochs = epochs
        self._brackets = []
        # Whole numbers, since a logarithm may fall just short of one.
        most = 0
        while factor ** (most + 1) <= epochs and -(-epochs // factor ** (most + 1)) >= grace:
            most += 1
        first = 0
        for kept in range(most, -1, -1):
            num_trials = -(-(most + 1) * factor**kept // (kept + 1))
            self._brackets.append(
                Halving(
                    num_trials=num_trials,
                    epochs=epochs,
                    grace=-(-epochs // factor**kept),
                    factor=factor,
                    first=first,
                )
            )
            first += num_trials
        self.num_trials = first

    def next(self, trials: Sequence[Trial], running: frozenset[int]) -> Stint | None:
        """Return the next stint; see `Scheduler`."""
        first = 0
        for bracket in self._brackets:
            stint = bracket.next(trials, running)
            if stint is not None:
                return stint
            own = range(first, first + bracket.num_trials)
            if any(number in running for number in own):
                return None  # the next bracket begins after this one, so that numbers are in order
            first += bracket.num_trials
        return None


class Asha:
    """Promotes a trial that is among the best 1 / factor at its rung, before the others are there.

    See `num_promoted` for the share where the last rung is nearer.

    In the paper new trials never run out, and a promotion comes before a new trial. Here they do
    run out. A promotion among the first trials of a rung is often wrong and never taken back, so
    trials begin first, and lower rungs are filled before higher ones. A trial is promoted early
    only where a slot would be idle otherwise: with one slot this is successive halving.

    Rungs with fewer trials than factor would promote none: the best trial of the highest rung then
    continues alone to the end.

    Args:
        num_trials: Number of trials.
        epochs: Epochs of the last rung.
        grace: Epochs of the first rung.
        factor: Ratio of two rungs, and the share that is promoted.
    """

    def __init__(self, *, num_trials: int, epochs: int, grace: int, factor: int) -> None:
        self.num_trials = num_trials
        self.epochs = epochs
        self._rungs = rungs(grace=grace, factor=factor, epochs=epochs)

    def next(self, trials: Sequence[Trial], running: frozenset[int]) -> Stint | None:
        """Return the next stint; see `Scheduler`."""
        stint = _first_short(trials, running, self.num_trials, self._rungs[0])
        if stint is not None:
            return stint
        for rung, above in itertools.pairwise(self._rungs):
            there = [trial for trial in trials if trial.has_reached(rung)]
            for trial in ranked(there, rung)[: num_promoted(len(there), rung, above)]:
                if trial.number not in running and not trial.has_reached(above):
                    return Stint(trial.number, above)
        alive = [trial for trial in trials if trial.failure is None]
        if running or not alive:
            return None
        highest = max(trial.epochs for trial in alive)
        if highest == self.epochs:
            return None
        first = ranked([trial for trial in alive if trial.epochs == highest], highest)[0]
        return Stint(first.number, next(rung for rung in self._rungs if rung > highest))


class StoppingAsha:
    """Lets a trial continue past a rung unless it is below the best 1 / factor that came before.

    The first trial at a rung always continues. This is the rule of Ray Tune's ASHA.

    Args:
        num_trials: Number of trials.
        epochs: Epochs of the last rung.
        grace: Epochs of the first rung.
        factor: Ratio of two rungs.
    """

    def __init__(self, *, num_trials: int, epochs: int, grace: int, factor: int) -> None:
        self.num_trials = num_trials
        self.epochs = epochs
        self._share = 1 - 1 / factor
        self._rungs = rungs(grace=grace, factor=factor, epochs=epochs)

    def next(self, trials: Sequence[Trial], running: frozenset[int]) -> Stint | None:
        """Return the next stint; see `Scheduler`."""
        for trial in trials:
            if trial.number in running or trial.has_reached(self.epochs):
                continue
            if trial.epochs not in self._rungs or not self._is_below(trial, trials):
                return Stint(trial.number, next(r for r in self._rungs if r > trial.epochs))
        return Stint(len(trials), self._rungs[0]) if len(trials) < self.num_trials else None

    def _is_below(self, trial: Trial, trials: Sequence[Trial]) -> bool:
        rung = trial.epochs
        arrived = trial.visits[-1].number
        earlier = [
            other.best(rung)
            for other in trials
            if (visit := other.visit_at(rung)) is not None and visit.number < arrived
        ]
        earlier = [score for score in earlier if score != WORST]
        if not earlier:
            return False
        return trial.best(rung) < float(np.percentile(earlier, 100 * self._share))


class Median:
    """Stops a trial whose best score is below the median of the means of the others.

    Args:
        num_trials: Number of trials.
        epochs: Epochs of a trial that is never stopped.
        grace: Epochs between two comparisons.
    """

    def __init__(self, *, num_trials: int, epochs: int, grace: int) -> None:
        self.num_trials = num_trials
        self.epochs = epochs
        self._grace = grace

    def next(self, trials: Sequence[Trial], running: frozenset[int]) -> Stint | None:
        """Return the next stint; see `Scheduler`."""
        for trial in trials:
            if trial.number in running or trial.has_reached(self.epochs):
                continue
            if not self._is_below(trial, trials):
                return Stint(trial.number, min(trial.epochs + self._grace, self.epochs))
        if len(trials) == self.num_trials:
            return None
        return Stint(len(trials), min(self._grace, self.epochs))

    def _is_below(self, trial: Trial, trials: Sequence[Trial]) -> bool:
        if not trial.visits:
            return False
        epochs, arrived = trial.visits[-1][:2]
        means = [
            other.mean(epochs)
            for other in trials
            if other is not trial
            and (visit := other.visit_at(epochs)) is not None
            and visit.number < arrived
        ]
        means = [mean for mean in means if mean != WORST]
        return len(means) >= MIN_CURVES and trial.best(epochs) < statistics.median(means)


class Population:
    """Lets the worst quarter continue from copies of the best quarter, under changed settings.

    All trials are trained in step, a generation of `grace` epochs after the other.

    Args:
        num_trials: Size of the population.
        epochs: Epochs of a trial.
        grace: Epochs of a generation.
        seed: Seed of the choice of the trial that is copied.
    """

    def __init__(self, *, num_trials: int, epochs: int, grace: int, seed: int) -> None:
        self.num_trials = num_trials
        self.epochs = epochs
        self._grace = grace
        self._seed = seed

    def next(self, trials: Sequence[Trial], running: frozenset[int]) -> Stint | None:
        """Return the next stint; see `Scheduler`."""
        stint = _first_short(trials, running, self.num_trials, min(self._grace, self.epochs))
        if stint is not None:
            return stint
        if any(trial.number in running for trial in trials if trial.epochs == 0):
            return None
        alive = [trial for trial in trials if trial.failure is None]
        if not alive:
            return None
        # The end of the generation that is under way: every trial starts it from the same epoch.
        begun = min(trial.epochs for trial in alive)
        if begun >= self.epochs:
            return None
        until = min(begun + self._grace, self.epochs)
        # Scores of that moment: a trial that was copied since has the records of its parent.
        order = sorted(alive, key=lambda trial: _place_at(trial, begun))
        num_moved = int(len(order) * QUANTILE)
        # Copies are made first, while every parent still is at the beginning of the generation.
        for trial in order[len(order) - num_moved :]:
            if trial.number not in running and trial.epochs == begun:
                random = np.random.default_rng([self._seed, begun, trial.number])
                parent = order[int(random.integers(num_moved))]
                return Stint(trial.number, until, clone_of=parent.number)
        for trial in order:
            if trial.number not in running and trial.epochs == begun:
                return Stint(trial.number, until)
        return None


def _place_at(trial: Trial, epochs: int) -> tuple[float, float, int]:
    """Return what the place of a trial depends on, as in `ranked`; less is better."""
    visit = trial.visit_at(epochs)
    score, loss = (WORST, math.inf) if visit is None else (visit.score, visit.loss)
    return -score, loss, trial.number
