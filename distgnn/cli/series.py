"""Runs of one configuration over several seeds or splits, and the figures that are published."""

from __future__ import annotations

import argparse
import json
import statistics
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from distgnn.cli.flags import MAX_SEED, whole
from distgnn.cli.output import note, pairs, print_json, print_lines
from distgnn.datasets.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from distgnn.comm.group import Group
    from distgnn.training.config.settings import TrainConfig
    from distgnn.training.data.info import DataInfo
    from distgnn.training.run.directory import RunDirectory

    TrainOne = Callable[[argparse.Namespace, TrainConfig, Group], dict[str, Any]]

ALL = "all"
FILE = "series.json"
_SPLITS = ("test", "val", "train")
_KEPT = ("best_epoch", "num_epochs", "median_epoch_s", "total_s", "num_ranks")
_PLAIN = ("mse", "mae", "r2")
"""Metrics that are not shares, and so not shown in percent."""


class Member(NamedTuple):
    """One run of a series.

    Attributes:
        name: Of its directory, in that of the series.
        config: What it does.
    """

    name: str
    config: TrainConfig


def add_series_arguments(group: argparse._ArgumentGroup) -> None:
    """Add what makes a series of a run.

    Args:
        group: Of `distgnn train`.
    """
    group.add_argument(
        "--seeds",
        type=whole(1, 10_000),
        metavar="N",
        help="train N times, with seeds S to S + N - 1, into RUN/seed-S ...; print the mean and "
        "the unbiased standard deviation",
    )


def split_index(text: str) -> int | str:
    """Convert the text of --split-index where all splits may be meant.

    Args:
        text: As given on the command line.

    Returns:
        The row of the masks, or "all".
    """
    if text == ALL:
        return ALL
    try:
        return whole(0)(text)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"{error}, or all") from error


def is_series(arguments: argparse.Namespace) -> bool:
    """Whether the arguments of `distgnn train` ask for more than one run."""
    return arguments.seeds is not None or arguments.split_index == ALL


def check_series(arguments: argparse.Namespace) -> None:
    """Refuse what several runs cannot share.

    Args:
        arguments: Of `distgnn train`.

    Raises:
        InputError: If there is such.
    """
    if arguments.trace is not None:
        raise InputError(
            "--trace shows one run, but --seeds and --split-index all make several; "
            "leave one of them out"
        )
    if arguments.seed + (arguments.seeds or 1) - 1 > MAX_SEED:
        raise InputError(f"--seeds {arguments.seeds} leads past the last seed, {MAX_SEED}")


def train_series(
    arguments: argparse.Namespace, config: TrainConfig, group: Group, train_one: TrainOne
) -> None:
    """Train one run after the other, and report; collective.

    A random split (`--split`) is that of the first seed in all runs: seeds vary the training.

    Args:
        arguments: Of `distgnn train`. With --resume, runs that have ended are not run again.
        config: Of the first run.
        group: All ranks.
        train_one: Trains a run and returns its summary.

    Raises:
        InputError: If a directory is in the way, or a run fails.
    """
    from distgnn.cli.job import collectively, on_rank_0
    from distgnn.training.run.directory import RunDirectory

    num_splits = 1
    if arguments.split_index == ALL:
        num_splits = collectively(group, lambda: _num_splits(arguments, config))
    folder = Path(arguments.run_dir)
    members = _members(arguments, config, num_splits)
    on_rank_0(group, lambda: _check_folders(arguments, folder, members))
    ended, summaries = _Ended(arguments, config, group), []
    for number, member in enumerate(members):
        run_dir = RunDirectory(folder / member.name)
        summary = ended.summary(run_dir, member.config) if arguments.resume else {}
        if not summary:
            # Figures of runs that are about to be others.
            on_rank_0(group, lambda: (folder / FILE).unlink(missing_ok=True))
            if group.rank == 0 and not arguments.quiet:
                note(f"{member.name}: run {number + 1} of {len(members)}")
            own = argparse.Namespace(**vars(arguments))
            own.run_dir = str(run_dir.path)
            summary = train_one(own, member.config, group)
        summaries.append(summary)
    found = summarise_series(members, summaries)
    on_rank_0(group, lambda: _write(folder, found))
    if group.rank == 0:
        _report(arguments, folder, found)


def _num_splits(arguments: argparse.Namespace, config: TrainConfig) -> int:
    from distgnn.cli.source import open_source, source_values
    from distgnn.training.tasks.tasks import resolve

    source = open_source(source_values(arguments))
    if resolve(config, source.ends).task == "link":
        raise InputError(
            "--split-index all has no effect on a link task: links are held out once; leave it out"
        )
    return source.num_splits


def _members(arguments: argparse.Namespace, config: TrainConfig, num_splits: int) -> list[Member]:
    over_splits = arguments.split_index == ALL
    splits = range(num_splits) if over_splits else (config.split_index,)
    members = []
    for split in splits:
        for seed in range(config.seed, config.seed + (arguments.seeds or 1)):
            names = [f"split-{split}"] * over_splits
            names += [f"seed-{seed}"] * (arguments.seeds is not None)
            members.append(Member("-".join(names), replace(config, seed=seed, split_index=split)))
    return members


