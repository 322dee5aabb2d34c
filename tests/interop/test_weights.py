"""Weights to and from DGL and PyG: equal outputs and gradients, and messages."""

from __future__ import annotations

import os

import attention as reference
import numpy as np
import pytest
import torch
from graphs import cut, make_graph
from torch import nn

from distgnn.bench import peers
from distgnn.comm.single import SingleGroup
from distgnn.datasets import Graph, InputError
from distgnn.edges.blocks import plan_blocks
from distgnn.exchange.base import Synchronous
from distgnn.graph.local_graph import LocalGraph
from distgnn.interop import weights
from distgnn.nn.convolution import Dense
from distgnn.nn.gat import GATConv
from distgnn.nn.gatv2 import GATv2Conv
from distgnn.nn.gcn import GCNConv
from distgnn.nn.gin import GINConv, GINEConv
from distgnn.nn.propagation import APPNPConv, SGConv
from distgnn.nn.relational import RGCNConv
from distgnn.nn.sage import SAGEConv

IN, OUT, HEADS, OF_EDGES, RELATIONS, BASES = 6, 5, 3, 4, 3, 2
OURS = {
    "sage-mean": lambda library: SAGEConv(IN, OUT),
    "sage-gcn": lambda library: SAGEConv(IN, OUT, aggr="gcn"),
    "sage-max": lambda library: SAGEConv(IN, OUT, aggr="max"),
    "sage-pool": lambda library: SAGEConv(IN, OUT, aggr="pool"),
    "gcn": lambda library: GCNConv(IN, OUT, degrees="out-in" if library == "dgl" else "in"),
    "sgc": lambda library: SGConv(IN, OUT, K=3),
    "appnp": lambda library: APPNPConv(
        IN, OUT, K=4, alpha=0.2, degrees="out-in" if library == "dgl" else "in"
    ),
    "gat": lambda library: GATConv(IN, OUT, heads=HEADS),
    "gat-mean": lambda library: GATConv(IN, OUT, heads=HEADS, concat=False),
    "gatv2": lambda library: GATv2Conv(IN, OUT, heads=HEADS),
    "gatv2-mean": lambda library: GATv2Conv(IN, OUT, heads=HEADS, concat=False),
    "gat-edges": lambda library: GATConv(IN, OUT, heads=HEADS, edge_dim=OF_EDGES),
    "gatv2-edges": lambda library: GATv2Conv(IN, OUT, heads=HEADS, edge_dim=OF_EDGES),
    "gin-edges": lambda library: GINEConv(IN, OUT, edge_dim=OF_EDGES, eps=0.5, train_eps=True),
    "gin": lambda library: GINConv(IN, OUT, hidden_channels=7, eps=0.5),
    "gin-learned": lambda library: GINConv(IN, OUT, eps=0.5, train_eps=True),
    "rgcn": lambda library: RGCNConv(IN, OUT, num_relations=RELATIONS),
    "rgcn-bases": lambda library: RGCNConv(
        IN, OUT, num_relations=RELATIONS, num_bases=BASES, norm="none"
    ),
}


MISSING = {
    "dgl": ("sage-max", "gat-edges", "gatv2-edges", "gin-edges"),
    "pyg": ("sage-gcn",),
}


def edge_features(num_edges):
    return torch.randn(num_edges, OF_EDGES, generator=torch.Generator().manual_seed(4))


def edge_types(num_edges):
    return torch.arange(num_edges) % RELATIONS


def mlp(inner):
    return nn.Sequential(nn.Linear(IN, inner), nn.ReLU(), nn.Linear(inner, OUT))


