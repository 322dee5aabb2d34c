"""METIS on clusters: the kernels beside plain Python, and the parts that come of them."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from partition_loops import LOOPS

from distgnn import _partitioner
from distgnn.datasets import Graph
from distgnn.partition import assign
from distgnn.partition.arcs import Adjacency, undirected
from distgnn.partition.methods import multilevel
from distgnn.partition.methods.metis_library import part_graph
from distgnn.partition.quality import measure
from distgnn.partition.refine.hubs import has_hubs

if TYPE_CHECKING:
    from numpy.typing import NDArray


def graph_of(src: NDArray[np.int64], dst: NDArray[np.int64], num_vertices: int) -> Graph:
    return Graph(name="drawn", num_vertices=num_vertices, src=src, dst=dst)


@st.composite
def drawn_graphs(draw: st.DrawFn) -> Graph:
    num_vertices = draw(st.integers(2, 12))
    ends = draw(
        st.lists(
            st.tuples(*[st.integers(0, num_vertices - 1)] * 2),
            min_size=1,
            max_size=60,
        )
    )
    src, dst = np.array(ends, np.int64).T
    return graph_of(src.copy(), dst.copy(), num_vertices)


def numbers_for(num_vertices: int) -> st.SearchStrategy[list[int]]:
    """Draw a number below `num_vertices` for each vertex."""
    number = st.integers(0, num_vertices - 1)
    return st.lists(number, min_size=num_vertices, max_size=num_vertices)


def communities(num_vertices: int = 4000, size: int = 100, degree: int = 30) -> Graph:
    """Nine of ten edges stay inside communities of so many vertices, which are not in order."""
    generator = np.random.default_rng(0)
    src = generator.integers(0, num_vertices, num_vertices * degree)
    near = src // size * size + generator.integers(0, size, src.size)
    far = generator.integers(0, num_vertices, src.size)
    dst = np.where(generator.random(src.size) < 0.9, near, far)
    number = generator.permutation(num_vertices)
    return graph_of(number[src], number[dst], num_vertices)


def dense(adjacency: Adjacency) -> NDArray[np.int64]:
    size = adjacency.indptr.size - 1
    found = np.zeros((size, size), np.int64)
    row = np.repeat(np.arange(size), np.diff(adjacency.indptr))
    np.add.at(found, (row, adjacency.indices), adjacency.whole().weight)
    return found


@settings(deadline=None)
@given(drawn_graphs(), st.data())
def test_choices_are_those_of_plain_python(graph: Graph, data: st.DataObject) -> None:
    adjacency, num_vertices = undirected(graph), graph.num_vertices
    group = np.array(data.draw(numbers_for(num_vertices)), np.int32)
    size = np.array(data.draw(numbers_for(num_vertices)), np.int64) + 1
    most, seed = data.draw(st.integers(1, 3 * num_vertices)), data.draw(st.integers(0, 2**40))
    load = np.zeros(num_vertices, np.int64)
    np.add.at(load, group, size)
    choice, expected = np.full((2, num_vertices), -1, np.int32)
    groups = group, size, load, most

    middle = data.draw(st.integers(0, num_vertices))
    for first, last in ((0, middle), (middle, num_vertices)):
        _partitioner.choose_groups(first, last, adjacency, *groups, seed, choice)

    LOOPS["choose_groups"](0, num_vertices, adjacency, *groups, seed, expected)
    np.testing.assert_array_equal(choice, expected)


@settings(deadline=None)
@given(drawn_graphs(), st.data())
def test_contraction_is_a_product_of_matrices(graph: Graph, data: st.DataObject) -> None:
    adjacency, num_vertices = undirected(graph), graph.num_vertices
    label = np.array(data.draw(numbers_for(num_vertices)), np.int32)
    num_clusters = multilevel.number_clusters(label)

    with multilevel.ThreadPoolExecutor(2) as pool:
        merged = multilevel._contracted(pool, adjacency, label, num_clusters)

    member = np.eye(num_clusters, dtype=np.int64)[label]
    expected = member.T @ dense(adjacency) @ member
    np.fill_diagonal(expected, 0)
    np.testing.assert_array_equal(dense(merged), expected)
    rows = np.split(merged.indices, merged.indptr[1:-1])
    assert all(np.unique(row).size == row.size for row in rows)
    assert merged.weight.min(initial=1) > 0


def test_a_vertex_with_more_links_than_the_smallest_table_is_counted_right() -> None:
    leaves = np.arange(1, 3000)
    star = undirected(graph_of(np.zeros(2999, np.int64), leaves, 3000))
    # Every group but the last has two of the leaves, the last has three.
    group = np.concatenate([[2999], np.minimum(leaves // 2, 1498)]).astype(np.int32)
    choice = np.empty(3000, np.int32)
    ones = np.ones(3000, np.int64)
    load = np.bincount(group, minlength=3000)

    _partitioner.choose_groups(0, 1, star, group, ones, load, 10, 0, choice)

    assert choice[0] == 1498


def test_vertices_that_chose_side_by_side_do_not_pass_the_limit() -> None:
    group, load = np.arange(4, dtype=np.int32), np.ones(4, np.int64)
    choice = np.array([0, 0, 0, 0], np.int32)

    moved = _partitioner.join_groups(0, 4, choice, np.ones(4, np.int64), 3, group, load)

    assert moved == 2
    assert group.tolist() == [0, 0, 0, 3]
    assert load.tolist() == [3, 0, 0, 1]


def test_vertices_that_chose_each_other_meet() -> None:
    # Each group of two is the other's favourite, wherever they stand.
    pairs = undirected(graph_of(np.arange(0, 64, 2), np.arange(1, 64, 2), 64))
    ones, label = np.ones(64, np.int64), np.arange(64, dtype=np.int32)

    with multilevel.ThreadPoolExecutor(2) as pool:
        multilevel._Moves(pairs, ones, label, ones.copy(), 2, 0).make(pool, 1)

    assert np.array_equal(label[::2], label[1::2])


def levels_of(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Note the number of vertices of each coarser level."""
    found: list[int] = []
    contracted = multilevel._contracted

    def noted(*given: Any) -> Adjacency:
        merged = contracted(*given)
        found.append(merged.indptr.size - 1)
        return merged

    monkeypatch.setattr(multilevel, "_contracted", noted)
    return found


