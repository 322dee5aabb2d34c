"""Arguments that choose how edges get their parts."""

from __future__ import annotations

import argparse

from distgnn.api.partition_options import AUTO, DEFAULT_METHOD
from distgnn.cli.flags import number, path, switch
from distgnn.partition import METHODS
from distgnn.partition.methods.given import KINDS
from distgnn.partition.methods.options import QUALITIES


def add_method_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument(
        "--method",
        metavar="NAME",
        type=_method,
        help=f"one of {', '.join(METHODS)}, or {AUTO}: the best one that fits into memory "
        f"(default: {DEFAULT_METHOD})",
    )
    parser.add_argument(
        "--quality",
        choices=QUALITIES,
        help="time spent on the cut: fast refines the first one, default also tries others where "
        "that is quick, best tries several times as many and keeps what moves the fewest rows "
        "(of metis, auto)",
    )
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of the method, such as vertex_balance=1.1; may be repeated",
    )
    parser.add_argument(
        "--assignment",
        type=path,
        metavar="FILE",
        help="your own parts instead of a method: an .npy file with one for each edge (roots are "
        "then chosen) or for each vertex's root (edges are then placed)",
    )
    parser.add_argument(
        "--assignment-of",
        choices=KINDS,
        help="what FILE has parts of, if its length does not tell",
    )
    parser.add_argument(
        "--refine",
        type=switch,
        metavar="on|off",
        help="move edges afterwards where fewer rows travel (default: on for metis "
        "and hierarchical)",
    )
    parser.add_argument(
        "--imbalance",
        type=balance,
        metavar="X",
        help="largest part's edges over the mean, at least 1 (default: of the method; metis: 1.05)",
    )


def _method(text: str) -> str:
    if text not in (*METHODS, AUTO):
        allowed = ", ".join((*METHODS, AUTO))
        raise argparse.ArgumentTypeError(f"must be one of {allowed}, got '{text}'")
    return text


def balance(text: str) -> float:
    """Convert the text of a flag that takes a largest part over the mean.

    Args:
        text: Value on the command line.

    Returns:
        At least 1.
    """
    value = number(text)
    if value < 1.0:
        raise argparse.ArgumentTypeError(
            f"must be at least 1, which is perfect balance, got '{text}'"
        )
    return value
