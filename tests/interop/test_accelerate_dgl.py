from __future__ import annotations

import copy
import gc
import os
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from distgnn.datasets.errors import InputError
from distgnn.interop.accelerate import accelerate

os.environ.setdefault("DGLBACKEND", "pytorch")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    dgl = pytest.importorskip("dgl")
    from dgl import nn as theirs

    from distgnn.interop.accelerate import dgl as ours

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
IN, OUT = 6, 4
MODELS = ("gcn", "sage", "gat", "gatv2", "gin", "sgc", "appnp")


@pytest.fixture(scope="module")
def example(load_script):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return load_script("examples/accelerate_dgl.py")


def multigraph(num_vertices=30, num_edges=150, *, loops=True):
    """Parallel edges, several loops at one vertex, and no edges at the last ones but loops."""
    generator = torch.Generator().manual_seed(0)
    src, dst = torch.randint(0, num_vertices - 4, (2, num_edges), generator=generator)
    graph = dgl.graph((torch.cat([src, src[:20]]), torch.cat([dst, dst[:20]])))
    graph.add_nodes(num_vertices - graph.num_nodes())
    return dgl.add_self_loop(graph) if loops else graph


def rows(num_vertices=30):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(num_vertices, IN, generator=generator)


def values(layer, graph, x):
    layer.zero_grad()
    x = x.detach().clone().requires_grad_()
    out = layer(graph, x)
    weights = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)
    (out * weights).sum().backward()
    return [out.detach(), x.grad, *(weight.grad for weight in layer.parameters())]


def assert_equal(found, expected):
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            scale = max(1.0, float(other.detach().abs().max())) if other.numel() else 1.0
            torch.testing.assert_close(one, other, rtol=0, atol=1e-5 * scale)


def mlp(hidden=OUT):
    return nn.Sequential(nn.Linear(IN, hidden), nn.ReLU(), nn.Linear(hidden, OUT))


LAYERS = {
    "gcn": lambda: theirs.GraphConv(IN, OUT, allow_zero_in_degree=True),
    "gcn wide": lambda: theirs.GraphConv(IN, 9, activation=torch.tanh, allow_zero_in_degree=True),
    "gcn right": lambda: theirs.GraphConv(IN, OUT, norm="right", allow_zero_in_degree=True),
    "gcn left": lambda: theirs.GraphConv(IN, OUT, norm="left", allow_zero_in_degree=True),
    "gcn none": lambda: theirs.GraphConv(
        IN, OUT, norm="none", bias=False, allow_zero_in_degree=True
    ),
    "sage": lambda: theirs.SAGEConv(IN, OUT, "mean"),
    "sage wide": lambda: theirs.SAGEConv(IN, 9, "mean", activation=torch.tanh, norm=nn.Tanh()),
    "sage gcn": lambda: theirs.SAGEConv(IN, OUT, "gcn"),
    "gat": lambda: theirs.GATConv(IN, 3, 2, allow_zero_in_degree=True),
    "gat bare": lambda: theirs.GATConv(IN, 3, 2, bias=False, allow_zero_in_degree=True),
    "gat residual": lambda: theirs.GATConv(
        IN, 3, 2, residual=True, activation=torch.tanh, allow_zero_in_degree=True
    ),
    "gatv2": lambda: theirs.GATv2Conv(IN, 3, 2, allow_zero_in_degree=True),
    "gatv2 shared": lambda: theirs.GATv2Conv(
        IN, 2, 2, share_weights=True, residual=True, allow_zero_in_degree=True
    ),
    "gin": lambda: theirs.GINConv(mlp()),
    "gin mean": lambda: theirs.GINConv(mlp(9), "mean", learn_eps=True, init_eps=0.2),
    "gin bare": lambda: theirs.GINConv(None, activation=torch.tanh),
    "sgc": lambda: theirs.SGConv(IN, OUT, k=3, allow_zero_in_degree=True),
    "sgc norm": lambda: theirs.SGConv(IN, OUT, k=2, norm=nn.Tanh(), allow_zero_in_degree=True),
    "appnp": lambda: theirs.APPNPConv(5, 0.2),
}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("loops", [True, False])
def test_a_layer_gives_what_dgls_gives(name, loops):
    torch.manual_seed(0)
    layer = LAYERS[name]()
    accelerated = accelerate(copy.deepcopy(layer), strict=True)
    graph = multigraph(loops=loops)
    expected = values(layer, graph, rows())
    for _ in range(3):
        assert_equal(values(accelerated, graph, rows()), expected)


@pytest.mark.parametrize("name", LAYERS)
def test_rows_that_come_again_give_the_same(name):
    torch.manual_seed(0)
    layer = LAYERS[name]()
    accelerated = accelerate(copy.deepcopy(layer), strict=True)
    graph, x = multigraph(), rows()
    for _ in range(4):
        assert_equal([accelerated(graph, x)], [layer(graph, x)])


