"""Arguments of `distgnn partition --out-of-core`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distgnn.api.partition_options import AUTO, OFF, ON
from distgnn.cli.flags import path, size

if TYPE_CHECKING:
    import argparse


def add_disk_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument(
        "--out-of-core",
        choices=(AUTO, ON, OFF),
        default=AUTO,
        help="leave the edges on disk; auto does so for folders of arrays and edge lists for which "
        "the default method would not fit into memory, unless a flag is given that needs them "
        "there, such as --quality; with on, ranks that mpirun starts share the "
        "work (default: %(default)s)",
    )
    parser.add_argument(
        "--memory",
        type=size,
        metavar="SIZE",
        help="what partitioning out of core may take on each rank, such as 8GiB (default: most of "
        "what is free)",
    )
    parser.add_argument(
        "--work",
        type=path,
        metavar="DIR",
        help="folder of partitioning out of core, on the disk of --out; the same command goes on "
        "from there after an interruption (default: the name of --out with .work)",
    )
