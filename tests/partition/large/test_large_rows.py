"""Graphs on disk: rows, graphs of clusters, clusters and moves between parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from distgnn.datasets import InputError
from distgnn.datasets.edge_file import EdgeFile, from_array_folder
from distgnn.partition.large import contract as contracting
from distgnn.partition.large import sort_rows as sorting
from distgnn.partition.large.clusters import cluster
from distgnn.partition.large.coarsest import fits, heaviest_links, part_rows
from distgnn.partition.large.contract import contract
from distgnn.partition.large.improve import VertexWeights, improve
from distgnn.partition.large.rows import RowFile, open_rows
from distgnn.partition.large.sort_rows import NUM_BLOCKS, Entries, rows_of_edges, sort_rows
from distgnn.partition.methods.multilevel import number_clusters

NUM_VERTICES = 200


def on_disk(folder: Path, src: Any, dst: Any, num_vertices: int) -> EdgeFile:
    folder.mkdir(exist_ok=True)
    np.save(folder / "edge_index.npy", np.stack([src, dst]).astype(np.int32))
    np.save(folder / "num_vertices.npy", np.asarray(num_vertices))
    return from_array_folder(folder)


def random_ends(seed: int, num_edges: int = 900) -> Any:
    """Ends with hubs, self-loops, parallel edges and isolated vertices."""
    uniform = np.random.default_rng(seed).random((2, num_edges))
    return (uniform**2 * 0.9 * NUM_VERTICES).astype(np.int32)


def links(src: Any, dst: Any, num_vertices: int) -> sp.csr_matrix:
    is_link = src != dst
    ends = np.concatenate([[src, dst], [dst, src]], axis=1)[:, np.tile(is_link, 2)]
    ones = np.ones(ends.shape[1], np.int64)
    return sp.coo_matrix((ones, (ends[0], ends[1])), (num_vertices,) * 2).tocsr()


def as_matrix(rows: RowFile, num_entries: int) -> sp.csr_matrix:
    found = np.zeros((rows.num_vertices,) * 2, np.int64)
    expected = 0
    for chunk in rows.chunks(num_entries):
        assert chunk.first == expected
        expected += chunk.indptr.size - 1
        for row in range(chunk.indptr.size - 1):
            entries = slice(chunk.indptr[row], chunk.indptr[row + 1])
            assert (np.diff(chunk.neighbour[entries]) >= 0).all()
            np.add.at(found, (chunk.first + row, chunk.neighbour[entries]), chunk.weight[entries])
    assert expected == rows.num_vertices
    return sp.csr_matrix(found)


@pytest.mark.parametrize("memory_bytes", [0, 4000, 1 << 30])
@pytest.mark.parametrize("num_entries", [1, 40, 1 << 20])
def test_rows_have_each_edge_at_both_ends(
    tmp_path: Path, memory_bytes: int, num_entries: int
) -> None:
    src, dst = random_ends(0)
    edges = on_disk(tmp_path / "edges", src, dst, NUM_VERTICES)
    rows = rows_of_edges(edges, tmp_path, memory_bytes=memory_bytes)
    expected = links(src, dst, NUM_VERTICES)
    assert rows.num_entries == expected.sum()
    assert (as_matrix(rows, num_entries) != expected).nnz == 0
    assert open_rows(tmp_path, is_weighted=False) == rows
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"edges", "degree.npy", "neighbour.npy"}


@pytest.mark.parametrize("memory_bytes", [0, 1 << 30])
def test_a_graph_of_clusters_has_the_sums_of_the_weights(tmp_path: Path, memory_bytes: int) -> None:
    src, dst = random_ends(1, 5000)
    rows = rows_of_edges(
        on_disk(tmp_path / "edges", src, dst, NUM_VERTICES), tmp_path, memory_bytes=1 << 20
    )
    expected = links(src, dst, NUM_VERTICES)
    for level, num_clusters in enumerate((30, 7)):
        label = np.arange(rows.num_vertices, dtype=np.int32) * 11 % num_clusters
        folder = tmp_path / str(level)
        folder.mkdir()
        rows = contract(rows, label, num_clusters, folder, memory_bytes=memory_bytes)
        member = sp.csr_matrix((np.ones(label.size, np.int64), (label, np.arange(label.size))))
        expected = (member @ expected @ member.T).tolil()
        expected.setdiag(0)
        expected = expected.tocsr()
        expected.eliminate_zeros()
        assert rows.num_entries == expected.nnz
        assert (as_matrix(rows, 50) != expected).nnz == 0
        assert open_rows(folder, is_weighted=True) == rows
    (folder / "weight.npy").unlink()
    assert open_rows(folder, is_weighted=True) is None
    (folder / "neighbour.npy").unlink()
    assert open_rows(folder, is_weighted=False) is None


def test_weights_beyond_the_bits_of_an_entry_are_added_up(tmp_path: Path) -> None:
    # 2**24 rows leave 15 bits for a weight.
    ends = np.array([0, 2**24 - 1], np.int32)
    entries = Entries(ends, ends[::-1].copy(), np.array([10**6, 5], np.int32))
    per_block = np.zeros(NUM_BLOCKS, np.int64)
    rows = sort_rows(
        [entries, entries],
        lambda some: some,
        per_block,
        2**24,
        tmp_path,
        memory_bytes=1 << 20,
        is_merged=True,
    )
    assert rows.weight is not None
    assert rows.weight.read(0, 2).tolist() == [2 * 10**6, 10]
    assert rows.neighbour.read(0, 2).tolist() == [2**24 - 1, 0]


@pytest.mark.parametrize("threads", [1, 3])
def test_rows_do_not_depend_on_the_number_of_threads(
    threads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    src, dst = random_ends(4, 3000)
    edges = on_disk(tmp_path / "edges", src, dst, NUM_VERTICES)
    label = np.arange(NUM_VERTICES, dtype=np.int32) % 30
    monkeypatch.setattr(sorting, "available_threads", lambda: threads)
    for module in (sorting, contracting):
        monkeypatch.setattr(module, "PIECE_ENTRIES", 64)
    # Buckets hold some tens of entries.
    rows = rows_of_edges(edges, tmp_path, memory_bytes=3000)
    assert (as_matrix(rows, 50) != links(src, dst, NUM_VERTICES)).nnz == 0
    (tmp_path / "merged").mkdir()
    merged = contract(rows, label, 30, tmp_path / "merged", memory_bytes=3000)
    member = sp.csr_matrix((np.ones(label.size, np.int64), (label, np.arange(label.size))))
    expected = (member @ links(src, dst, NUM_VERTICES) @ member.T).tolil()
    expected.setdiag(0)
    assert (as_matrix(merged, 50) != expected.tocsr()).nnz == 0


def test_too_many_vertices_are_an_input_error(tmp_path: Path) -> None:
    edges = on_disk(tmp_path, [0], [1], 2**31)
    with pytest.raises(InputError, match="has 2147483648 vertices, but partitioning from disk"):
        rows_of_edges(edges, tmp_path, memory_bytes=1 << 20)


def cliques(sizes: tuple[int, ...]) -> Any:
    """Complete graphs, each joined to the next by one edge."""
    ends = []
    first = 0
    for size in sizes:
        one, other = np.triu_indices(size, 1)
        ends.append(np.stack([one, other]) + first)
        ends.append(np.array([[first + size - 1], [first + size]]))
        first += size
    return np.concatenate(ends[:-1], axis=1)


def rows_of(tmp_path: Path, ends: Any, num_vertices: int) -> RowFile:
    return rows_of_edges(
        on_disk(tmp_path / "edges", *ends, num_vertices), tmp_path, memory_bytes=1 << 20
    )


def test_cliques_become_clusters(tmp_path: Path) -> None:
    label = cluster(
        rows_of(tmp_path, cliques((6, 7, 8)), 21), np.ones(21, np.int64), most=10, seed=0
    )
    assert number_clusters(label) == 3
    assert np.bincount(label).tolist() == [6, 7, 8]
    assert (np.diff(label) >= 0).all()


@pytest.mark.parametrize("most", [1, 3, 40])
def test_no_cluster_takes_in_more_than_it_may(tmp_path: Path, most: int) -> None:
    own = np.random.default_rng(3).integers(1, 6, NUM_VERTICES)
    label = cluster(rows_of(tmp_path, random_ends(2), NUM_VERTICES), own, most=most, seed=0)
    alone = np.bincount(label, minlength=NUM_VERTICES) == 1
    size = np.bincount(label, weights=own, minlength=NUM_VERTICES)
    assert (size[~alone] <= most).all()
    assert number_clusters(label) == np.unique(label).size
    assert label.max() + 1 == np.unique(label).size


def test_isolated_vertices_share_clusters(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, np.array([[3], [4]]), 12)
    label = cluster(rows, np.ones(12, np.int64), most=4, seed=0)
    assert label.tolist() == [0, 0, 0, label[3], label[3], 0, 6, 6, 6, 6, 10, 10]


def test_vertices_that_found_no_room_share_clusters(tmp_path: Path) -> None:
    # Two stars: their leaves have no other neighbours, and few of them fit beside the middle.
    ends = np.array([[0] * 20 + [21] * 20, [*range(1, 21), *range(22, 42)]])
    label = cluster(rows_of(tmp_path, ends, 42), np.ones(42, np.int64), most=5, seed=0)
    stars = [set(label[:21].tolist()), set(label[21:].tolist())]
    assert not stars[0] & stars[1]
    assert [len(star) for star in stars] == [5, 5]


def test_another_seed_decides_ties_in_another_way(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, random_ends(4), NUM_VERTICES)
    own = np.ones(NUM_VERTICES, np.int64)
    first, again, other = (cluster(rows, own, most=9, seed=seed) for seed in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def cut(matrix: sp.csr_matrix, part: Any) -> int:
    links = matrix.tocoo()
    return int(links.data[part[links.row] != part[links.col]].sum()) // 2


def test_moves_cut_fewer_edges_and_keep_the_limits(tmp_path: Path) -> None:
    ends = random_ends(5)
    matrix = links(*ends, NUM_VERTICES)
    rows = rows_of(tmp_path, ends, NUM_VERTICES)
    degree = np.asarray(matrix.sum(axis=1)).reshape(-1)
    before = np.arange(NUM_VERTICES, dtype=np.int32) % 4
    limit = np.array([60, degree.sum() // 4 + 100])
    part = before.copy()
    improve(rows, part, VertexWeights(np.zeros(0, np.int64), degree), limit, 4)
    assert cut(matrix, part) < 0.9 * cut(matrix, before)
    assert np.bincount(part, minlength=4).max() <= 60
    assert np.bincount(part, weights=degree, minlength=4).max() <= limit[1]


@pytest.mark.parametrize("is_connected", [True, False])
def test_overfull_parts_are_emptied(tmp_path: Path, is_connected: bool) -> None:
    ends = cliques((10, 10, 10)) if is_connected else np.zeros((2, 0))
    rows = rows_of(tmp_path, ends, 30)
    part = np.zeros(30, np.int32)
    degree = rows.degree.read(0, 30).astype(np.int64)
    improve(rows, part, VertexWeights(np.ones(30, np.int64), degree), np.array([12, 400]), 3)
    assert np.bincount(part, minlength=3).max() <= 12


@pytest.mark.parametrize(("share", "least"), [(1.0, 1), (0.9, 2), (0.5, 3), (0.0, 4)])
def test_the_heaviest_links_are_those_that_fit(tmp_path: Path, share: float, least: int) -> None:
    # Of each weight from 1 to 3 a third of the links, between vertices of their own.
    ends = np.array([[0, 2, 2, 4, 4, 4], [1, 3, 3, 5, 5, 5]])
    rows = rows_of(tmp_path, ends, 6)
    (tmp_path / "merged").mkdir()
    merged = contract(
        rows, np.arange(6, dtype=np.int32), 6, tmp_path / "merged", memory_bytes=1 << 20
    )
    expected = links(*ends, 6)
    expected.data *= expected.data >= least
    expected.eliminate_zeros()
    found = heaviest_links(merged, int(share * merged.num_entries))
    matrix = sp.csr_matrix((found.weight, found.indices, found.indptr), (6, 6))
    assert matrix.nnz == expected.nnz
    assert (matrix != expected).nnz == 0


def test_metis_leaves_out_light_links_that_do_not_fit(tmp_path: Path) -> None:
    ends = cliques((20, 20))
    rows = rows_of(tmp_path, ends, 40)
    (tmp_path / "merged").mkdir()
    label = np.arange(40, dtype=np.int32) // 2
    pairs = contract(rows, label, 20, tmp_path / "merged", memory_bytes=1 << 20)
    own = np.full(20, 2, np.int64)
    assert fits(pairs, 1 << 20)
    # All links weigh 4, but for the bridge.
    little = 75 * (pairs.num_entries - 1) + 100 * 20
    assert not fits(pairs, little)
    for memory_bytes in (1 << 20, little, 0):
        part = part_rows(pairs, 2, own=own, seed=0, memory_bytes=memory_bytes)
        assert np.bincount(part).tolist() == [10, 10]
        if memory_bytes:
            assert (part[:10] == part[0]).all()
