"""`distgnn plan`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from distgnn.cli.flags import MAX_THREADS, bandwidth, duration, number, path, whole
from distgnn.cli.model import add_model_arguments
from distgnn.cli.output import add_json_flag, human_bytes, pairs, print_json, print_lines
from distgnn.cli.train_verb import add_epoch_arguments, config_from
from distgnn.datasets.errors import InputError
from distgnn.partition.directory.store import read_manifest, read_part

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from distgnn.forecast.pace import Pace
    from distgnn.forecast.rehearsal import Rehearsal
    from distgnn.forecast.traffic import Forecast
    from distgnn.partition.directory.store import Manifest

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
    add_model_arguments(parser.add_argument_group("model, as for train"))
    add_epoch_arguments(parser.add_argument_group("epoch, as for train"))
    add_json_flag(parser)


def _cores(text: str) -> float:
    """A number of cores, or the share of one."""
    value = number(text)
    if not 0 < value <= MAX_THREADS:
        raise argparse.ArgumentTypeError(f"must be above 0 and at most {MAX_THREADS}, got '{text}'")
    return value


def run(arguments: argparse.Namespace) -> int:
    """Read the parts, rehearse, and report."""
    manifest = read_manifest(arguments.directory)
    _check(arguments, manifest)
    values = plan(arguments, manifest)
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
                f"{human_bytes(values['halo_bytes_per_epoch'])} in all",
                "gradients": f"{1e3 * values['weights_s']:.2f} ms on the wire",
                "epoch": f"{1e3 * values['epoch_s']:.2f} ms if nothing is hidden, "
                f"{1e3 * values['hidden_epoch_s']:.2f} ms if all is that can be",
                "memory": f"{human_bytes(max(values['memory_bytes_per_rank']))} on the largest "
                "rank, without libraries",
            }
        )
    )
    return 0


def _check(arguments: argparse.Namespace, manifest: Manifest) -> None:
    parts, directory = manifest.num_parts, arguments.directory
    if config_from(arguments).model.kind.is_typed and not manifest.num_features:
        raise InputError(
            f"distgnn plan cannot rehearse --model {arguments.model} on '{directory}', whose "
            "vertices have no features but learned rows; train a few epochs on this machine, or "
            "plan a graph with features"
        )
    if arguments.ranks not in (None, parts):
        raise InputError(
            f"partition directory '{directory}' has {parts} parts, but --ranks is "
            f"{arguments.ranks}; distgnn repartition {directory} --parts {arguments.ranks} --out "
            "DIR makes one to plan with"
        )
    if arguments.bandwidth is None and parts > 1:
        raise InputError(f"--bandwidth is needed for {parts} ranks, such as --bandwidth 100Gb/s")
    if manifest.has_links and arguments.task in ("auto", "link"):
        raise InputError(
            f"'{directory}' holds links out, whose random pairs send rows besides those of the "
            "model; plan predicts tasks on vertices, so give one of them as --task"
        )
    if not (manifest.has_labels and manifest.num_splits and manifest.num_features):
        raise InputError(
            f"the graph of '{directory}' has no features, labels or masks, so nothing can be "
            "trained on it; inspect predicts the traffic of plain sums"
        )


def plan(arguments: argparse.Namespace, manifest: Manifest) -> dict[str, Any]:
    """Predict an epoch.

    Args:
        arguments: Of the verb.
        manifest: Of the partition.

    Returns:
        JSON values by name; seconds on the slowest rank unless they are per rank.

    Raises:
        InputError: If the run cannot be, or a part is damaged.
    """
    from distgnn.comm.binding import apply_threads, choose_threads
    from distgnn.comm.launch import detect
    from distgnn.forecast.memory import memory_of_ranks
    from distgnn.forecast.traffic import forecast

    threads = choose_threads(arguments.threads, detect()).threads
    apply_threads(threads)
    config = config_from(arguments)
    found = forecast(arguments.directory, manifest, config)
    rehearsal, pace = _rehearse(arguments, manifest, found)
    scales = _Scales(arguments, threads, pace)
    compute, sums = _compute(found, rehearsal, scales, manifest)
    wire = _wire(arguments, found, manifest.num_parts, scales.turns)
    busy = compute + wire.messages * scales.turns
    cover = busy if found.delays.delay else sums
    return {
        "ranks": manifest.num_parts,
        "threads_here": threads,
        "rehearsed_epoch_s": rehearsal.epoch_s,
        "rehearsed_fixed_s": rehearsal.fixed_s,
        "compute_s": float(compute.max()),
        "compute_s_per_rank": compute.tolist(),
        "messages_s": float((busy - compute).max()),
        "num_messages": int(found.messages_between.sum()),
        "latency_s": wire.latency_s,
        "rows_s": float(wire.rows.max()),
        "weights_s": wire.weights,
        "epoch_s": float((busy + wire.rows).max()) + wire.weights,
        "hidden_epoch_s": float((busy + np.maximum(wire.rows - cover, 0)).max()) + wire.weights,
        "halo_bytes_per_epoch": found.bytes_per_epoch,
        "memory_bytes_per_rank": memory_of_ranks(manifest, found),
    }


def _rehearse(
    arguments: argparse.Namespace, manifest: Manifest, found: Forecast
) -> tuple[Rehearsal, Pace]:
    """Time the kernels that most of an epoch goes to, and epochs of the part that is slowest."""
    from distgnn.forecast.pace import compute_seconds, probe
    from distgnn.forecast.rehearsal import rehearse
    from distgnn.training.data.info import DataInfo

    config, directory = config_from(arguments), arguments.directory
    largest = int(np.argmax([part.num_edges for part in manifest.parts]))
    width = config.model.hidden_width
    assert found.model is not None, "a run has a model"
    columns = (max(found.model.num_features, 1), width)
    part = read_part(directory, largest, verify=False, manifest=manifest)
    pace = probe(part, width, columns=columns)
    seconds = compute_seconds(found, found.model, pace, density=manifest.feature_density)
    seconds[[part.num_roots == 0 for part in manifest.parts]] = -1.0
    part = read_part(directory, int(seconds.argmax()), verify=False, manifest=manifest)
    return rehearse(part, DataInfo.of(manifest), config), pace


class _Scales:
    """How much slower than here the cluster takes in a column of an edge, and multiplies.

    Attributes:
        pace: Here.
        products: Of a multiplication.
        sums: Of a column of an edge.
        turns: Of what one thread does: as many ranks as take turns on a core.
    """

    def __init__(self, arguments: argparse.Namespace, threads: int, pace: Pace) -> None:
        self.pace = pace
        self.products = threads / (arguments.cores or threads)
        self.sums = self.products
        self.turns = max(1.0, 1.0 / (arguments.cores or 1.0))
        if arguments.memory_bandwidth is not None:
            from distgnn.comm.single import SingleGroup
            from distgnn.machine.trials import memory_speed

            self.sums = memory_speed(SingleGroup())[0] / arguments.memory_bandwidth


def _compute(
    found: Forecast, rehearsal: Rehearsal, scales: _Scales, manifest: Manifest
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """What the rehearsal took, for as much as each rank has to do, and the sums' share of it.

    (num_parts,) seconds each.
    """
    pace, density = scales.pace, manifest.feature_density
    there = pace._replace(
        edge_s=pace.edge_s * scales.sums, product_s=pace.product_s * scales.products
    )
    seconds = rehearsal.scaled(found, density, here=pace, there=there)
    sums = rehearsal.scaled(found, density, here=pace, there=there._replace(product_s=0.0))
    return seconds + rehearsal.fixed_s * scales.turns, sums


class _Wire(NamedTuple):
    """What sending takes.

    Attributes:
        latency_s: Of a message.
        messages: (num_parts,) seconds of each rank's processor.
        rows: (num_parts,) seconds that each rank's rows are under way.
        weights: Seconds of a ring that sums the gradients.
    """

    latency_s: float
    messages: NDArray[np.float64]
    rows: NDArray[np.float64]
    weights: float


def _wire(arguments: argparse.Namespace, found: Forecast, num_ranks: int, turns: float) -> _Wire:
    """Model the messages between ranks on machines of their own."""
    from distgnn.forecast.pace import Link, reduce_seconds, toll_seconds, wire_seconds
    from distgnn.machine.loopback import try_loopback

    if num_ranks == 1:
        return _Wire(0.0, np.zeros(1), np.zeros(1), 0.0)
    tried = try_loopback()
    latency_s = tried.latency_s if arguments.latency is None else arguments.latency
    link = Link(arguments.bandwidth, latency_s)
    step = link._replace(latency_s=latency_s + tried.step_s * turns)
    assert found.model is not None, "a run has a model"
    num_bytes = 4 * sum(weight.numel() for weight in found.model.parameters())
    return _Wire(
        latency_s,
        toll_seconds(found, tried.toll),
        wire_seconds(found, link),
        reduce_seconds(num_bytes, num_ranks, step),
    )
