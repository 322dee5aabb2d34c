"""Figures of a series as a leaderboard asks for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distgnn.pages.figures import NO_COMMAND, command_of
from distgnn.pages.markup import Html, section, table, tag
from distgnn.training.run.series import as_published

if TYPE_CHECKING:
    from collections.abc import Mapping


def submission_of(series: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, str]:
    """Return what a leaderboard asks of a series.

    Args:
        series: Content of its series.json.
        config: Content of config.json of its first run.

    Returns:
        Text by name: means and unbiased standard deviations over the runs, the numbers of seeds,
        splits, parameters and ranks, the processor, and the command that repeats the series. A
        dash stands for what older runs did not keep.
    """
    metric, runs = series["metric"], series["runs"]
    seeds = {run["seed"] for run in runs}
    splits = {run["split_index"] for run in runs}
    command = command_of(config)
    command += f" --seeds {len(seeds)}" * bool(command and len(seeds) > 1)
    command += " --split-index all" * bool(command and len(splits) > 1)
    parameters, processor = (runs[0].get(name) for name in ("num_parameters", "processor"))
    return {
        **{
            f"{name} {metric}": as_published(
                series[f"{split}_metric_mean"], series[f"{split}_metric_std"], metric
            )
            for split, name in (("test", "test"), ("val", "validation"))
        },
        "seeds": str(len(seeds)),
        "splits": str(len(splits)),
        "parameters": "-" if parameters is None else str(parameters),
        "ranks": str(runs[0]["num_ranks"]),
        "processor": processor or "-",
        "command": command or NO_COMMAND,
    }


def submission_section(facts: Mapping[str, str]) -> Html:
    """Show what a leaderboard asks of a series.

    Args:
        facts: Text by name, from `submission_of`.
    """
    caption = "Means and unbiased standard deviations over the runs"
    content = table(["fact", "value"], facts.items(), caption=caption)
    return section("As a leaderboard asks", tag("div", content, class_="facts"))
