"""Graph attention against its formula, finite differences, and the layers of DGL and PyG."""

from __future__ import annotations

import attention as reference
import numpy as np
import pytest
import torch
from graphs import cut, make_graph

from distgnn.aggregate import scores as aggregate_scores
from distgnn.bench import peers
from distgnn.comm.single import SingleGroup
from distgnn.comm.threads import run_ranks
from distgnn.graph.local_graph import LocalGraph
from distgnn.kernels import attention
from distgnn.kernels.seeds import MaskSeeds
from distgnn.nn.activation import Activation
from distgnn.nn.config import ModelConfig
from distgnn.nn.gat import SLOPE, GATConv
from distgnn.nn.gatv2 import GATv2Conv
from distgnn.nn.models import GNN
from distgnn.ops import SparseRows
from distgnn.ops.buffers import Buffers
from distgnn.training.data.inputs import load_features


def whole(kind):
    graph = make_graph(kind)
    part = cut(graph, 1)[0]
    rows = load_features(part)
    dense = rows.to_dense() if isinstance(rows, SparseRows) else rows
    return graph, LocalGraph.exact(part, SingleGroup()), rows, dense


def formula(graph, conv, dense):
    """One vertex and one head at a time, in double precision."""
    values = {name: p.detach().double().numpy() for name, p in conv.named_parameters()}
    mapped = dense.double().numpy() @ values["linear.weight"].T
    mapped = mapped.reshape(graph.num_vertices, conv.heads, -1)
    src, dst = (end.numpy() for end in reference.looped_edges(graph))
    out = np.zeros_like(mapped)
    for vertex, head in np.ndindex(out.shape[:2]):
        rows = mapped[src[dst == vertex], head]
        raw = rows @ values["source"][head] + mapped[vertex, head] @ values["target"][head]
        weight = np.exp(np.where(raw > 0, raw, SLOPE * raw))
        out[vertex, head] = weight @ rows / weight.sum()
    result = out.reshape(graph.num_vertices, -1) if conv.concat else out.mean(axis=1)
    return result + values["bias"]


@pytest.mark.parametrize("concat", [True, False])
@pytest.mark.parametrize("kind", ["random", "weighted", "loops", "sparse-features"])
def test_each_head_averages_the_neighbours_and_the_vertex_itself(kind, concat):
    graph, local, rows, dense = whole(kind)
    conv = GATConv(6, 5, heads=3, concat=concat)
    torch.nn.init.normal_(conv.bias)
    result = conv(local, rows).detach().numpy()
    assert result.shape == (graph.num_vertices, 15 if concat else 5)
    np.testing.assert_allclose(result, formula(graph, conv, dense), rtol=1e-4, atol=1e-5)


def additive_formula(graph, conv, dense):
    """GATv2, one vertex and one head at a time, in double precision."""
    values = {name: p.detach().double().numpy() for name, p in conv.named_parameters()}
    source, target = (
        dense.double().numpy() @ values[f"{end}.weight"].T + values[f"{end}.bias"]
        for end in ("source", "target")
    )
    shape = graph.num_vertices, conv.heads, -1
    source, target = source.reshape(shape), target.reshape(shape)
    src, dst = (end.numpy() for end in reference.looped_edges(graph))
    out = np.zeros_like(source)
    for vertex, head in np.ndindex(out.shape[:2]):
        rows = source[src[dst == vertex], head]
        raw = rows + target[vertex, head]
        weight = np.exp(np.where(raw > 0, raw, SLOPE * raw) @ values["vectors"][head])
        out[vertex, head] = weight @ rows / weight.sum()
    result = out.reshape(graph.num_vertices, -1) if conv.concat else out.mean(axis=1)
    return result + values["bias"]


