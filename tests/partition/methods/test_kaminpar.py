from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distgnn.datasets import Graph, InputError
from distgnn.partition import assign
from distgnn.partition.arcs import undirected
from distgnn.partition.methods import kaminpar_library
from distgnn.partition.methods.auto import KAMINPAR_NEED, NEEDS, USABLE_FRACTION, choose
from distgnn.partition.quality import measure

needs_kaminpar = pytest.mark.skipif(
    importlib.util.find_spec("kaminpar") is None, reason="kaminpar is not installed"
)


def graph_of(num_vertices: int, edges: list[tuple[int, int]]) -> Graph:
    src, dst = np.array(edges, np.int64).reshape(-1, 2).T
    return Graph(name="known", num_vertices=num_vertices, src=src, dst=dst)


def random_graph(num_vertices: int = 3000, num_edges: int = 12000) -> Graph:
    ends = np.random.default_rng(0).integers(0, num_vertices, (2, num_edges))
    return Graph(name="random", num_vertices=num_vertices, src=ends[0], dst=ends[1])


def two_cliques() -> Graph:
    pairs = [(u, v) for u in range(20) for v in range(20) if u != v and u // 10 == v // 10]
    return graph_of(20, [*pairs, (0, 10), (10, 0)])


STAR = graph_of(200, [(0, leaf) for leaf in range(1, 200)])


@needs_kaminpar
@pytest.mark.parametrize("preset", kaminpar_library.PRESETS)
@pytest.mark.parametrize(
    ("graph", "num_parts"),
    [
        (graph_of(10, []), 3),
        (graph_of(10, [(3, 4)]), 3),
        (graph_of(2, [(0, 0), (0, 1)]), 2),
        (graph_of(3, [(0, 1), (1, 2)]), 3),
        (STAR, 4),
        (random_graph(), 1000),
    ],
)
def test_graphs_of_any_shape_get_parts(graph: Graph, num_parts: int, preset: str) -> None:
    links = undirected(graph)
    ones = np.ones(graph.num_vertices, np.int64)
    parts = kaminpar_library.part_graph(
        links, num_parts, vertex_weight=ones, seed=2**40, preset=preset
    )
    assert parts.dtype == np.int32
    assert parts.shape == (graph.num_vertices,)
    assert 0 <= parts.min() <= parts.max() < num_parts


@needs_kaminpar
def test_two_cliques_are_cut_at_the_bridge() -> None:
    assignment = assign("metis", two_cliques(), 2, roots="kaminpar")
    assert len(set(assignment.root_part[:10])) == 1
    assert measure(two_cliques(), assignment).halo_rows == 2


@needs_kaminpar
def test_weights_of_vertices_and_links_reach_the_library() -> None:
    # Ten vertices that are tied by many edges and weigh as much as the other thirty.
    tied = [(u, v) for u in range(10) for v in range(u)] * 50
    ring = graph_of(40, [*tied, *[(v, (v + 1) % 40) for v in range(9, 40)]])
    parts = kaminpar_library.part_graph(
        undirected(ring), 2, vertex_weight=np.repeat([3, 1], [10, 30]), seed=0, preset="default"
    )
    assert len(set(parts[:10])) == len(set(parts[10:])) == 1
    assert parts[0] != parts[10]
    # Without weights of links, which are then alike, the vertices decide.
    even = kaminpar_library.part_graph(
        undirected(graph_of(40, [(v, (v + 1) % 40) for v in range(40)])),
        2,
        vertex_weight=np.repeat([3, 1], [10, 30]),
        seed=0,
        preset="default",
    )
    assert np.bincount(even, np.repeat([3, 1], [10, 30])).max() <= 33


PROGRAM = """
import sys
import numpy as np
from distgnn.datasets import Graph
from distgnn.partition import assign
ends = np.random.default_rng(0).integers(0, 3000, (2, 12000))
graph = Graph(name="random", num_vertices=3000, src=ends[0], dst=ends[1])
for calls in range(int(sys.argv[1])):
    found = assign("metis", graph, 16, seed=3, roots=sys.argv[2])
np.savez(sys.argv[3], edges=found.edge_part, roots=found.root_part)
"""


@needs_kaminpar
@pytest.mark.parametrize("roots", ["kaminpar", "best"])
def test_the_outcome_depends_on_no_thread_and_no_call_before(roots: str, tmp_path: Path) -> None:
    found = []
    for calls, threads in ((1, 1), (2, 4)):
        out = tmp_path / f"{threads}.npz"
        env = os.environ | {"OMP_NUM_THREADS": str(threads)}
        command = [sys.executable, "-c", PROGRAM, str(calls), roots, str(out)]
        subprocess.run(command, check=True, env=env)
        with np.load(out) as arrays:
            found.append((arrays["edges"], arrays["roots"]))
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


@needs_kaminpar
@pytest.mark.parametrize("num_parts", [3, 16])
def test_best_roots_move_no_more_rows_than_either(num_parts: int) -> None:
    graph = random_graph()
    rows = {
        roots: measure(graph, assign("metis", graph, num_parts, roots=roots)).halo_rows
        for roots in ("metis", "kaminpar", "best")
    }
    assert rows["best"] <= min(rows["metis"], rows["kaminpar"])


@needs_kaminpar
def test_caps_hold_and_every_edge_has_a_part() -> None:
    graph = random_graph()
    quality = measure(graph, assign("metis", graph, 16, roots="kaminpar"))
    assert quality.num_edges.sum() == graph.num_edges
    assert quality.edge_balance <= 1.05
    assert quality.clone_balance <= 1.5


def test_a_full_disk_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError("9 requested and 0 written")

    monkeypatch.setattr(kaminpar_library, "is_installed", lambda: True)
    monkeypatch.setattr(kaminpar_library, "_write", full)
    with pytest.raises(InputError, match=r"cannot write the graph for KaMinPar to .*: 9 requested"):
        kaminpar_library.part_graph(
            undirected(two_cliques()),
            2,
            vertex_weight=np.ones(20, np.int64),
            seed=0,
            preset="default",
        )


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kaminpar_library, "is_installed", lambda: False)
    with pytest.raises(InputError, match=r"not installed; install it \(pip install 'distgnn\[kam"):
        assign("metis", two_cliques(), 2, roots="kaminpar")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"roots": "x"}, "unknown roots 'x'; choose one of metis, kaminpar, best"),
        (
            {"roots": "kaminpar", "objective": "volume"},
            "objective 'volume' is for roots by METIS, and KaMinPar minimises the cut; leave",
        ),
    ],
)
def test_bad_options_say_what_is_allowed(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        assign("metis", two_cliques(), 2, **options)


def test_auto_tries_both_roots_where_both_are_there() -> None:
    assert choose(1000, 10**4, 2**30, has_kaminpar=True).options == {"roots": "best"}
    assert choose(1000, 10**4, 2**30).options == {}
    assert choose(1000, 10**4, 2**30, has_kaminpar=True, is_fast=True).options == {}
    assert choose(10**6, 10**9, 2**30, has_kaminpar=True).options == {}


def test_auto_takes_the_roots_that_fit() -> None:
    enough = int(KAMINPAR_NEED.bytes(1000, 10**6) / USABLE_FRACTION) + 1
    assert enough < NEEDS[0].bytes(1000, 10**6) / USABLE_FRACTION
    choice = choose(1000, 10**6, enough, has_kaminpar=True)
    assert (choice.method, choice.options) == ("metis", {"roots": "kaminpar"})
    assert "metis with roots=kaminpar takes about" in choice.reason
    assert choose(1000, 10**6, enough).method == "ne"
