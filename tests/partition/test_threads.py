from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from distgnn.datasets import Graph
from distgnn.partition import assign
from distgnn.partition.manifest import FileRecord
from distgnn.partition.orders import ORDERS, arrange
from distgnn.partition.quality import measure
from distgnn.partition.store import write
from distgnn.partition.threads import available_threads, in_order


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
