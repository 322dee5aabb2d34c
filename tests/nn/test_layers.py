"""Each layer against its formula, with dense matrices, in double precision."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from graphs import adjacency, cut, make_graph

from distgnn.comm.single import SingleGroup
from distgnn.comm.threads import run_ranks
from distgnn.draws import Draws
from distgnn.graph import LocalGraph
from distgnn.nn.gcn import GCNConv
from distgnn.nn.models import GNN, ModelConfig
from distgnn.nn.norm import BatchNorm, LayerNorm
from distgnn.nn.sage import SAGEConv
from distgnn.ops import SparseRows
from distgnn.train.inputs import load_features

WIDTHS = ((6, 4), (6, 9))


def whole(kind):
    graph = make_graph(kind)
    part = cut(graph, 1)[0]
    rows = load_features(part)
    dense = rows.to_dense() if isinstance(rows, SparseRows) else rows
    return graph, LocalGraph.exact(part, SingleGroup()), rows, dense.double().numpy()


def numbers(parameter):
    return parameter.detach().double().numpy()


def close(result, expected):
    np.testing.assert_allclose(result.detach().numpy(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("widths", WIDTHS)
@pytest.mark.parametrize("kind", ["random", "weighted", "loops", "sparse-features"])
def test_gcn_is_the_symmetrically_normalised_adjacency_with_self_loops(kind, widths):
    graph, local, rows, dense = whole(kind)
    conv = GCNConv(*widths)
    torch.nn.init.normal_(conv.bias)
    matrix = adjacency(graph)
    has_loop = np.zeros(graph.num_vertices, dtype=bool)
    has_loop[graph.src[graph.src == graph.dst]] = True
    matrix += np.diag(~has_loop)
    scale = matrix.sum(axis=1) ** -0.5
    expected = (scale[:, None] * matrix * scale) @ dense @ numbers(conv.linear.weight).T
    close(conv(local, rows), expected + numbers(conv.bias))


@pytest.mark.parametrize("widths", WIDTHS)
@pytest.mark.parametrize("kind", ["random", "sparse-features"])
def test_sage_mean_adds_a_map_of_the_vertex_and_a_map_of_the_mean(kind, widths):
    graph, local, rows, dense = whole(kind)
    conv = SAGEConv(*widths)
    degree = np.bincount(graph.dst, minlength=graph.num_vertices).clip(1)[:, None]
    neighbours = (adjacency(graph) @ dense / degree) @ numbers(conv.neighbour.weight).T
    own = dense @ numbers(conv.root.weight).T
    close(conv(local, rows), own + neighbours + numbers(conv.neighbour.bias))


@pytest.mark.parametrize("widths", WIDTHS)
@pytest.mark.parametrize("kind", ["random", "sparse-features"])
def test_sage_gcn_averages_the_vertex_with_its_neighbours(kind, widths):
    graph, local, rows, dense = whole(kind)
    conv = SAGEConv(*widths, aggregator="gcn")
    degree = np.bincount(graph.dst, minlength=graph.num_vertices)[:, None]
    mean = (adjacency(graph) @ dense + dense) / (degree + 1)
    close(conv(local, rows), mean @ numbers(conv.neighbour.weight).T + numbers(conv.neighbour.bias))


@pytest.mark.parametrize("kind", ["random", "sparse-features"])
def test_sage_max_takes_the_largest_of_each_column(kind):
    graph, local, rows, dense = whole(kind)
    conv = SAGEConv(6, 4, aggregator="max")
    largest = np.zeros_like(dense)
    for vertex in range(graph.num_vertices):
        sources = graph.src[graph.dst == vertex]
        if len(sources):
            largest[vertex] = dense[sources].max(axis=0)
    expected = largest @ numbers(conv.neighbour.weight).T + dense @ numbers(conv.root.weight).T
    close(conv(local, rows), expected + numbers(conv.neighbour.bias))


def test_an_unknown_aggregator_is_refused():
    with pytest.raises(ValueError, match="aggregator must be mean, gcn or max, got 'sum'"):
        SAGEConv(2, 2, aggregator="sum")


@pytest.mark.parametrize("kind", ["gcn", "mean", "max"])
def test_gradients_are_those_of_finite_differences(kind):
    _, local, _, dense = whole("random")
    conv = (GCNConv(6, 4) if kind == "gcn" else SAGEConv(6, 4, aggregator=kind)).double()
    rows = torch.from_numpy(dense).requires_grad_()
    parameters = tuple(conv.parameters())

    def apply(*_):
        return conv(local, rows)

    assert torch.autograd.gradcheck(apply, (rows, *parameters), fast_mode=True)


def test_sparse_and_dense_features_give_the_same_scores_and_gradients():
    _, local, rows, dense = whole("sparse-features")
    drops = {"dropout": 0.4, "input_dropout": 0.3}
    for config in (
        ModelConfig(model="gcn", **drops),
        ModelConfig(model="gat", **drops),
        ModelConfig(),
    ):
        model = GNN(config, 6, 3)
        grads = []
        for features in (rows, torch.from_numpy(dense).float()):
            local.draws = Draws()
            model.zero_grad()
            model(local, features).square().sum().backward()
            grads.append([p.grad.clone() for p in model.parameters()])
        for one, other in zip(*grads, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_batch_norm_is_torchs_on_one_rank():
    _, local, _, dense = whole("random")
    ours, theirs = BatchNorm(6), torch.nn.BatchNorm1d(6)
    rows = torch.from_numpy(dense).float()
    for _ in range(3):
        torch.testing.assert_close(ours(local, rows), theirs(rows), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(ours.running_mean, theirs.running_mean)
    torch.testing.assert_close(ours.running_var, theirs.running_var)
    ours.eval(), theirs.eval()
    torch.testing.assert_close(ours(local, rows), theirs(rows), rtol=1e-4, atol=1e-5)


def test_layer_norm_is_torchs():
    _, local, _, dense = whole("random")
    rows = torch.from_numpy(dense).float()
    torch.testing.assert_close(LayerNorm(6)(local, rows), torch.nn.LayerNorm(6)(rows))


def test_evaluation_drops_nothing():
    _, local, rows, _ = whole("random")
    model = GNN(ModelConfig(dropout=0.9, input_dropout=0.9), 6, 3).eval()
    torch.testing.assert_close(model(local, rows), model(local, rows), rtol=0, atol=0)


def test_residual_and_jumping_knowledge_have_the_documented_shapes():
    _, local, rows, _ = whole("random")
    for config, width in (
        (ModelConfig(jumping="cat", layers=3, hidden=5), 15),
        (ModelConfig(jumping="max", layers=3, hidden=5), 5),
    ):
        model = GNN(config, 6, 3)
        assert model.last.in_width == width
        assert model(local, rows).shape == (local.num_rows, 3)
    model = GNN(ModelConfig(residual=True, hidden=6, layers=3, dropout=0), 6, 3)
    hidden = torch.relu(model.hidden[0](local, rows) + rows)
    hidden = torch.relu(model.hidden[1](local, hidden) + hidden)
    torch.testing.assert_close(model(local, rows), model.last(local, hidden))


@pytest.mark.parametrize("num_parts", [1, 3])
def test_batch_norm_has_torchs_gradients_whatever_the_cut(num_parts):
    graph = make_graph("random")
    parts = cut(graph, num_parts)
    generator = torch.Generator().manual_seed(3)
    rows = torch.randn(graph.num_vertices, 4, generator=generator, dtype=torch.float64)
    grad = torch.randn(graph.num_vertices, 4, generator=generator, dtype=torch.float64)
    theirs = torch.nn.BatchNorm1d(4).double()
    whole = rows.clone().requires_grad_()
    theirs(whole).backward(grad)

    def on_rank(group):
        part = parts[group.rank]
        ids = part.global_id[: part.num_roots]
        ours = BatchNorm(4).double()
        own = rows[ids].requires_grad_()
        local = LocalGraph.exact(part, group)
        ours(local, own).backward(grad[ids])
        for parameter in ours.parameters():
            group.all_reduce(parameter.grad)
        return ids, own.grad, ours.weight.grad, ours.bias.grad, local.exchange.take_reduced_bytes()

    for ids, own, weight, bias, sent in run_ranks(num_parts, on_rank):
        torch.testing.assert_close(own, whole.grad[ids])
        torch.testing.assert_close(weight, theirs.weight.grad)
        torch.testing.assert_close(bias, theirs.bias.grad)
        # Sums with their count, squares, and two sums backward, around a ring.
        assert sent == sum(2 * (num_parts - 1) * n * 8 // num_parts for n in (5, 4, 8))
