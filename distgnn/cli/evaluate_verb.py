"""`distgnn evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from distgnn.cli.flags import whole
from distgnn.cli.output import add_json_flag, pairs, print_json, print_lines
from distgnn.cli.runs import add_run_arguments, add_smoothing_argument, machine_settings
from distgnn.datasets.errors import InputError

if TYPE_CHECKING:
    import argparse

HELP = "score a trained run on its graph, or show what a leaderboard asks of a series"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    add_run_arguments(parser)
    parser.add_argument(
        "--split-index", type=whole(0), metavar="K", help="row of the masks (default: the run's)"
    )
    add_smoothing_argument(parser)
    add_json_flag(parser)


def is_series(arguments: argparse.Namespace) -> bool:
    """Whether a command shows a series that has ended, for which ranks need not meet.

    Args:
        arguments: Parsed arguments of any verb.
    """
    return arguments.verb == "evaluate" and (Path(arguments.run_dir) / "series.json").is_file()


def run(arguments: argparse.Namespace) -> int:
    """Score all splits and report."""
    from distgnn.api.reports import submission
    from distgnn.api.verbs import evaluate
    from distgnn.comm.launch import detect

    if facts := submission(Path(arguments.run_dir)):
        return _show_series(arguments, facts)
    found = evaluate(
        arguments.run_dir,
        split_index=arguments.split_index,
        correct_and_smooth=arguments.correct_and_smooth,
        **machine_settings(arguments),
    )
    if detect().rank == 0 and arguments.json:
        print_json(found)
    elif detect().rank == 0:
        print_lines(pairs({name: _text(value) for name, value in found.items()}))
    return 0


def _show_series(arguments: argparse.Namespace, facts: dict[str, str]) -> int:
    """Print the figures of a series, which its runs have been scored for."""
    from distgnn.comm.launch import detect

    if arguments.split_index is not None or arguments.correct_and_smooth is not None:
        raise InputError(
            f"'{arguments.run_dir}' is a series, whose runs are scored already; leave out "
            "--split-index and --correct-and-smooth, or give one of its runs"
        )
    if detect().rank == 0 and arguments.json:
        print_json(facts)
    elif detect().rank == 0:
        print_lines(pairs(facts))
    return 0


def _text(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.4f}" if isinstance(value, float) else str(value)
