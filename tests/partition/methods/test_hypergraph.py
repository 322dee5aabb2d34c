"""Parts by Mt-KaHyPar: the hypergraph counts rows, and what comes of it keeps the balances."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distgnn.datasets import Graph, InputError
from distgnn.partition import assign
from distgnn.partition.arcs import adjacency_of, arcs_of
from distgnn.partition.assignment import Assignment
from distgnn.partition.methods import hypergraph
from distgnn.partition.methods.candidates import excess_edges, halo_rows, is_even
from distgnn.partition.methods.hypergraph import slots_of, units_of
from distgnn.partition.methods.mtkahypar_library import Hypergraph, part_hypergraph
from distgnn.partition.quality import measure
from distgnn.partition.refine.balance import Balance
from distgnn.partition.roots import choose_roots
from distgnn.partition.stopwatch import Stopwatch

needs_mtkahypar = pytest.mark.skipif(
    importlib.util.find_spec("mtkahypar") is None, reason="mtkahypar is not installed"
)

# Stands in for the library where it is not installed: the part of a node comes of its weight and
# of the numbers of its nets, so that what arrives shows in the parts.
STAND_IN = """
class _Context:
    def set_partitioning_parameters(self, parts, imbalance, objective):
        self.parts = parts
        assert abs(imbalance - 0.05) < 1e-9 and objective == "km1"

class _Graph:
    def __init__(self, nodes, nets, weight):
        self.sums = list(weight)
        for number, net in enumerate(nets):
            for node in net:
                self.sums[node] += number
        assert len(weight) == nodes
    def partition(self, context):
        assert not context.logging
        self.parts = [each % context.parts for each in self.sums]
        return self
    def get_partition(self):
        return self.parts

class _Library:
    def context_from_preset(self, preset):
        assert preset == "quality"
        return _Context()
    def create_hypergraph(self, context, nodes, num_nets, nets, weight, net_weight):
        assert net_weight == [1] * num_nets == [1] * len(nets)
        return _Graph(nodes, nets, weight)

class PresetType:
    QUALITY = "quality"

class Objective:
    KM1 = "km1"

def initialize(threads, print_warnings):
    assert threads == 1
    return _Library()

def set_seed(seed):
    assert 0 <= seed < 2**31
"""
DIES = "raise MemoryError('std::bad_alloc')"


def graph_of(src: list[int], dst: list[int], num_vertices: int) -> Graph:
    ends = np.array([src, dst], np.int64).reshape(2, -1)
    return Graph(name="known", num_vertices=num_vertices, src=ends[0], dst=ends[1])


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
    graph = graph_of([u for u, _ in pairs], [v for _, v in pairs], 8)
    arcs = arcs_of(graph)
    unit = units_of(arcs)
    slots = slots_of(arcs, unit, 0.65)
    parts = np.random.default_rng(seed).integers(0, 3, slots.weight.size).astype(np.int32)
    nets = np.split(slots.pins, slots.start[1:-1])
    beyond = sum(np.unique(parts[net]).size - 1 for net in nets)
    if arcs.is_symmetric:
        roots = choose_roots(graph, parts[unit][arcs.of_edge], 3)
        assert halo_rows(arcs, Assignment(3, parts[unit], roots)) == 2 * beyond
    else:
        placed = Assignment(3, parts[unit], parts[slots.weight.size - 8 :])
        assert halo_rows(arcs, placed) == beyond


@pytest.mark.parametrize(("share", "of_root"), [(1.0, 0), (0.5, 2000), (0.8, 500)])
def test_edges_and_roots_have_their_shares_of_the_weight(share: float, of_root: int) -> None:
    # Eight edges of four vertices on a path: a root weighs as much as two edges at equal shares.
    arcs = arcs_of(graph_of([0, 1, 1, 2, 2, 3, 0, 1], [1, 0, 2, 1, 3, 2, 1, 0], 4))
    slots = slots_of(arcs, units_of(arcs), share)
    at_end, inside = of_root * 3 // 2, of_root
    assert slots.weight.tolist() == [4000 + at_end, 2000 + inside, 2000 + at_end]
    assert slots.start.tolist() == [0, 1, 3, 5, 6]
    assert slots.pins.tolist() == [0, 0, 1, 1, 2, 2]


def test_roots_are_nodes_where_edges_go_one_way() -> None:
    arcs = arcs_of(graph_of([0, 0, 1], [1, 2, 2], 3))
    slots = slots_of(arcs, units_of(arcs), 0.5)
    # A root weighs as much as an edge, and each vertex has two edges that share it.
    assert slots.weight.tolist() == [2000, 2000, 2000, 1, 1, 1]
    nets = np.split(slots.pins, slots.start[1:-1])
    assert [net.tolist() for net in nets] == [[0, 1, 3], [2, 4], [5], [3], [0, 4], [1, 2, 5]]


def stand_in(folder: Path, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have code stand in for the library in its process."""
    (folder / "mtkahypar.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.setattr(hypergraph, "is_installed", lambda: True)


def test_nets_and_weights_reach_the_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, STAND_IN, monkeypatch)
    start, pins = np.array([0, 2, 5, 8]), np.array([0, 1, 1, 2, 3, 0, 3, 4], np.int32)
    weight = np.array([1, 10, 100, 1000, 10**10])
    expected = weight + np.bincount(pins, [0, 0, 1, 1, 1, 2, 2, 2]).astype(int)
    found = part_hypergraph(Hypergraph(start, pins, weight), 7, imbalance=0.05, seed=2**40)
    assert found.dtype == np.int32
    assert found.tolist() == (expected % 7).tolist()


