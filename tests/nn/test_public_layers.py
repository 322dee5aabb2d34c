"""Layers for models of one's own: PyG's arguments, dense formulas, and one result on any ranks."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from graphs import adjacency, cut, make_graph
from torch import nn

import distgnn.nn as layers
from distgnn.comm.threads import run_ranks
from distgnn.edges.blocks import plan_blocks
from distgnn.exchange.base import Synchronous
from distgnn.graph.local_graph import LocalGraph

IN, OUT = 6, 4
GRAPHS = {"rgcn": "typed"}


def number(values):
    return values.detach().double()


def closed(matrix):
    """The adjacency with an edge from each vertex to itself."""
    return matrix + torch.diag((matrix.diagonal() == 0).double())


def propagation(matrix):
    matrix = closed(matrix)
    scale = matrix.sum(dim=1) ** -0.5
    return scale[:, None] * matrix * scale


def sage(conv, source, matrix, x):
    mean = matrix / matrix.sum(dim=1, keepdim=True).clamp(min=1)
    own = x @ number(conv.root.weight).T + number(conv.neighbour.bias)
    return mean @ x @ number(conv.neighbour.weight).T + own


def gcn(conv, source, matrix, x):
    return propagation(matrix) @ x @ number(conv.linear.weight).T + number(conv.bias)


def gin(conv, source, matrix, x):
    inner = (matrix @ x + 1.25 * x) @ number(conv.first.weight).T + number(conv.first.bias)
    return inner.relu() @ number(conv.second.weight).T + number(conv.second.bias)


def sgc(conv, source, matrix, x):
    power = torch.linalg.matrix_power(propagation(matrix), 3)
    return power @ x @ number(conv.linear.weight).T + number(conv.bias)


def appnp(conv, source, matrix, x):
    rows = x
    for _ in range(4):
        rows = 0.8 * propagation(matrix) @ rows + 0.2 * x
    return rows


def attended(scores, matrix, mapped):
    """Averages of (V, heads, width) rows by the softmax of (V, V, heads) scores over in-edges."""
    weights = closed(matrix)[:, :, None] * scores.exp()
    weights = weights / weights.sum(dim=1, keepdim=True)
    return torch.einsum("vuh,uhw->vhw", weights, mapped).flatten(1)


def gat(conv, source, matrix, x):
    mapped = (x @ number(conv.linear.weight).T).view(len(x), 2, OUT)
    ends = [(mapped * number(vectors)).sum(dim=2) for vectors in (conv.source, conv.target)]
    scores = nn.functional.leaky_relu(ends[0][None] + ends[1][:, None], 0.1)
    return attended(scores, matrix, mapped)


def gatv2(conv, source, matrix, x):
    read, own = (
        (x @ number(each.weight).T + number(each.bias)).view(len(x), 2, OUT)
        for each in (conv.source, conv.target)
    )
    inner = nn.functional.leaky_relu(read[None] + own[:, None], 0.1)
    return attended((inner * number(conv.vectors)).sum(dim=3), matrix, read)


def rgcn(conv, source, matrix, x):
    total = x @ number(conv.own[0]) + number(conv.bias[0])
    for kind, weight in enumerate(number(conv.weight)):
        chosen = torch.zeros(len(x), len(x), dtype=torch.float64)
        is_kind = source.edge_type == kind
        np.add.at(chosen.numpy(), (source.dst[is_kind], source.src[is_kind]), 1)
        total += chosen / chosen.sum(dim=1, keepdim=True).clamp(min=1) @ x @ weight
    return total


def batch_norm(conv, source, matrix, x):
    return (x - x.mean(dim=0)) / (x.var(dim=0, correction=0) + 1e-5).sqrt()


def layer_norm(conv, source, matrix, x):
    return nn.functional.layer_norm(x, (IN,))


CASES = {
    "sage": (lambda: layers.SAGEConv(IN, OUT, aggr="mean"), sage),
    "gcn": (lambda: layers.GCNConv(IN, OUT), gcn),
    "gin": (lambda: layers.GINConv(IN, OUT, eps=0.25, train_eps=True), gin),
    "sgc": (lambda: layers.SGConv(IN, OUT, K=3), sgc),
    "appnp": (lambda: layers.APPNP(K=4, alpha=0.2), appnp),
    "gat": (lambda: layers.GATConv(IN, OUT, heads=2, negative_slope=0.1, bias=False), gat),
    "gatv2": (lambda: layers.GATv2Conv(IN, OUT, heads=2, negative_slope=0.1), gatv2),
    "rgcn": (lambda: layers.RGCNConv(IN, OUT, num_relations=3, num_bases=2), rgcn),
    "batch norm": (lambda: layers.BatchNorm(IN), batch_norm),
    "layer norm": (lambda: layers.LayerNorm(IN), layer_norm),
}


def built(make):
    torch.manual_seed(3)
    return make()


def on_ranks(num_parts, source, x, make):
    """Rows of all vertices, and the gradients of all weights summed over ranks."""
    parts, model = cut(source, num_parts), built(make)

    def on_rank(group):
        part = parts[group.rank]
        ids = part.global_id[: part.num_roots]
        conv = make()
        conv.load_state_dict(model.state_dict())
        blocks = plan_blocks(part, group, has_types=part.edge_type is not None)
        rows = conv(LocalGraph(part, blocks, Synchronous(group)), x[ids])
        if rows.requires_grad:
            (rows * rows.detach()).sum().backward()
        return ids, rows.detach(), [parameter.grad for parameter in conv.parameters()]

    results = run_ranks(num_parts, on_rank)
    whole = torch.empty(source.num_vertices, results[0][1].shape[1])
    for ids, rows, _ in results:
        whole[ids] = rows
    grads = zip(*(grads for _, _, grads in results), strict=True)
    return model, whole, [torch.stack(each).sum(dim=0) for each in grads]


def drawn(source):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(source.num_vertices, IN, generator=generator)


@pytest.mark.parametrize("name", CASES)
def test_a_layer_has_its_formula_and_one_result_on_any_number_of_ranks(name):
    make, formula = CASES[name]
    source = make_graph(GRAPHS.get(name, "random"))
    x = drawn(source)
    model, rows, grads = on_ranks(1, source, x, make)
    matrix = torch.from_numpy(adjacency(source))
    expected = formula(model, source, matrix, x.double()).float()
    torch.testing.assert_close(rows, expected, rtol=1e-4, atol=1e-5)
    _, again, other_grads = on_ranks(3, source, x, make)
    torch.testing.assert_close(again, rows, rtol=1e-4, atol=1e-5)
    for one, other in zip(grads, other_grads, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", [name for name in CASES if name != "appnp"])
def test_a_gradient_of_a_gradient_is_refused(name):
    """The gradient that a sum gives asks for none, so that torch alone would not refuse it."""
    source = make_graph(GRAPHS.get(name, "random"))
    part, conv = cut(source, 1)[0], built(CASES[name][0])
    x = drawn(source).requires_grad_()

    def on_rank(group):
        rows = conv(LocalGraph.exact(part, group), x)
        (grad,) = torch.autograd.grad(rows.sum(), x, create_graph=True)
        with pytest.raises(RuntimeError, match="differentiate twice"):
            grad.square().sum().backward()

    run_ranks(1, on_rank)


def test_dropout_draws_the_same_masks_on_any_number_of_ranks():
    source = make_graph("random")
    x = torch.ones(source.num_vertices, IN)
    one, other = (on_ranks(n, source, x, lambda: layers.Dropout(0.4))[1] for n in (1, 3))
    assert torch.equal(one, other)
    assert one.unique().tolist() == [0, pytest.approx(1 / 0.6)]
    graph = LocalGraph.exact(cut(source, 1)[0], run_ranks(1, lambda group: group)[0])
    assert torch.equal(layers.Dropout(0.4).eval()(graph, x), x)
    with pytest.raises(ValueError, match="p must be at least 0 and below 1, got 1"):
        layers.Dropout(1)


@pytest.mark.parametrize("name", CASES)
def test_the_global_seed_draws_the_weights(name):
    make = CASES[name][0]
    one, other = built(make).state_dict(), built(make).state_dict()
    assert all(torch.equal(one[key], other[key]) for key in one)


@pytest.mark.parametrize(
    "make",
    [
        lambda: layers.GCNConv(IN, OUT, bias=False),
        lambda: layers.SGConv(IN, OUT, bias=False),
        lambda: layers.GATConv(IN, OUT, bias=False),
        lambda: layers.GATv2Conv(IN, OUT, bias=False),
    ],
)
def test_a_layer_without_a_bias_learns_and_saves_none(make):
    conv = make()
    assert "bias" not in conv.state_dict()
    assert "bias" not in dict(conv.named_parameters())
    _, _, grads = on_ranks(2, source := make_graph("random"), drawn(source), make)
    assert all(grad.isfinite().all() for grad in grads)


def test_names_are_loaded_when_they_are_used():
    script = "import sys, distgnn.nn; assert 'torch' not in sys.modules; print(distgnn.nn.GCNConv)"
    found = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    )
    assert "GCNConv" in found.stdout
    assert all(getattr(layers, name) for name in layers.__all__)
    with pytest.raises(AttributeError, match=r"module 'distgnn\.nn' has no attribute 'SageConv'"):
        _ = layers.SageConv
