"""The verb: a search over settings of a model and its training."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distgnn.api.identity import identity_of, of_source
from distgnn.api.reports import STUDY
from distgnn.api.run import Run
from distgnn.api.settings import Keywords, checked, config_of
from distgnn.api.source import SWITCHES, options_of
from distgnn.api.training import Training
from distgnn.api.use import check_no_session, job_of
from distgnn.api.verbs import config_values, notes, with_recipe
from distgnn.comm.collective import of_rank_0
from distgnn.comm.launch import detect
from distgnn.datasets.errors import InputError
from distgnn.datasets.files import read_whole
from distgnn.settings.fields import flag_of, settings_of
from distgnn.settings.model import ModelSettings
from distgnn.training.config.loop import MachineSettings
from distgnn.training.config.run import RunSettings
from distgnn.training.run.beginning import check_again
from distgnn.training.run.directory import SUMMARY, RunDirectory
from distgnn.training.run.lock import RunLock
from distgnn.training.tasks.measures import lower_is_better
from distgnn.tuning.display import choose_display
from distgnn.tuning.in_job import METRIC, InJob
from distgnn.tuning.jobs import LOGS, Jobs, JobSlots, words_of
from distgnn.tuning.journal import JOURNAL, NoJournal, OptunaJournal, drop_lock
from distgnn.tuning.samplers import GridSampler, RandomSampler, TpeSampler
from distgnn.tuning.schedulers import (
    Asha,
    Everything,
    Halving,
    HyperBand,
    Median,
    Population,
    StoppingAsha,
    first_rung,
)
from distgnn.tuning.space import Space
from distgnn.tuning.study import BEST, LOG, MOST_FAILURES, Study, StudyLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from distgnn.comm.group import Group
    from distgnn.datasets.graph import Graph
    from distgnn.training.config.settings import TrainConfig
    from distgnn.tuning.study import Found
    from distgnn.tuning.trial import Sampler, Scheduler

SCHEDULERS = ("asha", "asha-stop", "halving", "hyperband", "median", "pbt", "none")
SAMPLERS = ("random", "grid", "tpe")
OBJECTIVES = (METRIC, "epochs_to_goal", "time_to_goal_s", "sent_to_goal_bytes")
FORMAT = 1
DEFAULT_TRIALS = 16
# Settings that a copy of a run may change: the checkpoint holds nothing whose shape they decide.
CHANGEABLE = (
    "lr",
    "weight_decay",
    "label_smoothing",
    "clip_grad_norm",
    "dropout",
    "input_dropout",
    "attention_dropout",
)
_TUNE = (
    *("search", "out", "scheduler", "sampler", "trials", "factor", "grace", "objective"),
    *("jobs", "ranks"),
    *("launcher", "resume", "overwrite", "quiet", "recipe"),
)


@dataclass(frozen=True)
class SearchOptions:
    """How settings are searched.

    Attributes:
        search: Values that each setting may take, by its name; texts or lists.
        scheduler: Name of the scheduler.
        sampler: Name of the sampler.
        trials: Number of trials; None for the scheduler's or the grid's own.
        factor: Ratio of two rungs.
        grace: Epochs before trials are compared first; None for a share of all epochs.
        seed: Seed of the sampler and of the scheduler.
        epochs: Epochs of a trial that is never stopped.
        objective: Name of what is compared.
    """

    search: dict[str, Any]
    scheduler: str = "asha"
    sampler: str = "random"
    trials: int | None = None
    factor: int = 4
    grace: int | None = None
    seed: int = 0
    epochs: int = 200
    objective: str = METRIC

    def check(self) -> None:
        """Refuse values that are not allowed.

        Raises:
            InputError: If there are such.
        """
        for name, value, allowed in (
            ("scheduler", self.scheduler, SCHEDULERS),
            ("sampler", self.sampler, SAMPLERS),
            ("objective", self.objective, OBJECTIVES),
        ):
            if value not in allowed:
                raise InputError(f"--{name} must be one of {', '.join(allowed)}, got '{value}'")
        least = {"trials": 1, "factor": 2, "grace": 1}
        for name, smallest in least.items():
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < smallest):
                raise InputError(
                    f"--{name} must be a whole number of at least {smallest}, got {value}"
                )
        if self.objective != METRIC and self.scheduler != "none":
            raise InputError(
                f"--objective {self.objective} is known only when a trial has reached its goal, "
                "and a scheduler compares trials before; use --scheduler none"
            )
        if self.grace is not None and self.grace > self.epochs:
            raise InputError(f"--grace {self.grace} is above --epochs {self.epochs}; lower it")
        if self.scheduler == "hyperband" and self.trials is not None:
            raise InputError(
                "--scheduler hyperband begins as many trials as its brackets have; leave --trials "
                "out"
            )

    @property
    def first(self) -> int:
        """Epochs before trials are compared first."""
        if self.grace is not None:
            return self.grace
        if self.scheduler in ("median", "pbt"):
            return max(1, -(-self.epochs // 10))
        if self.scheduler == "hyperband":
            return max(1, -(-self.epochs // self.factor**2))  # three brackets
        return first_rung(factor=self.factor, epochs=self.epochs)

    def build_sampler(self, space: Space) -> Sampler:
        """Build the sampler.

        Args:
            space: Settings that are searched.

        Raises:
            InputError: If it cannot sample this space.
        """
        if self.sampler == "grid":
            return GridSampler(space, self.seed)
        if self.sampler == "tpe":
            return TpeSampler(space, self.seed)
        return RandomSampler(space, self.seed)

    def build_scheduler(self, sampler: Sampler) -> Scheduler:
        """Build the scheduler.

        Args:
            sampler: Sampler of the study.

        Raises:
            InputError: If it needs more trials than a grid has.
        """
        most = sampler.size if isinstance(sampler, GridSampler) else None
        num_trials = self.trials or most or DEFAULT_TRIALS
        spans: dict[str, int] = {"epochs": self.epochs, "grace": self.first}
        builders: dict[str, Callable[[], Scheduler]] = {
            "asha": lambda: Asha(num_trials=num_trials, factor=self.factor, **spans),
            "asha-stop": lambda: StoppingAsha(num_trials=num_trials, factor=self.factor, **spans),
            "halving": lambda: Halving(num_trials=num_trials, factor=self.factor, **spans),
            "hyperband": lambda: HyperBand(factor=self.factor, **spans),
            "median": lambda: Median(num_trials=num_trials, **spans),
            "pbt": lambda: Population(num_trials=num_trials, seed=self.seed, **spans),
            "none": lambda: Everything(num_trials=num_trials, epochs=self.epochs),
        }
        scheduler = builders[self.scheduler]()
        if most is not None and scheduler.num_trials > most:
            raise InputError(
                f"the study begins {scheduler.num_trials} trials, but the grid has {most} "
                "combinations; use --sampler random, or fewer --trials"
            )
        return scheduler

    def check_space(self, space: Space, base: TrainConfig, values: Mapping[str, Any]) -> None:
        """Refuse settings that a copy of a run cannot change.

        Args:
            space: Settings that are searched.
            base: Configuration of some trial.
            values: Settings of all trials, by name.

        Raises:
            InputError: If there are such.
        """
        if self.scheduler != "pbt":
            return
        for name in space.values:
            if name not in CHANGEABLE:
                raise InputError(
                    f"--search {name} cannot change in --scheduler pbt, whose trials continue from "
                    f"each other's weights; it may search {', '.join(CHANGEABLE)}"
                )
        is_static = base.static_input and not base.model.kind.why_not_static(base.model)
        if not (is_static and base.halo_rule.keeps_state):
            return
        follows = base.model.kind.drops_input and "input_dropout" not in values
        name = "input_dropout" if "input_dropout" in space.values or not follows else "dropout"
        found = space.values[name].all() if name in space.values else None
        if found and min(found) == 0 < max(found):
            raise InputError(
                f"--search {name} has 0 beside values above 0, but with 0 alone the first layer "
                f"receives no rows in training, and --halo {base.halo} keeps rows that trials of "
                "--scheduler pbt copy; leave 0 out"
            )


class Tuned:
    """A study that has ended: a directory of runs, the best of which is also a recipe.

    Args:
        path: Directory of the study.
        summary: Content of its summary, the JSON object of `distgnn tune`.

    Attributes:
        path: The same.
        summary: The same.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        summary: dict[str, Any],
        *,
        source: Graph | None = None,
    ) -> None:
        self.path = Path(path)
        self.summary = summary
        self._source = source

    @property
    def best(self) -> Run:
        """Run with the best validation metric."""
        return Run(self.path / self.summary["best"]["run"], source=self._source)

    @property
    def settings(self) -> dict[str, Any]:
        """Values of the searched settings in the best run, by name."""
        return dict(self.summary["best"]["settings"])

    @property
    def recipe(self) -> Path:
        """File of the best settings, for recipe= of `distgnn.train`."""
        return self.path / BEST

    @property
    def trials(self) -> list[dict[str, Any]]:
        """Settings, score and epochs of every trial, in the order in which they began.

        Scores are compared: that of what is to be small, such as an error, is its negative.
        """
        return list(self.summary["trials"])

    def __repr__(self) -> str:
        """Say in two lines what the study found."""
        best = self.summary["best"]
        chosen = ", ".join(f"{name}={value}" for name, value in best["settings"].items())
        return (
            f"Tuned('{self.path}'): {len(self.trials)} trials, {self.summary['epochs_trained']} "
            f"epochs\n  best: {sign_of(self.summary) * best['score']:.4f} with {chosen}"
        )