def pygs(name):
    """PyG's layer, and a function of it, rows and edges."""
    import torch_geometric.nn as pyg

    options = {"heads": HEADS, "concat": not name.endswith("mean"), "add_self_loops": False}
    layers = {
        "sage-mean": lambda: pyg.SAGEConv(IN, OUT),
        "sage-max": lambda: pyg.SAGEConv(IN, OUT, aggr="max"),
        "sage-pool": lambda: pyg.SAGEConv(IN, OUT, aggr="max", project=True),
        "gcn": lambda: pyg.GCNConv(IN, OUT, add_self_loops=False),
        "sgc": lambda: pyg.SGConv(IN, OUT, K=3, add_self_loops=False),
        "appnp": lambda: nn.Linear(IN, OUT),
        "gat": lambda: pyg.GATConv(IN, OUT, **options),
        "gatv2": lambda: pyg.GATv2Conv(IN, OUT, **options),
        "gat-edges": lambda: pyg.GATConv(IN, OUT, edge_dim=OF_EDGES, **options),
        "gatv2-edges": lambda: pyg.GATv2Conv(IN, OUT, edge_dim=OF_EDGES, **options),
        "gin-edges": lambda: pyg.GINEConv(mlp(OUT), train_eps=True, edge_dim=OF_EDGES),
        "gin": lambda: pyg.GINConv(mlp(7), eps=0.5),
        "gin-learned": lambda: pyg.GINConv(mlp(OUT), train_eps=True),
        "rgcn": lambda: pyg.RGCNConv(IN, OUT, RELATIONS),
        "rgcn-bases": lambda: pyg.RGCNConv(IN, OUT, RELATIONS, num_bases=BASES, aggr="add"),
    }
    layer = (layers.get(name) or layers[name.split("-")[0]])()
    if name == "appnp":
        propagate = pyg.APPNP(4, 0.2, add_self_loops=False)
        return layer, lambda rows, edges: propagate(layer(rows), torch.stack(edges))
    if name.endswith("edges"):
        return layer, lambda rows, edges: layer(
            rows, torch.stack(edges), edge_features(len(edges[0]))
        )
    if name.startswith("rgcn"):
        return layer, lambda rows, edges: layer(rows, torch.stack(edges), edge_types(len(edges[0])))
    return layer, lambda rows, edges: layer(rows, torch.stack(edges))


def dgls(name):
    """DGL's layer, and a function of it, rows and edges."""
    import dgl
    import dgl.nn.pytorch as layers_of

    layers = {
        "sage-mean": lambda: layers_of.SAGEConv(IN, OUT, "mean"),
        "sage-gcn": lambda: layers_of.SAGEConv(IN, OUT, "gcn"),
        "sage-pool": lambda: layers_of.SAGEConv(IN, OUT, "pool"),
        "gcn": lambda: layers_of.GraphConv(IN, OUT),
        "sgc": lambda: layers_of.SGConv(IN, OUT, k=3),
        "appnp": lambda: nn.Linear(IN, OUT),
        "gat": lambda: layers_of.GATConv(IN, OUT, HEADS),
        "gatv2": lambda: layers_of.GATv2Conv(IN, OUT, HEADS),
        "gin": lambda: layers_of.GINConv(mlp(7), init_eps=0.5),
        "gin-learned": lambda: layers_of.GINConv(mlp(OUT), learn_eps=True),
        "rgcn": lambda: layers_of.RelGraphConv(IN, OUT, RELATIONS),
        "rgcn-bases": lambda: layers_of.RelGraphConv(IN, OUT, RELATIONS, "basis", BASES),
    }
    layer = (layers.get(name) or layers[name.split("-")[0]])()
    propagate = layers_of.APPNPConv(4, 0.2) if name == "appnp" else None

    def apply(rows, edges):
        graph = dgl.graph(edges, num_nodes=len(rows))
        if name.startswith("rgcn"):
            types = edge_types(len(edges[0]))
            mean = inverse_counts(edges[1], types) if name == "rgcn" else None
            return layer(graph, rows, types, mean)
        result = layer(rows) if propagate else layer(graph, rows)
        result = propagate(graph, result) if propagate else result
        if not name.startswith("gat"):
            return result
        return result.mean(dim=1) if name.endswith("mean") else result.flatten(1)

    return layer, apply


def inverse_counts(targets, types):
    """(num_edges, 1): 1 / the in-edges of the same type at the same vertex."""
    key = targets * RELATIONS + types
    return (1 / torch.bincount(key)[key])[:, None]


def looped_graph():
    """A directed multigraph in which every vertex has an edge to itself, some of them two."""
    graph = make_graph("loops")
    src, dst = (ends.numpy() for ends in reference.looped_edges(graph))
    assert len(np.unique(src * graph.num_vertices + dst)) < len(src)
    features = edge_features(len(src)).numpy()
    count = graph.num_vertices
    return Graph(
        name="looped",
        num_vertices=count,
        src=src,
        dst=dst,
        edge_features=features,
        edge_type=edge_types(len(src)).numpy(),
    )


def local_graph(graph, *, has_types):
    part, group = cut(graph, 1)[0], SingleGroup()
    if not has_types:
        return LocalGraph.exact(part, group)
    return LocalGraph(part, plan_blocks(part, group, has_types=True), Synchronous(group))


