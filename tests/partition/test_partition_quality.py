from __future__ import annotations

import json

import numpy as np
import pytest

from distgnn.datasets import Graph, InputError
from distgnn.partition.assignment import Assignment
from distgnn.partition.quality import Quality, estimate, measure


def small_case() -> tuple[Graph, Assignment]:
    """0 -> 1 and 0 -> 2 on part 1, 3 -> 3 on part 0; the root of 0 and 3 on part 0."""
    graph = Graph(name="g", num_vertices=4, src=np.array([0, 0, 3]), dst=np.array([1, 2, 3]))
    return graph, Assignment(2, np.array([1, 1, 0], np.int32), np.array([0, 1, 1, 0], np.int32))


def test_counts_of_a_small_case() -> None:
    quality = measure(*small_case())
    assert quality.halo_rows == 1
    assert quality.halo_rows_at_destination == 1
    assert quality.replication_factor == 5 / 4
    assert quality.edge_balance == 2 / 1.5
    assert quality.vertex_balance == 1.0
    assert quality.clone_balance == 3 / 2.5
    assert quality.read_rows.tolist() == [[0, 1], [0, 0]]
    assert quality.write_rows.tolist() == [[0, 0], [0, 0]]
    assert quality.num_leaves.tolist() == [0, 1]


def test_rows_of_writing_leaves_go_from_the_leaf_to_the_root() -> None:
    graph = Graph(name="g", num_vertices=2, src=np.array([0]), dst=np.array([1]))
    quality = measure(graph, Assignment(2, np.array([0], np.int32), np.array([0, 1], np.int32)))
    assert quality.read_rows.tolist() == [[0, 0], [0, 0]]
    assert quality.write_rows.tolist() == [[0, 1], [0, 0]]


def test_train_balance_counts_training_roots_of_the_worst_split() -> None:
    train = np.array([[1, 1, 0, 1, 0, 0], [1, 0, 0, 1, 0, 0]], bool)
    val = np.array([[0, 0, 1, 0, 0, 0], [0, 1, 0, 0, 0, 0]], bool)
    graph = Graph(
        name="g",
        num_vertices=6,
        src=np.array([0]),
        dst=np.array([1]),
        labels=np.array([0, 1, 1, 0, 1, -1]),
        train_mask=train,
        val_mask=val,
        test_mask=np.array([[0, 0, 0, 0, 1, 0]] * 2, bool),
    )
    assignment = Assignment(2, np.array([0], np.int32), np.array([0, 0, 1, 1, 1, 1], np.int32))
    # Split 0 has two of its three training vertices on part 0; split 1 has one on each.
    assert measure(graph, assignment).train_balance == 2 / 1.5


def test_quality_survives_json() -> None:
    quality = measure(*small_case())
    again = Quality.from_json(json.loads(json.dumps(quality.to_json())))
    assert again.to_json() == quality.to_json()
    assert again.read_rows.dtype == np.int64


def test_incomplete_quality_is_refused() -> None:
    values = measure(*small_case()).to_json()
    del values["halo_rows"]
    with pytest.raises(InputError, match="quality lacks halo_rows; partition the graph again"):
        Quality.from_json(values)


def test_bytes_per_epoch_follow_the_formula() -> None:
    quality = measure(*small_case())
    assert estimate(quality, [16, 8]).halo_bytes_per_epoch == 2 * 1 * 4 * (16 + 8)


def test_memory_follows_the_formula() -> None:
    quality = measure(*small_case())
    dense = estimate(quality, [16, 8], num_features=10).memory_bytes
    first = 2 * 10 * 4 + 2 * 2 * 4 * 24 + 0 + 1 * 16 + 2 * 16
    second = 2 * 10 * 4 + 2 * 2 * 4 * 24 + 2 * 1 * 4 * 16 + 2 * 16 + 3 * 16
    assert dense == (first, second)
    sparse = estimate(quality, [16, 8], feature_nnz=[3, 5]).memory_bytes
    assert sparse == (first - 80 + 24, second - 80 + 40)


@pytest.mark.parametrize("width", [0, 10**30])
def test_an_absurd_width_is_refused(width: int) -> None:
    match = rf"layer widths must be positive, got \[16, {width}\]; .* at most 2147483647"
    with pytest.raises(InputError, match=match):
        estimate(measure(*small_case()), [16, width])
