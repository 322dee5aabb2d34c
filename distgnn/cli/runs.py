"""Arguments of the verbs that use a trained run."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from distgnn.cli.flags import path
from distgnn.cli.job import add_device_argument, add_machine_arguments, job_from
from distgnn.cli.walk_orders import add_walk_cache_argument


def add_smoothing_argument(parser: argparse.ArgumentParser) -> None:
    """Add --correct-and-smooth."""
    parser.add_argument(
        "--correct-and-smooth",
        type=_alphas,
        metavar="A,B",
        help="spread the errors on training vertices (share A from neighbours in each of 50 "
        "steps), then their labels (share B), along edges, such as 0.8,0.8",
    )


def _alphas(text: str) -> tuple[float, float]:
    try:
        first, second = (float(word) for word in text.split(","))
    except ValueError:
        first = second = -1.0
    if not (0 <= first < 1 and 0 <= second < 1):
        raise argparse.ArgumentTypeError(
            f"must be two shares of at least 0 and below 1, such as 0.8,0.8, got '{text}'"
        )
    return first, second


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the run and of the machine."""
    parser.add_argument("run_dir", metavar="RUN", type=path, help="directory of a training run")
    add_machine_arguments(parser)
    add_device_argument(parser)
    add_walk_cache_argument(parser, "read the walk orders of kernels that training kept in DIR")


def machine_settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the settings of the machine, as the functions of `distgnn` take them.

    Args:
        arguments: Parsed arguments, with those of `add_run_arguments`.
    """
    return {**asdict(job_from(arguments)), "walk_cache": arguments.walk_cache}
