"""Where a run keeps the plans of its kernels."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from distgnn.cli.flags import path
from distgnn.cli.output import note

if TYPE_CHECKING:
    import argparse

    from distgnn.cli.source import Source
    from distgnn.comm.group import Group
    from distgnn.exchange.planner import Planner


def add_plan_arguments(group: argparse._ArgumentGroup) -> None:
    """Add what decides how sums walk the graph.

    Args:
        group: Of the verb.
    """
    group.add_argument(
        "--plan-cache",
        type=path,
        default="on",
        metavar="on|off|DIR",
        help="keep the plans of kernels in DIR for the next start (on: in PARTS.plans beside a "
        "partition directory PARTS, nowhere for other sources; default: %(default)s)",
    )


def build_planner(arguments: argparse.Namespace, source: Source, group: Group) -> Planner:
    """Build what plans a rank's sums.

    Args:
        arguments: With those of `add_plan_arguments`.
        source: What the run trains on.
        group: All ranks.

    Returns:
        The planner of this rank.
    """
    from distgnn.exchange.planner import Planner
    from distgnn.train.plan_cache import PlanCache

    def say(line: str) -> None:
        note(line if group.size == 1 else f"rank {group.rank}: {line}")

    folder = plan_folder(arguments.plan_cache, source)
    return Planner() if folder is None else Planner(PlanCache(folder, say))


def plan_folder(choice: str, source: Source) -> Path | None:
    """Return the folder that plans are kept in, or None.

    Args:
        choice: on, off or a folder.
        source: What the run trains on.
    """
    if choice == "off":
        return None
    if choice != "on":
        return Path(choice)
    if source.manifest is None:
        return None
    # The directory itself is never changed once it is complete.
    directory = Path(source.values["source"])
    return directory.with_name(f"{directory.name}.plans")
