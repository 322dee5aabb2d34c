"""Training: the source, the trainer and the directory of a run, put together on every rank."""

from __future__ import annotations

import gc
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from distgnn.api.job import Job
from distgnn.api.source import check_ranks
from distgnn.comm.collective import collectively, of_rank_0, on_rank_0
from distgnn.datasets.errors import InputError
from distgnn.training.run.trace_file import TraceFile

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from torch import nn

    from distgnn.api.cuts import CutTurn
    from distgnn.api.source import Source, SourceOptions
    from distgnn.comm.group import Group
    from distgnn.edges.walk_orders import WalkOrders
    from distgnn.partition.directory.store import Part
    from distgnn.training.config.settings import TrainConfig
    from distgnn.training.data.info import DataInfo
    from distgnn.training.loop.progress import Progress
    from distgnn.training.loop.trainer import Trainer
    from distgnn.training.run.directory import RunDirectory
    from distgnn.training.run.series import Member
    from distgnn.training.run.signals import StopSignals

_SEED_LIMIT = 2**63
_CUT_EVERY = 10


@dataclass(frozen=True)
class Training:
    """A run that is asked for, or a series of runs.

    Attributes:
        source: Source to train on.
        config: Settings of the run; of the first run in a series.
        folder: Directory of the run or of the series.
        say: Receives notes and warnings about the work under way.
        job: How the ranks work together.
        progress: Shows the epochs; None to choose a bar or lines on standard error.
        resume: Whether to continue from the newest checkpoint.
        overwrite: Whether to replace an earlier run.
        force: Whether to train even if too little memory is free.
        estimate: Whether to try, before the first epoch, how long one will take.
        quiet: Whether to show warnings only.
        walk_cache: Folder of the walk orders of kernels, or on or off.
        tune_kernels: Whether to try how sums walk each block fastest.
        trace: Picture to write.
        seeds: Number of runs with a seed each; None for one run that is no series.
        all_splits: Whether to train a run on each split.
        factory: Class or function that makes the model, if the user wrote it.
        pause_after: Number of epochs after which the run pauses; None to train all of them.
        merge_parts: Whether fewer ranks than parts train on parts that are merged.
        cuts: More partition directories of the graph, between which training turns.
        turn: Where a run with cuts is; None for the whole run.
    """

    source: SourceOptions
    config: TrainConfig
    folder: Path
    say: Callable[[str], None]
    job: Job = field(default_factory=Job)
    progress: Progress | None = None
    resume: bool = False
    overwrite: bool = False
    force: bool = False
    estimate: bool = False
    quiet: bool = False
    walk_cache: str = "on"
    tune_kernels: bool = False
    trace: TraceFile = field(default_factory=TraceFile)
    seeds: int | None = None
    all_splits: bool = False
    factory: Callable[[Any], nn.Module] | None = None
    pause_after: int | None = None
    merge_parts: bool = False
    cuts: tuple[str, ...] = ()
    turn: CutTurn | None = None

    @property
    def is_series(self) -> bool:
        """Whether more than one run is asked for."""
        return self.seeds is not None or self.all_splits

    def check(self) -> None:
        """Refuse options that contradict each other, before any work.

        Raises:
            InputError: If there are such.
        """
        from distgnn.api.walk_orders import check_tuning
        from distgnn.training.data.placement import check_features_on
        from distgnn.training.run.beginning import check_again

        self._check_cuts()
        check_again(resume=self.resume, overwrite=self.overwrite)
        self.trace.check(self.config.epochs)
        if self.factory is not None and (self.tune_kernels or self.estimate):
            asked = "--tune-kernels" if self.tune_kernels else "--estimate"
            raise InputError(
                f"{asked} needs to know the layers of the model, which is one of your own; leave "
                "it out"
            )
        check_tuning(tunes=self.tune_kernels, device=self.job.device)
        self.check_estimate(self.config)
        if self.pause_after is not None and self.pause_after < 1:
            raise InputError(f"--pause-after must be 1 or more, got {self.pause_after}")
        check_features_on(self.config.features_on, self.job.device)
        if self.config.chooses_codes and self.job.device != "cpu":
            flag = "--weights" if self.config.given_halo.auto is None else "--halo"
            raise InputError(
                f"{flag} auto times work of the processor, got --device {self.job.device}; choose "
                "a codec, such as int8"
            )
        if not self.is_series:
            return
        if self.seeds is not None and self.seeds < 1:
            raise InputError(f"--seeds must be 1 or more, got {self.seeds}")
        if self.pause_after is not None:
            raise InputError(
                "--pause-after is about one run, but --seeds and --split-index all make several; "
                "leave one of them out"
            )
        if self.trace.path is not None:
            raise InputError(
                "--trace shows one run, but --seeds and --split-index all make several; "
                "leave one of them out"
            )
        if self.config.seed + (self.seeds or 1) > _SEED_LIMIT:
            raise InputError(f"--seeds {self.seeds} leads past the last seed, {_SEED_LIMIT - 1}")

    def _check_cuts(self) -> None:
        if not self.cuts:
            if self.config.cut_every is not None:
                raise InputError(
                    f"--cut-every {self.config.cut_every} has an effect with --cuts only; drop it"
                )
            return
        if not self.config.is_isolated:
            raise InputError(
                f"--cuts has an effect with --algorithm 0c only, got {self.config.algorithm}, "
                "which trains the same on every cut; use --preset grappa, or leave it out"
            )
        for reason, is_given in (
            ("--seeds and --split-index all make several runs", self.is_series),
            ("--trace shows the epochs of one cut", self.trace.path is not None),
            ("--merge-parts merges the parts of one cut", self.merge_parts),
            (
                f"--weights {self.config.weights} lets each rank have a model of its part",
                self.config.weight_rule.is_local,
            ),
            (
                "--optimizer lbfgs compares losses of one function, and another cut has another",
                self.config.optimizer == "lbfgs",
            ),
        ):
            if is_given:
                raise InputError(
                    f"{reason}, but --cuts names {len(self.cuts)} more of one run; leave one of "
                    "them out"
                )

    def check_estimate(self, config: TrainConfig) -> None:
        """Refuse to estimate the time of epochs that no trial resembles.

        Args:
            config: Settings of the run; its task may be still to be resolved.

        Raises:
            InputError: If an estimate is asked for on a device, or of an epoch that learns links.
        """
        if self.estimate and self.job.device != "cpu":
            raise InputError(
                f"--estimate tries epochs on the processor, got --device {self.job.device}; leave "
                "it out"
            )
        if self.estimate and config.task == "link":
            raise InputError(
                "--estimate tries epochs of tasks on vertices, but this is a link task; leave it "
                "out"
            )

    def run(self) -> dict[str, Any]:
        """Train on all ranks that the launcher started.

        Returns:
            The summary of the run, or the content of series.json; the same on every rank.

        Raises:
            InputError: If the run cannot be, or fails.
            PeerError: If another rank failed.
            StoppedError: If a signal stopped the run in order.
        """
        from distgnn.api.identity import identity_of_training

        self.check()
        names = (
            *("resume", "overwrite", "pause_after", "estimate", "tune_kernels"),
            *("seeds", "all_splits", "merge_parts", "cuts"),
        )
        options = {name: getattr(self, name) for name in names}
        options.update(run=self.folder, trace=self.trace.path)
        return self.job.run(self._on_rank, identity_of_training(self.config, self.source, options))

    def _on_rank(self, group: Group) -> dict[str, Any]:
        group = self.job.on_device(group)
        return _train_series(self, group) if self.is_series else train_one(self, group)


