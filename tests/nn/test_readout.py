"""Parts between and after convolutions: mapped residuals and a linear layer at the end."""

from __future__ import annotations

import torch
from graphs import cut, make_graph

from distgnn.comm.single import SingleGroup
from distgnn.graph.local_graph import LocalGraph
from distgnn.nn.config import ModelConfig
from distgnn.nn.models import GNN


def test_mapped_residuals_and_a_linear_layer_that_reads_the_last():
    graph = make_graph()
    (part,) = cut(graph, 1)
    local = LocalGraph.exact(part, SingleGroup())
    features = torch.from_numpy(graph.features)
    shape = {"model": "gcn", "hidden": 5, "layers": 3, "residual": True, "residual_map": True}
    model = GNN(ModelConfig(**shape, jumping="last"), 6, 3).eval()
    assert len(model.hidden) == 3
    rows = features
    for conv, residual in zip(model.hidden, model.residuals, strict=True):
        torch.nn.init.normal_(residual.bias)
        rows = torch.relu(conv(local, rows) + rows @ residual.weight.t() + residual.bias)
    expected = rows @ model.last.weight.t() + model.last.bias
    torch.testing.assert_close(model(local, features), expected, rtol=1e-5, atol=1e-6)


def test_maps_beside_and_after_convolutions_start_as_torchs_own_linear():
    shape = {"model": "gcn", "hidden": 300, "layers": 2, "residual": True, "residual_map": True}
    model = GNN(ModelConfig(**shape, jumping="last"), 100, 3)
    model.reset_parameters(torch.Generator().manual_seed(0))
    for outer, in_channels in (
        (model.residuals[0], 100),
        (model.residuals[1], 300),
        (model.last, 300),
    ):
        bound = in_channels**-0.5
        assert 0.9 * bound < outer.weight.abs().max() <= bound
        assert 0 < outer.bias.abs().max() <= bound
        assert abs(outer.weight.mean()) < 0.05 * bound
    glorot = (6 / 600) ** 0.5
    assert model.hidden[1].linear.weight.abs().max() > 0.9 * glorot
