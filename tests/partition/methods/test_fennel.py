from __future__ import annotations

import math

import numpy as np
import pytest

from distgnn.datasets import Graph
from distgnn.partition import assign
from distgnn.partition.arcs import undirected
from distgnn.partition.methods.fennel import _breadth_first, _stream
from distgnn.partition.quality import measure
from distgnn.partition.refine.balance import vertex_sizes


def random_graph(num_vertices: int, num_edges: int) -> Graph:
    src, dst = np.random.default_rng(0).integers(0, num_vertices, (2, num_edges))
    return Graph(name="g", num_vertices=num_vertices, src=src, dst=dst)


def mesh(side: int) -> Graph:
    cell = np.arange(side * side).reshape(side, side)
    src = np.concatenate([cell[:, 1:].ravel(), cell[1:].ravel()])
    dst = np.concatenate([cell[:, :-1].ravel(), cell[:-1].ravel()])
    new = np.random.default_rng(0).permutation(side * side)
    return Graph(name="m", num_vertices=side * side, src=new[src], dst=new[dst])


def test_the_order_is_breadth_first_from_each_start() -> None:
    src, dst = np.array([0, 1, 3, 5, 6]), np.array([3, 3, 4, 6, 2])
    graph = Graph(name="g", num_vertices=8, src=src, dst=dst)
    starts = np.array([4, 3, 7, 6, 0, 1, 2, 5])
    assert _breadth_first(undirected(graph), starts).tolist() == [4, 3, 0, 1, 7, 6, 2, 5]


def test_a_stream_follows_the_formula() -> None:
    graph = random_graph(50, 240)
    adjacency = undirected(graph)
    size = vertex_sizes(adjacency)
    order = np.random.default_rng(1).permutation(50)
    alpha = math.sqrt(4) * (adjacency.weight.sum() / 2) / size.sum() ** 1.5
    part_of = np.full(50, -1)
    for _ in range(2):
        for v in order:
            part_of[v] = -1
            near = slice(adjacency.indptr[v], adjacency.indptr[v + 1])
            scores = []
            for part in range(4):
                load = size[part_of == part].sum()
                is_there = part_of[adjacency.indices[near]] == part
                score = adjacency.weight[near][is_there].sum()
                score -= size[v] * alpha * 1.5 * math.sqrt(load)
                has_room = load + size[v] <= 1.1 * size.sum() / 4
                scores.append(score if has_room else -math.inf)
            part_of[v] = int(np.argmax(np.round(scores, 9)))
    assert np.array_equal(_stream(adjacency, order, size, 4, 2), part_of)


@pytest.mark.parametrize("num_parts", [4, 9])
def test_a_mesh_is_cut_far_better_than_by_streams_of_edges(num_parts: int) -> None:
    graph = mesh(30)
    fennel, hdrf = (
        measure(graph, assign(method, graph, num_parts)) for method in ("fennel", "hdrf")
    )
    assert fennel.halo_rows < 0.3 * hdrf.halo_rows
    assert fennel.edge_balance <= 1.1
    assert fennel.vertex_balance <= 1.25


def test_more_passes_move_fewer_rows() -> None:
    graph = mesh(30)
    one, ten = (
        measure(graph, assign("fennel", graph, 9, passes=passes)).halo_rows for passes in (1, 10)
    )
    assert ten < one


def test_the_order_of_the_file_does_not_change_the_roots() -> None:
    graph = random_graph(60, 300)
    order = np.lexsort((graph.dst, graph.src))
    by_source = Graph(name="g", num_vertices=60, src=graph.src[order], dst=graph.dst[order])
    first, second = assign("fennel", graph, 5), assign("fennel", by_source, 5)
    assert np.array_equal(first.root_part, second.root_part)
    assert np.array_equal(first.edge_part[order], second.edge_part)
