"""Parts by Mt-KaHyPar: the hypergraph counts rows, and what comes of it keeps the balances."""

from __future__ import annotations

import importlib.util
import math
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distgnn.datasets import Graph, InputError
from distgnn.partition import assign
from distgnn.partition.arcs import Arcs, adjacency_of, arcs_of
from distgnn.partition.assignment import Assignment
from distgnn.partition.methods import hypergraph
from distgnn.partition.methods.candidates import excess_edges, halo_rows, is_even
from distgnn.partition.methods.hypergraph import among, slots_of
from distgnn.partition.methods.mtkahypar_library import Hypergraph, part_hypergraph
from distgnn.partition.quality import measure
from distgnn.partition.refine.balance import Balance
from distgnn.partition.stopwatch import Stopwatch

needs_mtkahypar = pytest.mark.skipif(
    importlib.util.find_spec("mtkahypar") is None, reason="mtkahypar is not installed"
)

# Stands in for the library where it is not installed: the part of a node comes of its weight, of
# the numbers of its nets and of its part before, so that what arrives shows in the parts.
STAND_IN = """
from pathlib import Path

class _Context:
    def set_partitioning_parameters(self, parts, imbalance, objective):
        self.parts = parts
        assert objective == "km1"
    def set_individual_target_block_weights(self, most):
        assert len(most) == self.parts and all(type(each) is int for each in most)
        self.most = most

class _Graph:
    def __init__(self, nodes, nets, weight):
        self.sums = list(weight)
        for number, net in enumerate(nets):
            for node in net:
                self.sums[node] += number
        assert len(weight) == nodes
    def create_partitioned_hypergraph(self, context, parts, begun):
        assert parts == context.parts
        self.sums = [each + part for each, part in zip(self.sums, begun, strict=True)]
        return self
    def improve_partition(self, context, cycles):
        assert cycles == 1
        self.partition(context)
    def partition(self, context):
        assert not context.logging
        self.parts = [(each + context.most[0]) % context.parts for each in self.sums]
        return self
    def get_partition(self):
        return self.parts

class _Library:
    def context_from_file(self, name):
        settings = dict(line.split("=") for line in Path(name).read_text().splitlines())
        limits = {name: value for name, value in settings.items() if "time-limit" in name}
        assert len(limits) == 3 and set(limits.values()) == {"1e9"}
        return _Context()
    def create_hypergraph(self, context, nodes, num_nets, nets, weight, net_weight):
        assert net_weight == [1] * num_nets == [1] * len(nets)
        return _Graph(nodes, nets, weight)

class Objective:
    KM1 = "km1"

def initialize(threads, print_warnings):
    assert threads == 1
    return _Library()

def set_seed(seed):
    assert 0 <= seed < 2**31
"""
DIES = "raise MemoryError('\\x1b[1;91mstd::bad_alloc\\x1b[0m')"


def graph_of(src: list[int], dst: list[int], num_vertices: int) -> Graph:
    ends = np.array([src, dst], np.int64).reshape(2, -1)
    return Graph(name="known", num_vertices=num_vertices, src=ends[0], dst=ends[1])


def nets_of(slots: Hypergraph) -> list[np.ndarray]:
    return np.split(slots.pins, slots.start[1:-1])


def random_graph(num_vertices: int = 300, num_edges: int = 1200, *, both: bool = False) -> Graph:
    src, dst = np.random.default_rng(0).integers(0, num_vertices, (2, num_edges))
    if both:
        src, dst = np.concatenate([src, dst]), np.concatenate([dst, src])
    return Graph(name="random", num_vertices=num_vertices, src=src, dst=dst)


@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=30),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)
def test_parts_that_nets_touch_beyond_the_first_are_the_rows_that_travel(
    edges: list[tuple[int, int]], is_symmetric: bool, seed: int
) -> None:
    pairs = edges + [(v, u) for u, v in edges] * is_symmetric
    arcs = arcs_of(graph_of([u for u, _ in pairs], [v for _, v in pairs], 8))
    slots = slots_of(arcs)
    parts = np.random.default_rng(seed).integers(0, 3, slots.num_nodes).astype(np.int32)
    beyond = sum(np.unique(parts[net]).size - 1 for net in nets_of(slots))
    placed = Assignment(3, parts[: arcs.head.size], parts[arcs.head.size :])
    assert halo_rows(arcs, placed) == beyond


