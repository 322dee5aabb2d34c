"""`distgnn plan`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from distgnn.cli.flags import MAX_THREADS, bandwidth, duration, path, whole
from distgnn.cli.model import add_model_arguments
from distgnn.cli.output import add_json_flag, human_bytes, pairs, print_json, print_lines
from distgnn.cli.train_verb import add_epoch_arguments, config_from
from distgnn.datasets.errors import InputError
from distgnn.partition.store import read_manifest, read_part

if TYPE_CHECKING:
    import argparse

    from numpy.typing import NDArray

    from distgnn.cli.rehearsal import Rehearsal
    from distgnn.partition.store import Manifest
    from distgnn.train.config import TrainConfig
    from distgnn.train.forecast import Forecast
    from distgnn.train.pace import Pace

HELP = "predict an epoch on a cluster that is not at hand"
EPILOG = (
    "Computing is a rehearsal: epochs of the slowest part, or of a sample of it, on one rank of "
    "this machine, in proportion to what each rank walks and multiplies. --cores scales dense "
    "products, and sums over edges too unless --memory-bandwidth scales those. Traffic is that of "
    "the partition, to the byte."
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
    add("--latency", type=duration, default=0.0, metavar="TIME", help="of a message, such as 2us")
    add("--cores", type=whole(1, MAX_THREADS), metavar="C", help="of a rank (default: as here)")
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
                "rows": f"{1e3 * values['rows_s']:.2f} ms on the wire, "
                f"{human_bytes(values['halo_bytes_per_epoch'])} in all",
                "gradients": f"{1e3 * values['weights_s']:.2f} ms on the wire",
                "epoch": f"{1e3 * values['epoch_s']:.2f} ms if nothing is hidden, "
                f"{1e3 * values['hidden_epoch_s']:.2f} ms if all rows are",
                "memory": f"{human_bytes(max(values['memory_bytes_per_rank']))} on the largest "
                "rank, without libraries",
            }
        )
    )
    return 0


def _check(arguments: argparse.Namespace, manifest: Manifest) -> None:
    parts, directory = manifest.num_parts, arguments.directory
    if config_from(arguments).model.kind.is_typed:
        raise InputError(
            f"distgnn plan cannot rehearse --model {arguments.model} yet; train a few epochs on "
            "this machine, or plan another model"
        )
    if arguments.ranks not in (None, parts):
        raise InputError(
            f"partition directory '{directory}' has {parts} parts, but --ranks is "
            f"{arguments.ranks}; distgnn repartition {directory} --parts {arguments.ranks} --out "
            "DIR makes one to plan with"
        )
    if arguments.bandwidth is None and parts > 1:
        raise InputError(f"--bandwidth is needed for {parts} ranks, such as --bandwidth 100Gb/s")
    if manifest.has_links:
        raise InputError(
            f"'{directory}' holds links out, whose random pairs send rows besides those of the "
            "model; plan foretells tasks on vertices, so partition without --edge-split"
        )
    if not (manifest.has_labels and manifest.num_splits and manifest.num_features):
        raise InputError(
            f"the graph of '{directory}' has no features, labels or masks, so nothing can be "
            "trained on it; inspect foretells the traffic of plain sums"
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
    from distgnn.train.forecast import forecast, memory_of_ranks

    threads = choose_threads(arguments.threads, detect()).threads
    apply_threads(threads)
    config = config_from(arguments)
    found = forecast(arguments.directory, manifest, config)
    rehearsal, pace = _rehearse(arguments, manifest, found)
    compute = _compute(found, rehearsal, _Scales(arguments, threads, pace), manifest)
    rows, weights = _wire(arguments, found, manifest.num_parts)
    return {
        "ranks": manifest.num_parts,
        "threads_here": threads,
        "rehearsed_epoch_s": rehearsal.epoch_s,
        "compute_s": float(compute.max()),
        "compute_s_per_rank": compute.tolist(),
        "rows_s": float(rows.max()),
        "weights_s": weights,
        "epoch_s": float((compute + rows).max()) + weights,
        "hidden_epoch_s": float(np.maximum(compute, rows).max()) + weights,
        "halo_bytes_per_epoch": found.bytes_per_epoch,
        "memory_bytes_per_rank": memory_of_ranks(manifest, found),
    }


def _rehearse(
    arguments: argparse.Namespace, manifest: Manifest, found: Forecast
) -> tuple[Rehearsal, Pace]:
    """Time the kernels that most of an epoch goes to, and epochs of the part that is slowest."""
    from distgnn.cli.rehearsal import rehearse, sample_of
    from distgnn.train.pace import compute_seconds, probe

    config, directory = config_from(arguments), arguments.directory
    largest = int(np.argmax([part.num_edges for part in manifest.parts]))
    width = config.model.hidden_width
    columns = (max(manifest.num_features, 1), width)
    part = read_part(directory, largest, verify=False, manifest=manifest)
    pace = probe(part, width, columns=columns)
    assert found.model is not None, "a run has a model"
    seconds = compute_seconds(found, found.model, pace, density=manifest.feature_density)
    seconds[[part.num_roots == 0 for part in manifest.parts]] = -1.0
    part = read_part(directory, int(seconds.argmax()), verify=False, manifest=manifest)
    return rehearse(sample_of(part, config.split_index), _alone(config), manifest.num_classes), pace


def _alone(config: TrainConfig) -> TrainConfig:
    """Return the run without what only several ranks do, on the only split of a sample."""
    return replace(
        config,
        split_index=0,
        algorithm="cd-0",
        reweight_loss=False,
        bins=None,
        delay=None,
        delay_cache=True,
        gradient_cache=None,
        smoothing=0.0,
        gradient_smoothing=None,
        warm_up_epochs=0,
    )


class _Scales:
    """How much slower than here the cluster takes in a column of an edge, and multiplies."""

    def __init__(self, arguments: argparse.Namespace, threads: int, pace: Pace) -> None:
        self.pace = pace
        self.products = threads / (arguments.cores or threads)
        self.sums = self.products
        if arguments.memory_bandwidth is not None:
            from distgnn.cli.trials import memory_speed
            from distgnn.comm.single import SingleGroup

            self.sums = memory_speed(SingleGroup())[0] / arguments.memory_bandwidth


def _compute(
    found: Forecast, rehearsal: Rehearsal, scales: _Scales, manifest: Manifest
) -> NDArray[np.float64]:
    """(num_parts,) seconds: what the rehearsal took, for as much as each rank has to do."""
    from distgnn.train.pace import compute_seconds

    pace, model = scales.pace, rehearsal.model
    modelled = float(compute_seconds(rehearsal.found, model, pace, density=rehearsal.density).max())
    scaled = pace._replace(
        edge_s=pace.edge_s * scales.sums, product_s=pace.product_s * scales.products
    )
    seconds = compute_seconds(found, model, scaled, density=manifest.feature_density)
    result: NDArray[np.float64] = seconds * (rehearsal.epoch_s / modelled)
    return result


def _wire(
    arguments: argparse.Namespace, found: Forecast, num_ranks: int
) -> tuple[NDArray[np.float64], float]:
    """(num_parts,) seconds of rows, and the seconds of a ring that sums the gradients."""
    from distgnn.train.pace import Link, wire_seconds

    if num_ranks == 1:
        return np.zeros(1), 0.0
    link = Link(arguments.bandwidth, arguments.latency)
    assert found.model is not None, "a run has a model"
    num_bytes = 4 * sum(weight.numel() for weight in found.model.parameters())
    steps = 2 * (num_ranks - 1)
    weights = steps * (num_bytes / num_ranks / link.bytes_per_s + link.latency_s)
    return wire_seconds(found, link), weights