def check_same(ours, theirs, apply, edges, local, names):
    """Outputs, gradients of the input, and gradients of the weights by their names."""
    generator = torch.Generator().manual_seed(1)
    rows = torch.randn(local.num_rows, IN, generator=generator)
    results = []
    for function, module in ((lambda x: ours(local, x), ours), (lambda x: apply(x, edges), theirs)):
        own = rows.clone().requires_grad_()
        module.zero_grad()
        out = function(own)
        weight = torch.randn(out.shape, generator=torch.Generator().manual_seed(2))
        (out * weight).sum().backward()
        results.append((out.detach(), own.grad))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
    parameters = dict(theirs.named_parameters())
    compared = 0
    for name, parameter in ours.named_parameters():
        if name in names and names[name] in parameters:
            grad = parameters[names[name]].grad
            if grad.shape != parameter.shape:
                is_transposed = grad.shape == parameter.shape[::-1]
                grad = grad.t() if is_transposed else grad.view_as(parameter)
            torch.testing.assert_close(parameter.grad, grad, rtol=1e-4, atol=1e-4)
            compared += 1
    assert compared > 0


CASES = [
    (name, library) for name in OURS for library, missing in MISSING.items() if name not in missing
]


@pytest.mark.filterwarnings("ignore:.torch.jit")
@pytest.mark.parametrize(("name", "library"), CASES)
def test_outputs_and_gradients_are_those_of_the_layer_of_the_same_name(name, library, monkeypatch):
    if library not in peers.installed():
        pytest.skip(f"needs {library}")
    monkeypatch.setitem(os.environ, "DGLBACKEND", "pytorch")
    to, back = {
        "dgl": (weights.to_dgl, weights.from_dgl),
        "pyg": (weights.to_pyg, weights.from_pyg),
    }[library]
    graph = looped_graph()
    edges = torch.from_numpy(graph.src), torch.from_numpy(graph.dst)
    local = local_graph(graph, has_types=name.startswith("rgcn"))
    ours = OURS[name](library)
    for parameter in ours.parameters():
        nn.init.normal_(parameter, std=0.5)
    theirs, apply = (dgls if library == "dgl" else pygs)(name)
    theirs.load_state_dict(to(ours))
    entries = weights._entries(ours, library)
    names = {e.ours: e.theirs for e in entries if e.form != "per head"}
    check_same(ours, theirs, apply, edges, local, names)
    # The other way: other weights of theirs into a fresh layer of ours.
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.5)
    fresh = OURS[name](library)
    back(fresh, theirs.state_dict())
    check_same(fresh, theirs, apply, edges, local, names)


@pytest.mark.parametrize(("name", "library"), CASES)
def test_there_and_back_are_the_same_weights(name, library):
    to, back = {
        "dgl": (weights.to_dgl, weights.from_dgl),
        "pyg": (weights.to_pyg, weights.from_pyg),
    }[library]
    ours, fresh = OURS[name](library), OURS[name](library)
    for parameter in ours.parameters():
        nn.init.normal_(parameter)
    back(fresh, to(ours))
    for key, value in to(fresh).items():
        torch.testing.assert_close(value, to(ours)[key])


def test_what_the_other_library_lacks_is_said():
    with pytest.raises(InputError, match="SAGEConv of DGL has no aggregator max; use another"):
        weights.to_dgl(SAGEConv(2, 2, aggr="max"))
    with pytest.raises(InputError, match="SAGEConv of PyG has no aggregator gcn; use another"):
        weights.to_pyg(SAGEConv(2, 2, aggr="gcn"))
    with pytest.raises(InputError, match="EdgeGATConv of DGL adds features of edges to what they"):
        weights.to_dgl(OURS["gat-edges"]("dgl"))
    with pytest.raises(InputError, match="GATv2Conv of DGL reads no features of edges, so"):
        weights.to_dgl(OURS["gatv2-edges"]("dgl"))
    with pytest.raises(InputError, match="GINEConv of DGL does not map features of edges, so"):
        weights.to_dgl(OURS["gin-edges"]("dgl"))
    with pytest.raises(InputError, match="RGCNConv of PyG maps all vertices alike, but this layer"):
        weights.to_pyg(RGCNConv(2, 2, num_relations=1, num_own_maps=3))
    with pytest.raises(InputError, match="RGCNConv of PyG cannot divide by all in-edges; use norm"):
        weights.to_pyg(RGCNConv(2, 2, num_relations=1, norm="all"))
    with pytest.raises(InputError, match="PyG has no layer for the weights of Dense"):
        weights.to_pyg(Dense(2, 2))


def test_other_names_and_shapes_are_refused():
    layer = GCNConv(2, 3)
    with pytest.raises(
        InputError, match=r"must be named bias, lin.weight, got bias, weight; build"
    ):
        weights.from_pyg(layer, weights.to_dgl(layer))
    state = weights.to_pyg(GCNConv(2, 4))
    with pytest.raises(
        InputError, match=r"lin.weight of PyG must have the shape \(3, 2\), got \(4"
    ):
        weights.from_pyg(layer, state)
