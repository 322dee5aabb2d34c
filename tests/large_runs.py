"""Partitions made from disk, for tests of how their runs end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from large_graphs import open_folder, roots_by_metis

from distgnn.datasets import Graph
from distgnn.datasets.planted import planted
from distgnn.partition.directory.manifest import Manifest
from distgnn.partition.large.budget import least_bytes
from distgnn.partition.large.clock import Progress
from distgnn.partition.large.input import SourceText
from distgnn.partition.large.pipeline import Places, Settings, partition


def run(
    folder: Path, out: Path, num_parts: int = 4, progress: Progress | None = None, **changes: Any
) -> Manifest:
    """Partition; the least memory makes piles and windows small."""
    source = open_folder(folder)
    memory = least_bytes(source, num_parts)
    settings = replace(Settings(num_parts=num_parts, memory_bytes=memory), **changes)
    places = Places(directory=out, work=out.with_suffix(".work"))
    given = SourceText(source=str(folder))
    return partition(given, places, settings, choose_roots=roots_by_metis, progress=progress)


def communities(num_vertices: int = 600, seed: int = 3) -> Graph:
    return planted(num_vertices=num_vertices, num_classes=12, average_degree=16, seed=seed)


def content(manifest: Manifest) -> dict[str, Any]:
    """All but the source, which lies elsewhere in each test, and the options."""
    return {**manifest.to_json(), "source": "", "name": "", "source_checksum": "", "options": {}}


class StoppedError(Exception):
    """Ends a run from inside."""
