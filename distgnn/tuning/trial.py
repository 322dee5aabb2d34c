"""Trials, and the narrow waist between a search and the runs that it drives."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

WORST = float("-inf")
"""Score of a trial that failed, or that was not evaluated yet."""


class Visit(NamedTuple):
    """The end of one stint of a trial.

    Attributes:
        epochs: Epoch up to which the stint trained.
        number: Position among the ends of all stints of the study.
        score: Best score of the trial then.
        loss: Lowest validation loss of the evaluations with that score; of equal scores that with
            the lower loss is better.
    """

    epochs: int
    number: int
    score: float
    loss: float = math.inf


@dataclass
class Trial:
    """One choice of settings; its run is a RUN directory.

    Attributes:
        number: Position in the study, from 0.
        settings: Values of the settings that are searched, by name.
        curve: Number of epochs and score of each evaluation, in order; higher is better.
        losses: Validation loss of each evaluation that has one, by its number of epochs.
        visits: Ends of its stints, in order.
        failure: Sentence of the error that ended it; None while it may continue.
        num_clones: Number of times that it began again from another trial.
        seconds: Seconds that its stints took.
    """

    number: int
    settings: dict[str, Any]
    curve: list[tuple[int, float]] = field(default_factory=list)
    losses: dict[int, float] = field(default_factory=dict)
    visits: list[Visit] = field(default_factory=list)
    failure: str | None = None
    num_clones: int = 0
    seconds: float = 0.0

    @property
    def name(self) -> str:
        """Name of its RUN directory below that of the study."""
        return f"trial-{self.number:04d}"

    @property
    def epochs(self) -> int:
        """Epoch up to which it was trained."""
        return self.visits[-1].epochs if self.visits else 0

    def has_reached(self, epochs: int) -> bool:
        """Whether it was trained that far; a trial that failed has reached every epoch."""
        return self.failure is not None or self.epochs >= epochs

    def best(self, epochs: int | None = None) -> float:
        """Return the best score of its first epochs.

        Args:
            epochs: Number of these epochs; None for all.
        """
        if self.failure is not None:
            return WORST
        return max((s for e, s in self.curve if epochs is None or e <= epochs), default=WORST)

    def loss(self, epochs: int | None = None) -> float:
        """Return the lowest validation loss of the evaluations with the best score.

        It breaks ties between trials, as it does between epochs of a run: before their first
        epochs teach anything, many trials predict the same class.

        Args:
            epochs: Number of the epochs that count; None for all.
        """
        best = self.best(epochs)
        tied = (e for e, s in self.curve if s == best and (epochs is None or e <= epochs))
        return min((self.losses.get(epoch, math.inf) for epoch in tied), default=math.inf)

    def mean(self, epochs: int) -> float:
        """Return the mean of the scores of its first epochs.

        Args:
            epochs: Number of these epochs.
        """
        scores = [score for epoch, score in self.curve if epoch <= epochs]
        return sum(scores) / len(scores) if scores and self.failure is None else WORST

    def visit_at(self, epochs: int) -> Visit | None:
        """Return the first end of a stint at or after an epoch; None if there is none."""
        return next((visit for visit in self.visits if visit.epochs >= epochs), None)


class Stint(NamedTuple):
    """Wish of a scheduler: a trial, and the epoch up to which it is trained next.

    Attributes:
        trial: Number of the trial; that after the last one begins a new trial.
        epochs: Epoch up to which it is trained.
        clone_of: Number of the trial whose checkpoint and records it takes first; None to keep its
            own.
    """

    trial: int
    epochs: int
    clone_of: int | None = None


class StintResult(NamedTuple):
    """Result of a stint.

    Attributes:
        curve: Number of epochs and score of each evaluation of the run so far.
        failure: Sentence of the error that ended it; None if the run may continue.
        seconds: Seconds that the stint took.
        losses: Validation loss of each evaluation that has one, by its number of epochs.
    """

    curve: list[tuple[int, float]]
    failure: str | None
    seconds: float
    losses: Mapping[int, float] = MappingProxyType({})


class Scheduler(Protocol):
    """Decides which trial is trained next, and how far.

    It is a function of what the trials recorded, so that a study that was killed continues with
    the same decisions.

    Attributes:
        num_trials: Number of trials that it begins at most.
        epochs: Number of epochs of a trial that is never stopped.
    """

    num_trials: int
    epochs: int

    def next(self, trials: Sequence[Trial], running: frozenset[int]) -> Stint | None:
        """Return the next stint.

        Args:
            trials: All trials that were begun, by number.
            running: Numbers of the trials that have a stint now.

        Returns:
            A stint of a trial that has none; None to wait for the stints that run, or, if there are
            none, to end the study.
        """


class Sampler(Protocol):
    """Chooses the settings of a trial."""

    def suggest(self, number: int, trials: Sequence[Trial]) -> dict[str, Any]:
        """Return the settings of a new trial.

        Args:
            number: Number of the trial.
            trials: All trials that were begun before.
        """


class Trainable(Protocol):
    """Runs stints: the training is on this side of the waist, the algorithms on the other.

    Attributes:
        num_slots: Number of stints that it runs at once.
    """

    num_slots: int

    def start(self, trial: Trial, epochs: int) -> None:
        """Start to train a trial up to an epoch, from its newest checkpoint if it has one."""

    def wait(self) -> tuple[int, StintResult]:
        """Wait for a stint to end, and return the number of its trial and what it found."""

    def clone(self, parent: Trial, child: Trial) -> None:
        """Give a trial the newest checkpoint and the records of another, under its own settings."""
