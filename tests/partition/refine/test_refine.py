from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distgnn import _partitioner
from distgnn.datasets import Graph, InputError
from distgnn.partition import METHODS, assign
from distgnn.partition.arcs import split_arcs_of
from distgnn.partition.assignment import Assignment
from distgnn.partition.methods import hypergraph
from distgnn.partition.quality import measure
from distgnn.partition.refine import placement
from distgnn.partition.refine.placement import check_numbers, crowding, placement_of
from distgnn.partition.refine.refinement import most_edges, refine


@st.composite
def assigned_graphs(draw: st.DrawFn) -> tuple[Graph, Assignment]:
    num_vertices, num_parts = draw(st.integers(1, 12)), draw(st.integers(1, 6))
    vertex, part = st.integers(0, num_vertices - 1), st.integers(0, num_parts - 1)
    edges = draw(st.lists(st.tuples(vertex, vertex, part), max_size=40))
    roots = draw(st.lists(part, min_size=num_vertices, max_size=num_vertices))
    src, dst, edge_part = np.array(edges, np.int64).reshape(-1, 3).T
    graph = Graph(name="drawn", num_vertices=num_vertices, src=src, dst=dst)
    parts = edge_part.astype(np.int32), np.array(roots, np.int32)
    return graph, Assignment(num_parts, *parts)


def cap_of(graph: Graph, num_parts: int) -> int:
    mean = graph.num_edges / num_parts
    return max(math.ceil(mean), math.floor(1.05 * mean))


def communities(seed: int, num_vertices: int = 600) -> Graph:
    generator = np.random.default_rng(seed)
    one = generator.integers(0, num_vertices, 3000)
    near = (one + generator.integers(1, 20, one.size)) % num_vertices
    far = generator.integers(0, num_vertices, one.size)
    other = np.where(generator.random(one.size) < 0.8, near, far)
    src, dst = np.concatenate([one, other]), np.concatenate([other, one])
    return Graph(name="communities", num_vertices=num_vertices, src=src, dst=dst)


@settings(max_examples=300)
@given(drawn=assigned_graphs())
def test_refinement_adds_no_row_and_breaks_no_cap_that_held(
    drawn: tuple[Graph, Assignment],
) -> None:
    graph, before = drawn
    after = refine(graph, before)
    old, new = measure(graph, before), measure(graph, after)
    assert new.halo_rows <= old.halo_rows
    assert new.num_edges.max() <= max(old.num_edges.max(), cap_of(graph, before.num_parts))
    assert new.clone_balance <= max(old.clone_balance, 1.5) + 1e-12
    assert new.num_roots.max() <= max(old.num_roots.max(), 1.25 * old.num_roots.mean())


def test_a_root_takes_no_loop_to_a_part_without_room() -> None:
    """Both edges of vertex 1 would follow its root to the part of edge 0 -> 0, which holds two."""
    src, dst = np.array([0, 0, 1]), np.array([0, 1, 1])
    graph = Graph(name="loops", num_vertices=4, src=src, dst=dst)
    before = Assignment(2, np.array([1, 0, 0], np.int32), np.zeros(4, np.int32))
    after = refine(graph, before)
    assert measure(graph, after).num_edges.max() <= cap_of(graph, 2) == 2


