"""`distgnn inspect`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from distgnn.cli.flags import path
from distgnn.cli.output import add_json_flag, human_bytes, pairs, print_json, print_lines, table
from distgnn.datasets.errors import InputError
from distgnn.partition.levels import halo_rows_per_level, parse_levels
from distgnn.partition.store import read_manifest, read_part

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from distgnn.partition.store import Manifest

HELP = "show what a partition costs"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.add_argument("directory", metavar="DIR", type=path, help="partition directory")
    parser.add_argument(
        "--layers",
        metavar="W1,W2,...",
        help="widths of the rows that each layer aggregates (default: 64,64)",
        default="64,64",
    )
    parser.add_argument(
        "--verify", action="store_true", help="read every part and check every file's checksum"
    )
    add_json_flag(parser)


def run(arguments: argparse.Namespace) -> int:
    """Read the manifest and report."""
    widths = _widths(arguments.layers)
    manifest = read_manifest(arguments.directory)
    if arguments.verify:
        for part in range(manifest.num_parts):
            read_part(arguments.directory, part)
    estimate = manifest.estimate(widths)
    reuse = _row_reuse(arguments.directory, manifest, max(widths))
    if arguments.json:
        print_json(
            {
                **manifest_json(manifest),
                "layer_widths": widths,
                "halo_bytes_per_epoch": estimate.halo_bytes_per_epoch,
                "memory_bytes_per_rank": list(estimate.memory_bytes),
                "row_reuse": reuse,
            }
        )
        return 0
    lines = quality_lines(manifest, reuse)
    lines += [
        "",
        f"for layers that aggregate rows of width {', '.join(map(str, widths))} (fp32, cd-0):",
        f"  sent per epoch   {human_bytes(estimate.halo_bytes_per_epoch)}",
        f"  memory per rank  {human_bytes(max(estimate.memory_bytes))} at most, without libraries",
        f"  reuse per rank   {min(reuse):.1f} reads at least for each fetch into 1 MiB of cache",
    ]
    print_lines(lines)
    return 0


def _row_reuse(directory: str, manifest: Manifest, width: int) -> list[float]:
    """How often a row is read per fetch into the cache, part by part."""
    # Loads numba, which no other verb needs to read a directory.
    from distgnn.partition.reuse import row_reuse

    parts = (
        read_part(directory, part, verify=False, manifest=manifest)
        for part in range(manifest.num_parts)
    )
    return [row_reuse(part, width) for part in parts]


def quality_lines(manifest: Manifest, reuse: Sequence[float] | None = None) -> list[str]:
    """Describe a partition for people.

    Args:
        manifest: Of the partition.
        reuse: (num_parts,) how often each part's rows are read per fetch, if that was estimated.

    Returns:
        Lines of text.
    """
    quality = manifest.quality
    saved = quality["halo_rows_at_destination"]
    lines = pairs(
        {
            "graph": f"{manifest.name}, {manifest.num_vertices} vertices, "
            f"{manifest.num_edges} edges",
            "method": f"{manifest.method}, {manifest.num_parts} parts, seed {manifest.seed}",
            "order": manifest.order,
            "replication_factor": f"{quality['replication_factor']:.3f}",
            "halo_rows": f"{quality['halo_rows']} (all edges at their destination: {saved})",
            "edge_balance": f"{quality['edge_balance']:.3f}",
            "vertex_balance": f"{quality['vertex_balance']:.3f}",
            "clone_balance": f"{quality['clone_balance']:.3f}",
            "train_balance": f"{quality['train_balance']:.3f}",
        }
    )
    if per_level := _halo_rows_per_level(manifest):
        shown = ", then ".join(map(str, per_level))
        lines += pairs({"halo_rows_per_level": f"{shown} (first between the largest groups)"})
    header = ["part", "edges", "roots", "leaves"]
    rows: list[list[object]] = [
        [number, part.num_edges, part.num_roots, part.num_leaves]
        for number, part in enumerate(manifest.parts)
    ]
    if reuse is not None:
        header.append("reuse")
        rows = [[*row, f"{value:.1f}"] for row, value in zip(rows, reuse, strict=True)]
    return [*lines, "", *table(header, rows)]


def manifest_json(manifest: Manifest) -> dict[str, Any]:
    """Describe a partition for programs.

    Args:
        manifest: Of the partition.

    Returns:
        JSON values by name: those of the manifest but for its files, and those of its quality.
        Counts are of the whole graph; `parts` has them for each part.
    """
    values = manifest.to_json()
    quality = values.pop("quality")
    del values["files"]
    if per_level := _halo_rows_per_level(manifest):
        quality["halo_rows_per_level"] = list(per_level)
    return {**quality, **values}


def _halo_rows_per_level(manifest: Manifest) -> tuple[int, ...]:
    """Rows between machines, between sockets, and so on, of a hierarchical partition."""
    if manifest.method != "hierarchical":
        return ()
    levels = parse_levels(str(manifest.options.get("levels") or ""), manifest.num_parts)
    rows = np.add(manifest.quality["read_rows"], manifest.quality["write_rows"])
    return halo_rows_per_level(rows, levels)


def _widths(text: str) -> list[int]:
    try:
        return [int(width) for width in text.split(",")]
    except ValueError as error:
        raise InputError(f"--layers must be widths such as 16,7, got '{text}'") from error
