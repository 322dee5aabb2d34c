from __future__ import annotations

import numpy as np
import pytest

from distgnn.datasets import Graph, InputError
from distgnn.partition import assign
from distgnn.partition.quality import measure
from distgnn.partition.refine.balance import FEW_TRAINING, TRAIN_BALANCE, training_counts
from distgnn.partition.refine.refinement import VERTEX_BALANCE


def communities(train: np.ndarray, *, seed: int = 0) -> Graph:
    """Eight communities of 40 vertices, with these training vertices."""
    generator = np.random.default_rng(seed)
    src = generator.integers(0, 320, 3000)
    inside = src // 40 * 40 + generator.integers(0, 40, src.size)
    dst = np.where(generator.random(src.size) < 0.95, inside, generator.integers(0, 320, src.size))
    rest = ~train.any(axis=0)
    others = np.stack([rest & (np.arange(320) % 2 == k) for k in range(2)])
    return Graph(
        name="communities",
        num_vertices=320,
        src=np.concatenate([src, dst]),
        dst=np.concatenate([dst, src]),
        labels=np.zeros(320, np.int64),
        train_mask=train,
        val_mask=np.tile(others[0], (train.shape[0], 1)),
        test_mask=np.tile(others[1], (train.shape[0], 1)),
    )


def first(*counts: int) -> np.ndarray:
    """Splits that are trained on so many of the first vertices."""
    return np.arange(320) < np.array(counts)[:, None]


@pytest.mark.parametrize("refine", [True, False])
def test_few_training_vertices_are_shared_evenly(*, refine: bool) -> None:
    graph = communities(first(40))
    unasked = measure(graph, assign("metis", graph, 4, refine=refine))
    even = measure(graph, assign("metis", graph, 4, refine=refine, balance="train"))
    assert unasked.train_balance > 2
    assert even.train_balance <= TRAIN_BALANCE
    assert even.vertex_balance <= VERTEX_BALANCE


def test_training_vertices_of_several_splits_are_shared_together() -> None:
    graph = communities(first(40, 30))
    roots = assign("metis", graph, 4, balance="train").root_part
    counts = np.bincount(roots, graph.train_mask.sum(axis=0), minlength=4)
    assert counts.max() <= np.ceil(TRAIN_BALANCE * 70 / 4)


def test_many_training_vertices_change_nothing() -> None:
    many = int(FEW_TRAINING * 320) + 1
    graph = communities(first(many))
    assert training_counts(graph) is None
    unasked, even = (assign("metis", graph, 4, balance=name) for name in ("none", "train"))
    assert np.array_equal(unasked.root_part, even.root_part)
    assert training_counts(communities(first(many - 1))) is not None


def test_a_graph_without_masks_has_nothing_to_share() -> None:
    graph = Graph(name="g", num_vertices=3, src=np.array([0, 1]), dst=np.array([1, 2]))
    assert training_counts(graph) is None
    assign("metis", graph, 2, balance="train")


def test_another_balance_is_refused() -> None:
    graph = communities(first(40))
    with pytest.raises(InputError, match="unknown balance 'test'; choose train, for few training"):
        assign("metis", graph, 4, balance="test")
