"""Trained runs as models of PyG: the same outputs, for every model that PyG has."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
import torch
from graphs import EDGE_KIND, make_graph

import distgnn as dg
from distgnn.interop import to_pyg

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.importorskip("torch_geometric.nn")

QUICK = {"epochs": 3, "hidden": 4, "threads": 1}
MODELS = {
    "gcn": {"model": "gcn", "feature_norm": "standard"},
    "gcn-batch-residual": {"model": "gcn", "norm": "batch", "residual": True, "layers": 3},
    "gcn-mapped": {"model": "gcn", "residual": True, "residual_map": True, "activation": "elu"},
    "gcn-jumping-last": {"model": "gcn", "jumping": "last"},
    "sage": {"model": "sage", "feature_norm": "row"},
    "sage-max": {"model": "sage", "aggregator": "max", "norm": "layer"},
    "sage-pool": {"model": "sage", "aggregator": "pool"},
    "sage-jumping-cat": {"model": "sage", "jumping": "cat", "layers": 3},
    "sage-jumping-max": {"model": "sage", "jumping": "max", "residual": True},
    "gat": {"model": "gat", "heads": 2, "last_heads": 3, "attention_dropout": 0.3},
    "gatv2": {"model": "gatv2", "heads": 2, "layers": 3},
    "gin": {"model": "gin", "eps": 0.5, "norm": "batch"},
    "gin-learned": {"model": "gin", "learn_eps": True},
    "sgc": {"model": "sgc", "hops": 3},
    "appnp": {"model": "appnp", "hops": 4, "alpha": 0.2},
}
WEIGHTED = ("gcn", "sgc", "appnp", "gat", "gatv2", "sage-max")


def with_one_loop(kind):
    """A graph whose vertices have at most one edge to themselves, and some have one."""
    data = to_pyg(make_graph(kind))
    source, target = data.edge_index
    is_first = np.ones(len(source), dtype=bool)
    is_loop = source == target
    loops = is_loop.nonzero()[:, 0].numpy()
    is_first[loops] = False
    is_first[loops[np.unique(source[is_loop], return_index=True)[1]]] = True
    assert bool(is_loop.any())
    return data.edge_subgraph(torch.from_numpy(is_first))


def assert_same(run, data, *inputs):
    """The model of PyG gives the probabilities that the run predicts."""
    model = run.to_pyg()
    expected = run.predict()
    again = pickle.loads(pickle.dumps(model))
    for one in (model, again):
        with torch.no_grad():
            scores = one(data.x, data.edge_index, *inputs)
        assert scores.dtype == torch.float32
        np.testing.assert_allclose(scores.softmax(dim=1), expected, rtol=1e-4, atol=1e-6)
    assert not model.training


@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_pyg_predicts_what_the_run_does(name, tmp_path):
    data = with_one_loop("loops")
    assert_same(dg.train(data, out=tmp_path / "run", **{**QUICK, **MODELS[name]}), data)


@pytest.mark.parametrize("name", WEIGHTED)
def test_weights_of_edges_are_an_argument_where_they_are_read(name, tmp_path):
    data = with_one_loop("weighted")
    run = dg.train(data, out=tmp_path / "run", **{**QUICK, **MODELS[name]})
    is_read = name in ("gcn", "sgc", "appnp")
    assert_same(run, data, *([data.edge_weight] if is_read else []))


@pytest.mark.parametrize("model", ["gat", "gatv2", "gin"])
def test_features_of_edges_are_an_argument(model, tmp_path):
    data = with_one_loop(EDGE_KIND)
    run = dg.train(data, out=tmp_path / "run", model=model, **QUICK)
    assert_same(run, data, data.edge_attr)


@pytest.mark.parametrize("options", [{}, {"bases": 2, "relation_norm": "none"}])
def test_types_of_edges_are_an_argument(options, tmp_path):
    graph = make_graph("typed")
    run = dg.train(graph, out=tmp_path / "run", model="rgcn", **options, **QUICK)
    data = to_pyg(graph)
    assert_same(run, data, data.edge_type)


def test_a_run_on_parts_is_the_same_model(tmp_path):
    data = with_one_loop("loops")
    parts = dg.partition_graph(data, 3, tmp_path / "parts")
    run = dg.train(dg.load(parts), out=tmp_path / "run", model="gcn", **QUICK)
    assert_same(run, data)


def test_a_run_that_learned_links_gives_the_rows_of_its_decoder(tmp_path):
    data = to_pyg(make_graph())
    options = {"model": "sage", "task": "link", "edge_split": "0.8/0.1/0.1"}
    run = dg.train(data, out=tmp_path / "run", **options, **QUICK)
    kept = to_pyg(dg.load(data, edge_split="0.8/0.1/0.1"))
    with torch.no_grad():
        rows = run.to_pyg()(kept.x, kept.edge_index)
    np.testing.assert_allclose(rows, run.embed(), rtol=1e-4, atol=1e-6)


class Net(torch.nn.Module):
    def __init__(self, data):
        super().__init__()
        self.conv = dg.nn.GCNConv(data.num_features, data.num_classes)

    def forward(self, graph, x):
        return self.conv(graph, x)


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("random", {"model": Net}, "has no equivalent in PyG, as Net is a model of your own"),
        (
            "random",
            {"model": "gcn", "labels_as_input": 0.5},
            "--labels-as-input gives it labels of other vertices",
        ),
        ("random", {"model": "gcn", "degrees": "out-in"}, "the run has --degrees out-in"),
        ("random", {"model": "sage", "aggregator": "gcn"}, "has no aggregator gcn"),
        ("weighted", {"model": "sage"}, "sage of PyG reads no weights of edges"),
        ("weighted", {"model": "gin"}, "gin of PyG reads no weights of edges"),
        ("typed", {"model": "rgcn", "relation_norm": "all"}, "cannot divide by all in-edges"),
        ("typed", {"model": "rsage"}, "maps all vertices alike"),
    ],
)
def test_a_run_that_pyg_has_no_model_for_is_refused(kind, options, message, tmp_path):
    quick = {"epochs": 1, "threads": 1}
    run = dg.train(make_graph(kind), out=tmp_path / "run", **options, **quick)
    with pytest.raises(dg.InputError, match=message):
        run.to_pyg()


def test_a_run_without_features_is_refused(tmp_path):
    graph = make_graph("featureless")
    bare = dg.Graph(
        name="bare",
        num_vertices=graph.num_vertices,
        src=graph.src,
        dst=graph.dst,
        labels=graph.labels,
        train_mask=graph.train_mask,
        val_mask=graph.val_mask,
        test_mask=graph.test_mask,
        edge_type=graph.edge_type,
        relation_names=graph.relation_names,
    )
    run = dg.train(bare, out=tmp_path / "run", model="rgcn", epochs=1, threads=1)
    with pytest.raises(dg.InputError, match="learned a row for each vertex and relation"):
        run.to_pyg()