@pytest.mark.parametrize("both", [False, True])
def test_parts_that_are_no_better_leave_those_of_metis(
    both: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = random_graph(both=both)
    alone = assign("metis", graph, 4, quality="best", roots="metis")
    stand_in(tmp_path, STAND_IN, monkeypatch)
    said: list[str] = []
    found = assign("metis", graph, np.int64(4), quality="best", progress=said.append)
    told = [line for line in said if line.startswith("parts by Mt-KaHyPar, edges weigh ")]
    assert len(told) == len(hypergraph.EDGE_SHARES), "a second seed is not tried in vain"
    assert all(" in vain: " in line for line in told)
    rows, wanted = (measure(graph, each) for each in (found, alone))
    assert rows.halo_rows <= wanted.halo_rows
    assert rows.edge_balance <= max(wanted.edge_balance, 1.05)
    # Whoever asks for METIS alone, or for less, gets no other.
    for words in (
        {"roots": "metis", "quality": "best"},
        {"objective": "cut", "quality": "best"},
        {},
    ):
        assign("metis", graph, 4, progress=said.append, **words)
    assert len([line for line in said if "Mt-KaHyPar" in line]) == len(told)


def test_a_library_that_dies_leaves_the_parts_so_far(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = random_graph()
    alone = assign("metis", graph, 4, quality="best", roots="metis")
    stand_in(tmp_path, DIES, monkeypatch)
    said: list[str] = []
    found = assign("metis", graph, 4, quality="best", progress=said.append)
    (line,) = (line for line in said if "Mt-KaHyPar" in line)
    assert line.startswith(
        "no more parts by Mt-KaHyPar, those so far are kept: Mt-KaHyPar ended with status 1: "
        "MemoryError: std::bad_alloc; free memory, or cut with --quality default"
    )
    if importlib.util.find_spec("kaminpar") is None:
        np.testing.assert_array_equal(found.edge_part, alone.edge_part)
        np.testing.assert_array_equal(found.root_part, alone.root_part)


@pytest.mark.parametrize(("edges", "imbalance"), [(1.05, 0.05), (1.2, 0.2), (9.0, 0.5)])
def test_parts_that_are_better_are_kept_and_seeds_are_tried(
    edges: float, imbalance: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(
        tmp_path, STAND_IN.replace("imbalance - 0.05", f"imbalance - {imbalance}"), monkeypatch
    )
    graph = random_graph(both=True)
    arcs = arcs_of(graph)
    rng = np.random.default_rng(0)
    placed = Assignment(
        4,
        rng.integers(0, 4, arcs.head.size).astype(np.int32),
        rng.integers(0, 4, graph.num_vertices).astype(np.int32),
    )
    said: list[str] = []
    balance = Balance(edges, 1.25, refine=True)
    found = hypergraph.better_hypergraph(
        graph,
        arcs,
        placed,
        balance,
        adjacency=adjacency_of(arcs),
        seed=0,
        times=1,
        watch=Stopwatch(said.append),
    )
    assert len(said) == len(hypergraph.EDGE_SHARES) * len(hypergraph.SEEDS)
    rows = halo_rows(arcs, found)
    assert rows < halo_rows(arcs, placed)
    kept = [line for line in said if " in vain: " not in line]
    assert f" {rows} rows where " in kept[-1]
    assert excess_edges(arcs, found, edges) == 0
    assert is_even(found, balance)


def test_memory_that_is_refused_leaves_the_parts_so_far(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise MemoryError

    stand_in(tmp_path, STAND_IN, monkeypatch)
    monkeypatch.setattr(hypergraph, "slots_of", refused)
    said: list[str] = []
    assign("metis", random_graph(), 4, quality="best", progress=said.append)
    (line,) = (line for line in said if "Mt-KaHyPar" in line)
    assert line.startswith("no more parts by Mt-KaHyPar, those so far are kept: memory was refused")


def test_large_graphs_and_one_part_are_not_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, DIES, monkeypatch)
    said: list[str] = []
    assign("metis", random_graph(), 1, quality="best", progress=said.append)
    for name, least in (("MOST_EDGES", 1199), ("MOST_WORK", 4 * 1500 - 1)):
        with monkeypatch.context() as only:
            only.setattr(hypergraph, name, least)
            assign("metis", random_graph(), 4, quality="best", progress=said.append)
    assert not any("Mt-KaHyPar" in line for line in said)


def test_a_full_disk_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(Hypergraph):
        @property
        def start(self) -> np.ndarray:  # type: ignore[override]
            raise OSError("9 requested and 0 written")

    none = np.zeros(0, np.int64)
    with pytest.raises(InputError, match=r"cannot write the graph for Mt-KaHyPar to .*: 9 reque"):
        part_hypergraph(Full(none, none.astype(np.int32), none), 2, imbalance=0.05, seed=0)


PROGRAM = """
import sys
import numpy as np
from distgnn.datasets import Graph
from distgnn.partition import assign
from distgnn.partition.methods import hypergraph
hypergraph.available_threads = lambda: int(sys.argv[2])
src, dst = np.random.default_rng(0).integers(0, 300, (2, 1200))
graph = Graph(name="random", num_vertices=300, src=src, dst=dst)
found = assign("metis", graph, 8, seed=3, quality="best")
np.savez(sys.argv[1], edges=found.edge_part, roots=found.root_part)
"""


@needs_mtkahypar
def test_the_outcome_depends_on_no_thread(tmp_path: Path) -> None:
    found = []
    for threads in (1, 4):
        out = tmp_path / f"{threads}.npz"
        env = os.environ | {"OMP_NUM_THREADS": str(threads)}
        command = [sys.executable, "-c", PROGRAM, str(out), str(threads)]
        subprocess.run(command, check=True, env=env)
        with np.load(out) as arrays:
            found.append((arrays["edges"], arrays["roots"]))
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


@needs_mtkahypar
@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("num_parts", [2, 8])
def test_balances_hold_and_every_edge_has_a_part(num_parts: int, both: bool) -> None:
    graph = random_graph(both=both)
    quality = measure(graph, assign("metis", graph, num_parts, quality="best"))
    assert quality.num_edges.sum() == graph.num_edges
    assert quality.edge_balance <= 1.05
    assert quality.clone_balance <= 1.5
