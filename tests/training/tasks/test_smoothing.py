"""Correct and Smooth: the dense formula, on any number of ranks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from graphs import adjacency, cut, make_graph

from distgnn.comm.single import SingleGroup
from distgnn.comm.threads import run_ranks
from distgnn.graph.local_graph import LocalGraph
from distgnn.training.tasks.smoothing import CorrectAndSmooth


def spread(matrix, start, alpha, least, num_steps):
    """Steps along edges, between `least` and 1."""
    degree = matrix.sum(axis=1)
    with np.errstate(divide="ignore"):
        scale = np.where(degree > 0, 1 / np.sqrt(degree), 0)
    matrix = scale[:, None] * matrix * scale
    rows = start
    for _ in range(num_steps):
        rows = np.clip(alpha * matrix @ rows + (1 - alpha) * start, least, 1)
    return rows


def dense(matrix, scores, labels, is_train, how):
    """The formula, in float64, on all vertices."""
    chance = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    known = np.eye(scores.shape[1])[labels]
    error = np.where(is_train[:, None], known - chance, 0)
    mean = np.abs(error).sum() / is_train.sum()
    error = spread(matrix, error, how.correct, -1, how.num_steps)
    size = np.abs(error).sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore"):
        factor = mean / size
    chance = chance + np.where(factor > 1000, 1, factor) * error
    chance = np.where(is_train[:, None], known, chance)
    return spread(matrix, chance, how.smooth, 0, how.num_steps)


@pytest.mark.parametrize("num_parts", [1, 2, 5])
@pytest.mark.parametrize("kind", ["random", "weighted", "loops"])
def test_any_number_of_ranks_gives_the_dense_formula(kind, num_parts):
    graph, how = make_graph(kind), CorrectAndSmooth(0.7, 0.6, 12)
    parts = cut(graph, num_parts)
    scores = torch.randn(graph.num_vertices, 3, generator=torch.Generator().manual_seed(2))
    is_train = graph.train_mask[0]

    def on_rank(group):
        part = parts[group.rank]
        ids = part.global_id[: part.num_roots]
        train = torch.from_numpy(np.flatnonzero(is_train[ids]))
        labels = torch.from_numpy(graph.labels[ids])
        local = LocalGraph.exact(part, group)
        with torch.no_grad():
            return ids, how.apply(local, scores[ids].clone(), labels, train).exp()

    expected = dense(adjacency(graph), scores.double().numpy(), graph.labels, is_train, how)
    for ids, found in run_ranks(num_parts, on_rank):
        np.testing.assert_allclose(found.numpy(), expected[ids], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("num_train", [0, 10])
def test_without_errors_to_spread_labels_alone_are_smoothed(num_train):
    graph, how = make_graph("random"), CorrectAndSmooth(0.7, 0.6, 12)
    is_train = np.arange(graph.num_vertices) < num_train
    # Scores so sure of the right class that softmax gives 1 and 0.
    scores = 1000 * torch.eye(3)[torch.from_numpy(graph.labels)]
    part = cut(graph, 1)[0]
    ids = part.global_id[: part.num_roots]
    train = torch.from_numpy(np.flatnonzero(is_train[ids]))
    local = LocalGraph.exact(part, SingleGroup())
    found = how.apply(local, scores[ids].clone(), torch.from_numpy(graph.labels[ids]), train)
    known = np.eye(3)[graph.labels]
    expected = spread(adjacency(graph), known, how.smooth, 0, how.num_steps)
    np.testing.assert_allclose(found.exp().numpy(), expected[ids], rtol=1e-4, atol=1e-6)
