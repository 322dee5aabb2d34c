"""The order of roots in a partition directory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import stored_parts

from distgnn.datasets import Graph
from distgnn.partition.directory.store import Manifest, read_manifest, read_part


def save(directory: Path) -> Manifest:
    """Write a ring of 12 named vertices in 3 parts, backwards."""
    ring = np.arange(12)
    names = np.array([f"vertex {v}" for v in ring])
    graph = Graph(
        name="ring", num_vertices=12, src=ring, dst=(ring + 1) % 12, features=None, vertex_id=names
    )
    return stored_parts.save(directory, graph, order=ring[::-1], order_name="reverse")


def test_roots_are_stored_in_the_order_that_is_given(tmp_path: Path) -> None:
    manifest = save(tmp_path / "parts")
    assert read_manifest(tmp_path / "parts").order == manifest.order == "reverse"
    for number in range(3):
        part = read_part(tmp_path / "parts", number)
        roots = part.global_id[: part.num_roots]
        assert (np.diff(roots) < 0).all()
        assert part.vertex_id is not None
        assert part.vertex_id.tolist() == [f"vertex {v}" for v in roots]
