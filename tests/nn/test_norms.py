"""Norms with what stands around them: relu, dropout, residuals, layers that take them in."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from graphs import cut, make_graph

from distgnn.comm.single import SingleGroup
from distgnn.graph.local_graph import LocalGraph
from distgnn.graph.receptive_field import ReceptiveField
from distgnn.kernels.tensors import DTYPES
from distgnn.nn import convolution, linear
from distgnn.nn.activation import Activation
from distgnn.nn.config import ModelConfig
from distgnn.nn.models import GNN
from distgnn.nn.norm import BatchNorm, LayerNorm
from distgnn.training.data.inputs import load_features

NORMS = [(BatchNorm, torch.nn.BatchNorm1d), (LayerNorm, torch.nn.LayerNorm)]


@pytest.fixture
def local():
    return LocalGraph.exact(cut(make_graph("random"), 1)[0], SingleGroup())


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).double()


def draw(module):
    """Draw all vectors of a model that start as zeros or ones, and what norms remember."""
    generator = torch.Generator().manual_seed(5)
    for values in (*module.parameters(), *module.buffers()):
        if values.dim() == 1:
            torch.nn.init.uniform_(values, 0.5, 1.5, generator=generator)


@pytest.mark.parametrize(("ours", "theirs"), NORMS)
@pytest.mark.parametrize("is_training", [True, False])
@pytest.mark.parametrize("probability", [None, 0.0, 0.4])
def test_a_norm_and_what_follows_are_torchs(ours, theirs, is_training, probability, local):
    mine, other = ours(70).double(), theirs(70).double()
    for norm in (mine, other):
        draw(norm)
        norm.train(is_training)
    rows, grad = random(local.num_rows, 70), random(local.num_rows, 70, seed=1)
    leaves = [rows.clone().requires_grad_() for _ in range(2)]
    if probability is None:
        results = [mine(local, leaves[0]), other(leaves[1])]
    else:
        first = mine(local, leaves[0], Activation(probability))
        local.mask_seeds.num_drawn = 0
        results = [first, local.relu_dropout(other(leaves[1]), probability)]
        assert 0.1 < float((first == 0).double().mean()) < 0.9
    for result in results:
        result.backward(grad)
    torch.testing.assert_close(*results)
    torch.testing.assert_close(*(leaf.grad for leaf in leaves))
    for one, two in zip(mine.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(one.grad, two.grad)


@pytest.mark.parametrize("norm", [BatchNorm(70), LayerNorm(70)])
def test_the_gradient_of_a_norm_is_that_of_its_values(norm, local):
    norm = norm.double()
    draw(norm)
    rows = random(local.num_rows, 70)[:, :70].requires_grad_()
    assert torch.autograd.gradcheck(
        lambda x, *_: norm(local, x, Activation(0.0)).sum(dim=1), (rows, *norm.parameters())
    )


@pytest.mark.parametrize("norm", [BatchNorm(33), LayerNorm(33)])
def test_a_narrow_result_is_rounded_once(norm, local):
    rows = random(local.num_rows, 33).float().requires_grad_()
    wide = norm(local, rows, Activation(0.0))
    narrow = norm(local, rows, Activation(0.0, dtype=torch.bfloat16))
    assert torch.equal(narrow, wide.bfloat16())
    (grad,) = torch.autograd.grad(narrow, rows, torch.ones_like(narrow))
    assert grad.dtype == torch.float32
    (expected,) = torch.autograd.grad(wide, rows, torch.ones_like(wide))
    torch.testing.assert_close(grad, expected)


def trained(graph, rows, config, *, is_training=True, owns_gradients=None):
    """Scores and gradients of one pass."""
    graph.mask_seeds.end_epoch()
    graph.mask_seeds.epoch = 4
    model = GNN(config, rows.shape[1], 3).double().train(is_training)
    model.reset_parameters(torch.Generator().manual_seed(0))
    draw(model)
    if owns_gradients is not None:
        model._owns_gradients = owns_gradients
    scores = model(graph, rows)
    (scores * random(*scores.shape, seed=2)).sum().backward()
    return [scores.detach(), *(parameter.grad for parameter in model.parameters())]


@pytest.mark.parametrize("model", ["sage", "gcn"])
@pytest.mark.parametrize("norm", ["none", "batch", "layer"])
@pytest.mark.parametrize(
    "options",
    [
        {"residual": True, "residual_map": True, "jumping": "last"},
        {"residual": True, "activation": "elu"},
        {"jumping": "max"},
    ],
)
@pytest.mark.parametrize("is_training", [True, False])
def test_layers_take_norms_and_residuals_in(model, norm, options, is_training, local, monkeypatch):
    monkeypatch.setattr(linear, "is_fast", lambda: True)
    rows = random(local.num_rows, 9)
    config = ModelConfig(model=model, norm=norm, hidden=9, layers=3, dropout=0.3, **options)
    got = trained(local, rows, config, is_training=is_training)
    for module in (linear, convolution):
        monkeypatch.setattr(module, "is_multiplied_here", lambda rows, weight: False)
    expected = trained(local, rows, config, is_training=is_training)
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("is_static", [True, False])
def test_residuals_map_the_rows_that_a_restricted_layer_makes(is_static, monkeypatch):
    monkeypatch.setattr(linear, "is_fast", lambda: True)
    part = cut(make_graph("random"), 1)[0]
    graph = LocalGraph.exact(part, SingleGroup())
    rows = load_features(part).double()
    if is_static:
        graph.set_static(rows)
    wanted = np.zeros(part.num_roots, dtype=bool)
    wanted[1:3] = True
    options = {"hidden": 9, "layers": 3, "norm": "layer", "dropout": 0.3}
    config = ModelConfig(model="gcn", residual=True, residual_map=True, **options)
    few = ReceptiveField(graph, part, wanted, num_layers=3, is_input_static=is_static)
    got = trained(few, few.inputs(rows), config)
    for module in (linear, convolution):
        monkeypatch.setattr(module, "is_multiplied_here", lambda rows, weight: False)
    for one, other in zip(got, trained(few, few.inputs(rows), config), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("model", ["sage", "gcn"])
@pytest.mark.parametrize("name", ["fp32", "bf16"])
def test_evaluation_normalises_columns_far_from_zero_as_training_did(model, name, monkeypatch):
    monkeypatch.setattr(linear, "is_fast", lambda: True)
    vertex = np.arange(40)
    ring = replace(make_graph("random"), src=vertex, dst=(vertex + 1) % 40)
    graph = LocalGraph.exact(cut(ring, 1)[0], SingleGroup())
    options = {"hidden": 16, "dropout": 0.0, "jumping": "last", "activations_dtype": name}
    trained = GNN(ModelConfig(model=model, norm="batch", **options), 16, 3)
    trained.reset_parameters(torch.Generator().manual_seed(0))
    for norm in trained.norms:
        norm.momentum = 1.0
    rows = (random(40, 16) + 50).to(DTYPES[name])
    expected = trained.train()(graph, rows)
    # What is remembered are variances of samples, 40 / 39 of those of training.
    assert (trained.eval()(graph, rows) - expected).abs().max() < 0.05 * expected.abs().max()


# Wide enough for gradients to lie in buffers, which are written again.
@pytest.mark.parametrize("model", ["gcn", "gat"])
@pytest.mark.parametrize(
    "options",
    [
        {"residual": True},
        {"residual": True, "residual_map": True},
        {"jumping": "last"},
        {"jumping": "max"},
    ],
)
def test_no_gradient_is_overwritten_that_others_read(model, options, local, monkeypatch):
    monkeypatch.setattr("distgnn.ops.buffers._MIN_BYTES", 1)
    rows = random(local.num_rows, 8)
    config = ModelConfig(model=model, norm="batch", hidden=2, heads=4, layers=3, **options)
    got = trained(local, rows, config)
    for one, other in zip(got, trained(local, rows, config, owns_gradients=False), strict=True):
        assert torch.equal(one, other)
