"""Partitioners that place edges: caps, order of the file, formulas."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distgnn.datasets import Graph
from distgnn.partition import assign
from distgnn.partition.methods.two_phase import _cluster, _pack
from distgnn.partition.quality import measure
from distgnn.partition.stream import degrees, shuffled_links, spill

PLACERS = ("hdrf", "dbh", "grid", "ne", "hep", "spac", "2ps-l")


def random_graph(num_vertices: int, num_edges: int, seed: int = 0) -> Graph:
    """Without parallel edges; some edges have their reverse."""
    generator = np.random.default_rng(seed)
    key = generator.choice(num_vertices**2, num_edges, replace=False)
    return Graph(
        name="g", num_vertices=num_vertices, src=key // num_vertices, dst=key % num_vertices
    )


def reordered(graph: Graph, order: np.ndarray) -> Graph:
    return Graph(
        name="g", num_vertices=graph.num_vertices, src=graph.src[order], dst=graph.dst[order]
    )


@pytest.mark.parametrize("method", PLACERS)
@settings(max_examples=50)
@given(data=st.data())
def test_no_part_exceeds_its_cap_whatever_the_edges(method: str, data: st.DataObject) -> None:
    num_vertices = data.draw(st.integers(1, 9))
    ends = st.integers(0, num_vertices - 1)
    edges = data.draw(st.lists(st.tuples(ends, ends), max_size=40))
    src, dst = np.array(edges, np.int64).reshape(-1, 2).T
    graph = Graph(name="g", num_vertices=num_vertices, src=src, dst=dst)
    num_parts = data.draw(st.integers(1, num_vertices))
    edge_balance = data.draw(st.sampled_from([1.0, 1.05, 1.5]))
    counts = np.bincount(assign(method, graph, num_parts, edge_balance=edge_balance).edge_part)
    mean = graph.num_edges / num_parts
    assert counts.max(initial=0) <= max(edge_balance * mean, math.ceil(mean))


@pytest.mark.parametrize("method", PLACERS)
def test_the_order_of_the_file_does_not_matter(method: str) -> None:
    graph = random_graph(60, 400)
    expected = assign(method, graph, 7, seed=2)
    for order in (np.lexsort((graph.dst, graph.src)), np.arange(400)[::-1]):
        found = assign(method, reordered(graph, order), 7, seed=2)
        assert np.array_equal(found.edge_part, expected.edge_part[order])
        assert np.array_equal(found.root_part, expected.root_part)


@pytest.mark.parametrize("method", PLACERS)
def test_both_directions_of_an_edge_stay_together(method: str) -> None:
    one_way = random_graph(40, 200)
    src = np.concatenate([one_way.src, one_way.dst])
    dst = np.concatenate([one_way.dst, one_way.src])
    graph = Graph(name="g", num_vertices=40, src=src, dst=dst)
    there, back = assign(method, graph, 5, edge_balance=math.inf).edge_part.reshape(2, -1)
    assert np.array_equal(there, back)


def test_links_are_shuffled_and_their_edges_are_neighbours() -> None:
    src, dst = np.array([3, 5, 1, 3, 7, 1, 9]), np.array([1, 7, 3, 3, 5, 3, 2])
    graph = Graph(name="g", num_vertices=10, src=src, dst=dst)
    orders = [shuffled_links(graph, seed) for seed in range(40)]
    links = [[(min(a, b), max(a, b)) for a, b in zip(src[o], dst[o], strict=True)] for o in orders]
    for order, ends in zip(orders, links, strict=True):
        assert sorted(order) == list(range(7))
        changes = sum(a != b for a, b in pairwise(ends))
        assert changes == len(set(ends)) - 1 == 3
    assert {ends[0] for ends in links} == {(1, 3), (5, 7), (3, 3), (2, 9)}


def test_surplus_edges_go_to_the_least_loaded_parts() -> None:
    edge_part = np.array([0, 0, 0, 0, 0, 2], np.int32)
    order = np.array([5, 4, 3, 2, 1, 0])
    assert spill(edge_part, order, 3, 2).tolist() == [1, 1, 2, 0, 0, 2]
    assert spill(edge_part, order, 3, 5) is edge_part


def test_hdrf_follows_its_formula() -> None:
    graph = random_graph(30, 200, seed=4)
    num_parts, weight, cap = 5, 0.7, 44
    degree = degrees(graph)
    homes: list[set[int]] = [set() for _ in range(30)]
    load = [0] * num_parts
    expected = np.zeros(200, np.int32)
    last: tuple[set[int], int] = (set(), 0)
    for edge in shuffled_links(graph, 1):
        u, v = int(graph.src[edge]), int(graph.dst[edge])
        scores = []
        for part in range(num_parts):
            score = weight * (max(load) - load[part]) / (1 + max(load) - min(load))
            for end, other in ((u, v), (v, u)):
                if part in homes[end]:
                    score += 1 + degree[other] / (degree[u] + degree[v])
            scores.append(score if load[part] < cap else -1.0)
        part = int(np.argmax(np.round(scores, 12)))
        if {u, v} == last[0] and load[last[1]] < cap:
            part = last[1]
        expected[edge] = part
        last = ({u, v}, part)
        load[part] += 1
        homes[u].add(part)
        homes[v].add(part)
    found = assign("hdrf", graph, num_parts, seed=1, edge_balance=1.1, balance_weight=weight)
    assert np.array_equal(found.edge_part, expected)


def test_dbh_keeps_the_edges_of_low_degree_vertices_together() -> None:
    graph = random_graph(80, 400, seed=3)
    degree = degrees(graph)
    edge_part = assign("dbh", graph, 6, edge_balance=math.inf).edge_part
    low = np.where(degree[graph.src] < degree[graph.dst], graph.src, graph.dst)
    is_clear = degree[graph.src] != degree[graph.dst]
    homes: dict[int, set[int]] = {}
    for vertex, part in zip(low[is_clear], edge_part[is_clear], strict=True):
        homes.setdefault(vertex, set()).add(part)
    assert all(len(parts) == 1 for parts in homes.values())
    assert len(set().union(*homes.values())) == 6


@pytest.mark.parametrize("num_parts", [1, 2, 3, 7, 16, 23, 64])
def test_a_vertex_of_the_grid_lives_in_one_row_and_one_column(num_parts: int) -> None:
    graph = random_graph(70, 2500)
    edge_part = assign("grid", graph, num_parts, edge_balance=math.inf).edge_part
    columns = math.ceil(math.sqrt(num_parts))
    rows = math.ceil(num_parts / columns)
    for vertex in range(70):
        parts = set(edge_part[(graph.src == vertex) | (graph.dst == vertex)].tolist())
        crosses = [
            {p for p in range(num_parts) if p // columns == row or p % columns == column}
            for row in range(rows)
            for column in range(columns)
        ]
        assert any(parts <= cross for cross in crosses)


def test_2ps_l_packs_clusters_that_one_stream_found() -> None:
    cluster, volume = _cluster(
        np.array([0, 1, 3, 4, 2, 2]),
        np.array([1, 2, 4, 5, 0, 3]),
        np.arange(6),
        np.array([2, 2, 3, 2, 2, 1]),
        (7, 1),
    )
    # The last edge would join clusters of 7 and 5: too much.
    assert len(set(cluster[:3])) == len(set(cluster[3:])) == 1
    assert sorted(volume[volume > 0]) == [5, 7]
    assert _pack(np.array([2, 9, 4, 3, 3]), 2).tolist() == [0, 0, 1, 1, 1]


def test_2ps_l_keeps_what_is_inside_a_clusters_part_there() -> None:
    clique = np.array([(u, v) for u in range(8) for v in range(8) if u != v])
    src, dst = np.concatenate([8 * k + clique for k in range(8)]).T
    graph = Graph(name="g", num_vertices=64, src=src, dst=dst)
    two_phase, hdrf = (measure(graph, assign(m, graph, 4)).halo_rows for m in ("2ps-l", "hdrf"))
    assert two_phase < 0.6 * hdrf
