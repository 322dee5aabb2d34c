"""Forms of hidden layers: chosen when a model is built."""

from __future__ import annotations

import copy

import pytest
import torch
from graphs import cut, make_graph

from distgnn.comm.single import SingleGroup
from distgnn.graph.local_graph import LocalGraph
from distgnn.nn.config import ModelConfig
from distgnn.nn.layers import Chained, MappedAtOnce, Recomputed, Separate
from distgnn.nn.models import GNN
from distgnn.training.data.inputs import load_features

FORMS = [
    ({"model": "sage"}, Chained),
    ({"model": "gat"}, Chained),
    ({"model": "gin"}, Separate),
    ({"model": "gcn", "norm": "batch"}, MappedAtOnce),
    ({"model": "gcn", "activation": "elu"}, MappedAtOnce),
    ({"model": "gat", "norm": "layer"}, Separate),
    ({"model": "sage", "residual": True, "residual_map": True}, MappedAtOnce),
    ({"model": "sage", "residual": True, "hidden": 6}, Separate),
]


@pytest.mark.parametrize(("options", "form"), FORMS)
def test_a_layer_gets_the_first_form_that_fits(options, form):
    model = GNN(ModelConfig(layers=3, **options), 6, 3)
    assert [type(layer) for layer in model._layers] == [form] * 2
    model.set_recompute(True)
    assert [type(layer) for layer in model._layers] == [Recomputed] * 2
    model.set_recompute(False)
    assert [type(layer) for layer in model._layers] == [form] * 2


@pytest.mark.parametrize(("options", "form"), FORMS)
def test_a_copy_of_a_model_runs_on_its_own_weights(options, form):
    part = cut(make_graph("random"), 1)[0]
    graph, rows = LocalGraph.exact(part, SingleGroup()), load_features(part)
    model = GNN(ModelConfig(layers=3, **options), 6, 3).eval()
    before, twin = model(graph, rows), copy.deepcopy(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    assert torch.equal(twin(graph, rows), before)
