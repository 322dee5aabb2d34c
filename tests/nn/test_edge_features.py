"""Layers that read features of edges, against their formulas and finite differences."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import attention as reference
import numpy as np
import pytest
import torch
from graphs import EDGE_KIND, cut, make_graph
from scipy.sparse import csr_matrix

from distgnn.aggregate import edge_features, scores
from distgnn.comm.single import SingleGroup
from distgnn.comm.threads import run_ranks
from distgnn.graph.local_graph import LocalGraph
from distgnn.kernels.seeds import MaskSeeds
from distgnn.nn.gat import SLOPE, GATConv
from distgnn.nn.gatv2 import GATv2Conv
from distgnn.nn.gin import GINEConv
from distgnn.ops import SparseRows
from distgnn.training.data.inputs import load_features


def whole():
    graph = make_graph(EDGE_KIND)
    part = cut(graph, 1)[0]
    return graph, LocalGraph.exact(part, SingleGroup()), load_features(part)


def looped_features(graph):
    """Those of the edges of `reference.looped_edges`: means where an edge to itself was added."""
    own = graph.edge_features.astype(np.float64)
    loopless = np.setdiff1d(np.arange(graph.num_vertices), graph.src[graph.src == graph.dst])
    means = [
        own[graph.dst == v].mean(axis=0) if (graph.dst == v).any() else np.zeros(own.shape[1])
        for v in loopless
    ]
    return np.concatenate([own, means])


def attention_formula(graph, conv, dense):
    """GAT or GATv2, one vertex and one head at a time, in double precision."""
    values = {name: p.detach().double().numpy() for name, p in conv.named_parameters()}
    shape, x = (graph.num_vertices, conv.heads, -1), dense.double().numpy()
    src, dst = (end.numpy() for end in reference.looped_edges(graph))
    of_edges = looped_features(graph) @ values["edge_linear.weight"].T
    of_edges = of_edges.reshape(len(src), conv.heads, -1)
    is_additive = isinstance(conv, GATv2Conv)
    if is_additive:
        source, target = (
            (x @ values[f"{end}.weight"].T + values[f"{end}.bias"]).reshape(shape)
            for end in ("source", "target")
        )
    else:
        source = target = (x @ values["linear.weight"].T).reshape(shape)
    out = np.zeros_like(source)
    for vertex, head in np.ndindex(out.shape[:2]):
        into = dst == vertex
        rows, mapped = source[src[into], head], of_edges[into, head]
        if is_additive:
            raw = rows + target[vertex, head] + mapped
            score = np.where(raw > 0, raw, SLOPE * raw) @ values["vectors"][head]
        else:
            raw = rows @ values["source"][head] + target[vertex, head] @ values["target"][head]
            raw = raw + mapped @ values["edge"][head]
            score = np.where(raw > 0, raw, SLOPE * raw)
        weight = np.exp(score)
        out[vertex, head] = weight @ rows / weight.sum()
    result = out.reshape(graph.num_vertices, -1) if conv.concat else out.mean(axis=1)
    return result + values["bias"]


@pytest.mark.parametrize("concat", [True, False])
@pytest.mark.parametrize("layer", [GATConv, GATv2Conv])
def test_features_add_to_the_scores_of_edges(layer, concat, monkeypatch):
    # Some chunks, the last one smaller.
    monkeypatch.setattr(scores, "_CHUNK_VALUES", 15 * 7)
    graph, local, dense = whole()
    conv = layer(6, 5, heads=3, concat=concat, edge_dim=3)
    torch.nn.init.normal_(conv.bias)
    result = conv(local, dense).detach().numpy()
    expected = attention_formula(graph, conv, dense)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)
    torch.nn.init.zeros_(conv.edge_linear.weight)
    assert not np.allclose(conv(local, dense).detach().numpy(), expected, atol=1e-2)


@pytest.mark.parametrize("eps", [0.0, 0.5])
@pytest.mark.parametrize("is_weighted", [True, False])
def test_gin_adds_features_to_the_rows_that_are_passed_on(is_weighted, eps, monkeypatch):
    # Chunks that end inside a row, and a smaller one.
    monkeypatch.setattr(edge_features, "_CHUNK_VALUES", 6 * 5)
    graph = make_graph(EDGE_KIND)
    weight = np.random.default_rng(0).random(graph.num_edges)
    if is_weighted:
        graph = replace(graph, edge_weight=weight.astype(np.float32))
    part = cut(graph, 1)[0]
    local, rows = LocalGraph.exact(part, SingleGroup()), load_features(part)
    conv = GINEConv(6, 4, edge_dim=3, hidden_channels=5, eps=eps, train_eps=eps > 0)
    for bias in (conv.edge_linear.bias, conv.first.bias, conv.second.bias):
        torch.nn.init.normal_(bias)
    values = {name: p.detach().double().numpy() for name, p in conv.named_parameters()}
    dense = rows.double().numpy()
    mapped = graph.edge_features @ values["edge_linear.weight"].T + values["edge_linear.bias"]
    carried = (dense[graph.src] + mapped).clip(0)
    total = (1 + eps) * dense
    np.add.at(total, graph.dst, carried * weight[:, None] if is_weighted else carried)
    inner = (total @ values["first.weight"].T + values["first.bias"]).clip(0)
    expected = inner @ values["second.weight"].T + values["second.bias"]
    np.testing.assert_allclose(conv(local, rows).detach().numpy(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("num_parts", [1, 3])
def test_gin_sends_no_gradient_of_rows_that_nobody_reads(num_parts):
    parts = cut(make_graph(EDGE_KIND), num_parts)
    torch.manual_seed(0)
    weights = GINEConv(6, 4, edge_dim=3).state_dict()

    def on_rank(group, *, has_gradient):
        local, conv = LocalGraph.exact(parts[group.rank], group), GINEConv(6, 4, edge_dim=3)
        conv.load_state_dict(weights)
        rows = load_features(parts[group.rank]).requires_grad_(has_gradient)
        conv(local, rows).square().sum().backward()
        sent = local.exchange.take_bytes()
        return {name: p.grad for name, p in conv.named_parameters()}, sent

    spared, whole_pass = (
        run_ranks(num_parts, partial(on_rank, has_gradient=given)) for given in (False, True)
    )
    for (found, sent), (expected, more) in zip(spared, whole_pass, strict=True):
        assert sent < more or num_parts == 1
        for name, gradient in found.items():
            torch.testing.assert_close(gradient, expected[name])


def test_gin_takes_sparse_and_halved_rows():
    _, local, rows = whole()
    conv = GINEConv(6, 4, edge_dim=3)
    halved = rows.to(torch.bfloat16)
    torch.testing.assert_close(conv(local, halved), conv(local, halved.float()))
    kept = rows * (rows > 0.5)
    sparse = SparseRows.from_scipy(csr_matrix(kept.numpy()))
    torch.testing.assert_close(conv(local, sparse), conv(local, kept))


LAYERS = {
    "gin": lambda: GINEConv(6, 2, edge_dim=3, eps=0.5, train_eps=True),
    "gat": lambda: GATConv(6, 2, heads=2, dropout=0.4, edge_dim=3),
    "gatv2": lambda: GATv2Conv(6, 2, heads=2, dropout=0.4, edge_dim=3),
}


@pytest.mark.parametrize("layer", LAYERS)
def test_gradients_are_those_of_finite_differences(layer, monkeypatch):
    for module in (scores, edge_features):
        monkeypatch.setattr(module, "_CHUNK_VALUES", 6 * 7)
    _, local, dense = whole()
    conv = LAYERS[layer]().double()
    rows = dense.double().requires_grad_()

    def apply(*_):
        local.mask_seeds = MaskSeeds()
        return conv(local, rows)

    # Neither zeros nor ReLUs at their corner.
    generator = torch.Generator().manual_seed(0)
    for parameter in conv.parameters():
        torch.nn.init.normal_(parameter, generator=generator)
    inputs = (rows, *conv.parameters())
    assert torch.autograd.gradcheck(apply, inputs, fast_mode=True)


@pytest.mark.parametrize("num_parts", [2, 4])
@pytest.mark.parametrize("how", ["anywhere", "empty-part"])
def test_a_new_edge_has_the_mean_of_the_in_edges_of_all_parts(num_parts, how):
    graph = make_graph(EDGE_KIND)
    parts = cut(graph, num_parts, how=how)
    means = looped_features(graph)[graph.num_edges :]
    loopless = np.setdiff1d(np.arange(graph.num_vertices), graph.src[graph.src == graph.dst])

    def on_rank(group):
        local = LocalGraph.exact(parts[group.rank], group)
        block = local._looped_blocks().forward.root_from_root
        is_new = (block.row_of_edge == block.indices).numpy()
        ids = local.row_id[block.row_of_edge.long()].numpy()
        sent = local.setup_bytes_sent
        return [
            (ids[edge], block.edge_features[edge].numpy()) for edge in np.flatnonzero(is_new)
        ], sent

    results = run_ranks(num_parts, on_rank)
    found = {int(v): row for rows, _ in results for v, row in rows if v in loopless}
    assert sorted(found) == loopless.tolist()
    for vertex, mean in zip(loopless.tolist(), means, strict=True):
        np.testing.assert_allclose(found[vertex], mean, rtol=1e-5, atol=1e-6)
    # Sums of three columns and a count, from each writing leaf, once.
    num_leaves = sum(int(part.is_writing.sum()) for part in parts)
    assert sum(sent for _, sent in results) == 4 * 4 * num_leaves
