from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from distgnn.datasets import Graph
from distgnn.partition import assign
from distgnn.partition.directory.manifest import FileRecord
from distgnn.partition.directory.store import write
from distgnn.partition.orders import ORDERS, arrange
from distgnn.partition.quality import measure
from distgnn.partition.threads import (
    affordable_threads,
    available_threads,
    even_bounds,
    in_order,
)


def test_results_come_in_the_order_of_the_items() -> None:
    last_is_done = threading.Event()

    def work(item: int) -> int:
        if item == 2:
            last_is_done.set()
        elif item == 0:
            assert last_is_done.wait(30)
        return item * item

    with in_order(work, range(3), 3) as results:
        assert list(results) == [0, 1, 4]


@pytest.mark.parametrize("threads", [1, 2])
def test_no_more_items_are_begun_than_there_are_threads(threads: int) -> None:
    begun: list[int] = []
    with in_order(begun.append, range(9), threads) as results:
        next(results)
    assert len(begun) <= 1 + threads


@pytest.mark.parametrize("threads", [1, 2])
def test_what_fails_on_a_thread_is_raised_and_leaves_none_behind(threads: int) -> None:
    before = threading.active_count()
    with (
        pytest.raises(ZeroDivisionError),
        in_order(lambda item: 1 // item, [2, 1, 0], threads) as results,
    ):
        list(results)
    assert threading.active_count() == before


def test_threads_are_at_least_one() -> None:
    assert 1 <= available_threads() <= 4


@pytest.mark.parametrize(
    ("memory_bytes", "expected"), [(None, 4), (10**9, 4), (25, 2), (20, 2), (19, 1), (0, 1)]
)
def test_as_many_threads_work_as_memory_allows(memory_bytes: int | None, expected: int) -> None:
    assert affordable_threads(4, 10, memory_bytes) == expected


@pytest.mark.parametrize("is_sparse", [False, True])
def test_parts_that_do_not_fit_together_are_built_one_at_a_time(
    tmp_path: Path, *, is_sparse: bool
) -> None:
    generator = np.random.default_rng(1)
    src, dst = generator.integers(0, 300, (2, 600))
    features = np.ones((300, 1000), np.float32)
    table = sp.csr_matrix(features) if is_sparse else features
    graph = Graph(name="g", num_vertices=300, src=src, dst=dst, features=table)
    assignment = assign("random", graph, 4)
    part_bytes = features.nbytes * (1 + is_sparse) // 4

    def most_threads(memory_bytes: int | None) -> int:
        """Write, and count the threads that there are meanwhile besides those before."""
        before, seen = threading.active_count(), [0]
        write(
            tmp_path / f"{memory_bytes}",
            graph,
            assignment,
            method="random",
            options={},
            seed=0,
            quality=measure(graph, assignment),
            progress=lambda _: seen.append(threading.active_count() - before),
            threads=3,
            memory_bytes=memory_bytes,
        )
        return max(seen)

    assert most_threads(None) > 0
    assert most_threads(20 * part_bytes) > 0
    assert most_threads(part_bytes) == 0


def files_of(folder: Path, graph: Graph, order: str, threads: int) -> dict[str, FileRecord]:
    assignment = assign("metis", graph, 5)
    arranged = arrange(order, graph, assignment, threads=threads)
    manifest = write(
        folder,
        graph,
        assignment,
        method="metis",
        options={},
        seed=0,
        quality=measure(graph, assignment),
        order=arranged,
        threads=threads,
    )
    return dict(manifest.files)


@pytest.mark.parametrize("order", ORDERS)
def test_parts_do_not_depend_on_the_number_of_threads(tmp_path: Path, order: str) -> None:
    generator = np.random.default_rng(1)
    src, dst = generator.integers(0, 300, (2, 2000))
    features = generator.random((300, 3), dtype=np.float32)
    graph = Graph(name="g", num_vertices=300, src=src, dst=dst, features=features)
    alone = files_of(tmp_path / "alone", graph, order, 1)
    assert files_of(tmp_path / "together", graph, order, 3) == alone


@given(st.lists(st.integers(0, 9), min_size=1, max_size=30), st.data())
def test_ranges_of_rows_follow_each_other_and_hold_about_as_many_entries(
    counts: list[int], data: st.DataObject
) -> None:
    indptr = np.concatenate([[0], np.cumsum(counts)])
    first = data.draw(st.integers(0, len(counts)))
    last = data.draw(st.integers(first, len(counts)))
    threads = data.draw(st.integers(1, 5))

    bounds = even_bounds(indptr, first, last, threads)

    assert len(bounds) == threads + 1
    assert bounds == sorted(bounds)
    assert (bounds[0], bounds[-1]) == (first, last)
    share = (indptr[last] - indptr[first]) / threads
    assert all(size <= share + 10 for size in np.diff(indptr[bounds]))
