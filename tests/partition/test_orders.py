from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distgnn import _partitioner
from distgnn.datasets import Graph, InputError
from distgnn.partition.assignment import Assignment
from distgnn.partition.orders import ORDERS, arrange, auto
from distgnn.partition.orders.links import Links, link
from distgnn.partition.reuse import count_fetches


@st.composite
def cases(draw: st.DrawFn) -> tuple[Graph, Assignment]:
    """A multigraph and any assignment, whether or not roots live with their edges."""
    num_vertices = draw(st.integers(1, 12))
    num_parts = draw(st.integers(1, 4))
    vertex, part = st.integers(0, num_vertices - 1), st.integers(0, num_parts - 1)
    edges = draw(st.lists(st.tuples(vertex, vertex, part), max_size=40))
    src, dst, edge_part = np.array(edges, np.int64).reshape(-1, 3).T
    root_part = draw(st.lists(part, min_size=num_vertices, max_size=num_vertices))
    graph = Graph(name="drawn", num_vertices=num_vertices, src=src, dst=dst)
    return graph, Assignment(num_parts, edge_part.astype(np.int32), np.array(root_part, np.int32))


def shuffled_communities(seed: int = 0) -> Graph:
    """60 communities of 20 vertices with few links between them, numbered at random."""
    rng = np.random.default_rng(seed)
    src = rng.integers(0, 1200, 12000)
    inside = src // 20 * 20 + rng.integers(0, 20, src.size)
    dst = np.where(rng.random(src.size) < 0.95, inside, rng.integers(0, 1200, src.size))
    number = rng.permutation(1200)
    return Graph(name="communities", num_vertices=1200, src=number[src], dst=number[dst])


def one_part(graph: Graph) -> Assignment:
    return Assignment(
        1, np.zeros(graph.num_edges, np.int32), np.zeros(graph.num_vertices, np.int32)
    )


def order_of(name: str, pairs: list[tuple[int, int]], num_vertices: int) -> list[int]:
    src, dst = np.array(pairs).T
    graph = Graph(name="g", num_vertices=num_vertices, src=src, dst=dst)
    return arrange(name, graph, one_part(graph)).tolist()


@pytest.mark.parametrize("name", ORDERS)
@settings(max_examples=60)
@given(case=cases())
def test_an_order_lists_the_roots_of_each_part_once(
    name: str, case: tuple[Graph, Assignment]
) -> None:
    graph, assignment = case
    order = arrange(name, graph, assignment, seed=3)
    assert np.array_equal(np.sort(order), np.arange(graph.num_vertices))
    assert np.array_equal(assignment.root_part[order], np.sort(assignment.root_part))


@pytest.mark.parametrize("name", ORDERS)
def test_the_same_seed_gives_the_same_order(name: str) -> None:
    graph = shuffled_communities()
    root_part = (np.arange(1200) % 3).astype(np.int32)
    assignment = Assignment(3, root_part[graph.dst], root_part)
    first, second = (arrange(name, graph, assignment, seed=7) for _ in range(2))
    assert np.array_equal(first, second)


def test_another_seed_gives_other_communities() -> None:
    graph = shuffled_communities()
    first, second = (arrange("community", graph, one_part(graph), seed=seed) for seed in (0, 1))
    assert not np.array_equal(first, second)


@settings(max_examples=60)
@given(case=cases())
def test_the_order_of_the_source_is_that_of_the_ids(case: tuple[Graph, Assignment]) -> None:
    graph, assignment = case
    order = arrange("source", graph, assignment)
    assert np.array_equal(order, np.argsort(assignment.root_part, kind="stable"))


def test_many_links_come_first_in_degree_order() -> None:
    assert order_of("degree", [(3, 1), (3, 2), (0, 3), (2, 0), (2, 2)], 5) == [3, 0, 2, 1, 4]


@pytest.mark.parametrize("name", ["community", "rabbit"])
def test_cliques_lie_together(name: str) -> None:
    """Vertices of three cliques are numbered in turn: 0, 3, 6, ... are one of them."""
    order = np.array(
        order_of(name, [(u, v) for u in range(30) for v in range(u) if u % 3 == v % 3], 30)
    )
    assert np.count_nonzero(np.diff(order % 3)) == 2


def test_rabbit_keeps_linked_communities_together() -> None:
    cliques = [(u, v) for u in range(48) for v in range(u) if u % 4 == v % 4]
    order = np.array(order_of("rabbit", [*cliques, (0, 2), (4, 6), (8, 10), (1, 3), (5, 7)], 48))
    groups = (order % 4)[np.flatnonzero(np.diff(order % 4, prepend=-1))]
    assert len(groups) == 4
    assert set(groups[:2].tolist()) in ({0, 2}, {1, 3})


def test_a_path_is_walked_along_in_rcm_order() -> None:
    walk = np.random.default_rng(0).permutation(40)
    order = np.array(order_of("rcm", list(zip(walk[1:], walk[:-1], strict=True)), 40))
    assert np.array_equal(order, walk) or np.array_equal(order, walk[::-1])


def test_auto_is_rabbit_unless_the_vertices_are_in_a_good_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(auto, "CACHE_ROWS", 40)
    shuffled = shuffled_communities()
    assignment = one_part(shuffled)
    by_rabbit = arrange("rabbit", shuffled, assignment)
    assert np.array_equal(arrange("auto", shuffled, assignment), by_rabbit)
    walk = [(vertex, vertex + step) for vertex in range(1000) for step in range(1, 4)]
    assert order_of("rabbit", walk, 1003) != list(range(1003))
    assert order_of("auto", walk, 1003) == list(range(1003))


