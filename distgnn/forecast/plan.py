"""An epoch on a cluster that is not at hand: bytes are counted, computing is rehearsed here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from distgnn.comm.single import SingleGroup
from distgnn.datasets.errors import InputError
from distgnn.forecast.memory import memory_of_ranks
from distgnn.forecast.pace import (
    Link,
    compute_seconds,
    probe,
    reduce_seconds,
    toll_seconds,
    wire_seconds,
)
from distgnn.forecast.rehearsal import rehearse
from distgnn.forecast.traffic import forecast, screened_bytes
from distgnn.machine.loopback import try_loopback
from distgnn.machine.trials import memory_speed
from distgnn.partition.directory.store import read_part
from distgnn.training.data.info import DataInfo

if TYPE_CHECKING:
    import os

    from numpy.typing import NDArray

    from distgnn.forecast.pace import Pace
    from distgnn.forecast.rehearsal import Rehearsal
    from distgnn.forecast.traffic import Forecast
    from distgnn.partition.directory.store import Manifest
    from distgnn.training.config.settings import TrainConfig


@dataclass(frozen=True)
class Cluster:
    """Machines with one rank each; None stands for what is found on this machine.

    Attributes:
        bandwidth: Bytes per second of a rank's link, in each direction; None for one rank alone.
        latency_s: Seconds of latency of a message.
        cores: Number of cores of a rank; 0.5 where two ranks take turns on a core.
        memory_bandwidth: Bytes per second of a rank's memory.
    """

    bandwidth: float | None = None
    latency_s: float | None = None
    cores: float | None = None
    memory_bandwidth: float | None = None


def check_plan(
    directory: str | os.PathLike[str], manifest: Manifest, config: TrainConfig, cluster: Cluster
) -> None:
    """Check that an epoch on a partition can be rehearsed.

    Args:
        directory: Partition directory.
        manifest: Manifest of the partition.
        config: Settings of the run.
        cluster: Machines of the ranks.

    Raises:
        InputError: If it cannot be, or the speed of the link is not known.
    """
    if config.model.kind.is_typed and not manifest.num_features:
        raise InputError(
            f"distgnn plan cannot rehearse --model {config.model.model} on '{directory}', whose "
            "vertices have no features but learned rows; train a few epochs on this machine, or "
            "plan a graph with features"
        )
    parts = manifest.num_parts
    if cluster.bandwidth is None and parts > 1:
        raise InputError(f"--bandwidth is needed for {parts} ranks, such as --bandwidth 100Gb/s")
    if manifest.has_links and config.task in ("auto", "link"):
        raise InputError(
            f"'{directory}' holds links out, whose random pairs send rows besides those of the "
            "model; plan predicts tasks on vertices, so give one of them as --task"
        )
    if not (manifest.has_labels and manifest.num_splits and manifest.num_features):
        raise InputError(
            f"the graph of '{directory}' has no features, labels or masks, so nothing can be "
            "trained on it; inspect predicts the traffic of plain sums"
        )


def plan_epoch(
    directory: str | os.PathLike[str],
    manifest: Manifest,
    config: TrainConfig,
    cluster: Cluster,
    *,
    threads: int,
) -> dict[str, Any]:
    """Predict an epoch on a cluster.

    Args:
        directory: Partition directory.
        manifest: Manifest of the partition.
        config: Settings of the run.
        cluster: Machines of the ranks.
        threads: Number of threads that torch computes with here.

    Returns:
        JSON values by name; seconds on the slowest rank unless they are per rank.

    Raises:
        InputError: If the run cannot be, or a part is damaged.
    """
    found = forecast(directory, manifest, config)
    rehearsal, pace = _rehearse(directory, manifest, config, found)
    scales = _Scales(cluster, threads, pace)
    compute, sums = _compute(found, rehearsal, scales, manifest)
    wire = _wire(cluster, found, manifest.num_parts, scales.turns)
    busy = compute + wire.messages * scales.turns
    # Late rows hide behind all that is computed, those of cd-0 behind the sums of the same layer.
    cover = busy if found.rule.delay else sums
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
        "eval_halo_bytes": found.evaluation_bytes,
        "screened_halo_bytes": screened_bytes(found, config),
        "weight_bytes_per_epoch": found.weight_bytes,
        "sends_at_most": found.rule.sends_at_most,
        "weights_at_most": config.weight_rule.sends_at_most,
        "memory_bytes_per_rank": memory_of_ranks(manifest, found),
    }


def _rehearse(
    directory: str | os.PathLike[str], manifest: Manifest, config: TrainConfig, found: Forecast
) -> tuple[Rehearsal, Pace]:
    """Time the kernels that most of an epoch goes to, and epochs of the part that is slowest."""
    largest = int(np.argmax([part.num_edges for part in manifest.parts]))
    width = config.model.hidden_width
    assert found.model is not None, "a run has a model"
    columns = (max(found.model.num_features, 1), width)
    part = read_part(directory, largest, verify=False, every_edge=True, manifest=manifest)
    pace = probe(part, width, columns=columns)
    seconds = compute_seconds(found, found.model, pace, density=manifest.feature_density)
    seconds[[part.num_roots == 0 for part in manifest.parts]] = -1.0
    part = read_part(
        directory, int(seconds.argmax()), verify=False, every_edge=True, manifest=manifest
    )
    return rehearse(part, DataInfo.of(manifest), config), pace


class _Scales:
    """Slowness of the cluster, relative to this machine.

    Attributes:
        pace: Pace of the kernels of this machine.
        products: Factor of a multiplication.
        sums: Factor of a column of an edge.
        turns: Factor of the work of one thread: the ranks that take turns on a core.
    """

    def __init__(self, cluster: Cluster, threads: int, pace: Pace) -> None:
        self.pace = pace
        self.products = threads / (cluster.cores or threads)
        self.sums = self.products
        self.turns = max(1.0, 1.0 / (cluster.cores or 1.0))
        if cluster.memory_bandwidth is not None:
            self.sums = memory_speed(SingleGroup())[0] / cluster.memory_bandwidth


def _compute(
    found: Forecast, rehearsal: Rehearsal, scales: _Scales, manifest: Manifest
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Scale the rehearsal to the work of each rank; also return the share of its sums.

    Returns:
        Twice (num_parts,) float64 seconds.
    """
    pace, density = scales.pace, manifest.feature_density
    there = pace._replace(
        edge_s=pace.edge_s * scales.sums, product_s=pace.product_s * scales.products
    )
    seconds = rehearsal.scaled(found, density, here=pace, there=there)
    sums = rehearsal.scaled(found, density, here=pace, there=there._replace(product_s=0.0))
    return seconds + rehearsal.fixed_s * scales.turns, sums


class _Wire(NamedTuple):
    """Time that messages take.

    Attributes:
        latency_s: Seconds of latency of a message.
        messages: (num_parts,) seconds of each rank's processor.
        rows: (num_parts,) seconds of each rank's rows on the wire.
        weights: Seconds of a ring that sums the gradients.
    """

    latency_s: float
    messages: NDArray[np.float64]
    rows: NDArray[np.float64]
    weights: float


def _wire(cluster: Cluster, found: Forecast, num_ranks: int, turns: float) -> _Wire:
    """Model the messages between ranks on machines of their own."""
    if num_ranks == 1:
        return _Wire(0.0, np.zeros(1), np.zeros(1), 0.0)
    tried = try_loopback()
    latency_s = tried.latency_s if cluster.latency_s is None else cluster.latency_s
    assert cluster.bandwidth is not None, "several ranks have a link"
    link = Link(cluster.bandwidth, latency_s)
    step = link._replace(latency_s=latency_s + tried.step_s * turns)
    return _Wire(
        latency_s,
        toll_seconds(found, tried.toll),
        wire_seconds(found, link),
        reduce_seconds(found.weights.ring_bytes(num_ranks), num_ranks, step),
    )