@settings(max_examples=100)
@given(drawn=assigned_graphs(), data=st.data())
def test_counts_stay_true_whatever_moves(
    drawn: tuple[Graph, Assignment], data: st.DataObject
) -> None:
    graph, assignment = drawn
    if data.draw(st.booleans()):
        # Every edge has a reverse in its part: vertices are nodes, in place of their two roles.
        graph = Graph(
            name="both ways",
            num_vertices=graph.num_vertices,
            src=np.concatenate([graph.src, graph.dst]),
            dst=np.concatenate([graph.dst, graph.src]),
        )
        edge_part = np.tile(assignment.edge_part, 2)
        assignment = Assignment(assignment.num_parts, edge_part, assignment.root_part)
    arcs, arc_part = split_arcs_of(graph, assignment.edge_part)
    placement = placement_of(arcs, arc_part, assignment.root_part, assignment.num_parts)
    part = st.integers(0, assignment.num_parts - 1)
    for _ in range(8):
        if placement.part.size and data.draw(st.booleans()):
            entry = data.draw(st.integers(0, placement.part.size - 1))
            node = int(np.searchsorted(placement.start, entry, side="right")) - 1
            _partitioner.move_unit(placement, node, entry, data.draw(part))
        else:
            vertex, goal = data.draw(st.integers(0, graph.num_vertices - 1)), data.draw(part)
            if placement.slot_part[placement.first[vertex]] != goal:
                _partitioner.move_root(placement, vertex, goal)
    slots = [slice(f, f + u) for f, u in zip(placement.first, placement.used, strict=False)]
    root_part = placement.slot_part[placement.first[: graph.num_vertices]]
    assert all(
        placement.slot_part[slot][0] == root_part[node % graph.num_vertices]
        for node, slot in enumerate(slots)
    )
    moved_part = placement.part[: arcs.head.size][arcs.of_edge]
    moved = Assignment(assignment.num_parts, moved_part, root_part)
    counted = measure(graph, moved)
    assert placement.totals[0] == counted.halo_rows
    assert np.array_equal(placement.load, counted.num_edges)
    assert np.array_equal(placement.roots, counted.num_roots)
    assert np.array_equal(placement.clones, counted.num_roots + counted.num_leaves)
    assert crowding(placement) == pytest.approx(counted.clone_balance)
    for node, slot in enumerate(slots):
        parts, counts = placement.slot_part[slot], placement.slot_count[slot]
        assert placement.held[node, 0] == sum(1 << int(p) for p in parts)
        is_single = (counts == 1) & (np.arange(counts.size) > 0)
        assert placement.single[node, 0] == sum(1 << int(p) for p in parts[is_single])


@settings(max_examples=150)
@given(drawn=assigned_graphs())
def test_edges_and_their_reverses_stay_together(drawn: tuple[Graph, Assignment]) -> None:
    graph, assignment = drawn
    both = Graph(
        name="both ways",
        num_vertices=graph.num_vertices,
        src=np.concatenate([graph.src, graph.dst]),
        dst=np.concatenate([graph.dst, graph.src]),
    )
    given_part = np.tile(assignment.edge_part, 2)
    before = Assignment(assignment.num_parts, given_part, assignment.root_part)
    after = refine(both, before)
    there, back = np.split(after.edge_part, 2)
    if np.unique(graph.src * graph.num_vertices + graph.dst).size == graph.num_edges:
        assert np.array_equal(there, back)
    old, new = measure(both, before), measure(both, after)
    assert new.halo_rows <= old.halo_rows
    assert new.clone_balance <= max(old.clone_balance, 1.5) + 1e-12


@pytest.mark.parametrize("num_parts", [64, 65, 130])
def test_parts_beyond_a_word_of_bits_are_refined(num_parts: int) -> None:
    graph = communities(8)
    before = assign("random", graph, num_parts)
    after = refine(graph, before)
    assert measure(graph, after).halo_rows < 0.7 * measure(graph, before).halo_rows
    assert after.edge_part.max() == num_parts - 1


def test_a_slot_is_emptied_where_its_edges_find_their_ends() -> None:
    # Vertex 0 reads on part 1 for one edge whose other end has its root at home.
    src, dst = np.array([0, 0, 1, 2, 3, 4]), np.array([1, 2, 0, 0, 4, 3])
    graph = Graph(name="g", num_vertices=5, src=src, dst=dst)
    roots = np.array([0, 0, 0, 1, 1], np.int32)
    astray = Assignment(2, np.array([1, 0, 0, 0, 1, 1], np.int32), roots)
    assert measure(graph, astray).halo_rows == 2
    assert measure(graph, refine(graph, astray, edge_balance=1.4)).halo_rows == 0
    # Part 0 is full.
    assert measure(graph, refine(graph, astray, edge_balance=1.0)).halo_rows == 2


def test_a_root_moves_to_its_edges() -> None:
    graph = Graph(name="g", num_vertices=4, src=np.array([0, 1, 2]), dst=np.array([1, 0, 3]))
    lost = Assignment(2, np.array([0, 0, 1], np.int32), np.array([0, 1, 1, 1], np.int32))
    found = refine(graph, lost, edge_balance=2.0)
    assert found.root_part.tolist() == [0, 0, 1, 1]


