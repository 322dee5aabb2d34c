"""Neighbour expansion: NE and HEP."""

from __future__ import annotations

import math

import numpy as np
import pytest

from distgnn.datasets import Graph
from distgnn.partition import assign
from distgnn.partition.methods.expansion import UNPLACED, PartLimits, grow
from distgnn.partition.methods.links import incidence_of, links_of
from distgnn.partition.quality import measure


def both_ways(num_vertices: int, pairs: np.ndarray) -> Graph:
    src, dst = np.concatenate([pairs, pairs[:, ::-1]]).T
    return Graph(name="g", num_vertices=num_vertices, src=src, dst=dst)


def communities(num_vertices: int, size: int, seed: int = 0) -> Graph:
    """Nine of ten edges inside groups of `size`; each group's vertices are numbered apart."""
    generator = np.random.default_rng(seed)
    one = generator.integers(0, num_vertices, 6 * num_vertices)
    near = one // size * size + generator.integers(0, size, one.size)
    far = generator.integers(0, num_vertices, one.size)
    other = np.where(generator.random(one.size) < 0.9, near, far)
    pairs = np.unique(np.sort(np.stack([one, other]), axis=0), axis=1).T
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    return both_ways(num_vertices, generator.permutation(num_vertices)[pairs])


def hubs_and_leaves() -> Graph:
    """Eight hubs, all joined to each other, with 40 vertices of degree 1 each."""
    hubs = np.array([(u, v) for u in range(8) for v in range(u)])
    leaves = np.stack([np.arange(320) % 8, np.arange(8, 328)], axis=1)
    return both_ways(328, np.concatenate([hubs, leaves]))


def test_links_merge_parallel_and_opposite_edges() -> None:
    src, dst = np.array([4, 1, 1, 0, 2, 4]), np.array([1, 4, 0, 1, 2, 1])
    links = links_of(Graph(name="g", num_vertices=5, src=src, dst=dst))
    assert links.low.tolist() == [0, 1, 2]
    assert links.high.tolist() == [1, 4, 2]
    assert links.weight.tolist() == [2, 3, 1]
    parts = links.to_edges(np.array([7, 8, 9], np.int32))
    assert parts.tolist() == [8, 8, 7, 7, 9, 8]


def test_the_incidence_lists_links_of_the_listed_vertices_in_order() -> None:
    src, dst = np.array([3, 1, 0, 2, 2]), np.array([1, 2, 1, 2, 3])
    links = links_of(Graph(name="g", num_vertices=4, src=src, dst=dst))
    found = incidence_of(links, np.array([True, True, False, True]))
    assert found.start.tolist() == [0, 1, 4, 4, 6]
    assert found.neighbor.tolist() == [1, 0, 2, 3, 1, 2]
    ends = links.low[found.link] + links.high[found.link]
    assert (ends - found.neighbor).tolist() == [0, 1, 1, 1, 3, 3]


def test_a_part_grows_from_its_seed_until_it_is_full() -> None:
    path = both_ways(10, np.stack([np.arange(9), np.arange(1, 10)], axis=1))
    seeds = np.array([9, 0, 1, 2, 3, 4, 5, 6, 7, 8])
    found = grow(links_of(path), np.ones(10, bool), seeds, PartLimits(3, 6, 6))
    assert found.tolist() == [1, 1, 1, 2, 2, 2, 0, 0, 0]


def test_the_boundary_vertex_with_the_fewest_links_outside_is_next() -> None:
    # From 0 both 1 and 2 are reached; 1 has two links to the outside, 2 has one.
    pairs = np.array([(0, 1), (0, 2), (1, 3), (1, 4), (2, 5)])
    graph = Graph(name="g", num_vertices=6, src=pairs[:, 0], dst=pairs[:, 1])
    found = grow(links_of(graph), np.ones(6, bool), np.arange(6), PartLimits(2, 3, 3))
    assert found.tolist() == [0, 0, 1, 1, 0]