def test_nets_join_a_root_with_the_arcs_that_read_it_and_with_those_that_write_it() -> None:
    slots = slots_of(arcs_of(graph_of([0, 0, 1], [1, 2, 2], 4)))
    assert slots.num_nodes == 3 + 4
    # Vertex 0 is only read, 2 only written, 3 alone.
    assert [net.tolist() for net in nets_of(slots)] == [[0, 1, 3], [2, 4], [0, 4], [1, 2, 5]]


@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=30),
    st.integers(0, 2**32 - 1),
)
def test_rows_differ_among_some_parts_as_in_the_whole(
    edges: list[tuple[int, int]], seed: int
) -> None:
    slots = slots_of(arcs_of(graph_of([u for u, _ in edges], [v for _, v in edges], 8)))
    rng = np.random.default_rng(seed)
    before = rng.integers(0, 4, slots.num_nodes)
    nodes = np.flatnonzero(before < 2)
    after = before.copy()
    after[nodes] = rng.integers(0, 2, nodes.size)
    some = among(slots, nodes)
    assert some.num_nodes == nodes.size
    assert all(net.size > 1 for net in nets_of(some) if some.pins.size)

    def beyond(slots: Hypergraph, parts: np.ndarray) -> int:
        nets = nets_of(slots) if slots.pins.size else []
        return sum(np.unique(parts[net]).size - 1 for net in nets)

    assert beyond(slots, after) - beyond(slots, before) == (
        beyond(some, after[nodes]) - beyond(some, before[nodes])
    )


def test_windows_are_even_and_others_each_time() -> None:
    arcs = arcs_of(random_graph(600, 3000))
    task = hypergraph._Task(arcs, adjacency_of(arcs), Balance(1.05, 1.25), 12, slots_of(arcs))
    rng = np.random.default_rng(0)
    arc_part, root_part = (
        rng.permutation(np.arange(size, dtype=np.int32) % 12)
        for size in (arcs.head.size, arcs.num_vertices)
    )
    placed, work = Assignment(12, arc_part, root_part), task.slots.num_nodes * 12
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hypergraph, "WINDOW_WORK", work)
        assert hypergraph._rounds(task, placed, 5) == [[list(range(12))]]
        # Of a third of the parts it is a ninth.
        patch.setattr(hypergraph, "WINDOW_WORK", work / 9.1)
        rounds = hypergraph._rounds(task, placed, 5)
    assert len(rounds) == 5
    for each in rounds:
        assert sorted(part for window in each for part in window) == list(range(12))
        assert [len(window) for window in each] == [3, 3, 3, 3]
    assert rounds[0] != rounds[1]


