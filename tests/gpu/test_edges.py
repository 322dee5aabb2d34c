from __future__ import annotations

import numpy as np
import pytest
import reference
import torch
from fronts import Fronts
from on_device import put

from distgnn.gpu import schedule
from distgnn.kernels import edge_values

edge_values = Fronts(edge_values)

NUM_ROWS, NUM_SOURCES = 20, 15


def ends(num_edges, width):
    graph = reference.random_csr(NUM_ROWS, NUM_SOURCES, num_edges, seed=1)
    rng = np.random.default_rng(width)
    x, y = (rng.standard_normal((n, width)).astype(np.float32) for n in (NUM_SOURCES, NUM_ROWS))
    row = np.repeat(np.arange(NUM_ROWS), np.diff(graph.indptr))
    return graph, x, y, row


@pytest.mark.parametrize("num_edges", [0, 1, 70])
@pytest.mark.parametrize(("num_heads", "width"), [(1, 1), (1, 100), (3, 1), (2, 16), (4, 33)])
def test_the_rows_at_both_ends_are_multiplied_head_by_head(num_heads, width, num_edges, device):
    graph, x, y, row = ends(num_edges, num_heads * width)
    product = x[graph.indices] * y[row]
    expected = product.reshape(num_edges, num_heads, width).sum(2)
    tensors = put(device, graph.indptr, graph.indices, x, y)
    out = torch.full((num_edges, num_heads), torch.nan, device=device)
    edge_values.sddmm_dot(*tensors, out)
    np.testing.assert_allclose(out.cpu().numpy(), expected, atol=1e-5)


@pytest.mark.parametrize("num_heads", [1, 3, 16, 33])
def test_the_values_at_both_ends_are_added(num_heads, device):
    graph, x, y, row = ends(70, num_heads)
    tensors = put(device, graph.indptr, graph.indices, x, y)
    out = torch.full((70, num_heads), torch.nan, device=device)
    edge_values.sddmm_add(*tensors, out)
    np.testing.assert_array_equal(out.cpu().numpy(), x[graph.indices] + y[row])


@pytest.mark.parametrize("piece_edges", [512, 3])
@pytest.mark.parametrize("num_edges", [0, 1, 70])
@pytest.mark.parametrize(("num_heads", "width"), [(1, 1), (1, 100), (3, 1), (2, 16), (4, 33)])
def test_leaky_scores_and_their_gradients_are_those_of_dense_rows(
    num_heads, width, num_edges, piece_edges, device, monkeypatch
):
    monkeypatch.setattr(schedule, "PIECE_EDGES", piece_edges)
    graph, x, y, row = ends(num_edges, num_heads * width)
    rng = np.random.default_rng(5)
    factor = rng.standard_normal(num_heads * width).astype(np.float32)
    value = rng.standard_normal((num_edges, num_heads)).astype(np.float32)
    total = x[graph.indices] + y[row]
    gate = np.where(total > 0, 1, 0.2)
    rows = put(device, graph.indptr, graph.indices, x, y)

    scores = torch.full((num_edges, num_heads), torch.nan, device=device)
    edge_values.sddmm_leaky(*rows, *put(device, factor), scores, slope=0.2)
    expected = (total * gate * factor).reshape(num_edges, num_heads, width).sum(2)
    np.testing.assert_allclose(scores.cpu().numpy(), expected, atol=1e-4)

    for edge in (None, rng.permutation(num_edges)):
        sums = torch.full((NUM_ROWS, num_heads * width), torch.nan, device=device)
        given = *rows[:2], *put(device, edge, value), *rows[2:]
        edge_values.sddmm_leaky_backward(*given, sums, slope=0.2)
        expected = np.zeros_like(y)
        of_edges = value if edge is None else value[edge]
        np.add.at(expected, row, of_edges.repeat(width, axis=1) * gate)
        np.testing.assert_allclose(sums.cpu().numpy(), expected, atol=1e-4)