@pytest.mark.parametrize("concat", [True, False])
@pytest.mark.parametrize("kind", ["random", "weighted", "loops", "sparse-features"])
def test_additive_scores_are_made_of_the_rows_of_both_ends(kind, concat, monkeypatch):
    # Some chunks, the last one smaller.
    monkeypatch.setattr(aggregate_scores, "_CHUNK_VALUES", 15 * 7)
    graph, local, rows, dense = whole(kind)
    conv = GATv2Conv(6, 5, heads=3, concat=concat)
    for bias in (conv.bias, conv.source.bias, conv.target.bias):
        torch.nn.init.normal_(bias)
    result = conv(local, rows).detach().numpy()
    np.testing.assert_allclose(result, additive_formula(graph, conv, dense), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dropout", [0.0, 0.4])
@pytest.mark.parametrize("layer", [GATConv, GATv2Conv])
def test_gradients_with_dropout_are_those_of_finite_differences(layer, dropout):
    _, local, _, dense = whole("loops")
    conv = layer(6, 2, heads=2, dropout=dropout).double()
    rows = dense.double().requires_grad_()

    def apply(*_):
        local.mask_seeds = MaskSeeds()
        return conv(local, rows)

    inputs = (rows, *conv.parameters())
    assert torch.autograd.gradcheck(apply, inputs, fast_mode=True)


def test_dropout_drops_weights_after_the_softmax():
    """Vectors of 0 weigh all edges alike: a row is 0 or 2 of its in-edges' share."""
    graph, local, _, _ = whole("loops")
    conv = GATConv(graph.num_vertices, graph.num_vertices, heads=2, dropout=0.5)
    with torch.no_grad():
        conv.linear.weight.copy_(torch.eye(graph.num_vertices).repeat(2, 1))
        conv.source.zero_(), conv.target.zero_()
    rows = torch.eye(graph.num_vertices)
    kept = conv.eval()(local, rows).detach()
    drawn = [conv.train()(local, rows).detach() for _ in range(2)]
    for masked in drawn:
        share = masked / torch.where(kept > 0, kept, 1)
        torch.testing.assert_close(share, share.round())
        assert set(share.unique().round().tolist()) == {0.0, 2.0}
        assert 0.8 < float(share[kept > 0].mean()) < 1.2
    assert not torch.equal(*drawn)
    assert not torch.equal(*drawn[0].chunk(2, dim=1))


@pytest.mark.parametrize("concat", [True, False])
def test_gradients_are_those_of_finite_differences(concat):
    _, local, _, dense = whole("loops")
    conv = GATConv(6, 2, heads=2, concat=concat).double()
    rows = dense.double().requires_grad_()

    def apply(*_):
        return conv(local, rows)

    inputs = (rows, *conv.parameters())
    assert torch.autograd.gradcheck(apply, inputs, fast_mode=True)


def dgls_layer(graph, conv):
    dgl = pytest.importorskip("dgl")
    from dgl.nn import GATConv as Theirs

    ends = reference.looped_edges(graph)
    layer = Theirs(6, 5, conv.heads, bias=False)
    weights = {"fc.weight": conv.linear.weight, "attn_l": conv.source, "attn_r": conv.target}
    return layer, weights, lambda rows: layer(dgl.graph(ends, num_nodes=len(rows)), rows)


def pygs_layer(graph, conv):
    from torch_geometric.nn import GATConv as Theirs

    edges = torch.stack(reference.looped_edges(graph))
    layer = Theirs(6, 5, heads=conv.heads, add_self_loops=False, bias=False)
    weights = {"lin.weight": conv.linear.weight, "att_src": conv.source, "att_dst": conv.target}
    return layer, weights, lambda rows: layer(rows, edges)


@pytest.mark.filterwarnings("ignore:.torch.jit")
@pytest.mark.parametrize("kind", ["random", "loops"])
@pytest.mark.parametrize("peer", ["dgl", "pyg"])
def test_rows_are_those_of_a_peer_with_the_same_weights(peer, kind, monkeypatch):
    if peer not in peers.installed():
        pytest.skip(f"needs {peer}")
    monkeypatch.setenv("DGLBACKEND", "pytorch")
    graph, local, _, dense = whole(kind)
    conv = GATConv(6, 5, heads=3)
    layer, weights, apply = (dgls_layer if peer == "dgl" else pygs_layer)(graph, conv)
    own = layer.state_dict()
    assert own.keys() == weights.keys()
    layer.load_state_dict({n: w.detach().reshape(own[n].shape) for n, w in weights.items()})
    expected = apply(dense).reshape(len(dense), -1)
    torch.testing.assert_close(conv(local, dense), expected, rtol=1e-5, atol=1e-5)


def test_heads_are_concatenated_in_hidden_layers_and_averaged_in_the_last():
    _, local, rows, _ = whole("random")
    model = GNN(ModelConfig(model="gat", heads=3, hidden=5, layers=3, norm="layer"), 6, 4)
    shapes = [conv.linear.weight.shape for conv in (*model.hidden, model.last)]
    assert shapes == [(15, 6), (15, 15), (12, 15)]
    assert model(local, rows).shape == (local.num_rows, 4)


def test_a_seed_draws_all_weights():
    config = ModelConfig(model="gat")
    drawn = []
    for _ in range(2):
        model = GNN(config, 6, 3)
        model.reset_parameters(torch.Generator().manual_seed(1))
        drawn.append(model.state_dict())
    assert all(torch.equal(drawn[0][name], drawn[1][name]) for name in drawn[0])


@pytest.mark.parametrize("kind", ["random", "sparse-features"])
@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
@pytest.mark.parametrize("probability", [0.0, 0.4])
@pytest.mark.parametrize("layer", [GATConv, GATv2Conv])
def test_an_activation_that_a_layer_takes_is_the_one_that_would_follow(
    layer, probability, dtype, kind
):
    _, local, rows, _ = whole(kind)
    torch.manual_seed(1)
    conv = layer(6, 5, heads=3)
    torch.nn.init.normal_(conv.bias)
    activation = Activation(probability, dtype=dtype)
    results = []
    for is_taken in (True, False):
        conv.zero_grad()
        local.mask_seeds.num_drawn = 0
        if is_taken:
            result = conv(local, rows, activation)
        else:
            result = activation.apply(local, conv(local, rows))
        grad = torch.randn(result.shape, generator=torch.Generator().manual_seed(3))
        result.backward(grad.to(result.dtype))
        results.append(
            [result.detach(), *(parameter.grad.clone() for parameter in conv.parameters())]
        )
    for one, other in zip(*results, strict=True):
        if dtype is None:
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
        else:
            # Mapped rows and gradients are rounded as well: a sign before the relu may change, and
            # the gradient of a target's score is a small difference of large sums.
            assert (one - other).norm() < 0.1 * other.norm()


@pytest.mark.parametrize("layer", [GATConv, GATv2Conv])
def test_a_gradient_that_is_not_the_graphs_own_is_left_as_it_is(layer):
    _, local, rows, _ = whole("random")
    out = layer(6, 5, heads=3)(local, rows, Activation(0.4, has_one_reader=True))
    grad = torch.ones_like(out)
    out.backward(grad)
    assert (grad == 1).all()


@pytest.mark.parametrize("layer", [GATConv, GATv2Conv])
def test_no_sum_of_gradients_begins_with_memory_that_nobody_wrote(layer, monkeypatch):
    """It may hold signalling NaNs: a program that traps them would end."""
    empty, backward, checked = Buffers.empty, attention.attend_backward, []

    def filled(self, num_rows, width, dtype):
        return empty(self, num_rows, width, dtype).fill_(torch.nan)

    def check(*args, grad_x, grad_source, accumulate, **options):
        if accumulate:
            checked.append(not (grad_x.isnan().any() or grad_source.isnan().any()))
        into = {"grad_x": grad_x, "grad_source": grad_source, "accumulate": accumulate}
        backward(*args, **into, **options)

    monkeypatch.setattr(Buffers, "empty", filled)
    monkeypatch.setattr(attention, "attend_backward", check)
    parts = cut(make_graph(), 2)

    def on_rank(group):
        part = parts[group.rank]
        layer(6, 5, heads=3)(LocalGraph.exact(part, group), load_features(part)).sum().backward()

    run_ranks(2, on_rank)
    assert checked
    assert all(checked)


@pytest.mark.parametrize("model", ["gat", "gatv2"])
@pytest.mark.parametrize(("last_heads", "found"), [(0, 3), (1, 1)])
def test_the_last_layer_has_its_own_heads(model, last_heads, found):
    gnn = GNN(ModelConfig(model=model, heads=3, last_heads=last_heads, layers=3), 6, 5)
    assert [conv.heads for conv in (*gnn.hidden, gnn.last)] == [3, 3, found]


@pytest.mark.parametrize("layer", [GATConv, GATv2Conv])
def test_a_layer_with_an_activation_refuses_a_second_backward_pass(layer):
    _, local, rows, _ = whole("random")
    total = layer(6, 5, heads=3)(local, rows, Activation(0.0)).sum()
    total.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="attention with an activation runs once only"):
        total.backward()