@pytest.mark.parametrize("num_parts", [3, 4])
def test_the_two_largest_parts_have_a_window_too(
    num_parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    arcs = arcs_of(random_graph(600, 3000))
    slots = slots_of(arcs)
    task = hypergraph._Task(arcs, adjacency_of(arcs), Balance(9.0, 9.0), num_parts, slots)
    # The first and the last part hold nearly all.
    arc_part, root_part = (
        (np.minimum(np.arange(size), num_parts * 3 - 1) % num_parts).astype(np.int32)
        for size in (arcs.head.size, arcs.num_vertices)
    )
    arc_part[::2] = 0
    monkeypatch.setattr(hypergraph, "WINDOW_WORK", 1.0)
    rounds = hypergraph._rounds(task, Assignment(num_parts, arc_part, root_part), 9)
    pairs = {tuple(window) for each in rounds for window in each}
    assert (0, num_parts - 1) in pairs


@pytest.mark.parametrize("threads", [1, 3])
def test_windows_are_improved_each_by_itself(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    arcs = arcs_of(random_graph())
    task = hypergraph._Task(arcs, adjacency_of(arcs), Balance(1.05, 1.25), 6, slots_of(arcs))
    rng = np.random.default_rng(0)
    begun = Assignment(
        6,
        rng.integers(0, 6, arcs.head.size).astype(np.int32),
        rng.integers(0, 6, arcs.num_vertices).astype(np.int32),
    )
    before = np.concatenate([begun.edge_part, begun.root_part])
    monkeypatch.setattr(hypergraph, "available_threads", lambda: threads)
    asked = {}

    def turned(slots: Hypergraph, parts: int, **words: Any) -> np.ndarray:
        asked[parts] = slots, words
        assert words["seed"] == 5
        turned: np.ndarray = (words["begun"] + 1) % parts
        return turned

    monkeypatch.setattr(hypergraph, "part_hypergraph", turned)
    found = hypergraph._cut(task, begun, 5, windows=[[0, 3], [1, 2, 5]], slack=0.1)
    after = np.concatenate([found.edge_part, found.root_part])
    np.testing.assert_array_equal(after, np.array([3, 2, 5, 0, 4, 1])[before])
    hypergraph._cut(task, begun, 5, windows=[range(6)], slack=0.1)
    _, whole = asked[6]
    for window in ([0, 3], [1, 2, 5]):
        nodes = np.flatnonzero(np.isin(before, window))
        slots, words = asked[len(window)]
        wanted = among(task.slots, nodes)
        assert slots.num_nodes == nodes.size
        np.testing.assert_array_equal(slots.pins, wanted.pins)
        np.testing.assert_array_equal(slots.start, wanted.start)
        np.testing.assert_array_equal(words["weight"], whole["weight"][nodes])
        np.testing.assert_array_equal(words["most"], whole["most"][window])
        np.testing.assert_array_equal(np.array(window)[words["begun"]], before[nodes])


def test_windows_without_nets_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    arcs = arcs_of(graph_of([0], [1], 4))
    task = hypergraph._Task(arcs, adjacency_of(arcs), Balance(2.0, 2.0), 4, slots_of(arcs))
    begun = Assignment(4, np.array([0], np.int32), np.arange(4, dtype=np.int32))
    monkeypatch.setattr(hypergraph, "part_hypergraph", None)
    found = hypergraph._cut(task, begun, 5, windows=[[2, 3]])
    assert found.root_part.tolist() == [0, 1, 2, 3]


class Asked(NamedTuple):
    """Arguments of a call of the library."""

    weight: np.ndarray
    most: np.ndarray
    begun: np.ndarray | None


def asked_for(
    balance: Balance, begun: Assignment | None, monkeypatch: pytest.MonkeyPatch, **options: float
) -> Asked:
    """Cut a graph of eight edges, two of them parallel, and four vertices on a path in two."""
    arcs = arcs_of(graph_of([0, 1, 1, 2, 2, 3, 0, 1], [1, 0, 2, 1, 3, 2, 1, 0], 4))
    task = hypergraph._Task(arcs, adjacency_of(arcs), balance, 2, slots_of(arcs))
    found: list[Asked] = []

    def noted(slots: Hypergraph, parts: int, *, seed: int, **words: np.ndarray) -> np.ndarray:
        assert (parts, seed) == (2, 5)
        found.append(Asked(**words))
        return np.zeros(slots.num_nodes, np.int32)

    monkeypatch.setattr(hypergraph, "part_hypergraph", noted)
    hypergraph._cut(task, begun, 5, windows=[[0, 1]], **options)
    return found[0]


@pytest.mark.parametrize("share", [0.3, 0.5])
def test_edges_and_roots_have_their_shares_of_the_weight(
    share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A part may hold five edges and three roots.
    asked = asked_for(Balance(1.25, 1.5), None, monkeypatch, root_share=share)
    edges, roots = asked.weight[:6], asked.weight[6:]
    assert asked.begun is None
    np.testing.assert_allclose(edges / edges[2], [2, 2, 1, 1, 1, 1], rtol=0.01)
    np.testing.assert_allclose(roots / edges[2], [share / 3 / ((1 - share) / 5)] * 4, rtol=0.01)
    np.testing.assert_allclose(
        asked.most, asked.weight.sum() / 2 * hypergraph.NEW_BALANCE, rtol=0.01
    )


@pytest.mark.parametrize(
    ("slack", "expected"), [(0.0, [0.9, 0.5667]), (0.1, [0.95, 0.6667]), (0.9, [1.0, 1.0])]
)
def test_a_part_may_grow_by_the_slack_and_not_beyond_its_limits(
    slack: float, expected: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Of the five edges and three roots that it may hold, a part has four and three, the other four
    # and one.
    parts = np.array([0, 0, 1, 1, 1, 1], np.int32), np.array([0, 0, 0, 1], np.int32)
    begun = Assignment(2, *parts)
    asked = asked_for(Balance(1.25, 1.5), begun, monkeypatch, root_share=0.5, slack=slack)
    assert asked.begun is not None
    np.testing.assert_array_equal(asked.begun, np.concatenate(parts))
    of_one_edge = 0.5 / 5
    np.testing.assert_allclose(asked.most / (asked.weight[2] / of_one_edge), expected, rtol=0.01)
    assert (asked.most >= np.bincount(asked.begun, asked.weight)).all()


@pytest.mark.parametrize("edges", [1.25, 1e9])
def test_all_weights_and_limits_together_have_room_in_32_bits(
    edges: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hypergraph, "_ALL_WEIGHT", 500)
    begun = Assignment(2, np.array([0, 0, 0, 1, 1, 1], np.int32), np.array([0, 0, 1, 1], np.int32))
    # Wide limits let a part hold all eight edges, and three roots as before.
    asked = asked_for(Balance(edges, 1.5), begun, monkeypatch, root_share=0.5, slack=9.0)
    assert asked.weight.sum() <= 500 + asked.weight.size / 2
    assert asked.most.sum() <= 500 / 0.6 + 2


@pytest.mark.parametrize("slack", [0.0, 0.1])
def test_a_part_beyond_its_limits_keeps_what_it_has(
    slack: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = Assignment(2, np.zeros(6, np.int32), np.zeros(4, np.int32))
    asked = asked_for(Balance(1.25, 1.5), begun, monkeypatch, slack=slack)
    assert asked.most[0] == asked.weight.sum()


def stand_in(folder: Path, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have code stand in for the library in its process."""
    (folder / "mtkahypar.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.setattr(hypergraph, "is_installed", lambda: True)


@pytest.mark.parametrize("begun", [None, np.array([0, 1, 2, 3, 4], np.int32)])
def test_all_of_it_reaches_the_library(
    begun: np.ndarray | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, STAND_IN, monkeypatch)
    start, pins = np.array([0, 2, 5, 8]), np.array([0, 1, 1, 2, 3, 0, 3, 4], np.int32)
    weight = np.array([1.0, 10.0, 100.0, 1000.0, 1e10])
    expected = weight + np.bincount(pins, [0, 0, 1, 1, 1, 2, 2, 2])
    found = part_hypergraph(
        Hypergraph(5, start, pins),
        7,
        weight=weight,
        most=np.arange(3.0, 10.0),
        begun=begun,
        seed=2**40,
    )
    assert found.dtype == np.int32
    before = 0 if begun is None else begun
    assert found.tolist() == ((expected.astype(np.int64) + before + 3) % 7).tolist()


@pytest.mark.parametrize("both", [False, True])
def test_parts_that_are_no_better_leave_those_of_metis(
    both: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = random_graph(both=both)
    alone = {
        quality: assign("metis", graph, 4, quality=quality, roots="metis")
        for quality in ("default", "best")
    }
    stand_in(tmp_path, STAND_IN, monkeypatch)
    few = hypergraph.FEW_CYCLES
    # The best quality also does what the default one does.
    for quality, cycles in (("default", few), ("best", hypergraph.MOST_VAIN + few)):
        said: list[str] = []
        found = assign("metis", graph, np.int64(4), quality=quality, progress=said.append)
        told = [line for line in said if line.startswith("cycle of Mt-KaHyPar")]
        anew = [line for line in told if ", from another cut (" in line]
        assert bool(anew) == (quality == "best")
        assert len(told) - len(anew) == cycles
        assert all(" in vain: " in line for line in told if line not in anew)
        rows, wanted = (measure(graph, each) for each in (found, alone[quality]))
        assert rows.halo_rows <= wanted.halo_rows
        assert rows.edge_balance <= max(wanted.edge_balance, 1.05)


@pytest.mark.parametrize(
    "words",
    [
        {"roots": "metis", "quality": "best"},
        {"objective": "cut", "quality": "best"},
        {"roots": "metis"},
        {"quality": "fast"},
        {"refine": False},
    ],
)
def test_whoever_asks_for_metis_alone_or_for_less_gets_no_other(
    words: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, DIES, monkeypatch)
    said: list[str] = []
    assign("metis", random_graph(), 4, progress=said.append, **words)
    assert not any("Mt-KaHyPar" in line for line in said)


def test_a_library_that_dies_leaves_the_parts_so_far(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = random_graph()
    alone = assign("metis", graph, 4, quality="best", roots="metis")
    stand_in(tmp_path, DIES, monkeypatch)
    said: list[str] = []
    found = assign("metis", graph, 4, quality="best", progress=said.append)
    line, again = (line for line in said if "Mt-KaHyPar" in line)
    assert line.startswith("no more parts by Mt-KaHyPar, those so far are kept: ")
    assert again.startswith(
        "no more parts by Mt-KaHyPar, those so far are kept: Mt-KaHyPar ended with status 1: "
        "MemoryError: std::bad_alloc; free memory, or cut with --quality fast"
    )
    if importlib.util.find_spec("kaminpar") is None:
        np.testing.assert_array_equal(found.edge_part, alone.edge_part)
        np.testing.assert_array_equal(found.root_part, alone.root_part)


def dealt(arcs: Arcs) -> Assignment:
    """Deal arcs and roots to four parts in turn."""
    arc_part, root_part = (
        np.arange(count, dtype=np.int32) % 4 for count in (arcs.head.size, arcs.num_vertices)
    )
    return Assignment(4, arc_part, root_part)


def improved(
    arcs: Arcs,
    placed: Assignment,
    quality: str,
    said: list[str] | None = None,
    *,
    edges: float = 1.05,
) -> Assignment:
    return hypergraph.fewer_by_hypergraph(
        arcs,
        placed,
        Balance(edges, 1.25, refine=True),
        adjacency=adjacency_of(arcs),
        seed=0,
        quality=quality,
        watch=Stopwatch(None if said is None else said.append),
    )


@pytest.mark.parametrize("quality", ["default", "best"])
@pytest.mark.parametrize("edges", [1.05, 1.2, 9.0])
def test_parts_that_are_better_are_kept(
    edges: float, quality: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, STAND_IN, monkeypatch)
    graph = random_graph(both=True)
    arcs = arcs_of(graph)
    rng = np.random.default_rng(0)
    placed = Assignment(
        4,
        rng.integers(0, 4, arcs.head.size).astype(np.int32),
        rng.integers(0, 4, graph.num_vertices).astype(np.int32),
    )
    said: list[str] = []
    found = improved(arcs, placed, quality, said, edges=edges)
    rows = halo_rows(arcs, found)
    assert rows < halo_rows(arcs, placed)
    # From another cut, all cycles may be in vain.
    is_of_cycle = (f": {rows} rows after " in line for line in said if " in vain: " not in line)
    is_of_cut = (f" rows after {rows}, from another cut" in line for line in said)
    assert any(is_of_cycle) or any(is_of_cut)
    assert excess_edges(arcs, found, edges) == 0
    assert is_even(found, Balance(edges, 1.25))


def test_another_cut_is_kept_where_it_ends_with_fewer_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, DIES, monkeypatch)
    graph = random_graph(both=True)
    arcs = arcs_of(graph)
    good = assign("metis", graph, 4, roots="metis").root_part
    anew = np.concatenate([good[arcs.sources()], good])

    def anew_or_in_vain(*_: object, begun: np.ndarray | None, **__: object) -> np.ndarray:
        return anew if begun is None else begun

    monkeypatch.setattr(hypergraph, "part_hypergraph", anew_or_in_vain)
    placed = dealt(arcs)
    rows = []
    for quality in ("default", "best"):
        found = improved(arcs, placed, quality)
        rows.append(halo_rows(arcs, found))
    assert rows[1] < rows[0]


def test_a_library_that_dies_later_leaves_the_best_so_far(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, STAND_IN, monkeypatch)
    once, calls = hypergraph.part_hypergraph, []

    def then_dies(*args: Any, **words: Any) -> np.ndarray:
        calls.append(words)
        if len(calls) == 2:
            raise MemoryError
        return once(*args, **words)

    monkeypatch.setattr(hypergraph, "part_hypergraph", then_dies)
    graph = random_graph(both=True)
    arcs = arcs_of(graph)
    placed = dealt(arcs)
    said: list[str] = []
    found = improved(arcs, placed, "default", said)
    assert len(said) == len(calls) == 2
    assert f": {halo_rows(arcs, found)} rows after {halo_rows(arcs, placed)} (" in said[0]
    assert said[1].startswith("no more parts by Mt-KaHyPar, those so far are kept: memory was")


def test_memory_that_is_refused_leaves_the_parts_so_far(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise MemoryError

    stand_in(tmp_path, STAND_IN, monkeypatch)
    monkeypatch.setattr(hypergraph, "slots_of", refused)
    said: list[str] = []
    assign("metis", random_graph(), 4, quality="best", progress=said.append)
    lines = [line for line in said if "Mt-KaHyPar" in line]
    assert lines
    for line in lines:
        assert line.startswith("no more parts by Mt-KaHyPar, those so far are kept: memory was")


@pytest.mark.parametrize(
    ("quality", "name", "least", "num_vertices"),
    [
        ("best", "MOST_EDGES", 1199, 300),
        ("best", "MOST_EDGES", 1499, 1500),
        ("default", "QUICK_EDGES", 1199, 300),
        ("default", "QUICK_EDGES", 1499, 1500),
        ("default", "QUICK_WORK", 4 * 1200 - 1, 300),
    ],
)
def test_large_graphs_are_not_tried(
    quality: str,
    name: str,
    least: int,
    num_vertices: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stand_in(tmp_path, DIES, monkeypatch)
    graph, said = random_graph(num_vertices), list[str]()
    assign("metis", graph, 1, quality=quality, progress=said.append)
    monkeypatch.setattr(hypergraph, name, least)
    assign("metis", graph, 4, quality=quality, progress=said.append)
    assert not any("Mt-KaHyPar" in line for line in said)
    monkeypatch.setattr(hypergraph, name, least + 1)
    assign("metis", graph, 4, quality=quality, progress=said.append)
    assert any("Mt-KaHyPar" in line for line in said)


def test_many_parts_are_not_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, DIES, monkeypatch)
    monkeypatch.setattr(hypergraph, "QUICK_EDGES", 0)
    for most, is_tried in ((3, False), (4, True)):
        monkeypatch.setattr(hypergraph, "MOST_PARTS", most)
        said: list[str] = []
        assign("metis", random_graph(), 4, quality="best", progress=said.append)
        assert any("Mt-KaHyPar" in line for line in said) == is_tried


def test_the_best_quality_cuts_anew_only_where_that_is_quick(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, STAND_IN, monkeypatch)
    monkeypatch.setattr(hypergraph, "QUICK_EDGES", 1199)
    said: list[str] = []
    assign("metis", random_graph(), 4, quality="best", progress=said.append)
    told = [line for line in said if "Mt-KaHyPar" in line]
    assert len(told) == hypergraph.MOST_VAIN
    assert not any("another cut" in line for line in told)


def test_large_graphs_have_fewer_cycles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, STAND_IN, monkeypatch)
    for name, value in (("LARGE_EDGES", 1199), ("LARGE_CYCLES", 1), ("QUICK_EDGES", 0)):
        monkeypatch.setattr(hypergraph, name, value)
    said: list[str] = []
    assign("metis", random_graph(), 4, quality="best", progress=said.append)
    assert sum("Mt-KaHyPar" in line for line in said) == 1


def test_a_full_disk_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(Hypergraph):
        @property
        def start(self) -> np.ndarray:  # type: ignore[override]
            raise OSError("9 requested and 0 written")

    none = np.zeros(0, np.int32)
    with pytest.raises(InputError, match=r"cannot write the graph for Mt-KaHyPar to .*: 9 reque"):
        part_hypergraph(Full(0, none, none), 2, weight=none, most=none, begun=None, seed=0)


def test_an_interrupt_ends_the_library_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Code of a library does not see Python's exception before it returns, as here.
    code = """
import os, signal, time
try:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(1)
except KeyboardInterrupt:
    pass
"""
    stand_in(tmp_path, code + STAND_IN, monkeypatch)
    none = np.zeros(1, np.int32)
    # Where these tests are a background job, interrupts are ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(
            InputError, match=r"Mt-KaHyPar was ended by signal 2 \(Interrupt\); free"
        ):
            part_hypergraph(
                Hypergraph(1, none, none[:0]), 2, weight=none, most=none, begun=None, seed=0
            )
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_process_that_dies_ends_those_of_other_windows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The one of two parts waits for long, and the one of three dies once that has begun.
    code = f"""
import os, time
from pathlib import Path
begun = Path({str(tmp_path)!r}) / "begun"

def created(parts):
    if parts == 2:
        begun.write_text(str(os.getpid()))
        time.sleep(100)
        begun.with_name("survived").touch()
    while not (begun.exists() and begun.read_text()):
        time.sleep(0.01)
    raise MemoryError("refused")
"""
    before = "        assert parts == context.parts\n"
    assert before in STAND_IN
    stand_in(tmp_path, code + STAND_IN.replace(before, "        created(parts)\n"), monkeypatch)
    monkeypatch.setattr(hypergraph, "available_threads", lambda: 2)
    arcs = arcs_of(random_graph())
    task = hypergraph._Task(arcs, adjacency_of(arcs), Balance(1.05, 1.25), 5, slots_of(arcs))
    parts = (np.arange(size, dtype=np.int32) % 5 for size in (arcs.head.size, arcs.num_vertices))
    with pytest.raises(InputError, match="ended with status 1: MemoryError: refused"):
        hypergraph._cut(task, Assignment(5, *parts), 5, windows=[[0, 1, 2], [3, 4]])
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "begun").read_text()), 0)
    assert not (tmp_path / "survived").exists()


@needs_mtkahypar
@pytest.mark.parametrize(
    ("num_vertices", "num_parts", "options"),
    [(300, 4, {"vertex_balance": 1.05}), (300, 7, {"vertex_balance": 1.0}), (66, 64, {})],
)
def test_cycles_save_rows_also_where_roots_have_little_room(
    num_vertices: int, num_parts: int, options: dict[str, float]
) -> None:
    graph, said = random_graph(num_vertices), list[str]()
    found = assign("metis", graph, num_parts, progress=said.append, **options)
    assert any(" in vain: " not in line for line in said if line.startswith("cycle of Mt-KaHyPar"))
    most = options.get("vertex_balance", 1.25) * num_vertices / num_parts
    assert np.bincount(found.root_part).max() <= max(most, math.ceil(num_vertices / num_parts))


def test_a_graph_without_rows_is_not_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, DIES, monkeypatch)
    loops, said = list(range(8)), list[str]()
    assign("metis", graph_of(loops, loops, 8), 2, progress=said.append)
    assert not any("Mt-KaHyPar" in line for line in said)


PROGRAM = """
import sys
import numpy as np
from distgnn.datasets import Graph
from distgnn.partition import assign
from distgnn.partition.methods import hypergraph
hypergraph.available_threads = lambda: int(sys.argv[2])
hypergraph.WINDOW_WORK = float(sys.argv[3])
src, dst = np.random.default_rng(0).integers(0, 300, (2, 1200))
graph = Graph(name="random", num_vertices=300, src=src, dst=dst)
found = assign("metis", graph, 8, seed=3, quality="best")
np.savez(sys.argv[1], edges=found.edge_part, roots=found.root_part)
"""


@needs_mtkahypar
def test_settings_are_those_of_the_preset_but_for_limits_of_time() -> None:
    program = """
import sys, tempfile, mtkahypar
from distgnn.partition.methods.mtkahypar_process import context_of
library = mtkahypar.initialize(1, False)
quality = library.context_from_preset(mtkahypar.PresetType.QUALITY)
for context in (quality, context_of(library)):
    context.set_partitioning_parameters(4, 0.05, mtkahypar.Objective.KM1)
    context.print_configuration()
"""
    command = [sys.executable, "-c", program]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    lines = said.splitlines()
    wanted, found = lines[: len(lines) // 2], lines[len(lines) // 2 :]
    others = [(one, other) for one, other in zip(wanted, found, strict=True) if one != other]
    assert all("Time Limit Factor" in one for one, _ in others)
    assert len(wanted) > 50


@needs_mtkahypar
@pytest.mark.parametrize("work", [1e9, 200.0])
def test_the_outcome_depends_on_no_thread(work: float, tmp_path: Path) -> None:
    found = []
    for threads in (1, 4):
        out = tmp_path / f"{threads}.npz"
        env = os.environ | {"OMP_NUM_THREADS": str(threads)}
        command = [sys.executable, "-c", PROGRAM, str(out), str(threads), str(work)]
        subprocess.run(command, check=True, env=env)
        with np.load(out) as arrays:
            found.append((arrays["edges"], arrays["roots"]))
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


@needs_mtkahypar
@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize(("num_parts", "work"), [(2, 1e9), (8, 1e9), (8, 3000.0)])
def test_balances_hold_and_every_edge_has_a_part(
    num_parts: int, work: float, both: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hypergraph, "WINDOW_WORK", work)
    graph = random_graph(both=both)
    quality = measure(graph, assign("metis", graph, num_parts, quality="best"))
    assert quality.num_edges.sum() == graph.num_edges
    assert quality.edge_balance <= 1.05
    assert quality.clone_balance <= 1.5
