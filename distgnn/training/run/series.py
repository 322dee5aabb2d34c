"""Runs of one configuration over several seeds or splits, and their published figures."""

from __future__ import annotations

import statistics
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from distgnn.datasets.errors import InputError
from distgnn.training.config.settings import TrainConfig
from distgnn.training.loop.goal import FIGURES
from distgnn.training.run.beginning import check_settings
from distgnn.training.run.directory import SUMMARY, RunDirectory

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

FILE = "series.json"
SPLITS = ("test", "val", "train")
_KEPT = ("best_epoch", "num_epochs", "median_epoch_s", "total_s", "num_ranks")
_OF_LATE = ("num_parameters", "processor")
"""Values of a summary that older runs lack."""
_PLAIN = ("mse", "mae", "r2")
"""Metrics that are not shares, and so not shown in percent."""


class Member(NamedTuple):
    """One run of a series.

    Attributes:
        name: Name of its directory, in that of the series.
        config: Settings of the run.
    """

    name: str
    config: TrainConfig


def members_of(
    config: TrainConfig, *, num_seeds: int | None, num_splits: int | None
) -> list[Member]:
    """Return the runs of a series.

    Args:
        config: Settings of the first run.
        num_seeds: Number of seeds, from that of the first run; None for that one alone, which is
            then not named.
        num_splits: Number of splits, from the first; None for that of the first run alone.
    """
    splits = (config.split_index,) if num_splits is None else range(num_splits)
    members = []
    for split in splits:
        for seed in range(config.seed, config.seed + (num_seeds or 1)):
            names = [f"split-{split}"] * (num_splits is not None)
            names += [f"seed-{seed}"] * (num_seeds is not None)
            members.append(Member("-".join(names), replace(config, seed=seed, split_index=split)))
    return members


def make_folder(folder: Path) -> None:
    """Make the directory of a series.

    Args:
        folder: The directory.

    Raises:
        InputError: If it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"cannot make series directory '{folder}': {error.strerror}; choose another with --run"
        ) from error


def check_folders(folder: Path, members: Sequence[Member], *, may_exist: bool) -> None:
    """Check that the directory of a series holds no run that is in the way.

    Args:
        folder: Directory of the series.
        members: The runs.
        may_exist: Whether runs that are there are resumed or replaced.

    Raises:
        InputError: If it holds one.
    """
    if RunDirectory(folder).has_run():
        raise InputError(
            f"'{folder}' holds a run of its own, and several need a directory with nothing else; "
            "choose another with --run"
        )
    if may_exist:
        return
    taken = [member.name for member in members if RunDirectory(folder / member.name).has_run()]
    if taken:
        raise InputError(
            f"'{folder}' already holds {taken[0]}; continue with --resume, replace it with "
            "--overwrite, or choose another --run"
        )


def clear(folder: Path, members: Sequence[Member], say: Callable[[str], None]) -> None:
    """Remove the runs that a series replaces, all of them before the first begins.

    Args:
        folder: Directory of the series.
        members: The runs.
        say: Receives a note about a wait for an owner that may be dead.

    Raises:
        InputError: If another job owns one, or it cannot be removed.
    """
    # The figures are those of runs that are about to be replaced.
    (folder / FILE).unlink(missing_ok=True)
    for member in members:
        run_dir = RunDirectory(folder / member.name)
        if run_dir.has_run():
            with run_dir.owned(say) as lock:
                lock.take()
                run_dir.clear()


def read_finished(run_dir: RunDirectory, config: TrainConfig) -> dict[str, Any]:
    """Return the summary of a run that has ended; {} if it is to be longer, or lacks a value.

    Args:
        run_dir: Directory of the run.
        config: Settings that the run must have.

    Raises:
        InputError: If it has other settings.
    """
    check_settings(run_dir, config, True)
    begun = TrainConfig.from_json(run_dir.read_config().get("train", {}))
    names = ("epochs", "patience", "stop_on", "goal")
    if any(getattr(config, name) != getattr(begun, name) for name in names):
        return {}
    summary = run_dir.read_json(SUMMARY)
    wanted = {*(f"{split}_metric" for split in SPLITS), *_KEPT, "metric"}
    return summary if wanted <= summary.keys() else {}


def summarise_series(
    members: Sequence[Member], summaries: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Reduce the summaries of runs to means and unbiased standard deviations.

    Args:
        members: The runs.
        summaries: Summary of each run.

    Returns:
        JSON values by name; the standard deviation of one run is None.
    """
    names = [f"{split}_metric" for split in SPLITS]
    runs = [
        {
            "run": member.name,
            "seed": member.config.seed,
            "split_index": member.config.split_index,
            **{name: summary[name] for name in (*names, *_KEPT)},
            **{name: summary.get(name) for name in _OF_LATE},
            **{name: summary[name] for name in ("goal", *FIGURES) if name in summary},
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
        mean: Mean over the runs; None where the metric is not defined.
        std: Unbiased standard deviation; None for one run.
        metric: Name of the metric; shares are shown in percent.
    """
    if mean is None:
        return "-"
    factor, digits = (1, 4) if metric in _PLAIN else (100, 2)
    text = f"{factor * mean:.{digits}f}"
    return text if std is None else f"{text} \u00b1 {factor * std:.{digits}f}"