def train_one(asked: Training, group: Group, stop: StopSignals | None = None) -> dict[str, Any]:
    """Train one run on ranks that have met; collective.

    Args:
        asked: The run; options of a series are ignored.
        group: All ranks, on the device of the job.
        stop: Hears signals where the caller has more runs to train; None to hear them here.

    Returns:
        Its summary.

    Raises:
        InputError: If the run cannot be, or fails.
        PeerError: If another rank failed.
        StoppedError: If a signal stopped the run in order.
    """
    from distgnn.training.run.directory import RunDirectory
    from distgnn.training.run.loggers import check_log

    run_dir = RunDirectory(asked.folder)
    on_rank_0(group, lambda: check_log(asked.config.log))
    on_rank_0(group, lambda: _check_bounds(asked, run_dir))
    with run_dir.owned(asked.say) as lock:
        if of_rank_0(group, run_dir.has_run()):
            on_rank_0(group, lock.take)
        if asked.cuts:
            return _train_in_turn(asked, run_dir, group)
        return _train_part(asked, run_dir, group, stop)[0]


def _train_in_turn(asked: Training, run_dir: RunDirectory, group: Group) -> dict[str, Any]:
    """Train a run on its cuts in turn; collective; return the summary."""
    from distgnn.training.run.signals import StopSignals

    # A signal may come while nobody trains: between two turns, too, it ends the run in order.
    with StopSignals().heard() as stop:
        return _take_turns(asked, run_dir, group, stop)


