"""`distgnn evaluate`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distgnn.cli.flags import whole
from distgnn.cli.output import add_json_flag, pairs, print_json, print_lines
from distgnn.cli.runs import add_run_arguments, add_smoothing_argument, machine_settings

if TYPE_CHECKING:
    import argparse

HELP = "score a trained run on its graph"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    add_run_arguments(parser)
    parser.add_argument(
        "--split-index", type=whole(0), metavar="K", help="row of the masks (default: the run's)"
    )
    add_smoothing_argument(parser)
    add_json_flag(parser)


def run(arguments: argparse.Namespace) -> int:
    """Score all splits and report."""
    from distgnn.api.verbs import evaluate
    from distgnn.comm.launch import detect

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


def _text(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.4f}" if isinstance(value, float) else str(value)