def sign_of(summary: Mapping[str, Any]) -> float:
    """Return what the scores of a study are multiplied by to be shown; -1 where less is better.

    Args:
        summary: Summary of the study.
    """
    is_price = summary["objective"] != METRIC
    return -1.0 if is_price or lower_is_better(str(summary["metric"])) else 1.0


@dataclass(frozen=True)
class Tuning:
    """A search that is asked for.

    Attributes:
        options: How settings are searched.
        asked: Training of a trial, apart from what is searched.
        values: Settings of all trials, by name.
        folder: Directory of the study.
        slots: Processes of their own; None for trials that take turns on the ranks of this job.
        resume: Whether to continue a study.
        overwrite: Whether to replace a study.
        quiet: Whether to show no progress.
    """

    options: SearchOptions
    asked: Training
    values: dict[str, Any]
    folder: Path
    slots: JobSlots | None = None
    resume: bool = False
    overwrite: bool = False
    quiet: bool = False

    def config_of(self, settings: Mapping[str, Any]) -> TrainConfig:
        """Return the configuration of a trial.

        Args:
            settings: Values of the searched settings.

        Raises:
            InputError: If a value is not allowed.
        """
        return config_of({**self.values, **settings})

    def run(self) -> dict[str, Any]:
        """Run the study, on all ranks that the launcher started.

        Returns:
            Its summary, the same on every rank.

        Raises:
            InputError: If a value is not allowed, or no trial could be trained.
        """
        self._parts()
        if self.slots is None:
            return self.asked.job.run(self.on_rank, self._identity())
        if detect().size > 1:
            raise InputError(
                "--jobs starts the ranks of its trials itself; run distgnn tune without mpirun, "
                "or leave --jobs out"
            )
        words = [*self.asked.source.words(), *words_of(self.values), *_machine_words(self.asked)]
        jobs = Jobs(self.slots, self.folder, words, self.options.objective, self.config_of)
        with self._owned(self._check_source(self.slots)):
            return self._study(jobs)

    def on_rank(self, group: Group) -> dict[str, Any]:
        """Run the study with trials that take turns on ranks that have met; collective.

        Args:
            group: All ranks.

        Returns:
            Its summary, the same on every rank.
        """
        group = self.asked.job.on_device(group)
        trainable = InJob(self.asked, self.config_of, group, self.options.objective)
        graph = trainable.open()
        if group.rank > 0:
            trainable.follow()
            return of_rank_0(group, {})
        try:
            with self._owned(graph):
                found = self._study(trainable)
        except InputError as error:
            trainable.end(str(error))
            raise
        trainable.end()
        return of_rank_0(group, found)

    def _check_source(self, slots: JobSlots) -> str:
        """Open the source once, so that one that cannot be used is no failure of trials.

        Returns:
            Checksum of its files; nothing where this machine need not see them.

        Raises:
            InputError: If it cannot be opened, or has another number of parts than a trial has
                ranks.
        """
        # A launcher of the user's own has its own number of ranks, on machines that may see what
        # this one does not.
        if slots.launcher is not None:
            return ""
        source = self.asked.source.open(self.asked.say)
        num_parts = source.num_parts
        if num_parts == slots.ranks:
            return str(source.to_json()["checksum"])
        name = self.asked.source.source
        if num_parts > 1:
            raise InputError(
                f"partition directory '{name}' was made for {num_parts} parts, but trials have "
                f"--ranks {slots.ranks}; give --ranks {num_parts}"
            )
        raise InputError(
            f"'{name}' is not cut into parts, but trials have --ranks {slots.ranks}; leave "
            f"--ranks out, or distgnn partition {name} --parts {slots.ranks} --out DIR and tune "
            "on DIR"
        )

    def _identity(self) -> dict[str, str]:
        """Return what all ranks must have been started with."""
        search = json.dumps(self.options.search, default=str)
        values = {**self.values, **asdict(self.options), "search": search, "run": self.folder}
        values.update(resume=self.resume, overwrite=self.overwrite)
        return {**identity_of("tune", values), **of_source(self.asked.source)}

    @contextmanager
    def _owned(self, graph: str) -> Iterator[None]:
        """Own the directory of the study, so that no other job writes there, and open it.

        Args:
            graph: Digits that another graph does not have; none where they are not known.

        Raises:
            InputError: If another job owns it, or it cannot be opened.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"cannot write study '{self.folder}': {error.strerror}; choose another with --run"
            ) from error
        with RunLock(self.folder, self.asked.say) as lock:
            lock.take()
            self._open_folder(graph)
            yield

    def _parts(self, begun_with: int | None = None) -> dict[str, Any]:
        """Build what drives the study, if that is allowed.

        Args:
            begun_with: Epochs of the first rung of a study that continues; None for a new one. The
                default may have been another in the version that began it.
        """
        space, options = Space.of(self.options.search), self.options
        options.check()
        options.check_space(space, self.asked.config, self.values)
        if begun_with is not None:
            options = replace(options, grace=begun_with)
        sampler = options.build_sampler(space)
        scheduler = options.build_scheduler(sampler)
        return {"space": space, "sampler": sampler, "scheduler": scheduler}

    def _study(self, trainable: InJob | Jobs) -> dict[str, Any]:
        log = StudyLog(self.folder)
        parts = self._parts(log.first_rung)
        display = choose_display(parts["scheduler"], is_quiet=self.quiet)
        sampler = parts["sampler"]
        is_kept = isinstance(sampler, TpeSampler)
        journal = OptunaJournal(self.folder, sampler.spans) if is_kept else NoJournal()

        def show(study: Study) -> None:
            journal.show(study)
            display.show(study)

        study = Study(log, trainable=trainable, seed=self.options.seed, show=show, **parts)
        # However the study ends, no trial may continue to write to its directory.
        with closing(display), closing(trainable):
            found = study.run()
        journal.end(study)
        summary = self._summary(study, found)
        self._write(BEST, self._recipe(found))
        self._write(SUMMARY, summary)
        return summary

    def _open_folder(self, graph: str) -> None:
        """Make the directory of the study, or check that the one that is there continues."""
        spec = self._spec() | {"graph": graph}
        path = self.folder / STUDY
        if path.exists() and not self.overwrite:
            if not self.resume:
                raise InputError(
                    f"'{self.folder}' already holds a study; continue it with --resume, replace it "
                    "with --overwrite, or choose another --run"
                )
            self._check_spec(path, spec)
            return
        if self.overwrite and path.exists():
            drop_lock(self.folder)
            for folder in (*self.folder.glob("trial-*"), self.folder / LOGS):
                shutil.rmtree(folder, ignore_errors=True)
            # Last what says that all of this is a study's: it may be interrupted.
            for name in (LOG, BEST, SUMMARY, JOURNAL, STUDY):
                (self.folder / name).unlink(missing_ok=True)
        foreign = [item.name for item in self.folder.iterdir() if item.name[0] != "."]
        if foreign:
            raise InputError(
                f"'{self.folder}' holds files that are not a study's, such as '{min(foreign)}'; "
                "choose an empty or new directory with --run"
            )
        self._write(STUDY, spec)

    def _spec(self) -> dict[str, Any]:
        """Return what a study that is continued must have in common with the one that began."""
        values = json.loads(json.dumps({**asdict(self.options), "settings": self.values}))
        return {"format": FORMAT, "source": self.asked.source.to_json(), **values}

    def _check_spec(self, path: Path, spec: Mapping[str, Any]) -> None:
        try:
            begun = json.loads(read_whole(path))
            if not isinstance(begun, dict):
                raise TypeError("it is not a JSON object")
        except (OSError, ValueError, TypeError, RecursionError) as error:
            raise InputError(
                f"cannot read '{path}': {error}; restore it, or begin another study with --run"
            ) from error
        changed = [
            f"{name} (begun with {begun.get(name)}, now {value})"
            for name, value in spec.items()
            # An earlier version did not keep which graph it was.
            if begun.get(name, value if name == "graph" else None) != value
        ]
        if changed:
            raise InputError(
                f"cannot resume '{self.folder}' with other settings: {', '.join(changed)}; use the "
                "same or another --run"
            )

    def _write(self, name: str, values: Mapping[str, Any]) -> None:
        RunDirectory(self.folder).write_json(name, values)

    def _summary(self, study: Study, found: Found) -> dict[str, Any]:
        best = found.best
        run = RunDirectory(self.folder / best.name)
        figures = run.read_json(SUMMARY)
        return {
            "num_trials": len(study.trials),
            "num_failed": sum(trial.failure is not None for trial in study.trials),
            "epochs_trained": found.epochs_trained,
            "epochs_of_all": found.epochs_of_all,
            "seconds": round(sum(trial.seconds for trial in study.trials), 3),
            "metric": figures["metric"],
            "objective": self.options.objective,
            "best": {
                "run": best.name,
                "settings": best.settings,
                "score": best.best(),
                "epochs": best.epochs,
                **{f"{split}_metric": figures[f"{split}_metric"] for split in ("val", "test")},
            },
            "trials": [
                {
                    "run": trial.name,
                    "settings": trial.settings,
                    "score": None if trial.failure or not trial.curve else trial.best(),
                    "epochs": trial.epochs,
                    "failure": trial.failure,
                    "seconds": round(trial.seconds, 3),
                }
                for trial in study.trials
            ],
        }

    def _recipe(self, found: Found) -> dict[str, Any]:
        """Return the best settings as a recipe."""
        flags = {**self.values, **found.best.settings, "epochs": self.options.epochs}
        source = self.asked.source
        return {
            "about": f"found by distgnn tune with {self.options.scheduler} among "
            f"{self.options.sampler} settings, in {found.epochs_trained} epochs",
            "data": [Path(source.source).stem],
            "source": {name.replace("_", "-"): True for name in SWITCHES if getattr(source, name)},
            "flags": _recipe_flags(flags, found.best.settings),
        }


def _recipe_flags(values: Mapping[str, Any], searched: Mapping[str, Any]) -> dict[str, Any]:
    """Return the flags of a recipe: those of the model and of its training that are no defaults.

    Args:
        values: Settings by name.
        searched: Names of settings that are always there.
    """
    flags: dict[str, Any] = {}
    owners = [owner for owner in RunSettings.__bases__ if owner is not MachineSettings]
    for setting in (one for owner in (ModelSettings, *owners) for one in settings_of(owner)):
        value = values.get(setting.name)
        # A row of the masks is no setting of a recipe: it says which run is repeated.
        if value is None or setting.about is None or setting.name == "split_index":
            continue
        if value != setting.default or setting.name in (*searched, "model", "epochs"):
            is_switch = setting.is_plain or not isinstance(value, bool)
            name = setting.name.replace("_", "-")
            flags[name] = value if is_switch else "on" if value else "off"
    return flags


def tune(
    source: Any,
    *,
    search: Mapping[str, Any],
    out: str | os.PathLike[str] = "study",
    scheduler: str = "asha",
    sampler: str = "random",
    trials: int | None = None,
    factor: int = 4,
    grace: int | None = None,
    objective: str = METRIC,
    jobs: int | None = None,
    ranks: int = 1,
    launcher: str | None = None,
    resume: bool = False,
    overwrite: bool = False,
    quiet: bool | None = None,
    recipe: str | os.PathLike[str] | None = None,
    **settings: Any,
) -> Tuned:
    """Search for the settings that train best.

    Under mpirun every rank calls the function, and every rank gets the result.

    Args:
        source: Graph, as for `train`.
        search: Values that each setting may take: a text such as "log(1e-4,1e-1)",
            "uniform(0,0.6)", "int(2,4)" or "choice(16,32)", or a list.
        out: Directory of the study: a RUN directory for each trial, and the best settings as
            best.json, a recipe.
        scheduler: asha, asha-stop, halving, hyperband, median, pbt or none; see
            distgnn/tuning/README.md.
        sampler: random, grid, or tpe of Optuna.
        trials: Number of trials; None for that of the grid or of the brackets, or else 16.
        factor: Ratio of the epochs of two rungs, and of the numbers of trials that reach them.
        grace: Epochs before trials are compared first; None for as many as an eighth of all
            epochs allows by halving. For hyperband that is epochs / factor^2, rounded up, and for
            median and pbt a tenth of all epochs. A study that continues keeps what it began with.
        objective: Value that is compared: val_metric, or the price of reaching the `goal`:
            epochs_to_goal, time_to_goal_s or sent_to_goal_bytes.
        jobs: Number of trials that are trained at once, as processes of their own. With None
            trials take turns on the ranks of this program, on a graph that is read once.
        ranks: Ranks of each of these processes.
        launcher: Command that starts them, such as "srun -n 4"; None for mpirun.
        resume: Whether to continue a study that was stopped or killed.
        overwrite: Whether to replace an earlier study.
        quiet: Whether to show warnings only; None to do so unless standard error is a terminal.
        recipe: Name or file of a recipe, whose settings all trials share.
        settings: Settings that all trials share, as for `train`.

    Returns:
        The study.

    Raises:
        InputError: If a setting is unknown or not allowed, or no trial could be trained.
        PeerError: If another rank failed; the same call with resume=True continues.
        StoppedError: If a signal ended the study in order; resume=True continues.
    """
    check_again(resume=resume, overwrite=overwrite)
    search = {name: _plain(values) for name, values in dict(search or {}).items()}
    given = with_recipe(settings, recipe, source)
    words = Keywords("tune", given)
    _, is_quiet = notes(quiet, None)
    options = options_of(words, source)
    values = config_values(words)
    base = _base_of(values, Space.of(search))
    job = job_of(words)
    asked = Training(
        *(options, base, Path(out), _ignore),  # notes of a trial would hide those of the study
        job=job,
        resume=True,
        force=words.take_checked("force", "bool", False),
        quiet=True,
        walk_cache=words.take_checked("walk_cache", "str", "on"),
    )
    words.refuse_others(_TUNE)
    check_no_session("tune")
    if objective in OBJECTIVES[1:] and base.goal is None:
        raise InputError(f"--objective {objective} needs a goal; give --goal, too")
    if objective == METRIC and base.select_by == "loss":
        raise InputError(
            "--select-by loss keeps weights whose validation metric is not the best, and trials "
            "are compared by that one; leave it out"
        )
    if jobs is None and (ranks != 1 or launcher is not None):
        name = "launcher" if launcher is not None else "ranks"
        raise InputError(
            f"--{name} is about trials that are processes of their own; give --jobs, too"
        )
    if jobs is not None and checked("jobs", jobs, "int") < 1:
        raise InputError(f"--jobs must be at least 1, got {jobs}")
    found = Tuning(
        SearchOptions(
            *(dict(search), scheduler, sampler, trials, factor, grace, base.seed, base.epochs),
            objective=objective,
        ),
        asked,
        {**values, "epochs": base.epochs},
        Path(out),
        slots=None if jobs is None else JobSlots(jobs, ranks, job.threads, launcher),
        resume=resume,
        overwrite=overwrite,
        quiet=is_quiet,
    ).run()
    return Tuned(out, found, source=options.graph)


def _plain(value: Any) -> Any:
    """Return numbers of numpy as those of Python, also in lists."""
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value.tolist() if hasattr(value, "tolist") else value


def _machine_words(asked: Training) -> list[str]:
    """Return how a run uses its machine, as words of `distgnn train`; the slots say the threads."""
    given = {**asdict(asked.job), "walk_cache": asked.walk_cache}
    del given["threads"]
    words = [f"{flag_of(name)}={value}" for name, value in given.items() if value is not None]
    return words + ["--force"] * asked.force


def _base_of(values: Mapping[str, Any], space: Space) -> TrainConfig:
    """Return the configuration of some trial, for what all trials share.

    What all share may go with some values of the search only, such as heads with model gat, and
    then the other trials fail. It is refused if none of several trials would be allowed.

    Args:
        values: Settings that all trials share.
        space: Settings that are searched.

    Raises:
        InputError: If none of these trials is allowed.
    """
    sampler, errors = RandomSampler(space, seed=0), []
    for number in range(MOST_FAILURES):
        try:
            return config_of({**values, **sampler.suggest(number, [])})
        except InputError as error:
            errors.append(error)
    raise errors[0]


def _ignore(line: str) -> None:
    """Show nothing."""
