"""`distgnn repartition`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from distgnn.api.directories import manifest_json
from distgnn.api.repartitioning import repartition_directory
from distgnn.cli.flags import MAX_SEED, path, switch, whole
from distgnn.cli.inspect_text import quality_lines
from distgnn.cli.method import balance
from distgnn.cli.output import add_json_flag, note, print_json, print_lines
from distgnn.cli.partition_verb import add_order_argument

if TYPE_CHECKING:
    import argparse

HELP = "merge or split the parts of a partition, without the graph it was made of"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.add_argument("directory", metavar="DIR", type=path, help="partition directory")
    parser.add_argument(
        "--parts", type=whole(1), required=True, metavar="Q", help="number of parts, any"
    )
    parser.add_argument(
        "--out", type=path, required=True, metavar="DIR2", help="partition directory to write"
    )
    parser.add_argument(
        "--refine",
        type=switch,
        default=True,
        metavar="on|off",
        help="move edges and roots afterwards where fewer rows travel (default: on)",
    )
    parser.add_argument(
        "--imbalance",
        type=balance,
        metavar="X",
        help="of refinement: largest part's edges over the mean, at least 1 (default: 1.05)",
    )
    add_order_argument(parser)
    parser.add_argument(
        "--seed",
        type=whole(0, MAX_SEED),
        default=0,
        metavar="S",
        help="of the cuts and the order (default: %(default)s)",
    )
    parser.add_argument(
        "--overwrite", action="store_true", help="replace an existing partition directory"
    )
    add_json_flag(parser)


def run(arguments: argparse.Namespace) -> int:
    """Cut again, write, and report."""
    start = time.perf_counter()
    manifest, peak = repartition_directory(
        *(arguments.directory, arguments.parts, arguments.out),
        refine=arguments.refine,
        imbalance=arguments.imbalance,
        order=arguments.order,
        seed=arguments.seed,
        overwrite=arguments.overwrite,
        say=note,
    )
    seconds = time.perf_counter() - start
    if arguments.json:
        values = {"directory": arguments.out, "total_s": seconds, "predicted_peak_bytes": peak}
        print_json({**manifest_json(manifest), **values})
    else:
        print_lines([*quality_lines(manifest), f"wrote {arguments.out} in {seconds:.1f} s"])
    return 0
