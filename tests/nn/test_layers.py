"""Each layer against its formula, with dense matrices, in double precision."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from graphs import adjacency, cut, make_graph

from distgnn.comm.single import SingleGroup
from distgnn.comm.threads import run_ranks
from distgnn.graph.local_graph import LocalGraph
from distgnn.kernels.seeds import MaskSeeds
from distgnn.nn.config import ModelConfig
from distgnn.nn.gcn import GCNConv
from distgnn.nn.gin import GINConv
from distgnn.nn.models import GNN
from distgnn.nn.norm import BatchNorm, LayerNorm
from distgnn.nn.propagation import APPNPConv, SGConv
from distgnn.nn.sage import SAGEConv
from distgnn.ops import SparseRows
from distgnn.training.data.inputs import load_features

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


def propagation(graph, degrees):
    """S of `GCNConv`, dense."""
    matrix = adjacency(graph)
    has_loop = np.zeros(graph.num_vertices, dtype=bool)
    has_loop[graph.src[graph.src == graph.dst]] = True
    matrix += np.diag(~has_loop)
    sources = matrix.sum(axis=0 if degrees == "out-in" else 1)
    return matrix.sum(axis=1)[:, None] ** -0.5 * matrix * sources**-0.5


@pytest.mark.parametrize("kind", ["random", "weighted", "loops", "sparse-features"])
def test_gcn_may_divide_by_the_out_degree_of_sources(kind):
    graph, local, rows, dense = whole(kind)
    conv = GCNConv(6, 4, degrees="out-in")
    expected = propagation(graph, "out-in") @ dense @ numbers(conv.linear.weight).T
    close(conv(local, rows), expected)
    assert not np.allclose(
        expected, propagation(graph, "in") @ dense @ numbers(conv.linear.weight).T
    )


def test_other_degrees_are_refused():
    with pytest.raises(ValueError, match="degrees must be in or out-in, got 'out'"):
        GCNConv(2, 2, degrees="out")


@pytest.mark.parametrize("degrees", ["in", "out-in"])
@pytest.mark.parametrize("widths", WIDTHS)
@pytest.mark.parametrize("kind", ["random", "weighted", "sparse-features"])
def test_sgc_propagates_over_several_edges_and_maps_once(kind, widths, degrees):
    graph, local, rows, dense = whole(kind)
    conv = SGConv(*widths, K=3, degrees=degrees)
    torch.nn.init.normal_(conv.bias)
    power = np.linalg.matrix_power(propagation(graph, degrees), 3)
    close(conv(local, rows), power @ dense @ numbers(conv.linear.weight).T + numbers(conv.bias))


@pytest.mark.parametrize("degrees", ["in", "out-in"])
@pytest.mark.parametrize("kind", ["random", "weighted", "sparse-features"])
def test_appnp_goes_back_to_its_own_row_at_each_step(kind, degrees):
    graph, local, rows, dense = whole(kind)
    conv = APPNPConv(6, 4, K=5, alpha=0.3, degrees=degrees)
    torch.nn.init.normal_(conv.linear.bias)
    start = dense @ numbers(conv.linear.weight).T + numbers(conv.linear.bias)
    expected = start
    for _ in range(5):
        expected = 0.7 * propagation(graph, degrees) @ expected + 0.3 * start
    close(conv(local, rows), expected)


@pytest.mark.parametrize("eps", [0.0, 0.5])
@pytest.mark.parametrize("widths", WIDTHS)
@pytest.mark.parametrize("kind", ["random", "weighted", "loops", "sparse-features"])
def test_gin_maps_a_sum_twice(kind, widths, eps):
    graph, local, rows, dense = whole(kind)
    conv = GINConv(*widths, hidden_channels=widths[1], eps=eps, train_eps=eps > 0)
    torch.nn.init.normal_(conv.first.bias)
    total = adjacency(graph) @ dense + (1 + eps) * dense
    inner = total @ numbers(conv.first.weight).T + numbers(conv.first.bias)
    close(conv(local, rows), inner.clip(0) @ numbers(conv.second.weight).T)


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
    conv = SAGEConv(*widths, aggr="gcn")
    degree = np.bincount(graph.dst, minlength=graph.num_vertices)[:, None]
    mean = (adjacency(graph) @ dense + dense) / (degree + 1)
    close(conv(local, rows), mean @ numbers(conv.neighbour.weight).T + numbers(conv.neighbour.bias))


@pytest.mark.parametrize("kind", ["random", "sparse-features"])
def test_sage_max_takes_the_largest_of_each_column(kind):
    graph, local, rows, dense = whole(kind)
    conv = SAGEConv(6, 4, aggr="max")
    largest = np.zeros_like(dense)
    for vertex in range(graph.num_vertices):
        sources = graph.src[graph.dst == vertex]
        if len(sources):
            largest[vertex] = dense[sources].max(axis=0)
    expected = largest @ numbers(conv.neighbour.weight).T + dense @ numbers(conv.root.weight).T
    close(conv(local, rows), expected + numbers(conv.neighbour.bias))


@pytest.mark.parametrize("kind", ["random", "sparse-features"])
def test_sage_pool_takes_the_largest_of_each_mapped_column(kind):
    graph, local, rows, dense = whole(kind)
    conv = SAGEConv(6, 4, aggr="pool")
    torch.nn.init.normal_(conv.pool.bias)
    mapped = (dense @ numbers(conv.pool.weight).T + numbers(conv.pool.bias)).clip(0)
    largest = np.zeros_like(mapped)
    np.maximum.at(largest, graph.dst, mapped[graph.src])
    expected = largest @ numbers(conv.neighbour.weight).T + dense @ numbers(conv.root.weight).T
    close(conv(local, rows), expected + numbers(conv.neighbour.bias))


def test_an_unknown_aggregator_is_refused():
    with pytest.raises(ValueError, match="aggr must be mean, gcn, max or pool, got 'sum'"):
        SAGEConv(2, 2, aggr="sum")


LAYERS = {
    "gcn": lambda: GCNConv(6, 4),
    "gcn-out-in": lambda: GCNConv(6, 9, degrees="out-in"),
    "mean": lambda: SAGEConv(6, 4),
    "max": lambda: SAGEConv(6, 4, aggr="max"),
    "pool": lambda: SAGEConv(6, 4, aggr="pool"),
    "gin": lambda: GINConv(6, 4, train_eps=True),
    "gin-wide": lambda: GINConv(6, 4, hidden_channels=9, eps=0.5),
    "sgc": lambda: SGConv(6, 4, K=3),
    "appnp": lambda: APPNPConv(6, 4, K=3, degrees="out-in"),
}


@pytest.mark.parametrize("kind", ["random", "weighted"])
@pytest.mark.parametrize("layer", LAYERS)
def test_gradients_are_those_of_finite_differences(layer, kind):
    _, local, _, dense = whole(kind)
    conv = LAYERS[layer]().double()
    rows = torch.from_numpy(dense).requires_grad_()
    parameters = tuple(conv.parameters())

    def apply(*_):
        return conv(local, rows)

    assert torch.autograd.gradcheck(apply, (rows, *parameters), fast_mode=True)


@pytest.mark.usefixtures("multiplied_here")
def test_sparse_and_dense_features_give_the_same_scores_and_gradients():
    _, local, rows, dense = whole("sparse-features")
    drops = {"dropout": 0.4, "input_dropout": 0.3}
    for config in (
        ModelConfig(model="gcn", **drops),
        ModelConfig(model="gat", **drops),
        ModelConfig(model="gatv2", attention_dropout=0.5, **drops),
        ModelConfig(model="gin", learn_eps=True, **drops),
        ModelConfig(model="sgc", **drops),
        ModelConfig(model="appnp", **drops),
        ModelConfig(aggregator="pool", **drops),
        ModelConfig(),
    ):
        model = GNN(config, 6, 3)
        grads = []
        for features in (rows, torch.from_numpy(dense).float()):
            local.mask_seeds = MaskSeeds()
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
        assert model.last.in_channels == width
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
