"""`distgnn embed`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distgnn.cli.flags import path
from distgnn.cli.output import add_json_flag, print_json, print_lines
from distgnn.cli.runs import add_run_arguments, machine_settings

if TYPE_CHECKING:
    import argparse

HELP = "write the rows of a trained run's last hidden layer, under original ids"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    add_run_arguments(parser)
    parser.add_argument(
        "--out",
        type=path,
        required=True,
        metavar="FILE",
        help=".csv, .tsv or .parquet: id, h0, h1, ...; .npy: the rows, in vertex order",
    )
    add_json_flag(parser)


def run(arguments: argparse.Namespace) -> int:
    """Compute the rows of all vertices and write them."""
    from distgnn.api.verbs import embed
    from distgnn.comm.launch import detect

    found = embed(arguments.run_dir, out=arguments.out, **machine_settings(arguments))
    if detect().rank > 0:
        return 0
    num_vertices, width = found.shape
    if arguments.json:
        print_json({"file": arguments.out, "num_vertices": num_vertices, "width": width})
    else:
        print_lines([f"wrote {num_vertices} rows of {width} columns to {arguments.out}"])
    return 0