def _take_turns(
    asked: Training, run_dir: RunDirectory, group: Group, stop: StopSignals
) -> dict[str, Any]:
    from distgnn.api.cuts import CutTurn, manifests_of, most_bytes, num_done
    from distgnn.kernels.devices import PROCESSOR
    from distgnn.machine.memory_check import check_memory
    from distgnn.training.loop.stop import agree, stopped
    from distgnn.training.tasks.tasks import resolve

    every = asked.config.cut_every or _CUT_EVERY
    # A run that is resumed may name the usual number.
    asked = replace(asked, config=replace(asked.config, cut_every=every))
    last = asked.config.epochs
    last = last if asked.pause_after is None else min(asked.pause_after, last)
    directories = (asked.source.source, *asked.cuts)
    manifests = collectively(group, lambda: manifests_of(directories, group.size))
    first = _open_source(asked, group)
    if asked.factory is None and group.device == PROCESSOR:
        config = collectively(group, lambda: resolve(asked.config, first.ends))
        # Of a turn by itself it would be known in the middle of the run.
        most = most_bytes(directories, manifests, config, group.rank)
        what = "the largest part of all cuts"
        check_memory(group, most, what=what, is_forced=asked.force, say=asked.say)
    about: dict[str, Any] = {"cuts": [manifest.fingerprint for manifest in manifests]}
    about["other_cuts"] = [*asked.cuts]
    about |= {name: first.to_json()[name] for name in ("source", "partition")}
    done, is_first = num_done(run_dir, group) if asked.resume else 0, True
    estimated_s: float | None = None
    while True:
        number = done // every % len(directories)
        until = min((done // every + 1) * every, last)
        is_last = until == last
        turn = CutTurn(directories[number], until, about, is_first, is_last, estimated_s)
        if not asked.quiet and group.rank == 0:
            asked.say(f"cut {number + 1} of {len(directories)}, '{turn.directory}'")
        own = replace(
            asked,
            source=replace(asked.source, source=turn.directory),
            pause_after=until,
            resume=asked.resume or not is_first,
            overwrite=asked.overwrite and is_first,
            turn=turn,
        )
        summary, done = _train_part(own, run_dir, group, stop)
        is_first = False
        estimated_s = summary["estimated_epoch_s"]
        if done < until or done >= last:
            return summary
        if number := agree(stop, group):
            raise stopped(group, number, done)
        # Rows of this cut go before those of the next one come.
        gc.collect()


def _train_part(
    asked: Training, run_dir: RunDirectory, group: Group, stop: StopSignals | None = None
) -> tuple[dict[str, Any], int]:
    """Train on one partition, up to the end or the pause; collective.

    Returns:
        The summary, and the number of epochs that are done.
    """
    trainer = _load(asked, run_dir, group)
    if asked.pause_after is not None:
        trainer.until = min(asked.pause_after, asked.config.epochs)
    with trainer.trace:
        return _run_epochs(asked, trainer, run_dir, stop), trainer.num_epochs


def _check_bounds(asked: Training, run_dir: RunDirectory) -> None:
    """Refuse what a run that begins may not ask for; one that continues may have begun before."""
    from distgnn.training.config.compatibility import check_length

    if not (asked.resume and run_dir.has_run()):
        check_length(asked.config)


def _run_epochs(
    asked: Training, trainer: Trainer, run_dir: RunDirectory, stop: StopSignals | None
) -> dict[str, Any]:
    """Train all epochs; return the summary. Signals are heard here unless the caller hears."""
    from distgnn.training.loop.progress import Silent, choose_progress
    from distgnn.training.run.beginning import resume
    from distgnn.training.run.loggers import logged
    from distgnn.training.run.signals import StopSignals
    from distgnn.training.run.writer import train

    records = resume(trainer, run_dir, asked.say) if asked.resume else []
    rank = trainer.group.rank
    progress = asked.progress if rank == 0 else Silent()
    if progress is None:
        progress = choose_progress(
            rank=rank,
            num_epochs=trainer.until,
            done=len(records),
            is_quiet=asked.quiet,
            every=trainer.config.log_every,
        )
    is_pause = asked.turn is None or asked.turn.is_last
    with (
        StopSignals().heard() if stop is None else nullcontext(stop) as trainer.stop,
        logged(progress, trainer, run_dir, trainer.num_epochs) as shown,
    ):
        summary = train(trainer, run_dir, shown, records=records, goes_on=not is_pause)
    if rank == 0 and is_pause and trainer.num_epochs == trainer.until < trainer.config.epochs:
        asked.say(
            f"paused after epoch {trainer.until} of {trainer.config.epochs}; --resume continues"
        )
    return summary


def _load(asked: Training, run_dir: RunDirectory, group: Group) -> Trainer:
    """Build the trainer and announce the run; the part is freed once the trainer has its own."""
    from distgnn.api.announcement import announce
    from distgnn.forecast.auto import AutoCodes
    from distgnn.forecast.memory import (
        predict_added_bytes,
        predict_host_bytes,
        predict_peak_bytes,
    )
    from distgnn.forecast.room import why_crowded
    from distgnn.forecast.traffic import planned_weights
    from distgnn.kernels.devices import PROCESSOR
    from distgnn.machine.memory_check import check_memory
    from distgnn.training.loop.trainer import Trainer
    from distgnn.training.run.beginning import prepare

    opened = _open(asked, run_dir, group)
    trainer = Trainer(
        *(opened.config, opened.ends, opened.part, group),
        walk_orders=opened.walk_orders,
        device=group.device,
        factory=asked.factory,
        crowded=why_crowded(*opened[:3], group, group.device),
    )
    working = trainer.objective.working_bytes(opened.config.model.hidden)
    working += trainer.average.working_bytes() + trainer.screen.working_bytes()
    # An earlier peak counts for nothing here: memory that was freed since is free again.
    model, optimizer, predicted = trainer.gnn, trainer.config.optimizer, 0
    if model is not None:
        traffic = planned_weights(trainer.config, model, trainer.weights.tables, trainer.graphs)
        working += traffic.working_bytes(group.size)
        added = working + predict_added_bytes(model, trainer.graphs, optimizer=optimizer)
        predicted = added
        check_memory(
            *(group, added),
            what="training",
            is_forced=asked.force,
            say=asked.say,
            device=group.device,
        )
    if group.device == PROCESSOR:
        if model is not None:
            predicted = predict_peak_bytes(model, trainer.graphs, optimizer=optimizer) + working
    else:
        streamed, what = predict_host_bytes(trainer.graphs), "streaming sums of features"
        check_memory(group, streamed, what=what, is_forced=asked.force, say=asked.say)
    on_rank_0(
        group,
        lambda: prepare(
            run_dir,
            opened.config,
            opened.begin,
            is_resuming=asked.resume,
            overwrites=asked.overwrite,
        ),
    )
    turn = asked.turn
    is_first = turn is None or turn.is_first
    trainer.estimated_epoch_s = turn and turn.estimated_epoch_s
    announce(
        *(trainer, opened.part, opened.ends, predicted),
        estimates=asked.estimate and is_first,
        is_quiet=asked.quiet or not is_first,
        say=asked.say,
    )
    if opened.config.chooses_codes and group.size > 1:
        trainer.controller = AutoCodes(trainer)
    # The file may lie in the run's directory, which is there now.
    trainer.begin_trace(asked.trace.open(group))
    return trainer


class _Opened(NamedTuple):
    """Values of a source that a run keeps.

    The edges of the source are freed, because the part has them in another form.
    """

    config: TrainConfig
    ends: DataInfo
    part: Part
    walk_orders: WalkOrders
    begin: dict[str, Any]


def _open(asked: Training, run_dir: RunDirectory, group: Group) -> _Opened:
    from distgnn.api.walk_orders import build_walk_orders
    from distgnn.machine.memory_check import check_memory
    from distgnn.training.run.beginning import begins_with, check_graph, check_settings
    from distgnn.training.tasks.tasks import resolve

    source = _open_source(asked, group)
    config = collectively(group, lambda: resolve(asked.config, source.ends))
    collectively(group, lambda: asked.check_estimate(config))
    if not asked.overwrite:
        on_rank_0(group, lambda: check_settings(run_dir, config, asked.resume))
    on_rank_0(group, lambda: asked.trace.check_path(run_dir.path))
    to_read = source.feature_bytes(group.rank, config)
    remedy, manifest = "use more parts on more {where}", source.manifest
    # Features with a norm are read as float32 first, and sparse ones are kept as they are.
    is_dense = manifest is not None and not manifest.has_sparse_features
    if is_dense and config.feature_norm == "none" and config.features_dtype == "fp32":
        remedy += ", --features-dtype bf16"
    check_memory(
        *(group, to_read),
        what="reading features",
        is_forced=asked.force,
        say=asked.say,
        remedy=remedy,
    )
    part = collectively(group, lambda: source.part(group.rank))
    begin = begins_with(source.to_json(), part, config, group)
    begin |= {} if asked.turn is None else asked.turn.about
    if asked.resume:
        on_rank_0(group, lambda: check_graph(run_dir, begin))
    walk_orders = build_walk_orders(
        *(config, source, group),
        cache=asked.walk_cache,
        tunes=asked.tune_kernels,
        say=asked.say,
        is_quiet=asked.quiet,
    )
    return _Opened(config, source.ends, part, walk_orders, begin)


def _open_source(asked: Training, group: Group) -> Source:
    source = collectively(group, lambda: asked.source.open(asked.say))
    if asked.merge_parts and source.num_parts > group.size:
        from distgnn.api.merged import merged

        source = merged(source, group, asked.say)
    check_ranks(source, group, f"distgnn train {asked.source.source} ...")
    return source


def _train_series(asked: Training, group: Group) -> dict[str, Any]:
    """Train one run after the other; collective.

    A random split (`--split`) is that of the first seed in all runs: seeds vary the training.
    Runs that have ended are not run again if the series is resumed.

    Returns:
        The content of series.json.

    Raises:
        InputError: If a directory is in the way, or a run fails.
    """
    from distgnn.training.run.directory import RunDirectory
    from distgnn.training.run.series import make_folder, members_of

    num_splits = None
    if asked.all_splits:
        num_splits = collectively(group, lambda: _num_splits(asked))
    members = members_of(asked.config, num_seeds=asked.seeds, num_splits=num_splits)
    with RunDirectory(asked.folder).owned(asked.say) as lock:

        def own() -> None:
            make_folder(asked.folder)
            lock.take()

        on_rank_0(group, own)
        return _train_members(asked, group, members)


def _train_members(asked: Training, group: Group, members: list[Member]) -> dict[str, Any]:
    """Train the runs of a series whose directory this job owns; collective."""
    from distgnn.training.run.signals import StopSignals

    # A signal may come in the last epoch of a run, or while nobody trains.
    with StopSignals().heard() as stop:
        return _train_each(asked, group, members, stop)


def _train_each(
    asked: Training, group: Group, members: list[Member], stop: StopSignals
) -> dict[str, Any]:
    from distgnn.training.loop.stop import agree, stopped
    from distgnn.training.run.directory import RunDirectory
    from distgnn.training.run.series import FILE, check_folders, clear, summarise_series
    from distgnn.training.tasks.tasks import resolve

    may_exist = asked.resume or asked.overwrite
    on_rank_0(group, lambda: check_folders(asked.folder, members, may_exist=may_exist))
    if asked.overwrite:
        # What is wrong with the graph, or with these settings for it, is to be found out before.
        collectively(group, lambda: resolve(asked.config, asked.source.open(asked.say).ends))
        # Else --resume, after a kill, would take runs for its own that were to be replaced.
        on_rank_0(group, lambda: clear(asked.folder, members, asked.say))
    ended, summaries = _Ended(asked, group), []
    for number, member in enumerate(members):
        run_dir = RunDirectory(asked.folder / member.name)
        summary = ended.summary(run_dir, member) if asked.resume else {}
        if not summary:
            # The figures are those of runs that are about to be replaced.
            on_rank_0(group, lambda: (asked.folder / FILE).unlink(missing_ok=True))
            if group.rank == 0 and not asked.quiet:
                asked.say(f"{member.name}: run {number + 1} of {len(members)}")
            own = replace(asked, config=member.config, folder=run_dir.path)
            summary = train_one(own, group, stop)
        summaries.append(summary)
        if number + 1 < len(members) and (asked_for := agree(stop, group)):
            raise stopped(group, asked_for, summary["num_epochs"])
    found = summarise_series(members, summaries)
    on_rank_0(group, lambda: RunDirectory(asked.folder).write_json(FILE, found))
    return found


def _num_splits(asked: Training) -> int:
    from distgnn.training.tasks.tasks import resolve

    source = asked.source.open(asked.say)
    if resolve(asked.config, source.ends).task == "link":
        raise InputError(
            "--split-index all has no effect on a link task: links are held out once; leave it out"
        )
    return source.num_splits


class _Ended:
    """Runs of a series that have ended, on the graph that is asked for.

    Args:
        asked: The series.
        group: All ranks.
    """

    def __init__(self, asked: Training, group: Group) -> None:
        self._asked = asked
        self._group = group

    def summary(self, run_dir: RunDirectory, member: Member) -> dict[str, Any]:
        """Return the summary of a run that has ended with these settings; else {}; collective.

        Args:
            run_dir: Directory of the run.
            member: The run.

        Raises:
            InputError: If it has other settings, or was on another graph.
        """
        from distgnn.training.run.beginning import check_graph
        from distgnn.training.run.directory import SUMMARY
        from distgnn.training.run.series import read_finished
        from distgnn.training.tasks.tasks import resolve

        group = self._group
        if not of_rank_0(group, (run_dir.path / SUMMARY).is_file()):
            return {}
        ends, begin = self._graph
        found: dict[str, Any] = {}

        def read() -> None:
            found.update(read_finished(run_dir, resolve(member.config, ends)))
            check_graph(run_dir, begin)

        on_rank_0(group, read)
        return of_rank_0(group, found)

    @cached_property
    def _graph(self) -> tuple[DataInfo, dict[str, Any]]:
        """Sizes of the graph, and config.json of a run that began now; collective, read once."""
        from distgnn.training.run.beginning import begins_with

        group = self._group
        source = _open_source(self._asked, group)
        part = collectively(group, lambda: source.part(group.rank))
        begin = begins_with(source.to_json(), part, self._asked.config, group)
        return source.ends, begin
