from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from distgnn import _partitioner
from distgnn.datasets import Graph
from distgnn.partition import assign
from distgnn.partition.arcs import adjacency_of, arcs_of
from distgnn.partition.assignment import Assignment
from distgnn.partition.methods import block_search, blocks
from distgnn.partition.quality import measure


def dense(num_vertices: int = 160, *, degree: int = 120, both_ways: bool = True) -> Graph:
    """Draw edges with no communities, and with hubs."""
    generator = np.random.default_rng(0)
    spread = generator.lognormal(0.0, 1.0, num_vertices)
    ends = generator.choice(num_vertices, (2, num_vertices * degree // 2), p=spread / spread.sum())
    one, other = np.unique(np.sort(ends[:, ends[0] != ends[1]], axis=0), axis=1)
    src, dst = (np.append(one, other), np.append(other, one)) if both_ways else (one, other)
    return Graph(name="dense", num_vertices=num_vertices, src=src, dst=dst)


def ring(num_vertices: int = 600) -> Graph:
    one = np.repeat(np.arange(num_vertices), 3)
    other = (one + np.tile([1, 2, 3], num_vertices)) % num_vertices
    src, dst = np.append(one, other), np.append(other, one)
    return Graph(name="ring", num_vertices=num_vertices, src=src, dst=dst)


def communities(num_vertices: int = 320, *, size: int = 20, degree: int = 80) -> Graph:
    """Draw half of the edges inside of small communities, and half anywhere."""
    generator = np.random.default_rng(0)
    one = generator.integers(0, num_vertices, num_vertices * degree // 2)
    other = generator.integers(0, num_vertices, one.size)
    near = one // size * size + generator.integers(0, size, one.size)
    other = np.where(np.arange(one.size) % 2 == 0, near, other)
    src, dst = np.append(one, other), np.append(other, one)
    return Graph(name="communities", num_vertices=num_vertices, src=src, dst=dst)


def in_blocks(graph: Graph, num_parts: int, *, seed: int = 0) -> Assignment:
    arcs = arcs_of(graph)
    roots = (np.arange(graph.num_vertices) * num_parts // graph.num_vertices).astype(np.int32)
    placed = blocks.place_in_blocks(arcs, adjacency_of(arcs), roots, num_parts, seed=seed)
    assert placed is not None, "any number of rows is worth it"
    return Assignment(num_parts, placed.edge_part[arcs.of_edge], placed.root_part)


def log_of(graph: Graph, num_parts: int, **options: str) -> str:
    lines: list[str] = []
    assign("metis", graph, num_parts, progress=lines.append, **options)
    return "\n".join(lines)


def test_dense_graphs_move_fewer_rows_in_blocks_than_beside_roots() -> None:
    graph = dense(degree=140)
    assert "edges in blocks: " in log_of(graph, 9, objective="cut")
    found = measure(graph, assign("metis", graph, 9, objective="cut"))
    beside_roots = measure(graph, assign("metis", graph, 9, objective="cut", refine=False))
    assert found.halo_rows < 0.8 * beside_roots.halo_rows
    assert found.edge_balance <= 1.06
    assert found.clone_balance <= 1.5


@pytest.mark.parametrize("both_ways", [True, False])
@pytest.mark.parametrize("num_parts", [2, 9])
def test_of_several_searches_the_one_with_the_fewest_rows_is_kept(
    num_parts: int, both_ways: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = dense(both_ways=both_ways)
    monkeypatch.setattr(blocks, "EDGE_PRICE", 0.0)
    monkeypatch.setattr(blocks, "CLONE_PRICE", 0.0)
    monkeypatch.setattr(blocks, "CLONE_EXCESS", np.inf)
    search, rows, prices = blocks._search, [], []

    def note(*about: object) -> object:
        found = search(*about)  # type: ignore[arg-type]
        prices.append(found.price[1])
        return found

    def only(number: int) -> object:
        return lambda *about: search(*about[:-1], number)  # type: ignore[arg-type]

    monkeypatch.setattr(blocks, "_search", note)
    kept = measure(graph, in_blocks(graph, num_parts)).halo_rows
    for number in range(blocks.TRIES):
        monkeypatch.setattr(blocks, "_search", only(number))
        rows.append(measure(graph, in_blocks(graph, num_parts)).halo_rows)
    assert sorted(prices) == sorted(rows)
    assert kept == min(rows) < max(rows)


def test_even_parts_count_when_a_search_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, found = dense(), []
    monkeypatch.setattr(blocks, "CLONE_EXCESS", np.inf)
    for price in (1000.0, -0.5):
        monkeypatch.setattr(blocks, "EDGE_PRICE", price)
        found.append(measure(graph, in_blocks(graph, 9)).edge_balance)
    assert found[0] < found[1]


def test_clones_beyond_repair_are_chosen_last(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, search = dense(), blocks._search
    monkeypatch.setattr(blocks, "CLONE_BALANCE", 0.0)
    monkeypatch.setattr(blocks, "CLONE_EXCESS", 0.0)
    monkeypatch.setattr(blocks, "CLONE_PRICE", 0.0)
    monkeypatch.setattr(blocks, "EDGE_PRICE", 0.0)
    prices = []

    def note(*about: object) -> object:
        found = search(*about)  # type: ignore[arg-type]
        prices.append(found.price)
        return found

    monkeypatch.setattr(blocks, "_search", note)
    kept = measure(graph, in_blocks(graph, 9)).halo_rows
    assert kept == min(prices)[1] > min(rows for _, rows in prices)


def test_few_searches_tell_that_blocks_move_too_many_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph, search, numbers = dense(), blocks._search, []
    arcs, roots = arcs_of(graph), np.zeros(graph.num_vertices, np.int32)
    rows = measure(graph, in_blocks(graph, 9)).halo_rows

    def note(*about: object) -> object:
        numbers.append(about[-1])
        return search(*about)  # type: ignore[arg-type]

    monkeypatch.setattr(blocks, "_search", note)
    for most_rows, num_searches in ((rows, blocks.TRIES), (rows // 2, blocks.FIRST_TRIES)):
        numbers.clear()
        placed = blocks.place_in_blocks(
            arcs, adjacency_of(arcs), roots, 9, seed=0, most_rows=most_rows
        )
        assert sorted(numbers) == list(range(num_searches))
        assert (placed is None) == (num_searches < blocks.TRIES)


@pytest.mark.parametrize("most", [40, 160])
def test_rows_are_counted_from_some_vertices_of_large_graphs(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, label = dense(), np.arange(160, dtype=np.int32) % 4
    monkeypatch.setattr(blocks, "MOST_COUNTED", most)
    sample = blocks._sample_of(arcs_of(graph), label, 4)
    assert sample.label.size == most
    part_of = np.array([[0, 1, 2, 0], [1, 1, 2, 2], [2, 2, 0, 1], [0, 2, 1, 1]], np.int32)
    held = np.zeros((2, 160, 3), bool)
    edge_part = part_of[label[graph.src], label[graph.dst]]
    held[0, graph.src, edge_part] = held[1, graph.dst, edge_part] = True
    roles = held.sum(axis=0)[:: 160 // most]
    assert _partitioner.count_rows(*sample, part_of, 3) == (roles.sum(1) - roles.max(1)).sum()


@pytest.mark.parametrize("num_parts", [4, 9, 16])
def test_rows_are_never_more_than_without_blocks(
    num_parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = communities()
    found = measure(graph, assign("metis", graph, num_parts))
    monkeypatch.setattr(block_search, "fewest_rows_without_structure", lambda *_: np.inf)
    assert found.halo_rows <= measure(graph, assign("metis", graph, num_parts)).halo_rows


def test_a_cover_is_not_refined_where_blocks_move_plainly_fewer_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = dense(degree=140)
    monkeypatch.setattr(block_search, "MANY_COVER_ROWS", 1.0)
    for share, is_refined in ((0.01, True), (1.0, False)):
        monkeypatch.setattr(block_search, "FEW_BLOCK_ROWS", share)
        told = log_of(graph, 9, objective="cut")
        assert "edges in blocks: " in told
        assert ("\nrefined" in told) == is_refined
        assert told.count("rows a vertex by cover") == 1, "they are searched for once"


def test_vertices_without_edges_do_not_count() -> None:
    graph = dense()
    assert "blocks" in log_of(replace(graph, num_vertices=2000), 9, objective="cut")


def test_graphs_with_communities_are_not_tried_in_blocks() -> None:
    assert "blocks" not in log_of(ring(), 4)


def test_blocks_are_left_out_where_training_vertices_are_to_be_even() -> None:
    graph = dense(degree=140)
    masks = [np.arange(graph.num_vertices) % 8 == k for k in range(3)]
    graph = replace(
        graph,
        labels=np.zeros(graph.num_vertices, np.int64),
        train_mask=masks[0][None],
        val_mask=masks[1][None],
        test_mask=masks[2][None],
    )
    assert "edges in blocks" in log_of(graph, 9, objective="cut")
    assert "blocks" not in log_of(graph, 9, objective="cut", balance="train")


@pytest.mark.parametrize("num_parts", [2, 5, 70])
@pytest.mark.parametrize("both_ways", [True, False])
def test_a_link_goes_as_a_whole_and_roots_live_where_it_does(
    num_parts: int, both_ways: bool
) -> None:
    graph = dense(both_ways=both_ways)
    placed = in_blocks(graph, num_parts)
    part_of = {(u, v): p for u, v, p in zip(graph.src, graph.dst, placed.edge_part, strict=True)}
    assert all(part_of.get((v, u), p) == p for (u, v), p in part_of.items())
    homes = {(vertex, p) for ends, p in part_of.items() for vertex in ends}
    assert all((v, placed.root_part[v]) in homes for v, _ in homes)


def test_the_seed_decides_and_the_number_of_threads_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = dense()
    found = []
    for threads, seed in ((1, 3), (3, 3), (1, 4)):
        monkeypatch.setattr(blocks, "available_threads", lambda threads=threads: threads)
        found.append(in_blocks(graph, 6, seed=seed).edge_part)
    assert np.array_equal(found[0], found[1])
    assert not np.array_equal(found[0], found[2])


def test_a_part_of_an_equally_dense_graph_needs_the_root_of_its_share() -> None:
    # 4 parts with a quarter of the edges each have half of the vertices each: 2 clones a vertex.
    assert block_search.fewest_rows_without_structure(100, 4) == 200.0