@settings(max_examples=60)
@given(data=st.data())
def test_fetches_along_an_order_are_those_of_plain_sets(data: st.DataObject) -> None:
    num_vertices, num_rows = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 6))
    vertex = st.integers(0, num_vertices - 1)
    pairs = data.draw(st.lists(st.tuples(vertex, vertex), max_size=40))
    src, dst = np.array(pairs, np.int32).reshape(-1, 2).T
    links = link(src[src != dst], dst[src != dst], num_vertices)
    order = np.array(data.draw(st.permutations(range(num_vertices))))
    held: set[int] = set()
    expected = 0
    for row in order:
        for source in links.indices[links.indptr[row] : links.indptr[row + 1]].tolist():
            if source not in held:
                held = {*held, source} if len(held) < num_rows else {source}
                expected += 1
    begin, end = links.indptr[order], links.indptr[order + 1]
    found = count_fetches(begin, end, links.indices, num_sources=num_vertices, num_rows=num_rows)
    assert found == expected


def test_edges_elsewhere_do_not_count() -> None:
    """Only edges that live with the roots of both ends bring rows together."""
    src, dst = np.array([0, 1, 2, 0, 4]), np.array([1, 2, 1, 4, 0])
    graph = Graph(name="g", num_vertices=6, src=src, dst=dst)
    root_part = np.array([0, 0, 0, 0, 1, 1], np.int32)
    assignment = Assignment(2, np.array([1, 0, 0, 0, 1], np.int32), root_part)
    assert arrange("degree", graph, assignment).tolist() == [1, 2, 0, 3, 4, 5]


def test_communities_have_a_largest_size() -> None:
    pairs = np.array([(u, v) for u in range(40) for v in range(u)], np.int32)
    links = link(pairs[:, 0], pairs[:, 1], 40)
    label = _partitioner.propagate_labels(links.indptr, links.indices, np.arange(40), 7, 4)
    assert np.bincount(label).max() == 7


def ends_of(links: Links) -> list[list[int]]:
    pointers = zip(links.indptr[:-1], links.indptr[1:], strict=True)
    return [sorted(links.indices[begin:end].tolist()) for begin, end in pointers]


def test_an_edge_and_its_reverse_are_one_link() -> None:
    src, dst = np.array([0, 1, 2, 1, 0, 1], np.int32), np.array([1, 0, 1, 2, 1, 0], np.int32)
    assert ends_of(link(src, dst, 3)) == [[1, 1], [0, 0, 2], [1]]
    assert ends_of(link(src[:-1], dst[:-1], 3)) == [[1, 1, 1], [0, 0, 0, 2, 2], [1, 1]]


def merged_by_dictionaries(links: Links, visits: list[int]) -> list[int]:
    """The same mergers, with a table of link weights per community."""
    num_vertices = links.num_vertices
    weight: list[dict[int, float]] = [{} for _ in range(num_vertices)]
    for vertex, ends in enumerate(ends_of(links)):
        for end in ends:
            weight[vertex][end] = weight[vertex].get(end, 0.0) + 1.0
    volume = [float(sum(table.values())) for table in weight]
    total = max(sum(volume), 1.0)
    parent = [-1] * num_vertices
    for vertex in visits:
        gains = {
            other: strength - volume[vertex] * volume[other] / total
            for other, strength in weight[vertex].items()
        }
        best = min(gains, key=lambda other: (-gains[other], other), default=-1)
        if best < 0 or gains[best] <= 0:
            continue
        parent[vertex] = best
        volume[best] += volume[vertex]
        for other, strength in weight[vertex].items():
            del weight[other][vertex]
            if other != best:
                for one, two in ((best, other), (other, best)):
                    weight[one][two] = weight[one].get(two, 0.0) + strength
    return parent


@settings(max_examples=150)
@given(data=st.data())
def test_rabbit_merges_as_plain_dictionaries_do(data: st.DataObject) -> None:
    num_vertices = data.draw(st.integers(1, 14))
    vertex = st.integers(0, num_vertices - 1)
    pairs = data.draw(st.lists(st.tuples(vertex, vertex), max_size=60))
    src, dst = np.array([p for p in pairs if p[0] != p[1]], np.int32).reshape(-1, 2).T
    links = link(src, dst, num_vertices)
    visits = np.array(data.draw(st.permutations(range(num_vertices))))
    merged = _partitioner.merge_communities(links.indptr, links.indices.copy(), visits)
    assert merged.tolist() == merged_by_dictionaries(links, visits.tolist())


def test_rabbit_walks_down_the_tree_of_mergers() -> None:
    parent, visits = np.array([2, 2, -1, 1, -1, 2]), np.array([5, 3, 0, 1, 4, 2])
    assert _partitioner.walk_mergers(parent, visits).tolist() == [2, 5, 0, 1, 3, 4]


def test_progress_is_told_part_by_part() -> None:
    graph = shuffled_communities()
    root_part = (np.arange(1200) % 2).astype(np.int32)
    lines: list[str] = []
    assignment = Assignment(2, root_part[graph.dst], root_part)
    arrange("rabbit", graph, assignment, progress=lines.append)
    assert lines == ["part 1 of 2: 600 roots ordered", "part 2 of 2: 600 roots ordered"]


def test_an_unknown_order_is_an_error() -> None:
    graph = shuffled_communities()
    message = r"unknown order 'rabit'; choose one of auto, source, .*, did you mean 'rabbit'\?"
    with pytest.raises(InputError, match=message):
        arrange("rabit", graph, one_part(graph))


def test_an_assignment_of_another_graph_is_an_error() -> None:
    graph = shuffled_communities()
    assignment = Assignment(1, np.zeros(3, np.int32), np.zeros(1200, np.int32))
    with pytest.raises(InputError, match="edge_part has 3 entries, but graph 'communities' needs"):
        arrange("source", graph, assignment)
