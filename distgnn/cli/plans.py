"""Where a run keeps the plans of its kernels."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from distgnn.cli.flags import path
from distgnn.cli.output import note
from distgnn.datasets.errors import InputError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from distgnn.cli.source import Source
    from distgnn.comm.group import Group
    from distgnn.edges.planner import Planner, PlanSource
    from distgnn.training.config.settings import TrainConfig


def add_plan_arguments(group: argparse._ArgumentGroup) -> None:
    """Add what decides how sums walk the graph.

    Args:
        group: Of the verb.
    """
    add_plan_cache_argument(group, "keep the plans of kernels in DIR for the next start")
    group.add_argument(
        "--tune-kernels",
        action="store_true",
        help="try how sums walk each block of the graph fastest (2 s a block), and keep the choice "
        "with the plans",
    )


def add_plan_cache_argument(group: argparse._ActionsContainer, effect: str) -> None:
    """Add where plans are kept.

    Args:
        group: Of the verb.
        effect: What the verb does with them.
    """
    group.add_argument(
        "--plan-cache",
        type=path,
        default="on",
        metavar="on|off|DIR",
        help=f"{effect} (on: in PARTS.plans beside a partition directory PARTS, nowhere for other "
        "sources; default: %(default)s)",
    )


def check_tuning(arguments: argparse.Namespace) -> None:
    """Refuse to try what the device does not choose from.

    Args:
        arguments: With those of `add_plan_arguments`, and --device.

    Raises:
        InputError: If kernels are to be tried, but the processor does not run them.
    """
    if arguments.tune_kernels and arguments.device != "cpu":
        raise InputError(
            f"--tune-kernels tries kernels of the processor, got --device {arguments.device}; "
            "drop --tune-kernels or use --device cpu"
        )


def build_planner(
    arguments: argparse.Namespace, config: TrainConfig, source: Source, group: Group
) -> Planner:
    """Build what plans a rank's sums.

    Args:
        arguments: With those of `add_plan_arguments`, and --quiet.
        config: The run.
        source: What the run trains on.
        group: All ranks.

    Returns:
        The planner of this rank.
    """
    from distgnn.edges.planner import PlanSource
    from distgnn.training.run.plan_cache import PlanCache

    def say(line: str) -> None:
        note(line if group.size == 1 else f"rank {group.rank}: {line}")

    folder = plan_folder(arguments.plan_cache, source)
    plans = PlanSource() if folder is None else PlanCache(folder, say)
    is_silent = arguments.quiet or group.rank != 0
    return _planner(
        config,
        source,
        plans,
        folder=folder,
        is_trying=arguments.tune_kernels,
        say=(lambda line: None) if is_silent else note,
    )


def build_reader(arguments: argparse.Namespace, config: TrainConfig, source: Source) -> Planner:
    """Build what finds the plans that a run left, for a pass too short to make any.

    Args:
        arguments: With those of `add_plan_cache_argument`.
        config: The run.
        source: What it was trained on.

    Returns:
        The planner of a rank.
    """
    from distgnn.edges.planner import NoPlans
    from distgnn.training.run.plan_cache import PlanCache

    folder = plan_folder(arguments.plan_cache, source)
    plans = NoPlans() if folder is None else PlanCache(folder, note, others=NoPlans())
    return _planner(config, source, plans, folder=folder, is_trying=False, say=note)


def _planner(
    config: TrainConfig,
    source: Source,
    plans: PlanSource,
    *,
    folder: Path | None,
    is_trying: bool,
    say: Callable[[str], None],
) -> Planner:
    from distgnn.edges.planner import Planner
    from distgnn.kernels import instruction_set, num_threads
    from distgnn.machine.facts import processor
    from distgnn.training.loop.walk_trials import Tuner, aggregated_widths

    tuner = Tuner(
        aggregated_widths(config, source.ends),
        source=plans,
        machine=f"{processor()}, {instruction_set()}, {num_threads()} threads",
        folder=folder,
        is_trying=is_trying,
        say=say,
    )
    return Planner(plans, tuner)


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
