"""Correct and Smooth: the dense formula, on any number of ranks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from graphs import adjacency, cut, make_graph

from distgnn.comm.threads import run_ranks
from distgnn.graph import LocalGraph
from distgnn.train.smoothing import CorrectAndSmooth


def dense(matrix, scores, labels, is_train, how):
    """The formula, in float64, on all vertices."""
    degree = matrix.sum(axis=1)
    with np.errstate(divide="ignore"):
        scale = np.where(degree > 0, 1 / np.sqrt(degree), 0)
    matrix = scale[:, None] * matrix * scale

    def spread(start, alpha, least):
        rows = start
        for _ in range(how.num_steps):
            rows = np.clip(alpha * matrix @ rows + (1 - alpha) * start, least, 1)
        return rows

    chance = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    known = np.eye(scores.shape[1])[labels]
    error = np.where(is_train[:, None], known - chance, 0)
    mean = np.abs(error).sum() / is_train.sum()
    error = spread(error, how.correct, -1)
    size = np.abs(error).sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore"):
        factor = mean / size
    chance = chance + np.where(factor > 1000, 1, factor) * error
    return spread(np.where(is_train[:, None], known, chance), how.smooth, 0)


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