def test_overfull_parts_are_drained_for_free_or_for_the_rows_allowed() -> None:
    graph = communities(0)
    half = (np.arange(600) >= 450).astype(np.int32)
    uneven = Assignment(2, half[graph.dst], half)
    rows = measure(graph, uneven).halo_rows
    bound = measure(graph, refine(graph, uneven))
    free = measure(graph, refine(graph, uneven, more_rows=rows))
    assert bound.halo_rows <= rows < 2 * rows
    assert free.halo_rows <= 2 * rows
    assert free.edge_balance <= 1.05 < measure(graph, uneven).edge_balance


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("num_parts", [4, 13])
def test_refinement_saves_rows_after_any_method(method: str, num_parts: int) -> None:
    graph = communities(1)
    plain, refined = (
        measure(graph, assign(method, graph, num_parts, refine=refine)) for refine in (False, True)
    )
    assert refined.halo_rows < plain.halo_rows
    assert refined.edge_balance <= 1.055
    assert refined.clone_balance <= 1.5


@pytest.mark.parametrize("method", METHODS)
def test_the_order_of_edges_does_not_matter_to_refinement(method: str) -> None:
    graph = communities(2)
    given = assign(method, graph, 5, refine=False)
    refined = refine(graph, given)
    for order in (
        np.lexsort((graph.dst, graph.src)),
        np.arange(graph.num_edges)[::-1],
        np.random.default_rng(0).permutation(graph.num_edges),
    ):
        other = Graph(name="g", num_vertices=600, src=graph.src[order], dst=graph.dst[order])
        again = refine(other, Assignment(5, given.edge_part[order], given.root_part))
        assert np.array_equal(again.edge_part, refined.edge_part[order])
        assert np.array_equal(again.root_part, refined.root_part)


def test_parts_that_refinement_leaves_alone() -> None:
    graph = communities(3)
    whole = Assignment(1, np.zeros(graph.num_edges, np.int32), np.zeros(600, np.int32))
    assert refine(graph, whole) is whole
    empty = np.zeros(0, np.int64)
    dots = Graph(name="dots", num_vertices=3, src=empty, dst=empty)
    roots = Assignment(2, empty.astype(np.int32), np.array([0, 1, 1], np.int32))
    assert refine(dots, roots) is roots


def test_the_given_assignment_stays_as_it_is() -> None:
    graph = communities(4)
    given = assign("random", graph, 4)
    copies = given.edge_part.copy(), given.root_part.copy()
    refine(graph, given)
    assert np.array_equal(given.edge_part, copies[0])
    assert np.array_equal(given.root_part, copies[1])


def test_bad_balances_say_what_is_allowed() -> None:
    graph = communities(5)
    given = assign("random", graph, 2)
    with pytest.raises(InputError, match=r"edge_balance must be at least 1, got 0\.9; 1 is perf"):
        refine(graph, given, edge_balance=0.9)
    with pytest.raises(InputError, match="clone_balance must be at least 1, got nan"):
        refine(graph, given, clone_balance=math.nan)
    with pytest.raises(InputError, match=r"imbalance must be at least 1, got 0\.5; 1 is perfect"):
        assign("metis", graph, 2, imbalance=0.5)
    with pytest.raises(InputError, match="method 'random' takes no imbalance; leave it out or ref"):
        assign("random", graph, 2, imbalance=1.1)


def test_imbalance_reaches_method_and_refinement() -> None:
    graph = communities(6)
    tight, loose = (
        measure(graph, assign("metis", graph, 7, imbalance=imbalance)) for imbalance in (1.0, 1.3)
    )
    assert tight.num_edges.max() == math.ceil(graph.num_edges / 7)
    assert tight.edge_balance < loose.edge_balance <= 1.3
    assert loose.halo_rows < tight.halo_rows
    refined = measure(graph, assign("random", graph, 7, imbalance=1.3, refine=True))
    assert 1.05 < refined.edge_balance <= 1.3
    streamed = measure(graph, assign("libra", graph, 7, imbalance=1.0))
    assert streamed.num_edges.max() == math.ceil(graph.num_edges / 7)


