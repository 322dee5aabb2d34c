"""Graphs that leave a partitioner nothing to choose, through all that follows it."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distgnn.datasets import Graph
from distgnn.partition import METHODS, assign
from distgnn.partition.build import build_parts
from distgnn.partition.directory.store import read_manifest, read_part, write
from distgnn.partition.quality import measure

EDGES = {
    "one vertex": (1, [], []),
    "one self-loop": (1, [0], [0]),
    "many self-loops at one vertex": (1, [0] * 50, [0] * 50),
    "two vertices": (2, [0], [1]),
    "one edge many times": (3, [0] * 90, [1] * 90),
    "no edges": (66, [], []),
    "self-loops alone": (66, range(66), range(66)),
    "star outwards": (65, [0] * 64, range(1, 65)),
    "star inwards": (65, range(1, 65), [0] * 64),
    "two hubs": (66, [0] * 64 + [1] * 64, [*range(2, 66), *range(2, 66)]),
    "pairs": (64, range(0, 64, 2), range(1, 64, 2)),
    "a clique among isolated vertices": (70, np.arange(64) // 8, np.arange(64) % 8),
    "complete": (20, np.arange(400) // 20, np.arange(400) % 20),
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", EDGES)
def test_a_degenerate_graph_is_cut_measured_written_and_read_in_silence(
    method: str, name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    num_vertices, src, dst = EDGES[name]
    src, dst = np.array(src, np.int64), np.array(dst, np.int64)
    graph = Graph(name="g", num_vertices=num_vertices, src=src, dst=dst)
    record: Any = {"method": method, "options": {}, "seed": 0}
    for num_parts in sorted({1, min(2, num_vertices), (num_vertices + 1) // 2, num_vertices}):
        assignment = assign(method, graph, num_parts)
        quality = measure(graph, assignment)
        for field in fields(quality):
            assert np.isfinite(getattr(quality, field.name)).all(), field.name
        parts = list(build_parts(graph, assignment))
        if num_parts <= 2:  # forcing many small files to disk takes seconds
            write(tmp_path / f"{num_parts}", graph, assignment, quality=quality, **record)
            manifest = read_manifest(tmp_path / f"{num_parts}")
            assert min(manifest.estimate([4]).memory_bytes) >= 0
            parts = [read_part(tmp_path / f"{num_parts}", part) for part in range(num_parts)]
        assert sum(part.num_roots for part in parts) == num_vertices
        assert sum(part.num_edges for part in parts) == src.size
    assert capfd.readouterr() == ("", "")
