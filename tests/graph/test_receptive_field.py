"""Layers restricted to the receptive field of the loss give the same scores and gradients."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from graphs import CUTS, KINDS, cut, make_graph

from distgnn.comm.threads import run_ranks
from distgnn.graph.local_graph import LocalGraph
from distgnn.graph.receptive_field import ReceptiveField
from distgnn.nn.config import ModelConfig
from distgnn.nn.models import GNN
from distgnn.training.data.inputs import load_features

CONFIGS = {
    "gcn": ModelConfig(model="gcn", hidden=5, layers=3, dropout=0.4, input_dropout=0.3),
    "gcn-wide": ModelConfig(model="gcn", hidden=9, layers=2, norm="layer", residual=True),
    "mean": ModelConfig(hidden=5, layers=3, dropout=0.4),
    "mean-residual": ModelConfig(hidden=6, layers=3, residual=True, dropout=0.0),
    "sage-gcn": ModelConfig(aggregator="gcn", hidden=5, layers=2),
    "max": ModelConfig(aggregator="max", hidden=5, layers=3),
    "gat": ModelConfig(model="gat", heads=2, hidden=3, layers=3, dropout=0.4),
    "gat-residual": ModelConfig(model="gat", heads=3, hidden=2, residual=True, dropout=0.0),
    "one-layer": ModelConfig(model="gcn", layers=1),
}


def sparse_path(num_vertices=120, seed=0):
    """A graph whose receptive fields grow slowly, in every kind of data."""
    graph = make_graph(num_vertices=num_vertices, seed=seed)
    keep = np.abs(graph.src - graph.dst) < 12
    object.__setattr__(graph, "src", graph.src[keep])
    object.__setattr__(graph, "dst", graph.dst[keep])
    return graph


def wanted_of(part):
    """A few roots by global id, the same whatever the cut; many parts have none."""
    return np.isin(part.global_id[: part.num_roots], (3, 4, 50))


def one_step(parts, config, *, restricted, is_static, num_epochs=1):
    """Scores of the wanted vertices by id, summed gradients, bytes sent, edge fractions."""

    def on_rank(group):
        part = parts[group.rank]
        graph = LocalGraph.exact(part, group)
        model = GNN(config, 6, 3)
        model.reset_parameters(torch.Generator().manual_seed(1))
        features = load_features(part)
        if is_static:
            graph.set_static(features)
        wanted, fractions = wanted_of(part), None
        rows = torch.from_numpy(np.flatnonzero(wanted))
        if restricted:
            field = ReceptiveField(
                graph, part, wanted, num_layers=config.layers, is_input_static=is_static
            )
            graph, features, fractions = field, field.inputs(features), field.edge_fractions
        for _ in range(num_epochs):
            model.zero_grad()
            graph.exchange.take_bytes()
            scores = model(graph, features)
            scores = scores if restricted else scores[rows]
            scores.square().sum().backward()
            graph.end_epoch()
        grads = [p.grad for p in model.parameters()]
        for grad in grads:
            group.all_reduce(grad)
        ids = part.global_id[: part.num_roots][wanted]
        return (
            dict(zip(ids, scores.detach(), strict=True)),
            grads,
            graph.exchange.take_bytes(),
            fractions,
        )

    results = run_ranks(len(parts), on_rank)
    scores = {vertex: row for result in results for vertex, row in result[0].items()}
    return scores, results[0][1], sum(r[2] for r in results), results[0][3]


def check(parts, config, *, is_static, num_epochs=1):
    plain = one_step(parts, config, restricted=False, is_static=is_static, num_epochs=num_epochs)
    ours = one_step(parts, config, restricted=True, is_static=is_static, num_epochs=num_epochs)
    assert ours[0].keys() == plain[0].keys()
    for vertex, row in plain[0].items():
        torch.testing.assert_close(ours[0][vertex], row, rtol=1e-5, atol=1e-6)
    for one, other in zip(ours[1], plain[1], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    assert ours[2] <= plain[2]
    return ours, plain


@pytest.mark.parametrize("is_static", [False, True])
@pytest.mark.parametrize("num_parts", [1, 3, 7])
@pytest.mark.parametrize("name", CONFIGS)
def test_scores_and_gradients_are_those_of_the_whole_graph(name, num_parts, is_static):
    config = CONFIGS[name]
    if is_static and (config.input_dropout or config.model == "gat"):
        pytest.skip("input that is dropped out, or attended to, is not static")
    ours, plain = check(cut(sparse_path(), num_parts), config, is_static=is_static, num_epochs=2)
    assert ours[3][-1] < 0.3, "the last layer runs on few edges"
    assert num_parts == 1 or ours[2] < plain[2] or plain[2] == 0


@pytest.mark.parametrize("how", CUTS)
@pytest.mark.parametrize("kind", KINDS)
def test_any_graph_and_any_cut(kind, how):
    graph = make_graph(kind, num_vertices=60)
    for name in ("gcn", "max", "gat"):
        check(cut(graph, 3, how=how), CONFIGS[name], is_static=False)


def test_layers_that_need_nearly_all_edges_run_on_the_whole_graph():
    parts = cut(make_graph("random", num_vertices=20), 2)
    _, _, _, fractions = one_step(parts, CONFIGS["mean"], restricted=True, is_static=False)
    assert fractions[0] == 1.0
    assert fractions == sorted(fractions, reverse=True)


def test_a_static_first_layer_runs_over_no_edge():
    parts = cut(sparse_path(), 2)
    _, _, _, fractions = one_step(parts, CONFIGS["mean"], restricted=True, is_static=True)
    assert fractions[0] == 0.0
