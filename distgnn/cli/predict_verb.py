"""`distgnn predict`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distgnn.cli.flags import path
from distgnn.cli.output import add_json_flag, print_json, print_lines
from distgnn.cli.runs import add_run_arguments, add_smoothing_argument, machine_settings

if TYPE_CHECKING:
    import argparse

HELP = "write a trained run's prediction for every vertex or pair, under original ids"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    add_run_arguments(parser)
    parser.add_argument(
        "--out",
        type=path,
        required=True,
        metavar="FILE",
        help=".csv, .tsv or .parquet: id, label, probability, or id and values, or both ends of a "
        "pair and its probability; .npy: probabilities, or values, in vertex order or that of the "
        "pairs",
    )
    parser.add_argument(
        "--pairs",
        type=path,
        metavar="FILE",
        help="of a run that learned links: .csv or .tsv with a header and both ends of a pair a "
        "line (default: the links that are held out for the test)",
    )
    parser.add_argument(
        "--probabilities",
        action="store_true",
        help="a column for the probability of each class, too",
    )
    add_smoothing_argument(parser)
    add_json_flag(parser)


def run(arguments: argparse.Namespace) -> int:
    """Predict all vertices and write them."""
    from distgnn.api.verbs import predict
    from distgnn.comm.launch import detect

    found = predict(
        arguments.run_dir,
        out=arguments.out,
        pairs=arguments.pairs,
        probabilities=arguments.probabilities,
        correct_and_smooth=arguments.correct_and_smooth,
        **machine_settings(arguments),
    )
    if detect().rank > 0:
        return 0
    if arguments.json:
        what = "pairs" if found.ndim == 1 else "vertices"
        print_json({"file": arguments.out, f"num_{what}": len(found)})
    else:
        print_lines([f"wrote {len(found)} predictions to {arguments.out}"])
    return 0
