"""A layer as one operation against the same layer made of separate ones, with the same draws."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from graphs import adjacency, cut, make_graph

from distgnn import ops
from distgnn.comm.single import SingleGroup
from distgnn.graph.local_graph import LocalGraph
from distgnn.graph.receptive_field import ReceptiveField
from distgnn.nn import convolution, linear
from distgnn.nn.activation import Activation
from distgnn.nn.config import ModelConfig
from distgnn.nn.gcn import GCNConv
from distgnn.nn.models import GNN
from distgnn.nn.sage import SAGEConv
from distgnn.training.data.inputs import load_features


def trained(graph, rows, config, *, num_classes=3):
    """Scores and gradients of one pass."""
    graph.mask_seeds.end_epoch()
    graph.mask_seeds.epoch = 4
    model = GNN(config, rows.shape[1], num_classes).double()
    model.reset_parameters(torch.Generator().manual_seed(0))
    for parameter in model.parameters():
        if parameter.dim() == 1:
            torch.nn.init.normal_(parameter, generator=torch.Generator().manual_seed(1))
    scores = model(graph, rows)
    weight = torch.randn(scores.shape, generator=torch.Generator().manual_seed(2)).double()
    (scores * weight).sum().backward()
    return [scores.detach(), *(parameter.grad for parameter in model.parameters())]


def separately(monkeypatch):
    for module in (linear, convolution):
        monkeypatch.setattr(module, "is_multiplied_here", lambda rows, weight: False)


@pytest.mark.usefixtures("multiplied_here")
@pytest.mark.parametrize(
    ("model", "kind"), [("sage", "random"), ("gcn", "random"), ("gcn", "weighted")]
)
@pytest.mark.parametrize("is_restricted", [False, True])
@pytest.mark.parametrize("is_static", [False, True])
@pytest.mark.parametrize("hidden", [4, 9])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_layers_as_one_operation_give_what_separate_operations_give(
    model, kind, is_restricted, is_static, hidden, dropout, monkeypatch
):
    part = cut(make_graph(kind), 1)[0]
    graph = LocalGraph.exact(part, SingleGroup())
    rows = load_features(part).double()
    if is_static:
        graph.set_static(rows)
    if is_restricted:
        wanted = np.zeros(part.num_roots, dtype=bool)
        wanted[1:3] = True
        graph = ReceptiveField(graph, part, wanted, num_layers=3, is_input_static=is_static)
        rows = graph.inputs(rows)
    config = ModelConfig(model=model, hidden=hidden, layers=3, dropout=dropout)
    got = trained(graph, rows, config)
    separately(monkeypatch)
    for one, other in zip(got, trained(graph, rows, config), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


LAYERS = pytest.mark.parametrize("layer", [SAGEConv, GCNConv])


@pytest.mark.usefixtures("multiplied_here")
@LAYERS
@pytest.mark.parametrize("probability", [0.0, 0.4])
def test_a_gradient_that_is_not_the_graphs_own_is_left_as_it_is(probability, layer):
    part = cut(make_graph("random"), 1)[0]
    graph = LocalGraph.exact(part, SingleGroup())
    conv, rows = layer(6, 4), load_features(part)
    out = conv(graph, rows, Activation(probability))
    grad = torch.ones_like(out)
    out.backward(grad)
    assert (grad == 1).all()


@LAYERS
def test_a_gradient_that_two_layers_share_is_masked_by_each_for_itself(layer):
    part = cut(make_graph("random"), 1)[0]
    graph = LocalGraph.exact(part, SingleGroup())
    rows, wide = load_features(part), 3000
    first, second, last = layer(6, wide), layer(6, wide), layer(wide, 3)

    def gradients(activation):
        for conv in (first, second, last):
            conv.zero_grad()
        outputs = [conv(graph, rows, activation) for conv in (first, second)]
        last(graph, outputs[0] + outputs[1]).square().sum().backward()
        return [parameter.grad.clone() for parameter in first.parameters()]

    together = gradients(Activation(0.0))
    for conv in (first, second, last):
        conv.zero_grad()
    outputs = [torch.relu(conv(graph, rows)) for conv in (first, second)]
    last(graph, outputs[0] + outputs[1]).square().sum().backward()
    for one, parameter in zip(together, first.parameters(), strict=True):
        torch.testing.assert_close(one, parameter.grad, rtol=1e-4, atol=1e-3)


@pytest.mark.usefixtures("multiplied_here")
@LAYERS
def test_a_layer_with_an_activation_refuses_a_second_backward_pass(layer):
    part = cut(make_graph("random"), 1)[0]
    graph = LocalGraph.exact(part, SingleGroup())
    total = layer(6, 4)(graph, load_features(part), Activation(0.0)).sum()
    total.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="a layer with an activation runs once only"):
        total.backward()


@pytest.mark.usefixtures("multiplied_here")
@LAYERS
def test_columns_that_do_not_lie_side_by_side_are_taken(layer):
    part = cut(make_graph("random"), 1)[0]
    graph = LocalGraph.exact(part, SingleGroup())
    conv, rows = layer(6, 4), load_features(part)
    apart = rows.t().contiguous().t()
    assert torch.equal(conv(graph, apart), conv(graph, rows))


def test_a_linear_map_has_the_gradients_of_torchs():
    generator = torch.Generator().manual_seed(0)
    rows, weight, bias = (
        torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()
        for shape in ((30, 7), (5, 7), (5,))
    )
    got, expected = ops.linear(rows, weight, bias), torch.nn.functional.linear(rows, weight, bias)
    torch.testing.assert_close(got, expected)
    assert torch.autograd.gradcheck(ops.linear, (rows, weight, bias), fast_mode=True)


@pytest.mark.parametrize("model", [pytest.param("sage", marks=pytest.mark.slow), "gcn"])
def test_no_buffer_is_added_after_the_first_epochs(model):
    part = cut(make_graph("random"), 1)[0]
    graph = LocalGraph.exact(part, SingleGroup())
    graph.set_static(torch.ones(0, 0))
    config = ModelConfig(model=model, hidden=5000, layers=3)
    rows = load_features(part).double()
    sizes = []
    for _ in range(4):
        trained(graph, rows, config)
        graph.end_epoch()
        sizes.append(graph.exchange.buffers.num_bytes)
    assert sizes[0] > 0
    assert set(sizes[1:]) == {sizes[1]}
    assert sizes[1] <= sizes[0]


def rounded(values):
    return values.bfloat16().double()


@pytest.mark.usefixtures("multiplied_here")
@pytest.mark.parametrize("out_width", [4, 9])
def test_a_layer_of_bfloat16_rounds_what_it_reads_aggregates_and_makes(out_width):
    """Against the same steps in double precision, each of which is rounded once."""
    source = make_graph("random")
    part = cut(source, 1)[0]
    graph = LocalGraph.exact(part, SingleGroup())
    conv, rows = SAGEConv(6, out_width), load_features(part).bfloat16().requires_grad_()
    out = conv(graph, rows, Activation(0.0, dtype=torch.bfloat16))
    grad = torch.randn(out.shape, generator=torch.Generator().manual_seed(3)).bfloat16()
    out.backward(grad)

    h, matrix = rows.detach().double(), torch.from_numpy(adjacency(source))
    matrix /= matrix.sum(dim=1, keepdim=True).clamp(min=1)
    root, neighbour = rounded(conv.root.weight.detach()), rounded(conv.neighbour.weight.detach())
    if out_width < 6:
        means = rounded(matrix @ rounded(h @ neighbour.t()))
    else:
        means = rounded(matrix @ h) @ neighbour.t()
    expected = rounded((means + h @ root.t()).clamp(min=0))
    torch.testing.assert_close(out.double(), expected, rtol=2**-7, atol=1e-3)
    assert out.dtype == rows.grad.dtype == torch.bfloat16
    masked = torch.where(out > 0, grad.double(), 0)
    torch.testing.assert_close(conv.root.weight.grad.double(), masked.t() @ h, rtol=1e-4, atol=1e-4)
    close = {"rtol": 2**-6, "atol": 0.02}
    back = matrix.t() @ masked
    torch.testing.assert_close(conv.neighbour.weight.grad.double(), back.t() @ h, **close)
    torch.testing.assert_close(rows.grad.double(), back @ neighbour + masked @ root, **close)
    assert conv.root.weight.grad.dtype == conv.neighbour.bias.grad.dtype == torch.float32


@pytest.mark.usefixtures("multiplied_here")
@pytest.mark.parametrize("out_width", [4, 9])
def test_a_gcn_layer_of_bfloat16_rounds_what_it_reads_aggregates_and_makes(out_width):
    """Against the same steps in double precision, each of which is rounded once."""
    source = make_graph("random")
    part = cut(source, 1)[0]
    graph = LocalGraph.exact(part, SingleGroup())
    conv, rows = GCNConv(6, out_width), load_features(part).bfloat16().requires_grad_()
    out = conv(graph, rows, Activation(0.0, dtype=torch.bfloat16))
    grad = torch.randn(out.shape, generator=torch.Generator().manual_seed(3)).bfloat16()
    out.backward(grad)

    h, weight = rows.detach().double(), rounded(conv.linear.weight.detach())
    matrix = torch.from_numpy(adjacency(source))
    matrix += torch.diag((matrix.diagonal() == 0).double())
    scale = matrix.sum(dim=1).rsqrt()
    matrix = scale[:, None] * matrix * scale
    sums = matrix @ rounded(h @ weight.t()) if out_width < 6 else rounded(matrix @ h) @ weight.t()
    torch.testing.assert_close(out.double(), rounded(sums.clamp(min=0)), rtol=2**-6, atol=0.01)
    assert out.dtype == rows.grad.dtype == torch.bfloat16
    back = matrix.t() @ torch.where(out > 0, grad.double(), 0)
    close = {"rtol": 2**-6, "atol": 0.02}
    torch.testing.assert_close(conv.linear.weight.grad.double(), back.t() @ h, **close)
    torch.testing.assert_close(rows.grad.double(), back @ weight, **close)
    assert conv.linear.weight.grad.dtype == conv.bias.grad.dtype == torch.float32