def test_stages_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hypergraph, "is_installed", lambda: False)
    lines: list[str] = []
    graph = communities(7)
    assign("metis", graph, 3, progress=lines.append)
    assign("random", graph, 3, refine=True, progress=lines.append)
    stages = [
        *("arcs", "roots by METIS, cut", "edges by cover", "refined"),
        *("roots by METIS, volume", "edges by cover", "refined"),
        *("roots by METIS, cut, edges weigh 0.85", "edges by cover", "refined"),
        *("parts by hep", "parts by ne", "refined again"),
        "refined",
    ]
    names = [line.rsplit(" (", 1)[0].partition(" in vain")[0].partition(":")[0] for line in lines]
    assert names == stages
    assert all(line.endswith(" s)") for line in lines)


def test_vertices_leave_a_part_with_too_many_clones() -> None:
    # A clique on part 0 and a path on part 1 with as many edges, but many more vertices.
    clique = [(u, v) for u in range(25) for v in range(25) if u < v]
    one, other = np.array([*clique, *[(v, v + 1) for v in range(24, 324)]]).T
    src, dst = np.concatenate([one, other]), np.concatenate([other, one])
    graph = Graph(name="kite", num_vertices=325, src=src, dst=dst)
    roots = (np.arange(325) >= 25).astype(np.int32)
    crowded = Assignment(2, roots[dst], roots)
    assert measure(graph, crowded).clone_balance > 1.8
    even = measure(graph, refine(graph, crowded, edge_balance=1.5))
    assert even.clone_balance <= 1.5
    assert even.halo_rows <= measure(graph, crowded).halo_rows


def test_crowded_parts_are_left_crowded_if_moves_cost_rows() -> None:
    clique = [(u, v) for u in range(34) for v in range(34) if u < v]
    grid = [(v, v + 1) for v in range(34, 334) if v % 15 != 3] + [
        (v, v + 15) for v in range(34, 319)
    ]
    one, other = np.array([*clique, *grid, (33, 180)]).T
    src, dst = np.concatenate([one, other]), np.concatenate([other, one])
    graph = Graph(name="flag", num_vertices=334, src=src, dst=dst)
    roots = (np.arange(334) >= 34).astype(np.int32)
    crowded = Assignment(2, roots[dst], roots)
    rows = measure(graph, crowded).halo_rows
    assert measure(graph, refine(graph, crowded, edge_balance=1.8)).halo_rows <= rows
    even = measure(graph, refine(graph, crowded, edge_balance=1.8, more_rows=1000))
    assert even.clone_balance <= 1.5
    assert even.halo_rows > rows


@pytest.mark.parametrize("shape", ["sorted", "reversed", "shuffled"])
def test_metis_does_not_depend_on_the_order_of_edges(shape: str) -> None:
    graph = communities(9)
    order = {
        "sorted": np.lexsort((graph.src, graph.dst)),
        "reversed": np.lexsort((graph.src, graph.dst))[::-1],
        "shuffled": np.random.default_rng(1).permutation(graph.num_edges),
    }[shape]
    other = Graph(name="g", num_vertices=600, src=graph.src[order], dst=graph.dst[order])
    one, same = assign("metis", graph, 6), assign("metis", other, 6)
    assert np.array_equal(one.edge_part[order], same.edge_part)
    assert np.array_equal(one.root_part, same.root_part)


def test_a_balance_beyond_all_edges_limits_nothing() -> None:
    graph = communities(0)
    for balance in (1e30, 1e308, math.inf):
        assert most_edges(graph.num_edges, 4, balance) == graph.num_edges


@pytest.mark.parametrize(
    ("numbers", "sentence"),
    [
        ({"vertices": 2**30}, "cannot number 1073741824 vertices, at most 1073741823; leave it"),
        ({"units": 2**30}, "cannot number 1073741824 distinct edges, at most .* --refine off"),
    ],
)
def test_numbers_beyond_int32_are_refused(numbers: dict[str, int], sentence: str) -> None:
    check_numbers(**{name: count - 1 for name, count in numbers.items()})
    with pytest.raises(InputError, match=sentence):
        check_numbers(**numbers)


def test_numbers_beyond_int32_are_refused_before_metis_works(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = communities(0)
    heard: list[str] = []
    monkeypatch.setattr(placement, "MOST_UNITS", 100)
    with pytest.raises(InputError, match=r"cannot number .* distinct edges, at most 100"):
        assign("metis", graph, 4, progress=heard.append)
    assert heard == []
