"""Reverses of edges on disk; test_ingest.py has what they are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from distgnn.datasets import load
from distgnn.datasets.edge_file import from_array_folder
from distgnn.datasets.reverses import add_reverses, buckets_of, values_of

NUM_VERTICES = 100_000
NUM_BUCKETS = 16


def draw(kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Draw ends of edges; hubs have low ids."""
    generator = np.random.default_rng(0)
    ends = generator.random((2, 200_000))
    if kind == "hubs":
        ends[0] **= 6
    if kind == "stars":
        ends[0] = 0
    src, dst = (NUM_VERTICES * ends).astype(np.int32)
    return src, dst


@pytest.mark.parametrize("kind", ["uniform", "hubs", "stars"])
def test_buckets_are_of_equal_size(kind: str) -> None:
    bucket = buckets_of(*draw(kind), NUM_VERTICES, NUM_BUCKETS)
    counts = np.bincount(bucket.astype(np.int64), minlength=NUM_BUCKETS)
    assert counts.size == NUM_BUCKETS
    assert counts.max() < 1.1 * counts.mean()


def test_an_edge_and_its_reverse_share_a_bucket() -> None:
    src, dst = draw("hubs")
    assert np.array_equal(
        buckets_of(src, dst, NUM_VERTICES, NUM_BUCKETS),
        buckets_of(dst, src, NUM_VERTICES, NUM_BUCKETS),
    )


@pytest.mark.parametrize("bucket_edges", [10, 100, 10_000])
def test_the_size_of_buckets_does_not_change_the_edges(tmp_path: Path, bucket_edges: int) -> None:
    ends = (30 * np.random.default_rng(1).random((2, 600)) ** 2).astype(np.int32)
    np.save(tmp_path / "edge_index.npy", ends)
    folder = tmp_path / "out"
    folder.mkdir()
    values = values_of(tmp_path, 600)
    assert values.record().itemsize == 8
    add_reverses(from_array_folder(tmp_path), values, folder, bucket_edges=bucket_edges)
    found, expected = load(folder), load(tmp_path, undirected=True)
    assert expected.num_edges > 600
    keys = [np.sort(graph.src * 30 + graph.dst) for graph in (found, expected)]
    assert np.array_equal(*keys)
    assert sorted(file.name for file in folder.iterdir()) == ["dst.npy", "src.npy"]


@pytest.mark.parametrize("bucket_edges", [10, 10_000])
def test_reverses_are_those_of_the_relation_whatever_the_size_of_buckets(
    tmp_path: Path, bucket_edges: int
) -> None:
    generator = np.random.default_rng(2)
    ends = generator.integers(0, 12, (2, 300)).astype(np.int32)
    np.save(tmp_path / "edge_index.npy", ends)
    np.save(tmp_path / "edge_type.npy", generator.integers(0, 5, 300))
    np.save(tmp_path / "edge_features.npy", np.arange(600.0).reshape(300, 2))
    # Of so many vertices, both ends and a type do not fit into 64 bits.
    np.save(tmp_path / "num_vertices.npy", np.asarray(1 << 30))
    folder = tmp_path / "out"
    folder.mkdir()
    edges, values = from_array_folder(tmp_path), values_of(tmp_path, 300)
    add_reverses(edges, values, folder, bucket_edges=bucket_edges)
    np.save(tmp_path / "num_vertices.npy", np.asarray(12))
    np.save(folder / "num_vertices.npy", np.asarray(12))
    rows = []
    for graph in (load(folder), load(tmp_path, undirected=True)):
        assert graph.edge_type is not None
        assert graph.edge_features is not None
        ids = np.stack([graph.src, graph.dst, graph.edge_type], axis=1)
        rows.append(sorted(np.concatenate([ids, graph.edge_features], axis=1).tolist()))
    assert len(rows[0]) > 300
    assert rows[0] == rows[1]