def test_vertices_without_links_do_not_keep_others_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    linked = communities()
    graph = graph_of(linked.src, linked.dst, 40_000)
    weight = np.where(np.diff(undirected(graph).indptr) > 0, 1000, 1)
    levels = levels_of(monkeypatch)

    part = multilevel.part_by_levels(undirected(graph), 2, vertex_weight=weight, seed=0)

    assert levels[0] < 36_000 + 4000 / 3
    assert len(levels) > 1
    sizes = np.bincount(part, weight)
    assert sizes.max() <= 1.04 * sizes.mean()


def test_hubs_are_parted_with_their_lighter_links(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = communities()
    hubs = np.repeat(np.arange(8), 4000)
    graph = graph_of(
        np.concatenate([graph.src, hubs]),
        np.concatenate([graph.dst, np.tile(np.arange(4000), 8)]),
        4000,
    )
    assert has_hubs(np.diff(undirected(graph).indptr))
    before = measure(graph, assign("metis", graph, 4, quality="fast")).halo_rows
    monkeypatch.setattr(multilevel, "LEAST_ENTRIES", 1000)
    levels = levels_of(monkeypatch)

    after = measure(graph, assign("metis", graph, 4, quality="fast"))

    assert len(levels) > 1
    assert after.halo_rows <= 1.1 * before
    assert after.edge_balance <= 1.05


@pytest.mark.parametrize("is_bad", ["coarse", "fine"])
def test_a_level_is_parted_anew_and_what_cuts_fewer_links_goes_on(
    monkeypatch: pytest.MonkeyPatch, is_bad: str
) -> None:
    links = undirected(communities())
    ones = np.ones(4000, np.int64)
    good = part_graph(links, 4, vertex_weight=ones, seed=0, objective="cut")
    calls: list[int] = []

    def parts_of(level: Adjacency, num_parts: int, **options: Any) -> NDArray[np.int32]:
        num_vertices = level.indptr.size - 1
        calls.append(num_vertices)
        if (num_vertices == 4000) == (is_bad == "fine"):
            return np.arange(num_vertices, dtype=np.int32) % 4
        return part_graph(level, num_parts, **options)

    monkeypatch.setattr(multilevel, "part_graph", parts_of)
    monkeypatch.setattr(multilevel, "_FEW_ENTRIES", 1)
    part = multilevel.part_by_levels(links, 4, vertex_weight=ones, seed=0)

    assert calls == sorted(calls)
    assert len(calls) >= 2
    assert calls[-1] == 4000
    assert multilevel.cut_weight(links, part) <= 1.1 * multilevel.cut_weight(links, good)


def test_metis_gets_few_links_only(monkeypatch: pytest.MonkeyPatch) -> None:
    links = undirected(communities())
    calls: list[int] = []
    monkeypatch.setattr(
        multilevel,
        "part_graph",
        lambda level, *given, **options: (
            calls.append(level.indices.size) or part_graph(level, *given, **options)
        ),
    )

    multilevel.part_by_levels(links, 4, vertex_weight=np.ones(4000, np.int64), seed=0)

    assert max(calls) <= links.indices.size / 4
    assert all(2 * one <= other for one, other in pairwise(calls))


def test_an_overfull_part_loses_against_more_links_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    links = undirected(communities())
    ones = np.ones(4000, np.int64)
    monkeypatch.setattr(multilevel, "_FEW_ENTRIES", 1)
    monkeypatch.setattr(multilevel, "_MOVE_PASSES", 0)
    monkeypatch.setattr(
        multilevel,
        "part_graph",
        lambda level, num_parts, **options: (
            part_graph(level, num_parts, **options)
            if level.indptr.size - 1 == 4000
            else np.zeros(level.indptr.size - 1, np.int32)  # which cuts nothing
        ),
    )

    part = multilevel.part_by_levels(links, 4, vertex_weight=ones, seed=0)

    assert np.bincount(part, minlength=4).max() <= 1.04 * 1000


def test_where_nothing_can_be_merged_metis_gets_the_links_themselves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    generator = np.random.default_rng(0)
    graph = graph_of(*generator.integers(0, 60, (2, 1500)), 60)
    monkeypatch.setattr(multilevel, "LEAST_ENTRIES", 1 << 40)
    alone = assign("metis", graph, 30, quality="fast")
    monkeypatch.setattr(multilevel, "LEAST_ENTRIES", 1)
    levels = levels_of(monkeypatch)

    found = assign("metis", graph, 30, quality="fast")

    assert levels == [60]
    np.testing.assert_array_equal(found.root_part, alone.root_part)
    np.testing.assert_array_equal(found.edge_part, alone.edge_part)


@pytest.mark.parametrize("num_parts", [2, 8])
def test_parts_are_even_and_cut_little_more_than_those_of_metis(num_parts: int) -> None:
    links = undirected(communities())
    ones = np.ones(4000, np.int64)

    part = multilevel.part_by_levels(links, num_parts, vertex_weight=ones, seed=0)

    direct = part_graph(links, num_parts, vertex_weight=ones, seed=0, objective="cut")
    assert part.dtype == np.int32
    assert np.bincount(part, minlength=num_parts).max() <= 1.04 * 4000 / num_parts
    assert multilevel.cut_weight(links, part) <= 1.1 * multilevel.cut_weight(links, direct)


def test_parts_do_not_depend_on_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    links = undirected(communities())
    found = []
    for threads in (1, 2, 3):
        monkeypatch.setattr(multilevel, "available_threads", lambda threads=threads: threads)
        found.append(
            multilevel.part_by_levels(links, 4, vertex_weight=np.ones(4000, np.int64), seed=3)
        )

    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


def test_one_weight_stands_for_all() -> None:
    links = undirected(communities())
    even = links._replace(weight=np.full(links.indices.size, 2, np.int32))
    ones = np.ones(4000, np.int64)

    lean = multilevel.part_by_levels(even.lean(np.int32), 4, vertex_weight=ones, seed=0)
    whole = multilevel.part_by_levels(even, 4, vertex_weight=ones, seed=0)

    np.testing.assert_array_equal(lean, whole)
    row = np.repeat(np.arange(4000), np.diff(links.indptr))
    expected = np.count_nonzero(lean[row] != lean[links.indices])
    assert multilevel.cut_weight(even, lean) == expected
    assert multilevel.cut_weight(even.lean(np.int32), lean) == expected


@pytest.mark.parametrize(
    "graph",
    [
        graph_of(np.zeros(199, np.int64), np.arange(1, 200), 200),  # a star: nothing to merge
        graph_of(np.array([3]), np.array([4]), 10),
        graph_of(np.arange(100) % 10, np.arange(100) // 10, 300),  # most have no links
    ],
)
def test_graphs_of_any_shape_get_parts(graph: Graph) -> None:
    ones = np.ones(graph.num_vertices, np.int64)
    part = multilevel.part_by_levels(undirected(graph), 3, vertex_weight=ones, seed=2**40)
    assert part.shape == (graph.num_vertices,)
    assert 0 <= part.min() <= part.max() < 3


def test_the_default_method_takes_clusters_where_links_are_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = communities()
    before = measure(graph, assign("metis", graph, 4, quality="fast")).halo_rows
    calls = []
    by_levels = multilevel.part_by_levels
    monkeypatch.setattr(multilevel, "LEAST_ENTRIES", 1000)
    monkeypatch.setattr(
        "distgnn.partition.methods.metis.part_by_levels",
        lambda *given, **options: calls.append(1) or by_levels(*given, **options),
    )

    after = measure(graph, assign("metis", graph, 4, quality="fast"))

    assert calls == [1]
    assert after.halo_rows <= 1.1 * before
    assert after.edge_balance <= 1.05
