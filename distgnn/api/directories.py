"""Partition directories: quality, and predictions of training on them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from distgnn.api.settings import Keywords, config_from
from distgnn.datasets.errors import InputError
from distgnn.partition.directory.store import read_manifest, read_part
from distgnn.partition.methods.levels import halo_rows_per_level, parse_levels

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from distgnn.partition.build import Part
    from distgnn.partition.directory.store import Manifest
    from distgnn.training.config.settings import TrainConfig


def inspect(
    directory: str | os.PathLike[str],
    *,
    widths: Sequence[int] | None = None,
    verify: bool = False,
    bound: bool = False,
    **settings: Any,
) -> dict[str, Any]:
    """Measure a partition, and predict what training on it sends and takes.

    Args:
        directory: Partition directory.
        widths: Widths of the rows that layers sum over all edges, instead of a model.
        verify: Whether to read every part and check every file's checksum.
        bound: Whether to read every edge, and find the fewest rows that travel for these roots
            while each edge lives at one of its ends: `least_halo_rows`.
        settings: Settings of the model and of its training, as for `train`.

    Returns:
        Counts, quality, bytes per epoch and memory, by name; the JSON object of `distgnn inspect`.

    Raises:
        InputError: If a setting is unknown or not allowed, or the directory is damaged.
    """
    words = Keywords("inspect", settings)
    config = config_from(words)
    words.refuse_others(("widths", "verify", "bound"))
    if widths is not None and settings:
        raise InputError(
            f"{next(iter(settings))} has no effect on sums of given widths; leave it or the "
            "widths out"
        )
    path = os.fspath(directory)
    manifest = read_manifest(path)
    for part in range(manifest.num_parts if verify else 0):
        read_part(path, part)
    given = None if widths is None else list(widths)
    values = forecast_values(path, manifest, None if given else config, widths=given)
    least = {"least_halo_rows": _least_halo_rows(path, manifest)} if bound else {}
    return {**manifest_json(manifest), **values, **least}


def plan(
    directory: str | os.PathLike[str],
    *,
    bandwidth: float | None = None,
    latency: float | None = None,
    cores: float | None = None,
    memory_bandwidth: float | None = None,
    threads: int | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """Predict an epoch on a cluster that is not at hand, by a rehearsal on this machine.

    Args:
        directory: Partition directory with a part for each rank.
        bandwidth: Bytes per second of a rank's link; needed for several ranks.
        latency: Seconds of a message; None for that of the loopback interface here.
        cores: Cores of a rank; None for as many as here.
        memory_bandwidth: Bytes per second of a rank's memory; None for that of this machine.
        threads: Threads of the rehearsal; None for this process's share of the cores.
        settings: Settings of the model and of its training, as for `train`.

    Returns:
        Seconds, bytes and memory by name; the JSON object of `distgnn plan`. Seconds are those of
        the slowest rank unless they are per rank.

    Raises:
        InputError: If a setting is unknown or not allowed, or the run cannot be planned.
    """
    words = Keywords("plan", settings)
    config = config_from(words)
    words.refuse_others(("bandwidth", "latency", "cores", "memory_bandwidth", "threads"))
    path = os.fspath(directory)
    return plan_directory(
        path, config, (bandwidth, latency, cores, memory_bandwidth), threads=threads
    )


def plan_directory(
    directory: str,
    config: TrainConfig,
    cluster: tuple[float | None, float | None, float | None, float | None],
    *,
    threads: int | None,
) -> dict[str, Any]:
    """Predict an epoch on a cluster.

    Args:
        directory: Partition directory.
        config: Settings of the run.
        cluster: Bandwidth, latency, cores and memory bandwidth, as for `plan`.
        threads: Threads of the rehearsal, as for `plan`.

    Returns:
        Values as those of `plan`.

    Raises:
        InputError: If the run cannot be planned.
    """
    import torch

    from distgnn.comm.binding import apply_threads, choose_threads
    from distgnn.comm.launch import detect
    from distgnn.forecast.plan import Cluster, check_plan, plan_epoch

    manifest, there = read_manifest(directory), Cluster(*cluster)
    check_plan(directory, manifest, config, there)
    count, before = choose_threads(threads, detect()).threads, torch.get_num_threads()
    apply_threads(count)
    try:
        return plan_epoch(directory, manifest, config, there, threads=count)
    finally:
        apply_threads(before)


def forecast_values(
    directory: str,
    manifest: Manifest,
    config: TrainConfig | None,
    *,
    widths: list[int] | None = None,
) -> dict[str, Any]:
    """Predict traffic, memory and reuse in cache.

    Args:
        directory: Partition directory.
        manifest: Manifest of the partition.
        config: Settings of the run; not looked at where widths are given.
        widths: Widths of the rows that layers sum over all edges, instead of a model.

    Returns:
        JSON values by name.

    Raises:
        InputError: If the run cannot be, or a part is damaged.
    """
    from distgnn.forecast.summary import summarize

    values = summarize(directory, manifest, config, widths=widths)
    widest = max([*values["layer_widths"], 1])
    return {**values, "row_reuse": _row_reuse(directory, manifest, widest)}


def _row_reuse(directory: str, manifest: Manifest, width: int) -> list[float]:
    """Estimate how often a row is read per fetch into the cache, part by part."""
    # Loads compiled code, which no other verb needs to read a directory.
    from distgnn.partition.reuse import row_reuse

    return [row_reuse(part, width) for part in _parts(directory, manifest)]


def _least_halo_rows(directory: str, manifest: Manifest) -> int:
    """Count the fewest rows that travel for the roots of a partition."""
    from distgnn.partition.bound import least_halo_rows

    return least_halo_rows(_parts(directory, manifest, every_edge=True), manifest.num_parts)


def _parts(directory: str, manifest: Manifest, *, every_edge: bool = False) -> Iterator[Part]:
    """Read the parts of a partition, one after another."""
    for part in range(manifest.num_parts):
        yield read_part(directory, part, verify=False, every_edge=every_edge, manifest=manifest)


def manifest_json(manifest: Manifest) -> dict[str, Any]:
    """Describe a partition for programs.

    Args:
        manifest: Manifest of the partition.

    Returns:
        JSON values by name: those of the manifest but for its files, and those of its quality.
        Counts are of the whole graph; `parts` has them for each part.
    """
    values = manifest.to_json()
    quality = values.pop("quality")
    del values["files"]
    if per_level := rows_per_level(manifest):
        quality["halo_rows_per_level"] = list(per_level)
    return {**quality, **values}


def rows_per_level(manifest: Manifest) -> tuple[int, ...]:
    """Count rows between machines, between sockets, and so on, of a hierarchical partition.

    Args:
        manifest: Manifest of the partition.

    Returns:
        Rows as `halo_rows_per_level` counts them; nothing for other partitions.
    """
    if manifest.method != "hierarchical":
        return ()
    levels = parse_levels(str(manifest.options.get("levels") or ""), manifest.num_parts)
    rows = np.add(manifest.quality["read_rows"], manifest.quality["write_rows"])
    return halo_rows_per_level(rows, levels)
