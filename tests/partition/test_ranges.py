"""Work on ranges by several threads gives what one thread does, and plain Python."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from partition_loops import LOOPS

from distgnn import _partitioner
from distgnn.datasets import Graph
from distgnn.partition import assign, threads
from distgnn.partition.arcs import arcs_of, edges_of_parts, is_symmetric
from distgnn.partition.assignment import Assignment
from distgnn.partition.csr import pointers
from distgnn.partition.directory.files import write_array
from distgnn.partition.halo import counts_by_part, distinct_slots, group_by_part
from distgnn.partition.methods.candidates import at_destination, clones_of_parts, halo_rows
from distgnn.partition.methods.cover import place_arcs
from distgnn.partition.orders import arrange
from distgnn.partition.quality import measure
from distgnn.partition.refine.placement import placement_of
from distgnn.partition.threads import item_bounds, over_bounds, places_of, threads_for

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def on_threads(monkeypatch: pytest.MonkeyPatch, work: Callable[[], Any]) -> list[Any]:
    """Return what comes of work on 1, 2 and 4 threads, however few items there are."""
    monkeypatch.setattr(threads, "MANY_ITEMS", 0)
    found = []
    for count in (1, 2, 4):
        monkeypatch.setattr(threads, "available_threads", lambda count=count: count)
        found.append(work())
    return found


def check_same(found: list[Any]) -> None:
    for other in found[1:]:
        for one, same in zip(found[0], other, strict=True):
            assert np.array_equal(one, same)


def graph_of(seed: int, *, is_symmetric: bool, num_vertices: int = 40) -> Graph:
    generator = np.random.default_rng(seed)
    src, dst = generator.integers(0, num_vertices, (2, 300))
    if is_symmetric:
        src, dst = np.append(src, dst), np.append(dst, src)
    return Graph(name="drawn", num_vertices=num_vertices, src=src, dst=dst)


@pytest.mark.parametrize("is_narrow", [False, True])
@pytest.mark.parametrize("is_symmetric", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_counts_of_an_assignment_are_the_same_on_any_number_of_threads(
    seed: int, is_symmetric: bool, is_narrow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = graph_of(seed, is_symmetric=is_symmetric)
    graph = graph.narrowed() if is_narrow else graph
    placed = assign("metis", graph, 4, seed=0)
    spread = assign("random", graph.widened(), 4, seed=seed)

    def counts() -> list[Any]:
        arcs, found = arcs_of(graph), []
        for one in (placed, spread):
            on_arcs = at_destination(arcs, one)
            found += [clones_of_parts(arcs, on_arcs), halo_rows(arcs, on_arcs)]
            found.append(edges_of_parts(on_arcs.edge_part, arcs.weight, 4))
            for balance in (1.0, 2.0):
                found.append(place_arcs(arcs, one.root_part, 4, edge_balance=balance))
            found += placement_of(arcs, on_arcs.edge_part, one.root_part, 4)
            quality = measure(graph, one)
            found += [quality.num_edges, quality.num_leaves, quality.read_rows, quality.write_rows]
            found.append(quality.halo_rows_at_destination)
        return found

    check_same(on_threads(monkeypatch, counts))


@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_items_are_grouped_stably_on_any_number_of_threads(
    kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = np.random.default_rng(0)
    part = generator.integers(0, 7, 1000).astype(np.int32)
    vertex = generator.integers(0, 50, 1000).astype(kind)

    def group() -> list[Any]:
        slots = distinct_slots(vertex, part, 50)
        return [*group_by_part(part, 8), counts_by_part(part, 8), slots.vertex, slots.part]

    found = on_threads(monkeypatch, group)
    check_same(found)
    order, start, counts, slot_vertex, slot_part = found[0]
    assert np.array_equal(order, np.argsort(part, kind="stable"))
    assert np.array_equal(counts, np.bincount(part, minlength=8))
    assert np.array_equal(np.diff(start), counts)
    pairs = np.unique(np.stack([part, vertex]), axis=1)
    assert np.array_equal(pairs, np.stack([slot_part, slot_vertex]))


@given(
    pairs=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=12),
    has_reverses=st.booleans(),
    num_threads=st.integers(1, 4),
)
def test_arcs_are_paired_if_and_only_if_all_go_back(
    pairs: list[tuple[int, int]], has_reverses: bool, num_threads: int
) -> None:
    if has_reverses:
        pairs = [*pairs, *((head, source) for source, head in pairs)]
    source, head = np.array(sorted(pairs)).T
    start = np.searchsorted(source, np.arange(6)).astype(np.int64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threads, "MANY_ITEMS", 0)
        patch.setattr(threads, "available_threads", lambda: num_threads)
        found = is_symmetric(start, head.astype(np.int32))
    assert found == (sorted(pairs) == sorted((b, a) for a, b in pairs))


def test_an_arc_that_the_next_row_seems_to_answer_has_no_arc_back() -> None:
    # 0 -> 1 finds 2 -> 0 in the place where 1 -> 0 would be; only the range of 0 and 1 can tell.
    source, head = np.array([[0, 1], [0, 2], [2, 0]]).T
    start = np.searchsorted(source, np.arange(5)).astype(np.int64)
    mate = np.empty(3, np.int32)
    for pair in (_partitioner.pair_arcs, LOOPS["pair_arcs"]):
        given_ = start, head.astype(np.int32), mate
        assert not all([pair(0, 2, *given_), pair(2, 4, *given_)])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("number", "end"), [(np.int32, np.int32), (np.int64, np.int64)])
def test_edges_of_a_part_are_those_of_plain_loops(seed: int, number: type, end: type) -> None:
    generator = np.random.default_rng(seed)
    src, dst = generator.integers(0, 20, (2, 200)).astype(end)
    edge = generator.permutation(200)[:150].astype(number)
    place = generator.permutation(20).astype(np.int32)
    owner = generator.integers(0, 2, 20).astype(np.int32)
    taken, expected = np.empty((2, 150), np.int32)
    _partitioner.take_ends(edge, src, place, taken)
    LOOPS["take_ends"](edge, src, place, expected)
    assert np.array_equal(taken, expected)
    given_ = edge, src, dst, owner, place, 1
    check_same([_partitioner.inner_edges(*given_), LOOPS["inner_edges"](*given_)])
    order = generator.permutation(20)
    row, column = generator.integers(0, 20, (2, 150)).astype(np.int32)
    check_same(
        [_partitioner.sort_edges(row, column, order), LOOPS["sort_edges"](row, column, order)]
    )
    indptr, indices, _ = _partitioner.sort_edges(row, column, order)
    given_ = indptr, indices, order
    check_same([_partitioner.transpose_edges(*given_), LOOPS["transpose_edges"](*given_)])


def test_ranges_go_on_behind_those_before_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "MANY_ITEMS", 10)
    monkeypatch.setattr(threads, "available_threads", lambda: 3)
    assert [threads_for(count) for count in (9, 10)] == [1, 3]
    assert item_bounds(10, 3) == [0, 3, 6, 10]
    start, places = places_of([np.array([2, 0]), np.array([1, 4])])
    assert start.tolist() == [0, 3, 7]
    assert [each.tolist() for each in places] == [[0, 3], [2, 3]]
    found = over_bounds(lambda *given: given, [0, 3, 6], "all", own=["one", "two"])
    assert found == [(0, 3, "one", "all"), (3, 6, "two", "all")]


def test_columns_of_tables_are_assignments() -> None:
    graph = graph_of(0, is_symmetric=True)
    placed = assign("random", graph, 3, seed=0)
    edge_parts = np.stack([placed.edge_part] * 2, axis=1)
    root_parts = np.stack([placed.root_part] * 2, axis=1)
    strided = Assignment(3, edge_parts[:, 0], root_parts[:, 0])
    assert measure(graph, strided).to_json() == measure(graph, placed).to_json()
    assert np.array_equal(arrange("auto", graph, strided), arrange("auto", graph, placed))


@pytest.mark.parametrize("row", [[0, 3], [-1, 0]])
def test_rows_beyond_the_last_are_refused(row: list[int]) -> None:
    with pytest.raises(ValueError, match=f"rows must be from 0 to 2, got {row[0]} to {row[1]}"):
        pointers(np.array(row), 3)


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((0, 3), np.float32),
        np.arange(12.0).reshape(3, 4).T,
        np.arange(7)[::2],
        np.array([True, False]),
        np.array(["a", "longer"]),
        np.arange(3 << 18, dtype=np.int64),
    ],
)
def test_a_file_has_the_bytes_that_numpy_writes(array: Any, tmp_path: Path) -> None:
    expected = io.BytesIO()
    np.lib.format.write_array(expected, np.ascontiguousarray(array), allow_pickle=False)
    record = write_array(tmp_path / "array.npy", array)
    assert (tmp_path / "array.npy").read_bytes() == expected.getvalue()
    assert record.bytes == len(expected.getvalue())