def _check_folders(arguments: argparse.Namespace, folder: Path, members: Sequence[Member]) -> None:
    from distgnn.training.run.directory import RunDirectory

    if RunDirectory(folder).has_run():
        raise InputError(
            f"'{folder}' holds a run of its own, and several need a directory with nothing else; "
            "choose another with --run"
        )
    if arguments.resume or arguments.overwrite:
        return
    taken = [member.name for member in members if RunDirectory(folder / member.name).has_run()]
    if taken:
        raise InputError(
            f"'{folder}' already holds {taken[0]}; continue with --resume, replace it with "
            "--overwrite, or choose another --run"
        )


class _Ended:
    """Runs of a series that have ended, on the graph that the command names.

    Args:
        arguments: Of `distgnn train`.
        config: Of the first run.
        group: All ranks.
    """

    def __init__(self, arguments: argparse.Namespace, config: TrainConfig, group: Group) -> None:
        self._arguments = arguments
        self._config = config
        self._group = group

    def summary(self, run_dir: RunDirectory, config: TrainConfig) -> dict[str, Any]:
        """Return that of a run that has ended with these settings, on every rank; else {}.

        Args:
            run_dir: Of the run; collective.
            config: Of the run.

        Raises:
            InputError: If it has other settings, or was on another graph.
        """
        from distgnn.cli.beginning import check_graph
        from distgnn.cli.job import on_rank_0
        from distgnn.training.run.directory import SUMMARY
        from distgnn.training.tasks.tasks import resolve

        group = self._group
        has_ended = (run_dir.path / SUMMARY).is_file()
        if group.all_gather_bytes(bytes([has_ended]))[0] == bytes([False]):
            return {}
        ends, begin = self._graph
        found: dict[str, Any] = {}

        def read() -> None:
            found.update(_read_finished(run_dir, resolve(config, ends)))
            check_graph(run_dir, begin)

        on_rank_0(group, read)
        return dict(json.loads(group.all_gather_bytes(json.dumps(found).encode())[0]))

    @cached_property
    def _graph(self) -> tuple[DataInfo, dict[str, Any]]:
        """The graph, and what a run on it would begin with; read once; collective."""
        from distgnn.cli.beginning import begins_with
        from distgnn.cli.job import collectively
        from distgnn.cli.source import check_ranks, open_source, source_values

        group = self._group
        source = collectively(group, lambda: open_source(source_values(self._arguments)))
        check_ranks(source, group, f"distgnn train {self._arguments.source} ...")
        part = collectively(group, lambda: source.part(group.rank))
        return source.ends, begins_with(source, part, self._config, group)


def _read_finished(run_dir: RunDirectory, config: TrainConfig) -> dict[str, Any]:
    from distgnn.cli.beginning import check_settings
    from distgnn.training.config.settings import TrainConfig
    from distgnn.training.run.directory import SUMMARY

    check_settings(run_dir, config, True)
    begun = TrainConfig.from_json(run_dir.read_config().get("train", {}))
    is_longer = config.epochs != begun.epochs or config.patience != begun.patience
    return {} if is_longer else run_dir.read_json(SUMMARY)


def summarise_series(
    members: Sequence[Member], summaries: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Reduce the summaries of runs to means and unbiased standard deviations.

    Args:
        members: The runs.
        summaries: Of each.

    Returns:
        JSON values by name; a standard deviation of one run is None.
    """
    names = [f"{split}_metric" for split in _SPLITS]
    runs = [
        {
            "run": member.name,
            "seed": member.config.seed,
            "split_index": member.config.split_index,
            **{name: summary[name] for name in (*names, *_KEPT)},
        }
        for member, summary in zip(members, summaries, strict=True)
    ]
    found: dict[str, Any] = {"num_runs": len(runs), "metric": summaries[0]["metric"]}
    for name in names:
        values = [run[name] for run in runs if run[name] is not None]
        found[f"{name}_mean"] = statistics.fmean(values) if values else None
        found[f"{name}_std"] = statistics.stdev(values) if len(values) > 1 else None
    return {**found, "total_s": sum(run["total_s"] for run in runs), "runs": runs}


def as_published(mean: float | None, std: float | None, metric: str) -> str:
    """Write a mean and a standard deviation in the form that OGB asks for.

    Args:
        mean: Of the runs; None where the metric is not defined.
        std: Unbiased; None of one run.
        metric: Its name; shares are shown in percent.
    """
    if mean is None:
        return "-"
    factor, digits = (1, 4) if metric in _PLAIN else (100, 2)
    text = f"{factor * mean:.{digits}f}"
    return text if std is None else f"{text} \u00b1 {factor * std:.{digits}f}"


def _write(folder: Path, found: Mapping[str, Any]) -> None:
    from distgnn.training.run.directory import RunDirectory

    RunDirectory(folder).write_json(FILE, found)


def _report(arguments: argparse.Namespace, folder: Path, found: Mapping[str, Any]) -> None:
    if arguments.json:
        print_json(found)
        return
    metric = found["metric"]
    shown = {"metric": metric, "runs": found["num_runs"]}
    for split in _SPLITS:
        mean, std = (found[f"{split}_metric_{what}"] for what in ("mean", "std"))
        shown[f"{split} metric"] = as_published(mean, std, metric)
    print_lines(pairs({**shown, "results": folder / FILE}))
