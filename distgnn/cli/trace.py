"""Arguments that ask for a timeline of every rank."""

from __future__ import annotations

import argparse
import re

from distgnn.cli.flags import path

_RANGE = re.compile(r"([0-9]{1,9}):([0-9]{1,9})")


def epoch_range(text: str) -> range:
    """Convert the text of a flag that picks epochs.

    Args:
        text: Text from the command line: A:B for epochs A to B - 1.

    Returns:
        The epochs.
    """
    match = _RANGE.fullmatch(text)
    epochs = range(int(match[1]), int(match[2])) if match else range(0)
    if not epochs:
        raise argparse.ArgumentTypeError(
            f"must be A:B for epochs A to B - 1, with A below B, got '{text}'"
        )
    return epochs


def add_trace_arguments(group: argparse._ArgumentGroup) -> None:
    """Add the arguments of the file and of its epochs.

    Args:
        group: Argument group of `distgnn train`.
    """
    add = group.add_argument
    add(
        "--trace",
        type=path,
        metavar="FILE",
        help="write what every rank did when, for ui.perfetto.dev or chrome://tracing",
    )
    add(
        "--trace-epochs",
        type=epoch_range,
        metavar="A:B",
        help="epochs A to B - 1 of --trace (default: all)",
    )
