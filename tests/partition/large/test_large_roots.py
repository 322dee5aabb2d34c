"""Parts of vertices from edges on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from partition_loops import install

from distgnn import _partitioner
from distgnn.datasets import Graph
from distgnn.datasets.edge_file import EdgeFile, from_array_folder
from distgnn.datasets.make_twin import make
from distgnn.partition.arcs import undirected
from distgnn.partition.assignment import Assignment
from distgnn.partition.large.clusters import Clusters
from distgnn.partition.large.improve import Parts, VertexWeights
from distgnn.partition.large.roots import _Level, roots
from distgnn.partition.large.rows import RowChunk
from distgnn.partition.large.sort_rows import rows_of_edges
from distgnn.partition.methods.cover import place_edges
from distgnn.partition.methods.metis import metis_roots
from distgnn.partition.quality import measure
from distgnn.partition.refine.balance import Balance

MEMORY_BYTES = 1 << 18
"""Too little for METIS to hold the twin below."""


def save(folder: Path, ends: Any, num_vertices: int) -> EdgeFile:
    folder.mkdir()
    np.save(folder / "edge_index.npy", np.ascontiguousarray(np.reshape(ends, (2, -1)), np.int32))
    np.save(folder / "num_vertices.npy", np.asarray(num_vertices))
    return from_array_folder(folder)


def load(edges: EdgeFile) -> Any:
    return np.stack([end.read(0, end.size) for end in (edges.src, edges.dst)])


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> EdgeFile:
    folder = tmp_path_factory.mktemp("twin") / "papers"
    make("papers", folder, scale=1 / 8192)
    return from_array_folder(folder)


@pytest.fixture(scope="module")
def parts(twin: EdgeFile, tmp_path_factory: pytest.TempPathFactory) -> NDArray[np.int32]:
    return roots(twin, 8, tmp_path_factory.mktemp("work"), memory_bytes=MEMORY_BYTES)


def stars(sizes: list[int]) -> tuple[NDArray[np.int64], int]:
    """Stars, and a path through their leaves."""
    begins = np.cumsum([0, *sizes[:-1]]) + np.arange(len(sizes))
    hubs = np.repeat(begins, sizes)
    leaves = np.concatenate(
        [np.arange(size) + begin + 1 for size, begin in zip(sizes, begins, strict=True)]
    )
    ends = [np.concatenate([hubs, leaves[:-1]]), np.concatenate([leaves, leaves[1:]])]
    return np.array(ends), sum(sizes) + len(sizes)


def test_edges_of_large_hubs_weigh_at_their_other_ends(tmp_path: Path) -> None:
    sizes = [4000, 2500, 1500, 700, 300, 50, 3]
    ends, num_vertices = stars(sizes)
    edges = save(tmp_path / "stars", ends, num_vertices)
    (tmp_path / "work").mkdir()
    rows = rows_of_edges(edges, tmp_path / "work", memory_bytes=1 << 20)
    found = _Level(rows, tmp_path, None, 8).sizes_now().ends
    degree = np.bincount(ends.ravel(), minlength=num_vertices)
    is_hub = degree > 4 * 8
    wanted = np.zeros(num_vertices, np.int64)
    for one, other in ends.T:
        for end, far in ((one, other), (other, one)):
            wanted[far if is_hub[end] > is_hub[far] else end] += 1
    np.testing.assert_array_equal(found, wanted)
    assert found.sum() == degree.sum()


def test_stars_that_are_larger_than_a_part_leave_parts_even(tmp_path: Path) -> None:
    ends, num_vertices = stars([4000, 2500, 1500, 700, 300, 50, 3])
    edges = save(tmp_path / "stars", ends, num_vertices)
    (tmp_path / "work").mkdir()
    root_part = roots(edges, 8, tmp_path / "work", memory_bytes=MEMORY_BYTES)
    graph = Graph(name="stars", num_vertices=num_vertices, src=ends[0], dst=ends[1])
    edge_part = place_edges(graph, root_part, 8)
    quality = measure(graph, Assignment(8, edge_part, root_part))
    assert quality.edge_balance <= 1.1
    assert quality.halo_rows < 100


def test_fewer_edges_are_cut_than_by_metis_in_memory(
    twin: EdgeFile, parts: NDArray[np.int32]
) -> None:
    src, dst = load(twin)
    graph = Graph(name="twin", num_vertices=twin.num_vertices, src=src, dst=dst)
    in_memory = metis_roots(
        graph,
        8,
        adjacency=undirected(graph),
        seed=0,
        objective="cut",
        balance=Balance(1.1, 1.25),
    )
    shares = [float((part[src] != part[dst]).mean()) for part in (parts, in_memory)]
    assert shares[0] < 1.03 * shares[1]


def test_parts_are_balanced(twin: EdgeFile, parts: NDArray[np.int32]) -> None:
    assert parts.dtype == np.int32
    counts = np.bincount(parts, minlength=8)
    ends = np.bincount(parts[load(twin).reshape(-1)], minlength=8)
    assert counts.max() <= 1.25 * counts.mean()
    # The twin is small: its largest vertex has more of the ends than 1.05 leaves room for.
    largest = np.bincount(load(twin).reshape(-1)).max()
    assert 1.05 < 1 + largest / ends.mean() < 1.1
    assert ends.max() <= ends.mean() + largest


@pytest.mark.parametrize("order", ["sorted", "reversed", "by destination"])
def test_the_order_of_the_edges_does_not_matter(
    twin: EdgeFile, parts: NDArray[np.int32], tmp_path: Path, order: str
) -> None:
    ends = load(twin)
    ends = ends[:, np.lexsort(ends if order == "by destination" else ends[::-1])]
    edges = save(tmp_path / "e", ends[:, ::-1] if order == "reversed" else ends, twin.num_vertices)
    assert np.array_equal(roots(edges, 8, tmp_path, memory_bytes=MEMORY_BYTES), parts)


def test_another_seed_gives_other_parts(
    twin: EdgeFile, parts: NDArray[np.int32], tmp_path: Path
) -> None:
    other = roots(twin, 8, tmp_path, seed=1, memory_bytes=MEMORY_BYTES)
    assert not np.array_equal(other, parts)


@pytest.mark.filterwarnings("ignore:overflow encountered in scalar")
@pytest.mark.parametrize("seed", [0, 5])
def test_parts_are_the_same_on_plain_loops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    generator = np.random.default_rng(seed)
    one = (generator.pareto(1.2, 3000) * 20).astype(np.int64) % 900
    other = (one + generator.integers(0, 30, 3000)) % 900
    edges = save(tmp_path / "e", [one, other], 1000)
    found = []
    for folder in (tmp_path / "compiled", tmp_path / "plain"):
        folder.mkdir()
        notes: list[str] = []
        words = {"seed": seed, "memory_bytes": 150_000, "progress": notes.append}
        found.append(roots(edges, 7, folder, **words))
        assert sum("in" in note and "clusters" in note for note in notes) > 2
        install(monkeypatch)
    assert np.array_equal(*found)


@pytest.mark.filterwarnings("ignore:overflow encountered in scalar")
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("most", [8, 25, 10**6])
def test_steps_are_the_same_on_plain_loops_at_every_limit(
    monkeypatch: pytest.MonkeyPatch, seed: int, most: int
) -> None:
    generator = np.random.default_rng(seed)
    num_vertices, num_parts = 60, 5
    degree = generator.integers(0, 9, num_vertices)
    indptr = np.concatenate([[0], np.cumsum(degree)])
    neighbour = generator.integers(0, num_vertices, indptr[-1]).astype(np.int32)
    weight = generator.integers(1, 4, indptr[-1]).astype(np.int32)
    chunk = RowChunk(10, indptr[:41], neighbour[: indptr[40]], weight[: indptr[40]])
    own = generator.integers(1, 6, num_vertices)
    part = generator.integers(0, num_parts, num_vertices).astype(np.int32)
    states = []
    for is_plain in (False, True):
        if is_plain:
            install(monkeypatch)
        clusters = Clusters(np.arange(num_vertices, dtype=np.int32), own.copy(), own)
        moves = [_partitioner.join_clusters(chunk, clusters, most, seed) for _ in range(2)]
        bins = np.full(num_vertices + 1, -1, np.int32)
        _partitioner.gather_alone(chunk, clusters, most, bins)
        for vertices in (np.zeros(0, np.int64), own % 3):
            load = np.zeros((2, num_parts), np.int64)
            moved = part.copy()
            np.add.at(load[0], part, vertices if vertices.size else 1)
            np.add.at(load[1], part, own)
            limit = (load.mean(axis=1) * (0.98 if most == 8 else 1.2)).astype(np.int64)
            tally = np.zeros(num_parts, np.int64)
            parts, sizes = Parts(moved, load, limit, tally), VertexWeights(vertices, own)
            for price in (0, 3, 2**63 - 1):
                moves.append(_partitioner.change_parts(chunk, parts, sizes, price))
            states.append([moves, moved.tolist(), load.tolist(), tally.tolist()])
        states[-1] += [clusters.label.tolist(), clusters.size.tolist(), bins.tolist()]
    assert states[:2] == states[2:]
    assert any(states[0][0])


class StopError(Exception):
    """Raised in the middle of the work."""


def test_interrupted_work_goes_on_to_the_same_outcome(
    twin: EdgeFile, parts: NDArray[np.int32], tmp_path: Path
) -> None:
    lines: list[str] = []

    def stop(line: str) -> None:
        lines.append(line)
        assert not list(tmp_path.rglob(".neighbour.npy.*"))
        raise StopError

    for _ in range(4):
        with pytest.raises(StopError):
            roots(twin, 8, tmp_path, memory_bytes=MEMORY_BYTES, progress=stop)
        # What a process that was killed leaves behind.
        (tmp_path / ".neighbour.npy.1").write_bytes(b"half")
    assert lines[0].startswith("197225 links sorted by vertex")
    assert not any("links sorted" in line for line in lines[1:])
    assert np.array_equal(roots(twin, 8, tmp_path, memory_bytes=MEMORY_BYTES), parts)
    assert not list(tmp_path.rglob(".*"))


@pytest.mark.parametrize(
    ("ends", "num_vertices"),
    [
        ([], 1),
        ([], 7),
        ([0, 1], 2),
        ([0, 1, 0, 1], 2),
        ([3, 3], 5),
        ([0, 0, 0, 0, 0, 1, 2, 3, 4, 5], 7),
    ],
)
@pytest.mark.parametrize("num_parts", [1, 2, 3, 9])
def test_tiny_graphs_have_parts(
    tmp_path: Path, ends: list[int], num_vertices: int, num_parts: int
) -> None:
    edges = save(tmp_path / "e", ends, num_vertices)
    for memory_bytes in (0, 1 << 20):
        folder = tmp_path / str(memory_bytes)
        folder.mkdir()
        part = roots(edges, num_parts, folder, memory_bytes=memory_bytes)
        assert part.shape == (num_vertices,)
        assert part.min() >= 0
        assert part.max() < num_parts
        assert np.bincount(part).max() <= max(-(-num_vertices // num_parts), 1) + 1


def test_cliques_with_a_bridge_are_cut_at_the_bridge(tmp_path: Path) -> None:
    one, other = np.triu_indices(12, 1)
    ends = np.concatenate([[one, other], [one + 12, other + 12], [[11], [12]]], axis=1)
    edges = save(tmp_path / "e", ends, 24)
    for memory_bytes in (0, 1 << 20):
        folder = tmp_path / str(memory_bytes)
        folder.mkdir()
        part = roots(edges, 2, folder, memory_bytes=memory_bytes)
        assert np.count_nonzero(part[ends[0]] != part[ends[1]]) == 1
