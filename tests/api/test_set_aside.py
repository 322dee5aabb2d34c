from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp

import distgnn as dg
from distgnn.api import partitioning, set_aside
from distgnn.api.set_aside import disk_of, with_features_aside
from distgnn.datasets import Graph

FEATURES = np.random.default_rng(0).random((30, 4), np.float32)


def graph_of(features: object) -> Graph:
    ring = np.arange(30)
    return Graph(
        name="ring",
        num_vertices=30,
        src=ring,
        dst=np.roll(ring, 1),
        features=features,  # type: ignore[arg-type]
    )


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*.npy"))
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_features_move_to_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(set_aside, "LEAST_BYTES", 1)
    lighter = with_features_aside(graph_of(FEATURES), tmp_path)
    assert isinstance(lighter.features, np.ndarray)
    assert isinstance(lighter.features.base, np.memmap)
    assert np.array_equal(lighter.features, FEATURES)
    assert list(tmp_path.iterdir()) == [], "a killed process would leave the file behind"
    assert with_features_aside(lighter, tmp_path) is lighter
    monkeypatch.setattr(set_aside, "_ROWS", 7)
    for given in (FEATURES[:, ::2], FEATURES.T):
        found = with_features_aside(graph_of(np.resize(given, (30, 2))), tmp_path).features
        assert np.array_equal(found, np.resize(given, (30, 2)))
    turned = np.asfortranarray(FEATURES)
    assert np.array_equal(with_features_aside(graph_of(turned), tmp_path).features, FEATURES)
    for other in (graph_of(None), graph_of(sp.csr_matrix(FEATURES))):
        assert with_features_aside(other, tmp_path) is other


def test_small_features_and_full_disks_leave_them_in_memory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    graph = graph_of(FEATURES)
    assert with_features_aside(graph, tmp_path) is graph
    monkeypatch.setattr(set_aside, "LEAST_BYTES", 1)
    assert with_features_aside(graph, tmp_path / "missing") is graph


def test_a_disk_without_room_for_the_parts_too_gets_no_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    graph = graph_of(FEATURES)
    monkeypatch.setattr(set_aside, "LEAST_BYTES", 1)
    usage = SimpleNamespace(free=3 * FEATURES.nbytes - 1)
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage)
    assert with_features_aside(graph, tmp_path) is graph
    usage.free += 1
    assert with_features_aside(graph, tmp_path) is not graph


def test_a_file_that_cannot_be_written_whole_goes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError("1 requested and 0 written")

    graph = graph_of(FEATURES)
    monkeypatch.setattr(set_aside, "LEAST_BYTES", 1)
    monkeypatch.setattr("tempfile.TemporaryFile", full)
    assert with_features_aside(graph, tmp_path) is graph
    assert list(tmp_path.iterdir()) == []


def test_the_file_is_on_the_disk_of_the_directory(tmp_path: Path) -> None:
    assert disk_of(str(tmp_path / "a/b/parts")) == tmp_path


def test_a_partition_is_the_same_and_nothing_stays_behind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "ring.npz"
    ring = np.arange(30)
    np.savez(file, num_nodes=30, edge_index=np.stack([ring, np.roll(ring, 1)]), features=FEATURES)
    dg.partition_graph(str(file), 3, tmp_path / "plain")
    seen = []

    def noted(graph: Graph, folder: Path) -> Graph:
        seen.append(with_features_aside(graph, folder))
        return seen[-1]

    monkeypatch.setattr(set_aside, "LEAST_BYTES", 1)
    monkeypatch.setattr(partitioning, "with_features_aside", noted)
    dg.partition_graph(str(file), 3, tmp_path / "aside")
    assert isinstance(seen[0].features.base, np.memmap)  # type: ignore[union-attr]
    assert contents(tmp_path / "aside") == contents(tmp_path / "plain")
    assert {path.name for path in tmp_path.iterdir()} == {"ring.npz", "plain", "aside"}
