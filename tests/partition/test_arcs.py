from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from distgnn.datasets import Graph, InputError
from distgnn.partition import threads as threads_module
from distgnn.partition.arcs import adjacency_of, arcs_of, split_arcs_of
from distgnn.partition.refine.hubs import edges_beside, lightened
from distgnn.partition.refine.rebalance import rebalance


def multigraph(seed: int, *, is_symmetric: bool) -> Graph:
    generator = np.random.default_rng(seed)
    num_vertices, num_edges = int(generator.integers(1, 12)), int(generator.integers(0, 60))
    src, dst = generator.integers(0, num_vertices, (2, num_edges))
    if is_symmetric:
        src, dst = np.concatenate([src, dst]), np.concatenate([dst, src])
    return Graph(name="g", num_vertices=num_vertices, src=src, dst=dst)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("is_symmetric", [False, True])
def test_arcs_are_the_distinct_edges_in_order(seed: int, is_symmetric: bool) -> None:
    graph = multigraph(seed, is_symmetric=is_symmetric)
    arcs = arcs_of(graph)
    pairs = np.unique(np.stack([graph.src, graph.dst]), axis=1)
    assert np.array_equal(np.stack([arcs.sources(), arcs.head]), pairs)
    assert np.array_equal(arcs.sources()[arcs.of_edge], graph.src)
    assert np.array_equal(arcs.head[arcs.of_edge], graph.dst)
    assert np.array_equal(arcs.weight, np.bincount(arcs.of_edge, minlength=arcs.head.size))
    found = set(zip(*pairs.tolist(), strict=True))
    assert arcs.is_symmetric == (found == {(v, u) for u, v in found})
    if arcs.is_symmetric:
        assert np.array_equal(arcs.head[arcs.mate], arcs.sources())
        assert np.array_equal(arcs.mate[arcs.mate], np.arange(arcs.head.size))


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("is_symmetric", [False, True])
@pytest.mark.parametrize("is_simple", [False, True])
def test_arcs_that_were_lean_are_whole_again(
    seed: int, is_symmetric: bool, is_simple: bool
) -> None:
    graph = multigraph(seed, is_symmetric=is_symmetric)
    if is_simple:
        src, dst = np.unique(np.stack([graph.src, graph.dst]), axis=1)
        graph = Graph(name="g", num_vertices=graph.num_vertices, src=src, dst=dst)
    arcs = arcs_of(graph)
    lean = arcs.lean()
    assert lean.mate.size == lean.head.size == 0
    assert lean.weight.size == (0 if arcs.head.size == graph.num_edges else arcs.head.size)
    for one, same in zip(arcs, lean.whole(arcs.head), strict=True):
        assert one.dtype == same.dtype
        assert np.array_equal(one, same)


@pytest.mark.parametrize("numbers", [np.int32, np.int64])
@pytest.mark.parametrize("is_simple", [False, True])
def test_an_adjacency_that_was_lean_is_whole_again(is_simple: bool, numbers: type) -> None:
    adjacency = adjacency_of(arcs_of(multigraph(0, is_symmetric=True)))
    if is_simple:
        adjacency = adjacency._replace(weight=np.full_like(adjacency.weight, 2))
    lean = adjacency.lean(numbers)
    assert lean.indices.dtype == numbers
    assert lean.weight.size == (1 if is_simple else adjacency.weight.size)
    for one, same in zip(adjacency, lean.whole(), strict=True):
        assert one.dtype == same.dtype
        assert np.array_equal(one, same)
    loads = np.array([[0.0], [0.0]])
    parts = np.arange(adjacency.indptr.size - 1, dtype=np.int32) % 2
    found = [
        (
            edges_beside(links, 4.0),
            lightened(links, 4.0).weight,
            rebalance(links, parts, np.ones((parts.size, 1)), np.array([parts.size / 2.5]), loads),
        )
        for links in (adjacency, lean)
    ]
    for one, same in zip(*found, strict=True):
        assert np.array_equal(one, same)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("is_symmetric", [False, True])
def test_arcs_are_the_same_on_any_number_of_threads(
    seed: int, is_symmetric: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = multigraph(seed, is_symmetric=is_symmetric)
    edge_part = np.arange(graph.num_edges, dtype=np.int32) % 3
    monkeypatch.setattr(threads_module, "MANY_ITEMS", 0)
    found = []
    for threads in (1, 2, 5):
        monkeypatch.setattr(threads_module, "available_threads", lambda threads=threads: threads)
        found.append((*arcs_of(graph), *arcs_of(graph, edge_part)))
    for other in found[1:]:
        for one, same in zip(found[0], other, strict=True):
            assert np.array_equal(one, same)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("is_symmetric", [False, True])
def test_the_adjacency_is_the_sum_of_the_matrix_and_its_transpose(
    seed: int, is_symmetric: bool
) -> None:
    graph = multigraph(seed, is_symmetric=is_symmetric)
    shape = (graph.num_vertices,) * 2
    matrix = sp.coo_matrix((np.ones(graph.num_edges, np.int64), (graph.src, graph.dst)), shape)
    expected = (matrix + matrix.T).toarray()
    np.fill_diagonal(expected, 0)
    adjacency = adjacency_of(arcs_of(graph))
    found = sp.csr_matrix((adjacency.weight, adjacency.indices, adjacency.indptr), shape)
    assert np.array_equal(found.toarray(), expected)
    assert found.has_canonical_format
    assert np.all(adjacency.weight > 0)


@pytest.mark.parametrize("seed", range(20))
def test_parallel_edges_of_several_parts_are_several_arcs(seed: int) -> None:
    graph = multigraph(seed, is_symmetric=True)
    edge_part = np.random.default_rng(seed).integers(0, 3, graph.num_edges).astype(np.int32)
    arcs, arc_part = split_arcs_of(graph, edge_part)
    assert np.array_equal(arc_part[arcs.of_edge], edge_part)
    assert np.array_equal(arcs.head[arcs.of_edge], graph.dst)
    triples = np.unique(np.stack([graph.src, graph.dst, edge_part]), axis=1)
    assert np.array_equal(np.stack([arcs.sources(), arcs.head, arc_part]), triples)


def test_too_many_vertices_are_an_input_error() -> None:
    graph = Graph(name="g", num_vertices=2**31, src=np.array([0]), dst=np.array([1]))
    with pytest.raises(InputError, match="'g' has 2147483648 vertices, but at most 2147483647 are"):
        arcs_of(graph)
