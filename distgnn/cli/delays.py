"""Arguments that say when rows travel and when they are used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distgnn.cli.flags import number, switch, whole

if TYPE_CHECKING:
    import argparse


def add_delay_arguments(group: argparse._ArgumentGroup) -> None:
    """Add the algorithm and what can be set apart from it.

    Args:
        group: Of `distgnn train`.
    """
    add = group.add_argument
    add(
        "--algorithm",
        default="cd-0",
        help="cd-0: synchronous; cd-R: R bins, delay R; 0c: nothing travels (default: %(default)s)",
    )
    add("--bins", type=whole(1), metavar="B", help="1/B of the rows travels per epoch (default: R)")
    add(
        "--delay",
        type=whole(0),
        metavar="D",
        help="epochs from sending a row to using it (default: R)",
    )
    add(
        "--warm-up-epochs",
        type=whole(0),
        default=0,
        metavar="N",
        help="synchronous epochs before the delays begin (default: %(default)s)",
    )
    _add_memory_arguments(group)


def _add_memory_arguments(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--delay-cache",
        type=switch,
        default=True,
        metavar="on|off",
        help="keep a row's last value between its turns (off: the paper's rule; default: on)",
    )
    add(
        "--gradient-cache",
        type=switch,
        metavar="on|off",
        help="the same for gradients that travel back (default: as --delay-cache)",
    )
    add(
        "--smoothing",
        type=number,
        default=0.0,
        metavar="G",
        help="received = G * received + (1 - G) * new, corrected for its start (default: 0)",
    )
    add(
        "--gradient-smoothing",
        type=number,
        metavar="G",
        help="the same for gradients that travel back (default: as --smoothing)",
    )
