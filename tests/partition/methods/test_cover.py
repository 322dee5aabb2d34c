from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from distgnn.datasets import Graph
from distgnn.partition.arcs import arcs_of
from distgnn.partition.assignment import Assignment
from distgnn.partition.methods.cover import place_edges
from distgnn.partition.methods.cut_edges import cut_edges, minimum_cover
from distgnn.partition.quality import measure


def random_graph(seed: int, num_vertices: int, num_edges: int) -> Graph:
    src, dst = np.random.default_rng(seed).integers(0, num_vertices, (2, num_edges))
    return Graph(name="g", num_vertices=num_vertices, src=src, dst=dst)


def halo_of(graph: Graph, root_part: np.ndarray, edge_part: np.ndarray) -> int:
    num_parts = int(root_part.max()) + 1
    return measure(graph, Assignment(num_parts, edge_part, root_part)).halo_rows


@pytest.mark.parametrize("seed", range(25))
def test_placement_is_as_cheap_as_the_best_of_all_placements(seed: int) -> None:
    graph = random_graph(seed, 7, 9)
    root_part = np.array([0, 0, 1, 1, 2, 2, 2], np.int32)
    placed = place_edges(graph, root_part, 3)
    choices = zip(root_part[graph.src], root_part[graph.dst], strict=True)
    best = min(halo_of(graph, root_part, np.array(parts, np.int32)) for parts in product(*choices))
    assert halo_of(graph, root_part, placed) == best


@pytest.mark.parametrize("seed", range(10))
def test_halo_is_the_size_of_the_cover(seed: int) -> None:
    graph = random_graph(seed, 60, 240)
    root_part = np.random.default_rng(seed).integers(0, 4, 60).astype(np.int32)
    arcs = arcs_of(graph)
    source = arcs.sources()
    is_cut = root_part[source] != root_part[arcs.head]
    of_cut = source[is_cut], arcs.head[is_cut], arcs.weight[is_cut]
    edges = cut_edges(*of_cut, root_part, 4)
    placed = place_edges(graph, root_part, 4)
    assert halo_of(graph, root_part, placed) == minimum_cover(edges).size


def test_an_edge_between_two_parts_goes_to_one_of_them() -> None:
    graph = random_graph(3, 50, 400)
    root_part = np.random.default_rng(3).integers(0, 5, 50).astype(np.int32)
    placed = place_edges(graph, root_part, 5)
    at_source, at_destination = root_part[graph.src], root_part[graph.dst]
    assert ((placed == at_source) | (placed == at_destination)).all()


def test_parallel_edges_stay_together() -> None:
    graph = random_graph(4, 6, 80)
    root_part = np.array([0, 0, 1, 1, 2, 2], np.int32)
    placed = place_edges(graph, root_part, 3)
    pairs = graph.src * 6 + graph.dst
    assert all(np.unique(placed[pairs == pair]).size == 1 for pair in np.unique(pairs))


def test_leaves_of_an_undirected_graph_read_and_write() -> None:
    half = random_graph(5, 80, 200)
    graph = Graph(
        name="both ways",
        num_vertices=80,
        src=np.concatenate([half.src, half.dst]),
        dst=np.concatenate([half.dst, half.src]),
    )
    root_part = np.random.default_rng(5).integers(0, 3, 80).astype(np.int32)
    quality = measure(graph, Assignment(3, place_edges(graph, root_part, 3), root_part))
    # Every leaf does both.
    assert quality.num_leaves.sum() == quality.halo_rows / 2
    assert np.array_equal(quality.read_rows.sum(), quality.write_rows.sum())


def test_what_the_cover_leaves_open_evens_out_the_edges() -> None:
    # A hundred separate edges from part 0 to part 1 may each live on either.
    graph = Graph(name="g", num_vertices=200, src=np.arange(100), dst=np.arange(100, 200))
    root_part = np.repeat(np.array([0, 1], np.int32), 100)
    placed = place_edges(graph, root_part, 2)
    assert np.array_equal(np.bincount(placed), [50, 50])


def test_a_hub_is_read_once_rather_than_written_by_everyone() -> None:
    graph = Graph(name="fan", num_vertices=9, src=np.zeros(8, int), dst=np.arange(1, 9))
    root_part = np.array([0] + [1] * 8, np.int32)
    assert np.array_equal(place_edges(graph, root_part, 2), np.ones(8))
