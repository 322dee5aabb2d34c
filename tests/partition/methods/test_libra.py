from __future__ import annotations

import numpy as np
import pytest

from distgnn.datasets import Graph
from distgnn.partition import assign
from distgnn.partition.quality import measure


def clustered_graph() -> Graph:
    generator = np.random.default_rng(0)
    src = generator.integers(0, 400, 4000)
    near = (src + generator.integers(1, 8, 4000)) % 400
    return Graph(name="ring", num_vertices=400, src=src, dst=near)


@pytest.mark.parametrize("num_parts", [3, 64, 70, 130])
def test_greedy_edges_beat_random_ones_for_any_number_of_parts(num_parts: int) -> None:
    graph = clustered_graph()
    greedy, random = (
        measure(graph, assign(method, graph, num_parts)) for method in ("libra", "random")
    )
    assert greedy.halo_rows < 0.9 * random.halo_rows


@pytest.mark.parametrize("num_parts", [2, 7, 70])
def test_no_part_exceeds_the_cap(num_parts: int) -> None:
    graph = clustered_graph()
    counts = np.bincount(assign("libra", graph, num_parts).edge_part, minlength=num_parts)
    assert counts.max() <= max(1.05 * 4000 / num_parts, np.ceil(4000 / num_parts))


@pytest.mark.parametrize("num_parts", [2, 64, 70])
def test_edges_that_share_an_end_stay_together_while_the_cap_allows(num_parts: int) -> None:
    hubs = np.arange(num_parts) * 4
    dst = (hubs[:, None] + np.array([1, 2, 3])).ravel()
    graph = Graph(name="stars", num_vertices=4 * num_parts, src=np.repeat(hubs, 3), dst=dst)
    quality = measure(graph, assign("libra", graph, num_parts))
    assert quality.halo_rows == 0
    assert quality.edge_balance == 1.0


def test_a_sorted_and_a_shuffled_file_give_similar_halos() -> None:
    graph = clustered_graph()
    order = np.argsort(graph.src, kind="stable")
    by_source = Graph(name="s", num_vertices=400, src=graph.src[order], dst=graph.dst[order])
    halos = [measure(g, assign("libra", g, 4)).halo_rows for g in (graph, by_source)]
    assert max(halos) <= 1.1 * min(halos)
