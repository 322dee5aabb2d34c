"""Graphs with hubs, isolated vertices, and other shapes that a cut of links does not suit."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distgnn.datasets import Graph
from distgnn.partition import assign
from distgnn.partition.arcs import adjacency_of, arcs_of
from distgnn.partition.assignment import Assignment
from distgnn.partition.methods import grown
from distgnn.partition.methods.candidates import cheapest, clones_of_parts, excess_edges, halo_rows
from distgnn.partition.methods.grown import better_grown
from distgnn.partition.methods.metis import evened
from distgnn.partition.quality import measure
from distgnn.partition.refine.balance import Balance, level_isolated, rounded_sizes
from distgnn.partition.refine.hubs import edges_beside, lightened, links_of_hub
from distgnn.partition.stopwatch import Stopwatch


def undirected(num_vertices: int, one: np.ndarray, other: np.ndarray) -> Graph:
    one, other = one[one != other], other[one != other]
    key = np.unique(np.append(one, other) * num_vertices + np.append(other, one))
    src, dst = key % num_vertices, key // num_vertices
    return Graph(name="drawn", num_vertices=num_vertices, src=src, dst=dst)


def r_mat(scale: int, num_edges: int, quadrants: tuple[float, float, float]) -> Graph:
    """Draw a graph whose quadrants of the adjacency are unequally dense, and those of each."""
    generator = np.random.default_rng(0)
    one, other = np.zeros((2, num_edges), np.int64)
    both, left, right = np.cumsum(quadrants)
    for _ in range(scale):
        draw = generator.random(num_edges)
        is_right = ((draw >= both) & (draw < left)) | (draw >= right)
        one, other = 2 * one + (draw >= left), 2 * other + is_right
    renamed = generator.permutation(2**scale)
    return undirected(2**scale, renamed[one], renamed[other])


def star(num_leaves: int) -> Graph:
    leaves = np.arange(1, num_leaves + 1)
    return undirected(num_leaves + 1, np.zeros_like(leaves), leaves)


def drawn(seed: int, num_vertices: int, num_edges: int) -> Graph:
    """Draw edges whose ends are seldom the vertices with large numbers."""
    ends = np.random.default_rng(seed).random((2, num_edges)) ** 3 * num_vertices
    src, dst = ends.astype(np.int64)
    return Graph(name="drawn", num_vertices=num_vertices, src=src, dst=dst)


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32), num_edges=st.integers(0, 120), hub=st.sampled_from([2.0, 5.0]))
def test_links_and_edges_at_hubs_weigh_what_the_sums_say(
    seed: int, num_edges: int, hub: float
) -> None:
    adjacency = adjacency_of(arcs_of(drawn(seed, 20, num_edges)))
    links = np.diff(adjacency.indptr)
    weights, beside, halves = [], np.zeros(20), np.zeros(20)
    for vertex in range(20):
        for k in range(*adjacency.indptr[vertex : vertex + 2]):
            own, other = links[vertex], links[adjacency.indices[k]]
            light = min(hub / max(own, other), 1.0)
            weights.append(max(round(100 * adjacency.weight[k] * light), 1))
            share = 0.5 if own == other else 0.5 * light if own > other else 1.0 - 0.5 * light
            beside[vertex] += share * adjacency.weight[k]
            halves[vertex] += 0.5 * adjacency.weight[k]
    if links.max() > hub:
        assert lightened(adjacency, hub).weight.tolist() == weights
    assert edges_beside(adjacency, hub) == pytest.approx(beside)
    assert edges_beside(adjacency, hub).sum() == pytest.approx(halves.sum())
    assert edges_beside(adjacency, math.inf) == pytest.approx(halves)
    assert lightened(adjacency, math.inf) is adjacency


def test_a_graph_has_hubs_if_links_end_at_vertices_with_many_times_the_mean() -> None:
    assert links_of_hub(adjacency_of(arcs_of(star(1000))), 8) == 32.0
    ring = undirected(50, np.arange(50), (np.arange(50) + 1) % 50)
    assert links_of_hub(adjacency_of(arcs_of(ring)), 8) == math.inf
    assert links_of_hub(adjacency_of(arcs_of(drawn(0, 3, 0))), 8) == math.inf


@pytest.mark.parametrize(("num_parts", "most"), [(2, 1.15), (4, 1.15), (16, 1.0)])
def test_skewed_graphs_move_no_more_rows_than_expansion_and_keep_the_balance(
    num_parts: int, most: float
) -> None:
    graph = r_mat(12, 40_000, (0.57, 0.19, 0.19))
    found = measure(graph, assign("metis", graph, num_parts))
    expanded = [measure(graph, assign(name, graph, num_parts)) for name in ("ne", "hep")]
    assert found.halo_rows <= most * min(one.halo_rows for one in expanded)
    assert found.edge_balance <= 1.05
    # The isolated vertices even out the clones.
    assert found.clone_balance <= (1.5 if num_parts == 2 else 1.05)
    assert found.vertex_balance <= 1.25


def test_the_cut_is_tried_where_the_cover_cannot_be_balanced_for_its_rows() -> None:
    one, other = np.random.default_rng(0).integers(0, 1000, (2, 8000))
    graph = undirected(1000, one, other)
    found = measure(graph, assign("metis", graph, 2))
    expanded = [measure(graph, assign(name, graph, 2)) for name in ("ne", "hep")]
    assert found.halo_rows <= 0.95 * min(one.halo_rows for one in expanded)
    assert found.edge_balance <= 1.05


def test_a_hub_weighs_little_where_its_edges_live_beside_others() -> None:
    adjacency = adjacency_of(arcs_of(star(1000)))
    assert rounded_sizes(adjacency)[0] > 100 * rounded_sizes(adjacency)[1]
    assert rounded_sizes(adjacency, hub=32.0)[0] < 20 * rounded_sizes(adjacency, hub=32.0)[1]


@settings(max_examples=100)
@given(
    others=st.lists(st.integers(0, 20), min_size=1, max_size=9),
    count=st.integers(0, 60),
    seed=st.integers(0, 2**32),
)
def test_isolated_vertices_make_parts_as_even_as_they_can(
    others: list[int], count: int, seed: int
) -> None:
    num_parts = len(others)
    roots = np.repeat(np.arange(num_parts), others).astype(np.int32)
    is_isolated = np.append(np.zeros(roots.size, bool), np.ones(count, bool))
    generator = np.random.default_rng(seed)
    where = np.append(roots, generator.integers(0, num_parts, count)).astype(np.int32)
    mixed = generator.permutation(where.size)
    levelled = level_isolated(where[mixed], is_isolated[mixed], np.array(others))
    assert np.array_equal(levelled[~is_isolated[mixed]], where[mixed][~is_isolated[mixed]])
    expected = list(others)
    for _ in range(count):
        expected[expected.index(min(expected))] += 1
    assert sorted(np.bincount(levelled, minlength=num_parts)) == sorted(expected)


def test_isolated_vertices_stay_where_a_part_would_get_too_many_roots() -> None:
    # Part 1 has one root with edges and a leaf of each vertex of part 0; three are isolated.
    src, dst = np.arange(10), np.full(10, 10)
    arcs = arcs_of(Graph(name="fan", num_vertices=14, src=src, dst=dst))
    roots = np.repeat([0, 1], [10, 4]).astype(np.int32)
    placed = Assignment(2, np.ones(10, np.int32), roots)
    assert evened(arcs, placed, 1.25) is placed
    assert evened(arcs, placed, 1.8).root_part[11:].tolist() == [0, 0, 1]


def test_no_part_is_of_isolated_vertices_alone() -> None:
    generator = np.random.default_rng(0)
    one = generator.integers(0, 2000, 12_000)
    other = one // 40 * 40 + generator.integers(0, 40, one.size)
    graph = undirected(3000, one, other)
    for num_parts in (4, 16):
        found = measure(graph, assign("metis", graph, num_parts))
        assert found.edge_balance <= 1.05
        assert found.vertex_balance <= 1.1
        assert found.clone_balance <= 1.1


def test_a_star_is_shared_by_all_parts() -> None:
    found = measure(star(4000), assign("metis", star(4000), 8))
    assert found.edge_balance <= 1.05
    # The hub is read and written once by each of the parts where it has no root.
    assert found.halo_rows <= 1.2 * 2 * 7


def test_a_graph_of_stars_is_balanced_although_no_end_lives_where_there_is_room() -> None:
    sizes = np.array([900, *[40] * 30])
    hubs = np.concatenate([[0], np.cumsum(sizes + 1)[:-1]])
    one = np.repeat(hubs, sizes)
    other = one + 1 + np.concatenate([np.arange(size) for size in sizes])
    graph = undirected(int((sizes + 1).sum()), one, other)
    found = measure(graph, assign("metis", graph, 6))
    assert found.edge_balance <= 1.05
    assert found.halo_rows <= 60


def test_clones_beyond_the_limit_count_as_rows() -> None:
    graph = undirected(400, np.arange(400), (np.arange(400) + 1) % 400)
    arcs = arcs_of(graph)
    crowded = np.repeat(np.arange(4), [340, 20, 20, 20]).astype(np.int32)
    even = (np.arange(400) // 100).astype(np.int32)
    even[50] = 1
    one, two = (Assignment(4, roots[arcs.head], roots) for roots in (crowded, even))
    found = [
        measure(graph, Assignment(4, placed.edge_part[arcs.of_edge], placed.root_part))
        for placed in (one, two)
    ]
    for placed, quality in zip((one, two), found, strict=True):
        clones = clones_of_parts(arcs, placed)
        assert clones.max() / clones.mean() == pytest.approx(quality.clone_balance)
    assert found[0].halo_rows < found[1].halo_rows
    assert cheapest(arcs, (one, two), 4.0) is two


def test_growth_is_worth_rows_where_a_part_is_overfull() -> None:
    # Two stars, one with 0.6 of the edges, each in a part of its own.
    leaves = np.arange(2, 1002)
    roots = np.append([0, 1], leaves >= 602).astype(np.int32)
    graph = undirected(1002, (leaves >= 602).astype(np.int64), leaves)
    arcs = arcs_of(graph)
    apart = Assignment(2, roots[arcs.head], roots)
    watch = Stopwatch(None)
    balance = Balance(1.05, 1.25, refine=True)
    best = better_grown(graph, arcs, apart, balance, has_hubs=True, seed=0, watch=watch)
    assert excess_edges(arcs, best, 1.05) == 0
    assert 0 == halo_rows(arcs, apart) < halo_rows(arcs, best) <= 4


def test_growth_is_tried_where_it_is_quick_or_there_are_hubs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines: list[str] = []
    ring = undirected(50, np.arange(50), (np.arange(50) + 1) % 50)
    monkeypatch.setattr(grown, "QUICK_EDGES", 10)
    for graph in (ring, star(1000)):
        assign("metis", graph, 4, progress=lines.append)
    told = [line.split()[2].rstrip(":") for line in lines if line.startswith("parts by")]
    assert told == ["hep"]


@pytest.mark.parametrize(("most", "tried"), [(0.5, ["hep"]), (math.inf, ["hep", "ne"])])
def test_a_second_growth_is_tried_where_the_first_comes_near(
    most: float, tried: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    ring = undirected(50, np.arange(50), (np.arange(50) + 1) % 50)
    monkeypatch.setattr(grown, "MOST_ROWS_OF_FIRST", most)
    assign("metis", ring, 4, progress=lines.append)
    told = [line.split()[2].rstrip(":") for line in lines if line.startswith("parts by")]
    assert told == tried
