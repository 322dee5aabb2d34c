"""Input that never changes is aggregated once, and nothing else changes."""

from __future__ import annotations

import pytest
import torch
from graphs import cut, make_graph

from distgnn.comm.threads import run_ranks
from distgnn.edges.blocks import plan_blocks
from distgnn.exchange.delayed import Delayed
from distgnn.exchange.rule import delayed
from distgnn.graph.local_graph import LocalGraph
from distgnn.nn.config import ModelConfig
from distgnn.nn.models import GNN
from distgnn.training.data.inputs import load_features

CONFIGS = {
    "gcn": ModelConfig(model="gcn", hidden=5),
    "gcn-wide": ModelConfig(model="gcn", hidden=9),
    "mean": ModelConfig(hidden=5),
    "sage-gcn": ModelConfig(aggregator="gcn", hidden=5),
    "max": ModelConfig(aggregator="max", hidden=5),
}


def two_epochs(parts, config, *, is_static, delay=0):
    """Scores, summed gradients and bytes of the second epoch, per rank."""

    def on_rank(group):
        part = parts[group.rank]
        graph = LocalGraph.exact(part, group)
        if delay:
            graph = LocalGraph(part, plan_blocks(part, group), Delayed(group, delayed(delay=1)))
        model = GNN(config, 6, 3)
        model.reset_parameters(torch.Generator().manual_seed(1))
        features = load_features(part)
        if is_static:
            graph.set_static(features)
        for _ in range(2):
            model.zero_grad()
            graph.exchange.take_bytes()
            scores = model(graph, features)
            scores.square().sum().backward()
            graph.end_epoch()
        grads = [p.grad for p in model.parameters()]
        for grad in grads:
            group.all_reduce(grad)
        return scores.detach(), grads, graph.exchange.take_bytes(), graph.setup_bytes_sent

    return run_ranks(len(parts), on_rank)


@pytest.mark.parametrize("num_parts", [1, 3])
@pytest.mark.parametrize("kind", ["random", "weighted"])
@pytest.mark.parametrize("name", CONFIGS)
def test_scores_and_gradients_are_the_same_and_less_travels(name, kind, num_parts):
    parts = cut(make_graph(kind), num_parts)
    results = zip(
        two_epochs(parts, CONFIGS[name], is_static=True),
        two_epochs(parts, CONFIGS[name], is_static=False),
        strict=True,
    )
    for (scores, grads, sent, setup), (plain, plain_grads, plain_sent, plain_setup) in results:
        torch.testing.assert_close(scores, plain, rtol=1e-4, atol=1e-5)
        for one, other in zip(grads, plain_grads, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
        assert num_parts == 1 or (sent < plain_sent and setup > plain_setup)


def test_the_first_layer_is_exact_under_a_delay():
    parts = cut(make_graph("random"), 3)
    config = ModelConfig(model="gcn", layers=1)
    delayed = two_epochs(parts, config, is_static=True, delay=1)
    exact = two_epochs(parts, config, is_static=False)
    for (scores, _, sent, _), (expected, *_) in zip(delayed, exact, strict=True):
        torch.testing.assert_close(scores, expected, rtol=1e-4, atol=1e-5)
        assert sent == 0


def test_sparse_features_stay_as_they_are():
    part = cut(make_graph("sparse-features"), 1)[0]

    def on_rank(group):
        graph = LocalGraph.exact(part, group)
        features = load_features(part)
        graph.set_static(features)
        return graph.is_static(features)

    assert run_ranks(1, on_rank) == [False]


@pytest.mark.parametrize("name", ["gcn", "mean"])
@pytest.mark.parametrize("kind", ["random", "weighted"])
def test_what_inference_mode_computed_serves_training(name, kind):
    part = cut(make_graph(kind), 1)[0]

    def grads(group, *, evaluates):
        graph = LocalGraph.exact(part, group)
        model = GNN(CONFIGS[name], 6, 3).eval()
        model.reset_parameters(torch.Generator().manual_seed(1))
        features = load_features(part)
        graph.set_static(features)
        if evaluates:
            with torch.inference_mode():
                model(graph, features)
        scores = model(graph, features) * graph.in_degree * (graph.self_loops + 1)
        scores[graph.vertex_type == 0].square().sum().backward()
        return [parameter.grad for parameter in model.parameters()]

    (plain,), (found,) = (
        run_ranks(1, lambda group, first=first: grads(group, evaluates=first))
        for first in (False, True)
    )
    for one, other in zip(found, plain, strict=True):
        assert torch.equal(one, other)
