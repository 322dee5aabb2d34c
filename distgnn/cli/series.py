"""Arguments that make a series of a run, and the lines about one."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from distgnn.api.settings import ALL
from distgnn.cli.flags import whole
from distgnn.cli.output import pairs

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def add_series_arguments(group: argparse._ArgumentGroup) -> None:
    """Add the number of seeds.

    Args:
        group: Argument group of `distgnn train`.
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
        text: Text from the command line.

    Returns:
        The row of the masks, or "all".
    """
    if text == ALL:
        return ALL
    try:
        return whole(0)(text)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"{error}, or all") from error


def series_lines(found: Mapping[str, Any], folder: Path) -> list[str]:
    """Describe a series for people.

    Args:
        found: Content of its series.json.
        folder: Directory of the series.

    Returns:
        Lines of text.
    """
    from distgnn.training.run.series import FILE, SPLITS, as_published

    metric = found["metric"]
    shown = {"metric": metric, "runs": found["num_runs"]}
    for split in SPLITS:
        mean, std = (found[f"{split}_metric_{what}"] for what in ("mean", "std"))
        shown[f"{split} metric"] = as_published(mean, std, metric)
    goals = [run for run in found["runs"] if "goal" in run]
    if goals:
        num_reached = sum(run["epochs_to_goal"] is not None for run in goals)
        shown["goal"] = f"{goals[0]['goal']:g} reached by {num_reached} of {len(goals)} runs"
    return pairs({**shown, "results": folder / FILE})
