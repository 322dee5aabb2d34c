"""What stands between and after convolutions: mapped residuals and a linear layer at the end."""

from __future__ import annotations

import torch
from graphs import cut, make_graph

from distgnn.comm.single import SingleGroup
from distgnn.graph import LocalGraph
from distgnn.nn.models import ModelConfig


def test_mapped_residuals_and_a_linear_layer_that_reads_the_last():
    graph = make_graph()
    (part,) = cut(graph, 1)
    local = LocalGraph.exact(part, SingleGroup())
    features = torch.from_numpy(graph.features)
    shape = {"model": "gcn", "hidden": 5, "layers": 3, "residual": True, "residual_map": True}
    model = ModelConfig(**shape, jumping="last").build(6, 3).eval()
    assert len(model.hidden) == 3
    rows = features
    for conv, residual in zip(model.hidden, model.residuals, strict=True):
        torch.nn.init.normal_(residual.bias)
        rows = torch.relu(conv(local, rows) + rows @ residual.weight.t() + residual.bias)
    expected = rows @ model.last.weight.t() + model.last.bias
    torch.testing.assert_close(model(local, features), expected, rtol=1e-5, atol=1e-6)
