"""Arguments that ask for a picture of what every rank did when."""

from __future__ import annotations

import argparse
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from distgnn.cli.flags import MAX_COUNT, path
from distgnn.datasets.errors import InputError

if TYPE_CHECKING:
    from distgnn.comm.group import Group
    from distgnn.training.loop.trace import NoTrace

_RANGE = re.compile(r"([0-9]{1,9}):([0-9]{1,9})")


def epoch_range(text: str) -> range:
    """Convert the text of a flag that picks epochs.

    Args:
        text: As given on the command line: A:B for epochs A to B - 1.

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
    """Add the file and its epochs.

    Args:
        group: Of `distgnn train`.
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


def check_trace(arguments: argparse.Namespace) -> None:
    """Refuse epochs that no file or no run has.

    Args:
        arguments: Of `distgnn train`.

    Raises:
        InputError: If there are such.
    """
    epochs = arguments.trace_epochs
    if epochs is None:
        return
    shown = f"--trace-epochs {epochs.start}:{epochs.stop}"
    if arguments.trace is None:
        raise InputError(f"{shown} has no effect without --trace FILE; drop it or name a file")
    if epochs.start >= arguments.epochs:
        raise InputError(
            f"{shown} picks none of the {arguments.epochs} epochs; begin below {arguments.epochs}"
        )


def check_trace_file(arguments: argparse.Namespace) -> None:
    """Find out whether the file can be written, and is none of the run's, before anything else is.

    Args:
        arguments: Of `distgnn train`.

    Raises:
        InputError: If it cannot.
    """
    from distgnn.training.loop.trace import why_unwritable
    from distgnn.training.run.directory import RunDirectory

    if arguments.trace is None:
        return
    file, run = Path(arguments.trace), Path(arguments.run_dir)
    if Path(os.path.realpath(run)).is_relative_to(os.path.realpath(file)):
        raise InputError(
            f"cannot write trace '{file}': it is a directory, of --run '{run}' or above it; give a "
            "file's name"
        )
    if RunDirectory(run).holds(file):
        raise InputError(
            f"cannot write trace '{file}': the run keeps files of its own there; choose another "
            "file with --trace"
        )
    # The run's directory is made later, and checked on its own.
    if os.path.realpath(file.parent) == os.path.realpath(run) and not run.exists():
        return
    error = why_unwritable(file)
    if error is not None:
        raise error


def open_trace(arguments: argparse.Namespace, group: Group) -> NoTrace:
    """Begin what the arguments ask for; collective.

    Args:
        arguments: Of `distgnn train`.
        group: All ranks.

    Returns:
        To be entered around the run.
    """
    from distgnn.training.loop.trace import NoTrace, Trace

    if arguments.trace is None:
        return NoTrace(group.device)
    return Trace(Path(arguments.trace), group, arguments.trace_epochs or range(MAX_COUNT))
