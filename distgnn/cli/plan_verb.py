"""`distgnn plan`."""

from __future__ import annotations

import argparse

import numpy as np

from distgnn.cli.flags import MAX_THREADS, bandwidth, duration, number, path, whole
from distgnn.cli.inspect_text import evaluation_text
from distgnn.cli.output import add_json_flag, human_bytes, pairs, print_json, print_lines
from distgnn.cli.train_verb import add_epoch_flags, config_from
from distgnn.datasets.errors import InputError
from distgnn.partition.directory.store import read_manifest

HELP = "predict an epoch on a cluster that is not at hand"
EPILOG = (
    "Computing is a rehearsal: epochs of the slowest part, or of a sample of it, beside its mirror "
    "image on this machine, in proportion to what each rank walks and multiplies. --cores scales "
    "dense products, and sums over edges too unless --memory-bandwidth scales those. Traffic is "
    "that of the partition, to the byte; what messages and sums over ranks take of a processor is "
    "tried here with gloo. Each half of an exchange waits for --latency once, and the ring that "
    "sums the gradients at each of its steps. Rows of cd-0 are hidden for as long as edges are "
    "walked meanwhile, late ones for as long as anything is computed."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.add_argument("directory", metavar="DIR", type=path, help="partition directory")
    parser.add_argument(
        "--ranks", type=whole(1), metavar="P", help="of the cluster; DIR must have as many parts"
    )
    cluster = parser.add_argument_group("cluster")
    add = cluster.add_argument
    add("--bandwidth", type=bandwidth, metavar="SPEED", help="of a rank's link, such as 100Gb/s")
    add(
        "--latency",
        type=duration,
        metavar="TIME",
        help="of a message, such as 50us, as distgnn doctor measures it between ranks (default: "
        "that of the loopback interface here)",
    )
    add(
        "--cores",
        type=_cores,
        metavar="C",
        help="of a rank; 0.5 where two ranks take turns on a core (default: as here)",
    )
    add(
        "--memory-bandwidth",
        type=bandwidth,
        metavar="SPEED",
        help="of a rank, such as 200GB/s, as distgnn doctor measures it (default: as here)",
    )
    add("--threads", type=whole(1, MAX_THREADS), metavar="T", help="of the rehearsal here")
    add_epoch_flags(parser)
    add_json_flag(parser)


def _cores(text: str) -> float:
    """Convert the text of a number of cores, or of a share of one."""
    value = number(text)
    if not 0 < value <= MAX_THREADS:
        raise argparse.ArgumentTypeError(f"must be above 0 and at most {MAX_THREADS}, got '{text}'")
    return value


def run(arguments: argparse.Namespace) -> int:
    """Read the parts, rehearse, and report."""
    from distgnn.api.directories import plan_directory

    directory, manifest = arguments.directory, read_manifest(arguments.directory)
    config = config_from(arguments)
    if arguments.ranks not in (None, manifest.num_parts):
        raise InputError(
            f"partition directory '{directory}' has {manifest.num_parts} parts, but --ranks is "
            f"{arguments.ranks}; distgnn repartition {directory} --parts {arguments.ranks} --out "
            "DIR makes one to plan with"
        )
    values = plan_directory(
        *(directory, config),
        (arguments.bandwidth, arguments.latency, arguments.cores, arguments.memory_bandwidth),
        threads=arguments.threads,
    )
    if arguments.json:
        print_json(values)
        return 0
    slowest = int(np.argmax(values["compute_s_per_rank"]))
    print_lines(
        pairs(
            {
                "ranks": values["ranks"],
                "computing": f"{1e3 * values['compute_s']:.2f} ms on rank {slowest}, the slowest",
                "messages": f"{1e3 * values['messages_s']:.2f} ms of the processor, "
                f"{values['num_messages']} of all ranks",
                "rows": f"{1e3 * values['rows_s']:.2f} ms on the wire, "
                f"{'at most ' * values['sends_at_most']}"
                f"{human_bytes(values['halo_bytes_per_epoch'])} in all",
                "evaluation": f"{evaluation_text(values)}, in all",
                "gradients": f"{1e3 * values['weights_s']:.2f} ms on the wire, "
                f"{'at most ' * values['weights_at_most']}"
                f"{human_bytes(values['weight_bytes_per_epoch'])} in all",
                "epoch": f"{1e3 * values['epoch_s']:.2f} ms if nothing is hidden, "
                f"{1e3 * values['hidden_epoch_s']:.2f} ms if all is that can be",
                "memory": f"{human_bytes(max(values['memory_bytes_per_rank']))} on the largest "
                "rank, without libraries",
            }
        )
    )
    return 0