def test_links_to_vertices_that_join_are_no_longer_outside() -> None:
    # From 0 both 1 and 2 are reached, then 3 and 4 through 1. 2 had three links outside; without
    # the one to 3 it has two, fewer than 3.
    pairs = [(0, 1), (0, 2), (1, 3), (1, 4), (2, 3), (2, 5), (2, 6), (3, 7), (3, 8), (3, 9)]
    src, dst = np.array(pairs).T
    graph = Graph(name="g", num_vertices=10, src=src, dst=dst)
    found = grow(links_of(graph), np.ones(10, bool), np.arange(10), PartLimits(1, 7, 7))
    assert found.tolist() == [0] * 7 + [UNPLACED] * 3


def test_a_part_with_its_share_begins_nothing_new() -> None:
    pairs = np.array([(0, 1), (0, 2), (3, 4), (3, 5)])
    graph = Graph(name="g", num_vertices=6, src=pairs[:, 0], dst=pairs[:, 1])
    links, anywhere = links_of(graph), np.ones(6, bool)
    assert grow(links, anywhere, np.arange(6), PartLimits(2, 2, 3)).tolist() == [0, 0, 1, 1]
    assert grow(links, anywhere, np.arange(6), PartLimits(2, 3, 3)).tolist() == [0, 0, 0, 1]


@pytest.mark.parametrize("method", ["ne", "hep"])
def test_cliques_that_fit_stay_whole(method: str) -> None:
    clique = np.array([(u, v) for u in range(8) for v in range(u)])
    graph = both_ways(64, np.concatenate([8 * k + clique for k in range(8)]))
    quality = measure(graph, assign(method, graph, 4))
    assert quality.halo_rows == 0
    assert quality.edge_balance == 1.0


@pytest.mark.parametrize("method", ["ne", "hep"])
@pytest.mark.parametrize("num_parts", [4, 12])
def test_growing_moves_fewer_rows_than_streaming(method: str, num_parts: int) -> None:
    graph = communities(600, 25)
    grown, streamed = (measure(graph, assign(m, graph, num_parts)) for m in (method, "hdrf"))
    assert grown.halo_rows < 0.5 * streamed.halo_rows
    assert grown.edge_balance <= 1.05
    assert grown.clone_balance <= 1.4


@pytest.mark.parametrize(("method", "options"), [("ne", {}), ("hep", {"tau": 100.0})])
def test_the_cap_on_clones_evens_them_out(method: str, options: dict[str, float]) -> None:
    # A dense half and a sparse half.
    generator = np.random.default_rng(0)
    dense, sparse = generator.integers(0, 60, (1500, 2)), generator.integers(60, 1500, (1500, 2))
    graph = both_ways(1500, np.concatenate([dense, sparse]))
    free, capped = (
        measure(graph, assign(method, graph, 6, clone_balance=limit, **options)).clone_balance
        for limit in (math.inf, 1.2)
    )
    assert free > 1.5
    assert capped < 1.4


def test_hep_leaves_the_edges_between_hubs_to_the_stream() -> None:
    graph = hubs_and_leaves()
    links = links_of(graph)
    is_core = np.arange(328) >= 8
    link_part = grow(links, is_core, np.arange(328), PartLimits(4, 1000, 1000))
    assert ((link_part == UNPLACED) == (links.high < 8)).all()
    assignment = assign("hep", graph, 4, tau=10)
    assert measure(graph, assignment).edge_balance <= 1.05


def test_without_hubs_hep_is_ne() -> None:
    graph = communities(300, 20)
    ne, hep = assign("ne", graph, 5), assign("hep", graph, 5, tau=1e9)
    assert np.array_equal(ne.edge_part, hep.edge_part)


def test_with_tau_zero_hep_is_hdrf() -> None:
    graph = communities(300, 20)
    hdrf, hep = assign("hdrf", graph, 5), assign("hep", graph, 5, tau=0)
    assert np.array_equal(hdrf.edge_part, hep.edge_part)
