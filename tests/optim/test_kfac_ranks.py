"""K-FAC on any number of ranks, however they share its work, takes the steps of one process."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from graphs import cut, make_graph
from kfac_oracle import Terms

from distgnn.comm.threads import run_ranks
from distgnn.edges.blocks import plan_blocks
from distgnn.exchange.base import Synchronous
from distgnn.exchange.clock import Clock
from distgnn.graph.local_graph import LocalGraph
from distgnn.nn.config import ModelConfig
from distgnn.nn.models import GNN
from distgnn.nn.relational import GraphSize
from distgnn.optim.kfac import Kfac
from distgnn.settings.kfac import KfacOptions
from distgnn.training.data.inputs import load_features
from distgnn.weights.summed_gradients import SummedGradients

pytestmark = pytest.mark.usefixtures("multiplied_here")

MODELS = {
    "gcn": {"model": "gcn"},
    "gcn-wider": {"model": "gcn", "hidden": 9, "residual": True, "norm": "layer"},
    "sage": {"layers": 3},
    "sage-pool": {"aggregator": "pool"},
    "gin": {"model": "gin"},
    "gat": {"model": "gat", "heads": 2},
    "gatv2": {"model": "gatv2", "heads": 2},
    "sgc": {"model": "sgc", "hops": 2, "layers": 1},
    "appnp": {"model": "appnp", "hops": 2},
    "rgcn": {"model": "rgcn", "bases": 2},
    "rsage": {"model": "rsage"},
}


def weights_after(name, num_parts, options, *, num_steps=3, how="anywhere", is_static=True):
    """Weights in float64 after some steps, and the bytes that each rank sent."""
    config = {"dropout": 0.0, "hidden": 4, **MODELS[name]}
    is_typed = config.get("model") in ("rgcn", "rsage")
    whole = make_graph("typed" if is_typed else "random")
    parts = cut(whole, num_parts, how=how)

    def on_rank(group):
        part = parts[group.rank]
        graph = LocalGraph.exact(part, group)
        if is_typed:
            graph = LocalGraph(part, plan_blocks(part, group, has_types=True), Synchronous(group))
        rows = load_features(part).double()
        if is_static:
            graph.set_static(rows)
        size = GraphSize(whole.num_vertices, 3, 2)
        model = GNN(ModelConfig(**config), rows.shape[1], 3, size)
        model.reset_parameters(torch.Generator().manual_seed(0))
        model.double()
        optimizer = Kfac(model, Terms(group, whole.num_vertices), lr=0.25, options=options)
        sync = SummedGradients(group, Clock())
        labels = torch.from_numpy(np.asarray(part.labels))
        for _ in range(num_steps):
            scores = model(graph, rows)
            losses = torch.nn.functional.cross_entropy(scores, labels, reduction="sum")
            (losses / whole.num_vertices).backward()
            sync.after_backward(model)
            optimizer.step()
            optimizer.zero_grad()
            graph.end_epoch()
        return model.state_dict(), optimizer.take_bytes()

    return run_ranks(num_parts, on_rank)


def check(found, expected):
    for weights, _ in found:
        for name, value in expected.items():
            torch.testing.assert_close(weights[name], value, rtol=1e-10, atol=1e-10, msg=name)


@pytest.mark.parametrize("name", MODELS)
def test_any_model_on_any_number_of_ranks(name):
    # With less damping a dead unit of gin gets a bias of 0 to rounding, where ReLU has its kink.
    options = KfacOptions(damping=0.03, factors=1, inverses=2, first=1, decay=0.5)
    ((expected, sent),) = weights_after(name, 1, options)
    assert sent == 0
    for num_parts in (2, 3, 4, 7):
        check(weights_after(name, num_parts, options), expected)


@pytest.mark.parametrize("num_parts", [2, 3, 4, 7])
@pytest.mark.parametrize("workers", ["all", "half", "one", "0.3"])
def test_any_sharing_of_the_work(workers, num_parts):
    ((expected, _),) = weights_after("sage", 1, KfacOptions(factors=2, inverses=2, first=1))
    options = KfacOptions(factors=2, inverses=2, first=1, workers=workers)
    found = weights_after("sage", num_parts, options)
    check(found, expected)
    for weights, _ in found[1:]:
        assert all(torch.equal(weights[name], value) for name, value in found[0][0].items())


@pytest.mark.parametrize("num_parts", [3, 4])
@pytest.mark.parametrize("name", ["gat", "rgcn"])
def test_sharings_have_the_same_bits(name, num_parts):
    found = [
        weights_after(name, num_parts, KfacOptions(workers=workers))[0][0]
        for workers in ("all", "half", "one")
    ]
    for other in found[1:]:
        assert all(torch.equal(other[each], value) for each, value in found[0].items())


@pytest.mark.parametrize("how", ["either-end", "at-destination", "empty-part"])
def test_any_cut(how):
    options = KfacOptions(factors=1, inverses=1, workers="half")
    ((expected, _),) = weights_after("gcn", 1, options, is_static=False)
    check(weights_after("gcn", 3, options, how=how, is_static=False), expected)


def test_all_ranks_hear_of_a_decomposition_that_fails_on_one(monkeypatch):
    eigh = torch.linalg.eigh

    def failing(value, **options):
        if len(value) == 6:
            raise torch.linalg.LinAlgError("it failed to converge")
        return eigh(value, **options)

    monkeypatch.setattr(torch.linalg, "eigh", failing)
    for workers in ("all", "one"):
        options = KfacOptions(factors=1, inverses=1, workers=workers)
        ((expected, _),) = weights_after("sgc", 1, options)
        check(weights_after("sgc", 3, options), expected)
