"""Partition directories of a small graph, and ways of altering them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from distgnn.datasets import Graph
from distgnn.partition import assign
from distgnn.partition.directory.store import (
    Manifest,
    write,
)
from distgnn.partition.quality import measure


def store_random(folder: Path, graph: Graph, num_parts: int) -> None:
    """Cut a graph at random, and write its partition directory."""
    assignment = assign("random", graph, num_parts, seed=1)
    quality = measure(graph, assignment)
    write(folder, graph, assignment, method="random", options={}, seed=1, quality=quality)


def example(kind: str = "dense") -> Graph:
    """A graph of 12 vertices with data of one kind."""
    generator = np.random.default_rng(5)
    src, dst = generator.integers(0, 12, (2, 40))
    split = np.arange(12) % 3
    data: dict[str, Any] = {}
    if kind != "bare":
        data = {
            "labels": generator.integers(0, 3, 12),
            **{
                f"{name}_mask": (split == k)[None]
                for k, name in enumerate(("train", "val", "test"))
            },
        }
    if kind == "dense":
        data["features"] = generator.random((12, 4), dtype=np.float32)
        data["vertex_id"] = np.array([f"vertex {v}" for v in range(12)])
    if kind == "sparse":
        data["features"] = sp.random(12, 9, 0.3, format="csr", dtype=np.float32, random_state=0)
        data["edge_weight"] = generator.random(40, dtype=np.float32)
        data["vertex_id"] = np.arange(12) * 10
    if kind == "edge-features":
        data["edge_features"] = generator.random((40, 3), dtype=np.float32)
    if kind == "typed":
        data["edge_type"] = generator.integers(0, 3, 40)
        data["vertex_type"] = generator.integers(0, 2, 12)
        data["relation_names"] = ("cites", "owns", "writes", "never used")
    if kind == "multilabel":
        data["labels"] = generator.integers(0, 2, (12, 5)).astype(np.uint8)
    return Graph(name="example", num_vertices=12, src=src, dst=dst, source="a.npz", **data)


def save(directory: Path, graph: Graph, **options: Any) -> Manifest:
    assignment = assign("metis", graph, 3)
    return write(
        directory,
        graph,
        assignment,
        method="metis",
        options={"objective": "volume"},
        seed=0,
        quality=measure(graph, assignment),
        **options,
    )


def edit_manifest(directory: Path, **changes: Any) -> None:
    path = directory / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def replace_array(directory: Path, relative: str, array: np.ndarray) -> None:
    """Store another array with the right checksum, so that only its content is wrong."""
    np.save(directory / relative, array)
    content = (directory / relative).read_bytes()
    files = json.loads((directory / "manifest.json").read_text())["files"]
    files[relative] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    edit_manifest(directory, files=files)