@settings(max_examples=40)
@given(data=st.data())
def test_any_graph_gives_what_dgls_gives(data):
    num_vertices = data.draw(st.integers(1, 8))
    vertex = st.integers(0, num_vertices - 1)
    pairs = data.draw(st.lists(st.tuples(vertex, vertex), min_size=1, max_size=30))
    name = data.draw(st.sampled_from(sorted(LAYERS)))
    torch.manual_seed(data.draw(st.integers(0, 9)))
    layer = LAYERS[name]()
    graph = dgl.graph(pairs, num_nodes=num_vertices)
    x = rows(num_vertices)
    expected = values(layer, graph, x)
    assert_equal(values(accelerate(copy.deepcopy(layer)), graph, x), expected)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_the_example_gives_what_dgls_gives(example, name):
    torch.manual_seed(0)
    model = example.MODELS[name](IN, OUT).eval()
    names = list(model.state_dict())
    accelerated = accelerate(copy.deepcopy(model), strict=True)
    assert list(accelerated.state_dict()) == names
    graph = multigraph()
    expected = values(model, graph, rows())
    for _ in range(3):
        assert_equal(values(accelerated, graph, rows()), expected)


@pytest.fixture
def plain_calls(monkeypatch):
    """Names of layers whose own forward of DGL ran."""
    calls = []
    for base in (one.__bases__[0] for one in ours.ACCELERATED):

        def watching(self, *given_, method=base.forward, **named):
            calls.append(type(self).__name__)
            return method(self, *given_, **named)

        monkeypatch.setattr(base, "forward", watching)
    return calls


@pytest.mark.parametrize("name", LAYERS)
def test_our_kernels_answer(name, plain_calls):
    accelerate(LAYERS[name]())(multigraph(), rows())
    assert plain_calls == []


def test_vertices_without_in_edges_are_dgls_error():
    layer = accelerate(theirs.GATConv(IN, 3, 2))
    with pytest.raises(dgl.DGLError, match="0-in-degree nodes"):
        layer(multigraph(loops=False), rows())


def test_other_calls_go_to_dgl(plain_calls):
    graph, x = multigraph(), rows()
    weight = torch.rand(graph.num_edges())
    layer = theirs.GraphConv(IN, OUT)
    expected = layer(graph, x, edge_weight=weight)
    assert_equal([accelerate(copy.deepcopy(layer))(graph, x, edge_weight=weight)], [expected])
    pool = accelerate(theirs.SAGEConv(IN, OUT, "pool"))
    assert type(pool) is theirs.SAGEConv
    assert plain_calls == ["GraphConv", "GraphConv"]


@pytest.mark.parametrize(
    ("make", "name"),
    [(lambda: theirs.SAGEConv(IN, OUT, "mean"), "fc_neigh"), (LAYERS["gat"], "fc")],
)
def test_a_map_with_a_bias_that_dgls_lacks_is_left_to_dgl(make, name):
    layer = make()
    setattr(layer, name, nn.Linear(IN, OUT if name == "fc_neigh" else 6))
    graph = multigraph()
    accelerated = accelerate(copy.deepcopy(layer))
    assert_equal(values(accelerated, graph, rows()), values(layer, graph, rows()))
    with pytest.raises(InputError, match=f"{name} has a bias"):
        accelerate(layer, strict=True)


@pytest.mark.parametrize("kind", ["GATConv", "GATv2Conv"])
def test_all_weights_of_attention_may_be_dropped(kind, plain_calls):
    layer = accelerate(getattr(theirs, kind)(IN, 3, 2, attn_drop=1.0), strict=True).train()
    assert torch.equal(layer(multigraph(), rows()), torch.zeros(30, 2, 3))
    assert plain_calls == [kind]
    layer.eval()(multigraph(), rows())
    assert plain_calls == [kind]


def test_a_change_of_the_graph_is_noticed():
    layer = theirs.SAGEConv(IN, OUT, "mean")
    accelerated = accelerate(copy.deepcopy(layer))
    graph, x = multigraph(), rows()
    for _ in range(3):
        accelerated(graph, x)
    graph.add_edges([0, 1, 2], [5, 5, 5])
    assert_equal([accelerated(graph, x)], [layer(graph, x)])


def test_graphs_are_freed_with_dgls():
    gc.collect()
    before = ours.num_kept()
    graph = multigraph()
    accelerate(theirs.APPNPConv(2, 0.1))(graph, rows())
    assert ours.num_kept() == before + 1
    del graph
    gc.collect()
    assert ours.num_kept() == before
