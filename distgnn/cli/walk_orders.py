"""Arguments about how sums walk the graph, and where that is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distgnn.cli.flags import path

if TYPE_CHECKING:
    import argparse


def add_walk_arguments(group: argparse._ArgumentGroup) -> None:
    """Add the flags that decide how sums walk the graph.

    Args:
        group: Argument group of the verb.
    """
    add_walk_cache_argument(group, "keep the walk orders of kernels in DIR for the next start")
    group.add_argument(
        "--tune-kernels",
        action="store_true",
        help="try how sums walk each block of the graph fastest (2 s a block), and keep the choice "
        "with the walk orders",
    )


def add_walk_cache_argument(group: argparse._ActionsContainer, effect: str) -> None:
    """Add the flag of the folder of walk orders.

    Args:
        group: Argument group of the verb.
        effect: Use that the verb makes of the walk orders.
    """
    group.add_argument(
        "--walk-cache",
        type=path,
        default="on",
        metavar="on|off|DIR",
        help=f"{effect} (on: in PARTS.walks beside a partition directory PARTS, nowhere for other "
        "sources; default: %(default)s)",
    )
