from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distgnn.datasets import Graph
from distgnn.partition import reuse
from distgnn.partition.assignment import Assignment
from distgnn.partition.build import Part, build_parts
from distgnn.partition.orders import arrange
from distgnn.partition.reuse import row_reuse


def whole(graph: Graph, order: str = "source") -> Part:
    assignment = Assignment(
        1, np.zeros(graph.num_edges, np.int32), np.zeros(graph.num_vertices, np.int32)
    )
    return next(iter(build_parts(graph, assignment, order=arrange(order, graph, assignment))))


def graph_of(sources: list[int], num_vertices: int) -> Graph:
    """One edge into each vertex, so that rows are walked in this order."""
    src = np.array(sources, np.int64)
    return Graph(name="g", num_vertices=num_vertices, src=src, dst=np.arange(src.size))


def fetches_by_sets(sources: list[int], num_rows: int) -> int:
    held: set[int] = set()
    fetches = 0
    for source in sources:
        if source in held:
            continue
        if len(held) == num_rows:
            held = set()
        held.add(source)
        fetches += 1
    return fetches


@settings(max_examples=100)
@given(data=st.data())
def test_a_row_is_fetched_once_until_the_cache_is_full(data: st.DataObject) -> None:
    sources = data.draw(st.lists(st.integers(0, 39), min_size=1, max_size=40))
    num_rows = data.draw(st.integers(1, 10))
    width = reuse.CACHE_BYTES // (4 * num_rows)
    fetches = fetches_by_sets(sources, num_rows)
    assert row_reuse(whole(graph_of(sources, 40)), width) == len(sources) / fetches


def test_a_row_wider_than_the_cache_is_fetched_whenever_another_came_between() -> None:
    assert row_reuse(whole(graph_of([0, 0, 1, 0], 4)), 10**9) == 4 / 3


def test_a_part_without_edges_reuses_nothing() -> None:
    assert row_reuse(whole(graph_of([], 3)), 64) == 1.0


def test_of_many_edges_a_sample_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    part = whole(graph_of(rng.integers(0, 50_000, 50_000).tolist(), 50_000))
    exact = row_reuse(part, 4096)
    monkeypatch.setattr(reuse, "MAX_EDGES", 20_000)
    monkeypatch.setattr(reuse, "STRETCH_EDGES", 2_000)
    assert row_reuse(part, 4096) == pytest.approx(exact, rel=0.05)


@pytest.mark.parametrize("order", ["community", "rabbit"])
def test_orders_raise_the_reuse_in_shuffled_communities(order: str) -> None:
    rng = np.random.default_rng(1)
    src = rng.integers(0, 4000, 60_000)
    inside = src // 100 * 100 + rng.integers(0, 100, src.size)
    dst = np.where(rng.random(src.size) < 0.9, inside, rng.integers(0, 4000, src.size))
    number = rng.permutation(4000)
    graph = Graph(name="shuffled", num_vertices=4000, src=number[src], dst=number[dst])
    # 256 rows fit: two communities.
    assert row_reuse(whole(graph, order), 1024) > 4 * row_reuse(whole(graph), 1024)
