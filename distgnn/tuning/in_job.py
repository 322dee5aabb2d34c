"""Trials that take turns on all ranks of one job, on a graph that is read once."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from distgnn.api.source import Source, SourceOptions, check_ranks
from distgnn.api.training import train_one
from distgnn.comm.collective import collectively, of_rank_0
from distgnn.datasets.errors import InputError
from distgnn.datasets.files import read_whole
from distgnn.training.config.settings import TrainConfig
from distgnn.training.loop.screened import with_confirmed
from distgnn.training.loop.stop import agree, stopped
from distgnn.training.run.directory import CHECKPOINTS, CONFIG, METRICS, SUMMARY, RunDirectory
from distgnn.training.run.signals import StopSignals
from distgnn.training.tasks.measures import lower_is_better
from distgnn.tuning.trial import StintResult, Trial

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from distgnn.api.training import Training
    from distgnn.comm.group import Group
    from distgnn.partition.directory.store import Part


METRIC = "val_metric"
"""Objective that compares runs by their validation metric."""


@dataclass(frozen=True)
class KeptSource(Source):
    """An opened source whose parts are read once.

    Attributes:
        parts: Parts that were read, by rank.
    """

    parts: dict[int, Part] = field(default_factory=dict)

    def part(self, rank: int) -> Part:
        """Return the part of a rank."""
        if rank not in self.parts:
            self.parts[rank] = super().part(rank)
        return self.parts[rank]


@dataclass(frozen=True)
class KeptOptions(SourceOptions):
    """A source that is opened once.

    Attributes:
        opened: The opened source, once it is.
    """

    opened: list[Source] = field(default_factory=list)

    @classmethod
    def of(cls, options: SourceOptions) -> KeptOptions:
        """Keep what these options open.

        Args:
            options: A source and how it is loaded.
        """
        return cls(**vars(options))

    def open(self, say: Callable[[str], None]) -> Source:
        """Open the source, or return the one that is open; see `SourceOptions.open`."""
        if not self.opened:
            self.opened.append(KeptSource(**vars(super().open(say))))
        return self.opened[0]


class InJob:
    """Runs one stint after the other on all ranks.

    Rank 0 has the study and calls `start` and `wait`; the other ranks call `follow`.

    Args:
        asked: Training of a trial, apart from its settings and its directory.
        config_of: Returns the configuration for settings of a trial.
        group: All ranks.
        objective: Name of what is compared.
    """

    num_slots = 1

    def __init__(
        self,
        asked: Training,
        config_of: Callable[[Mapping[str, Any]], TrainConfig],
        group: Group,
        objective: str = METRIC,
    ) -> None:
        self._objective = objective
        self._asked = replace(asked, source=KeptOptions.of(asked.source))
        self._config_of = config_of
        self._group = group
        self._waiting: list[tuple[Trial, int]] = []

    def open(self) -> str:
        """Open the source on all ranks, so that one that cannot be is no failure of trials.

        Returns:
            Digits that another graph does not have, the same on every rank.

        Raises:
            InputError: If a rank cannot open it.
        """
        from distgnn.training.data.identity import identify_graph

        group = self._group
        source = collectively(group, lambda: self._asked.source.open(self._asked.say))
        check_ranks(source, group, f"distgnn tune {self._asked.source.source} ...")
        part = collectively(group, lambda: source.part(group.rank))
        identity = json.dumps(identify_graph(part, group), sort_keys=True)
        return hashlib.sha256(identity.encode()).hexdigest()[:16]

    def start(self, trial: Trial, epochs: int) -> None:
        """Put a stint into the queue; see `Trainable`."""
        self._waiting.append((trial, epochs))

    def wait(self) -> tuple[int, StintResult]:
        """Run the first stint of the queue on all ranks; see `Trainable`."""
        trial, epochs = self._waiting.pop(0)
        begun = time.perf_counter()
        failure = self._train(trial.name, dict(trial.settings), epochs)
        folder = RunDirectory(self._asked.folder / trial.name)
        seconds = time.perf_counter() - begun
        if failure is not None:
            return trial.number, StintResult([], failure, seconds)
        curve = read_curve(folder, self._objective)
        return trial.number, StintResult(curve, None, seconds, read_losses(folder))

    def follow(self) -> None:
        """Train what rank 0 says until it ends.

        Raises:
            InputError: If rank 0 ended with an error.
        """
        while True:
            command: dict[str, Any] = of_rank_0(self._group, {})
            if "trial" not in command:
                if command["error"]:
                    raise InputError(command["error"])
                return
            self._run(**command)

    def end(self, error: str = "") -> None:
        """Let the other ranks end, too.

        Args:
            error: Sentence of the error that ended the study.
        """
        of_rank_0(self._group, {"error": error})

    def close(self) -> None:
        """Nothing to end: a trial trains only within `wait`."""

    def _train(self, trial: str, settings: dict[str, Any], epochs: int) -> str | None:
        of_rank_0(self._group, {"trial": trial, "settings": settings, "epochs": epochs})
        return self._run(trial, settings, epochs)

    def _run(self, trial: str, settings: dict[str, Any], epochs: int) -> str | None:
        """Train on all ranks; return the sentence of an error, which is that of all ranks."""
        try:
            config = self._config_of(settings)
            folder = self._asked.folder / trial
            asked = replace(self._asked, config=config, folder=folder, pause_after=epochs)
            asked.check()
            # A signal may come in the last epoch of a stint.
            with StopSignals().heard() as stop:
                summary = train_one(asked, self._group, stop)
                if number := agree(stop, self._group):
                    raise stopped(self._group, number, summary["num_epochs"])
        except InputError as error:
            return str(error)
        return None

    def clone(self, parent: Trial, child: Trial) -> None:
        """Copy a run; see `Trainable`."""
        settings = followed(child.settings, self._config_of(child.settings))
        clone_run(self._asked.folder / parent.name, self._asked.folder / child.name, settings)


def read_curve(run: RunDirectory, objective: str = METRIC) -> list[tuple[int, float]]:
    """Return the number of epochs and the score of each evaluation of a run.

    Args:
        run: Directory of the run.
        objective: Name of what is compared; a price of the goal has one point, where the goal was
            reached.

    Returns:
        Scores of which the higher one is better: what is to be small has its sign changed.
    """
    if objective != METRIC:
        found = run.read_json(SUMMARY)
        is_reached = found["epochs_to_goal"] is not None
        return [(found["epochs_to_goal"], -float(found[objective]))] if is_reached else []
    metric = run.read_config().get("train", {}).get("metric", "")
    sign = -1.0 if lower_is_better(metric) else 1.0
    return [
        (record["epoch"] + 1, sign * record["val_metric"])
        for record in with_confirmed(run.read_metrics())
        if record["val_metric"] is not None
    ]


def read_losses(run: RunDirectory) -> dict[int, float]:
    """Return the validation loss of each evaluation of a run, by its number of epochs.

    Args:
        run: Directory of the run.
    """
    records = with_confirmed(run.read_metrics())
    found = {record["epoch"] + 1: record.get("val_loss") for record in records}
    return {epochs: loss for epochs, loss in found.items() if loss is not None}


def clone_run(parent: Path, child: Path, settings: Mapping[str, Any]) -> None:
    """Replace a run by a copy of another, under its own settings.

    The copy has the records and the newest checkpoint of the other, so it continues from there.

    Args:
        parent: Directory of the run that is copied.
        child: Directory of the run that is replaced.
        settings: Values of the settings in which the copy differs, by name.
    """
    temporary = child.with_name(f".{child.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    for name in (METRICS, CHECKPOINTS):
        source = parent / name
        if source.is_dir():
            shutil.copytree(source, temporary / name)
        elif source.exists():
            shutil.copy2(source, temporary / name)
    values = json.loads(read_whole(parent / CONFIG))
    values["train"] = with_settings(values["train"], settings)
    (temporary / CONFIG).write_text(json.dumps(values, indent=2) + "\n")
    shutil.rmtree(child, ignore_errors=True)
    temporary.rename(child)


def followed(settings: Mapping[str, Any], config: TrainConfig) -> dict[str, Any]:
    """Add to the searched settings of a trial one that follows them where it was not given.

    Args:
        settings: Values of the searched settings, by name.
        config: Configuration of the trial.
    """
    if "dropout" not in settings:
        return dict(settings)
    return {**settings, "input_dropout": config.model.input_dropout}


def with_settings(train: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a run with some of them changed.

    Args:
        train: Settings of a run, as its config.json has them.
        settings: Values that change, by name.

    Raises:
        InputError: If a value is not allowed.
    """
    model = {name: value for name, value in settings.items() if name in train["model"]}
    own = {name: value for name, value in settings.items() if name not in model}
    changed = {**train, **own, "model": {**train["model"], **model}}
    return TrainConfig.from_json(changed).to_json()
