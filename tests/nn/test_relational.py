"""R-GCN and R-SAGE against their formulas."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from graphs import cut, make_graph
from training import ends_of, first_step, make_config

from distgnn.comm.single import SingleGroup
from distgnn.comm.threads import run_ranks
from distgnn.datasets import InputError
from distgnn.edges.blocks import plan_blocks
from distgnn.exchange.base import Synchronous
from distgnn.graph.local_graph import LocalGraph
from distgnn.nn.config import ModelConfig
from distgnn.nn.models import GNN
from distgnn.nn.relational import GraphSize, LearnedRelationalConv, RGCNConv
from distgnn.partition.directory.whole import whole_part
from distgnn.training.loop.model import build_model


def local(graph):
    return LocalGraph.exact(whole_part(graph), SingleGroup())


def by_the_formula(graph, conv, rows):
    """One edge after the other."""
    weights = np.ones(graph.num_edges) if graph.edge_weight is None else graph.edge_weight
    types = graph.vertex_type if len(conv.own) > 1 else np.zeros(graph.num_vertices, np.int64)
    out = torch.stack(
        [row @ conv.own[t] + conv.bias[t] for row, t in zip(rows, types, strict=True)]
    )
    for src, dst, kind, weight in zip(graph.src, graph.dst, graph.edge_type, weights, strict=True):
        into = graph.dst == dst
        counts = {
            "relation": (into & (graph.edge_type == kind)).sum(),
            "all": into.sum(),
            "none": 1,
        }
        if conv.coefficients is None:
            matrix = conv.bases[kind]
        else:
            matrix = sum(a * b for a, b in zip(conv.coefficients[kind], conv.bases, strict=True))
        out[dst] += float(weight) / int(counts[conv.norm]) * (rows[src] @ matrix)
    return out


@pytest.mark.parametrize("norm", ["relation", "all", "none"])
@pytest.mark.parametrize(
    ("kind", "num_bases", "num_own_maps"), [("typed", 0, 2), ("typed", 2, 1), ("featureless", 4, 1)]
)
def test_a_layer_is_its_formula(kind, num_bases, num_own_maps, norm):
    graph = make_graph(kind)
    conv = RGCNConv(
        6, 4, num_relations=3, num_bases=num_bases, num_own_maps=num_own_maps, norm=norm
    )
    torch.nn.init.normal_(conv.bias)
    rows = torch.randn(40, 6, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = by_the_formula(graph, conv, rows)
        torch.testing.assert_close(conv(local(graph), rows), expected, rtol=1e-4, atol=1e-5)


def test_bases_share_the_weights_of_relations():
    conv = RGCNConv(6, 4, num_relations=9, num_bases=2)
    assert {name: tuple(p.shape) for name, p in conv.named_parameters()} == {
        "bases": (2, 6, 4),
        "coefficients": (9, 2),
        "own": (1, 6, 4),
        "bias": (1, 4),
    }
    assert conv.weight.shape == (9, 6, 4)


@pytest.mark.parametrize("norm", ["relation", "all", "none"])
@pytest.mark.parametrize("kind", ["featureless", "typed"])
def test_a_learned_layer_is_the_layer_of_a_graph_whose_features_tell_vertices_apart(kind, norm):
    graph = make_graph(kind)
    local_graph = local(graph)
    sources = local_graph.find_relation_sources()
    size = GraphSize(graph.num_vertices, 3, 0, len(sources.keys))
    learned = LearnedRelationalConv(4, size, norm=norm).double()
    conv = RGCNConv(graph.num_vertices, 4, num_relations=3, norm=norm).double()
    with torch.no_grad():
        vertex, relation = np.divmod(sources.keys, sources.num_relations)
        conv.bases[relation, vertex] = learned.rows
        conv.own[0] = learned.own
    rows = torch.eye(graph.num_vertices, dtype=torch.float64)
    found, expected = learned(local_graph, rows[:, :0]), conv(local_graph, rows)
    torch.testing.assert_close(found, expected)
    weights = torch.randn(found.shape, generator=torch.Generator().manual_seed(0)).double()
    for result in (found, expected):
        (result * weights).sum().backward()
    torch.testing.assert_close(learned.rows.grad, conv.bases.grad[relation, vertex])
    torch.testing.assert_close(learned.own.grad, conv.own.grad[0])


def test_learned_rows_of_another_graph_are_refused():
    local_graph = local(make_graph("featureless"))
    conv = LearnedRelationalConv(4, GraphSize(40, 3, 0, 7))
    with pytest.raises(
        InputError, match=r"learned rows for 7 vertices .* but the graph has 0; rest"
    ):
        conv(local_graph, torch.empty(40, 0))
    local_graph.find_relation_sources()
    with pytest.raises(
        InputError, match=r"^the model learned rows for 7 vertices as sources of a r"
    ):
        conv(local_graph, torch.empty(40, 0))


def test_learned_rows_of_as_many_other_sources_are_refused():
    graph = make_graph("featureless")
    first, turned = local(graph), local(replace(graph, edge_type=(graph.edge_type + 1) % 3))
    sources, others = first.find_relation_sources(), turned.find_relation_sources()
    assert len(sources.keys) == len(others.keys)
    size = GraphSize(40, 3, 0, len(sources.keys), sources.digest)
    state = LearnedRelationalConv(4, size).state_dict()
    conv = LearnedRelationalConv(4, GraphSize(40, 3)).eval()
    conv.load_state_dict(state)
    expected = conv(first, torch.empty(40, 0))
    with pytest.raises(InputError, match="and the graph has as many, but others; restore the gra"):
        conv(turned, torch.empty(40, 0))
    del state["digest"]
    conv.load_state_dict(state)
    assert torch.equal(conv(first, torch.empty(40, 0)), expected)
    assert conv(turned, torch.empty(40, 0)).shape == expected.shape


def test_learned_rows_start_as_those_of_a_map_of_all_vertices():
    conv = LearnedRelationalConv(6, GraphSize(594, 3, 0, 1000))
    for rows in (conv.rows, conv.own):
        assert float(rows.detach().abs().max()) == pytest.approx(0.1, rel=0.01)


@pytest.mark.parametrize("num_parts", [2, 5])
def test_relation_sources_are_numbered_alike_however_a_graph_is_cut(num_parts):
    graph = make_graph("featureless")
    whole = local(graph).find_relation_sources()
    parts = cut(graph, num_parts)

    def found(group):
        part = parts[group.rank]
        blocks = plan_blocks(part, group, has_types=True)
        return LocalGraph(part, blocks, Synchronous(group)).find_relation_sources()

    assert len(whole.keys) == len(set(zip(graph.src, graph.edge_type, strict=True)))
    for sources in run_ranks(num_parts, found):
        assert np.array_equal(sources.keys, whole.keys)
        assert sources.num_relations == whole.num_relations


def test_a_typed_model_draws_all_its_weights_from_the_seed():
    ends = ends_of(make_graph("featureless"))
    config = make_config(model="rsage", bases=2)
    first, again = build_model(config, ends).state_dict(), build_model(config, ends).state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)


def test_r_sage_has_an_own_map_for_each_type_of_vertex():
    ends = ends_of(make_graph("typed"))
    own = {
        name: build_model(make_config(model=name), ends).last.own.shape[0]
        for name in ("rgcn", "rsage")
    }
    assert own == {"rgcn": 1, "rsage": 2}


@pytest.mark.parametrize("model", ["rgcn", "rsage"])
def test_a_graph_without_types_is_refused(model):
    with pytest.raises(InputError, match=f"--model {model} is for typed graphs, .* no edge_type"):
        GNN(ModelConfig(model=model), 6, 3)


def test_other_models_need_features():
    graph = make_graph("featureless")
    with pytest.raises(InputError, match=r"no features, .* or use --model rgcn"):
        first_step(cut(graph, 1), graph, "gcn")
