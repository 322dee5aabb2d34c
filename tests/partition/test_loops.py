"""The compiled loops give the bits of plain Python."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from partition_loops import LOOPS, install

from distgnn import _partitioner
from distgnn.datasets import Graph
from distgnn.partition import assign
from distgnn.partition.large.piles import record_of
from distgnn.partition.large.windows import Window, WindowFacts, refine_window
from distgnn.partition.methods import multilevel
from distgnn.partition.orders import arrange
from distgnn.partition.reuse import count_fetches

if TYPE_CHECKING:
    from pathlib import Path

ORDERS = ("rabbit", "community")


def graph_of(kind: str) -> Graph:
    generator = np.random.default_rng(0)
    one = (generator.pareto(1.5, 240) * 8).astype(np.int64) % 60
    other = (one + generator.integers(0, 12, 240)) % 60
    src, dst = np.concatenate([[one, other], generator.integers(0, 60, (2, 40))], axis=1)
    if kind == "undirected":
        src, dst = np.concatenate([src, dst]), np.concatenate([dst, src])
    if kind == "dense":
        src, dst = generator.integers(0, 60, (2, 1200))
    return Graph(name=kind, num_vertices=64, src=src, dst=dst)


def digest(graph: Graph, method: str, num_parts: int, **options: Any) -> list[str]:
    found = assign(method, graph, num_parts, seed=3, **options)
    arrays = [found.edge_part, found.root_part]
    arrays += [arrange(name, graph, found) for name in ORDERS]
    arrays.append(
        np.array(
            count_fetches(
                np.array([0]), np.array([64]), found.edge_part, num_sources=num_parts, num_rows=2
            )
        )
    )
    return [hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest() for array in arrays]


CASES: list[tuple[str, str, int, dict[str, Any]]] = [
    ("directed", "metis", 4, {}),
    ("directed", "metis", 3, {"refine": False}),
    ("undirected", "metis", 3, {}),
    ("undirected", "metis", 3, {"refine": False}),
    ("dense", "metis", 4, {}),
    ("directed", "ne", 4, {"refine": True}),
    ("undirected", "hep", 3, {"tau": 0.8}),
    ("directed", "dbh", 4, {"imbalance": 1.0}),
    ("undirected", "hierarchical", 4, {}),
    ("directed", "metis", 60, {}),
]


@pytest.mark.filterwarnings("ignore:overflow encountered in scalar")
@pytest.mark.parametrize("kind", ["directed", "undirected", "dense"])
def test_clusters_for_metis_are_the_same_on_plain_loops(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    for name, value in (("LEAST_ENTRIES", 1), ("_CLUSTERS_PER_PART", 1), ("_LEAST_BATCH", 8)):
        monkeypatch.setattr(multilevel, name, value)
    levels = []
    coarser = multilevel._coarser
    monkeypatch.setattr(
        multilevel, "_coarser", lambda *given: levels.append(coarser(*given)) or levels[-1]
    )
    compiled = digest(graph_of(kind), "metis", 3, quality="fast")
    assert sum(level is not None for level in levels) >= 1
    install(monkeypatch)
    assert digest(graph_of(kind), "metis", 3, quality="fast") == compiled


@pytest.mark.filterwarnings("ignore:overflow encountered in scalar")
@pytest.mark.parametrize(("kind", "method", "num_parts", "options"), CASES)
def test_methods_give_the_same_bits_on_plain_loops(
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    method: str,
    num_parts: int,
    options: dict[str, Any],
) -> None:
    monkeypatch.setattr("distgnn.partition.methods.blocks.TRIES", 5)
    monkeypatch.setattr("distgnn.partition.methods.blocks.MOVES", 400)
    compiled = digest(graph_of(kind), method, num_parts, **options)
    install(monkeypatch)
    assert digest(graph_of(kind), method, num_parts, **options) == compiled


@pytest.mark.filterwarnings("ignore:overflow encountered in scalar")
@pytest.mark.parametrize("kind", ["directed", "undirected", "dense"])
def test_windows_give_the_same_bits_on_plain_loops(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    graph, num_parts = graph_of(kind), 8
    root_part = np.random.default_rng(1).integers(0, num_parts, 64).astype(np.int32)
    # Roots outside have no room, as in most windows.
    edge_part = root_part[graph.dst] % 4
    is_between = root_part[graph.src] != root_part[graph.dst]
    records = np.array(
        list(zip(graph.src[is_between], graph.dst[is_between], strict=True)),
        record_of(64, has_position=False),
    )
    window = Window(np.arange(4), records, edge_part[is_between].astype(np.int32))
    load = np.bincount(window.edge_part, minlength=4)
    given = WindowFacts(root_part, np.zeros(num_parts, np.int64)), np.full(num_parts, 20)
    limits = {"most_edges": int(1.1 * load.mean()), "more_rows": 20}
    compiled = refine_window(window, *given, **limits)
    install(monkeypatch)
    for one, other in zip(refine_window(window, *given, **limits), compiled, strict=True):
        assert np.array_equal(one, other)


def test_every_loop_has_a_plain_one() -> None:
    assert {name for name in vars(_partitioner) if not name.startswith("_")} == set(LOOPS)


def test_the_default_method_needs_no_compiler(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom distgnn.cli import main\n"
        f"main(['partition', 'cora', '--parts', '4', '--out', {str(tmp_path / 'parts')!r}])\n"
        "assert not {'numba', 'llvmlite', 'torch'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=250)
