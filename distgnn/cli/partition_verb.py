"""`distgnn partition`."""

from __future__ import annotations

import argparse
import time
from dataclasses import fields

from distgnn.api.columns import LABEL_TASKS
from distgnn.api.directories import manifest_json
from distgnn.api.partition_options import PartitionOptions
from distgnn.cli.flags import MAX_SEED, path, whole
from distgnn.cli.inspect_text import quality_lines
from distgnn.cli.method import add_method_arguments
from distgnn.cli.on_disk import (
    add_disk_arguments,
)
from distgnn.cli.output import add_json_flag, note, print_json, print_lines
from distgnn.cli.source import add_source_arguments, source_options
from distgnn.partition.orders import DEFAULT_ORDER, ORDERS

HELP = "cut a graph into parts, one per rank"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    add_source_arguments(parser, or_parts=False)
    parser.add_argument(
        "--parts", type=whole(1), required=True, metavar="P", help="number of parts"
    )
    parser.add_argument(
        "--out", type=path, required=True, metavar="DIR", help="partition directory to write"
    )
    parser.add_argument(
        "--task",
        choices=LABEL_TASKS,
        default=LABEL_TASKS[0],
        help="regression takes labels as values to be learned, whole numbers too (default: values "
        "where one has a fraction)",
    )
    add_method_arguments(parser)
    add_order_argument(parser)
    parser.add_argument(
        "--seed",
        type=whole(0, MAX_SEED),
        default=0,
        metavar="S",
        help="of the method, the order, --split and --edge-split (default: %(default)s)",
    )
    parser.add_argument(
        "--overwrite", action="store_true", help="replace an existing partition directory"
    )
    add_disk_arguments(parser)
    add_json_flag(parser)


def add_order_argument(parser: argparse.ArgumentParser) -> None:
    """Add the argument of the order of vertices inside a part."""
    parser.add_argument(
        "--order",
        default=DEFAULT_ORDER,
        metavar="NAME",
        type=_order,
        help="of the vertices inside a part, which decides how often a row that one of them reads "
        f"is still in cache; one of {', '.join(ORDERS)} (default: %(default)s)",
    )


def _order(text: str) -> str:
    if text not in ORDERS:
        raise argparse.ArgumentTypeError(f"must be one of {', '.join(ORDERS)}, got '{text}'")
    return text


def run(arguments: argparse.Namespace) -> int:
    """Partition, and report."""
    from distgnn.api.partitioning import make_partition

    given = {
        item.name: getattr(arguments, item.name)
        for item in fields(PartitionOptions)
        if item.name not in ("source", "say", "option")
    }
    start = time.perf_counter()
    manifest = make_partition(
        PartitionOptions(
            source_options(arguments), say=note, option=tuple(arguments.option), **given
        ),
        is_shared=True,
    )
    if manifest is None:
        return 0
    seconds = time.perf_counter() - start
    if arguments.json:
        print_json({**manifest_json(manifest), "directory": arguments.out, "total_s": seconds})
    else:
        print_lines([*quality_lines(manifest), f"wrote {arguments.out} in {seconds:.1f} s"])
    return 0
