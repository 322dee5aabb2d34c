"""Progress of a study on standard error."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Protocol

from distgnn.pages.text import human_seconds
from distgnn.tuning.trial import WORST

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from distgnn.tuning.study import Study
    from distgnn.tuning.trial import Scheduler, Trial

_MOST_ROWS = 12


class Display(Protocol):
    """Shows a study."""

    def show(self, study: Study) -> None:
        """Show the study after a change."""

    def close(self) -> None:
        """Restore the terminal."""


class Nothing:
    """Shows nothing."""

    def show(self, study: Study) -> None:
        """Ignore the study."""

    def close(self) -> None:
        """Nothing to restore."""


class StudyLines:
    """Writes a line for each stint that ended, for logs and pipes."""

    def __init__(self) -> None:
        self._num_shown: int | None = None

    def show(self, study: Study) -> None:
        """Write a line for the stint that ended last, if it was not shown yet."""
        if self._num_shown is None:  # the stints that ended before this study was continued
            self._num_shown = study.log.num_ended
        if study.log.num_ended == self._num_shown:
            return
        self._num_shown = study.log.num_ended
        trial = max((t for t in study.trials if t.visits), key=lambda t: t.visits[-1].number)
        sys.stderr.write(f"{describe(trial)}{_time_left(study)}\n")
        sys.stderr.flush()

    def close(self) -> None:
        """Nothing to restore."""


def describe(trial: Trial) -> str:
    """Return one line for a trial.

    Args:
        trial: The trial.
    """
    chosen = " ".join(f"{name}={_short(value)}" for name, value in trial.settings.items())
    if trial.failure is not None:
        return f"{trial.name}  failed: {trial.failure}  {chosen}"
    score = "-" if trial.best() == WORST else f"{trial.best():.4f}"
    return f"{trial.name}  {trial.epochs:5d} epochs  best {score}  {chosen}"


def _time_left(study: Study) -> str:
    epochs, seconds = study.forecast()
    return f"  about {human_seconds(seconds)} left" if epochs else ""


def rungs_reached(trials: Sequence[Trial]) -> str:
    """Say how many trials were trained how far.

    Args:
        trials: Trials of a study.
    """
    reached = sorted({trial.epochs for trial in trials if trial.visits})
    counts = ((epochs, sum(trial.epochs >= epochs for trial in trials)) for epochs in reached)
    return ", ".join(f"{epochs} epochs: {number}" for epochs, number in counts)


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


class View:
    """Draws the best trials as a table that is redrawn on the terminal.

    Args:
        scheduler: Scheduler of the study.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        from rich.console import Console
        from rich.live import Live

        self._scheduler = scheduler
        self._begun = time.perf_counter()
        self._live = Live(console=Console(stderr=True), auto_refresh=False)
        self._live.start()

    def show(self, study: Study) -> None:
        """Draw the table."""
        self._live.update(self._table(study), refresh=True)

    def _table(self, study: Study) -> Table:
        from rich.table import Table

        trials, running, most = study.trials, study.log.pending, self._scheduler.num_trials
        spent = sum(trial.epochs for trial in trials)
        all_epochs = most * self._scheduler.epochs
        seconds = human_seconds(time.perf_counter() - self._begun)
        left = _time_left(study)
        table = Table(
            title=f"{len(trials)} of {most} trials, {len(running)} running; {spent} of "
            f"{all_epochs} epochs; {seconds}{left.replace('  ', ', ')}",
            caption=f"trials that reached {rungs_reached(trials)}" if spent else None,
        )
        for name in ("trial", "epochs", "best", "state", "settings"):
            table.add_column(name)
        order = sorted(trials, key=lambda t: (-t.best(), t.number))
        # The best ones, and those that run, which may be far below.
        shown = order[:_MOST_ROWS]
        shown += [trial for trial in order[_MOST_ROWS:] if trial.number in running]
        for trial in shown:
            state = "paused" if left else "stopped"
            if trial.failure is not None:
                state = "failed"
            elif trial.number in running:
                state = f"to {running[trial.number].epochs}"
            elif trial.epochs >= self._scheduler.epochs:
                state = "ended"
            score = "-" if trial.best() == WORST else f"{trial.best():.4f}"
            chosen = " ".join(f"{name}={_short(v)}" for name, v in trial.settings.items())
            table.add_row(trial.name, str(trial.epochs), score, state, chosen)
        return table

    def close(self) -> None:
        """Keep the last table on the screen."""
        self._live.stop()


def choose_display(scheduler: Scheduler, *, is_quiet: bool) -> Display:
    """Choose how to show a study: a table on a terminal where rich is installed, else lines.

    Args:
        scheduler: Scheduler of the study.
        is_quiet: Whether to show nothing.
    """
    from importlib.util import find_spec

    if is_quiet:
        return Nothing()
    if sys.stderr.isatty() and find_spec("rich") is not None:
        return View(scheduler)
    return StudyLines()
