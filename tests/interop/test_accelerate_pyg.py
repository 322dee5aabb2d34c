from __future__ import annotations

import copy
import gc
import logging
import pickle
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from distgnn.datasets.errors import InputError
from distgnn.interop.accelerate import accelerate, graphs

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pyg = pytest.importorskip("torch_geometric.nn")
    from distgnn.interop.accelerate import pyg as ours

IN, OUT = 6, 4
MODELS = (
    *("gcn", "sage", "gat", "gatv2", "gin"),
    *("sgc", "appnp", "jk", "sequential", "residual"),
)


@pytest.fixture(scope="module")
def example(load_script):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return load_script("examples/accelerate_pyg.py")


def multigraph(num_vertices=30, num_edges=150, seed=0):
    """Parallel edges, several loops at one vertex, and isolated vertices at the end."""
    generator = torch.Generator().manual_seed(seed)
    edges = torch.randint(0, num_vertices - 4, (2, num_edges), generator=generator)
    return torch.cat([edges, edges[:, :20], torch.tensor([[3, 3, 4], [3, 3, 4]])], dim=1)


def rows(num_vertices=30, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(num_vertices, IN, generator=generator, dtype=torch.float64)


def values(layer, x, *given, **named):
    """Outputs, and gradients of the input and all parameters."""
    layer.zero_grad()
    x = x.detach().clone().requires_grad_()
    out = layer(x, *given, **named)
    weights = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)
    (out * weights).sum().backward()
    return [out.detach(), x.grad, *(weight.grad for weight in layer.parameters())]


def assert_equal(found, expected, tolerance=1e-6):
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            scale = max(1.0, float(other.detach().abs().max())) if other.numel() else 1.0
            torch.testing.assert_close(one, other, rtol=0, atol=tolerance * scale)


def both(layer):
    """A layer in double precision, and its accelerated copy."""
    layer = layer.double()
    return layer, accelerate(copy.deepcopy(layer), strict=True)


def mlp(out, *, hidden=OUT):
    return nn.Sequential(nn.Linear(IN, hidden), nn.ReLU(), nn.Linear(hidden, out))


LAYERS = {
    "gcn": lambda: pyg.GCNConv(IN, OUT),
    "gcn wide": lambda: pyg.GCNConv(IN, 9, bias=False),
    "gcn improved": lambda: pyg.GCNConv(IN, OUT, improved=True),
    "gcn cached": lambda: pyg.GCNConv(IN, OUT, cached=True),
    "gcn without loops": lambda: pyg.GCNConv(IN, OUT, add_self_loops=False),
    "gcn without norm": lambda: pyg.GCNConv(IN, OUT, normalize=False),
    "sage": lambda: pyg.SAGEConv(IN, OUT),
    "sage wide": lambda: pyg.SAGEConv(IN, 9),
    "sage sum": lambda: pyg.SAGEConv(IN, OUT, aggr="sum", root_weight=False, bias=False),
    "sage project": lambda: pyg.SAGEConv(IN, OUT, project=True, normalize=True),
    "gat": lambda: pyg.GATConv(IN, 3, heads=2),
    "gat mean": lambda: pyg.GATConv(IN, 3, heads=2, concat=False, bias=False, residual=True),
    "gat without loops": lambda: pyg.GATConv(IN, 3, add_self_loops=False, negative_slope=0.1),
    "gat bare": lambda: pyg.GATConv(IN, 3, heads=2, bias=False),
    "gatv2": lambda: pyg.GATv2Conv(IN, 3, heads=2),
    "gatv2 shared": lambda: pyg.GATv2Conv(IN, 3, heads=2, share_weights=True, concat=False),
    "gin": lambda: pyg.GINConv(mlp(OUT), eps=0.3),
    "gin wide": lambda: pyg.GINConv(mlp(OUT, hidden=9)),
    "gin learned": lambda: pyg.GINConv(mlp(OUT), train_eps=True),
    "gin learned wide": lambda: pyg.GINConv(mlp(OUT, hidden=9), train_eps=True),
    "gin of a function": lambda: pyg.GINConv(torch.tanh),
    "sgc": lambda: pyg.SGConv(IN, OUT, K=3),
    "sgc wide": lambda: pyg.SGConv(IN, 9, K=2, bias=False),
    "appnp": lambda: pyg.APPNP(K=5, alpha=0.2),
    "appnp cached": lambda: pyg.APPNP(K=2, alpha=0.2, cached=True),
    "appnp without norm": lambda: pyg.APPNP(K=2, alpha=0.2, normalize=False, add_self_loops=False),
}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("num_edges", [0, 150])
def test_a_layer_gives_what_pygs_gives(name, num_edges):
    torch.manual_seed(0)
    layer, accelerated = both(LAYERS[name]())
    edges = multigraph(num_edges=num_edges) if num_edges else torch.zeros(2, 0, dtype=torch.int64)
    expected = values(layer, rows(), edges)
    for _ in range(3):
        assert_equal(values(accelerated, rows(), edges), expected)


@pytest.mark.parametrize("name", LAYERS)
def test_rows_that_come_again_give_the_same(name):
    torch.manual_seed(0)
    layer, accelerated = both(LAYERS[name]())
    edges, x = multigraph(), rows()
    expected = layer(x, edges)
    for _ in range(4):
        found = accelerated(x, edges)
        assert_equal([found], [expected])
        weights = list(layer.parameters())
        if weights and found.requires_grad:
            other = torch.autograd.grad(layer(x, edges).square().sum(), weights)
            own = torch.autograd.grad(found.square().sum(), list(accelerated.parameters()))
            assert_equal(own, other)


@pytest.mark.parametrize("name", ["gcn", "gcn cached", "gcn without norm", "sgc", "appnp"])
def test_weights_of_edges_count(name):
    torch.manual_seed(0)
    layer, accelerated = both(LAYERS[name]())
    edges = multigraph()
    weight = torch.rand(edges.shape[1], dtype=torch.float64)
    assert_equal(values(accelerated, rows(), edges, weight), values(layer, rows(), edges, weight))
    if "cached" not in name:
        weight[5] = 3.0
        assert_equal(
            values(accelerated, rows(), edges, weight), values(layer, rows(), edges, weight)
        )


@pytest.mark.parametrize("name", ["gcn", "gcn cached", "gcn without norm", "sgc", "appnp"])
def test_our_kernels_take_weights_of_single_precision(name, plain_calls):
    torch.manual_seed(0)
    layer = LAYERS[name]()
    accelerated = accelerate(copy.deepcopy(layer), strict=True)
    edges, x = multigraph(), rows().float()
    weight = torch.rand(edges.shape[1])
    found = values(accelerated, x, edges, weight)
    assert plain_calls() == []
    assert_equal(found, values(layer, x, edges, weight), tolerance=1e-5)


@pytest.mark.parametrize("name", ["gcn", "gcn improved", "gcn cached", "sgc", "appnp cached"])
@pytest.mark.parametrize("is_weighted", [True, False])
def test_rows_of_double_precision_have_weights_of_double_precision(name, is_weighted):
    torch.manual_seed(0)
    layer, accelerated = both(LAYERS[name]())
    edges = multigraph()
    weight = torch.rand(edges.shape[1], dtype=torch.float64) if is_weighted else None
    expected = values(layer, rows(), edges, weight)
    for _ in range(2):
        assert_equal(values(accelerated, rows(), edges, weight), expected, tolerance=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_the_example_gives_what_pygs_gives(example, name):
    torch.manual_seed(0)
    model = example.MODELS[name](IN, OUT).eval()
    accelerated = accelerate(copy.deepcopy(model), strict=True)
    x = rows().float()
    expected = values(copy.deepcopy(model).double(), rows(), multigraph())
    edges = multigraph()
    for _ in range(3):
        found = [one.double() for one in values(accelerated, x, edges)]
        assert_equal(found, expected, tolerance=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_the_example_trains_as_pygs_does(example, name):
    torch.manual_seed(0)
    model = example.MODELS[name](IN, OUT).double()
    for module in model.modules():
        for attribute in ("p", "dropout"):
            if isinstance(getattr(module, attribute, None), float):
                setattr(module, attribute, 0.0)
    accelerated = copy.deepcopy(model)
    runs = []
    for one in (model, accelerated):
        optimizer = torch.optim.Adam(one.parameters(), lr=0.01)
        if one is accelerated:
            accelerate(one)
        x, edges, losses = rows(), multigraph(), []
        for _ in range(6):
            torch.manual_seed(1)
            optimizer.zero_grad()
            # The functions' dropout is the same mask: it is drawn before anything of ours.
            loss = one(x, edges).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        runs.append(losses)
    assert runs[1] == pytest.approx(runs[0], rel=1e-6)
    assert runs[0][-1] < runs[0][0]


@settings(max_examples=60)
@given(data=st.data())
def test_any_graph_gives_what_pygs_gives(data):
    num_vertices = data.draw(st.integers(1, 8))
    vertex = st.integers(0, num_vertices - 1)
    pairs = data.draw(st.lists(st.tuples(vertex, vertex), max_size=30))
    name = data.draw(st.sampled_from(sorted(LAYERS)))
    torch.manual_seed(data.draw(st.integers(0, 9)))
    layer, accelerated = both(LAYERS[name]())
    edges = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).t()
    x = rows(num_vertices)
    assert_equal(values(accelerated, x, edges), values(layer, x, edges))


def test_parameters_are_the_very_same(example):
    model = example.MODELS["sage"](IN, OUT)
    weights, names = list(model.parameters()), list(model.state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    assert accelerate(model) is model
    assert list(model.state_dict()) == names
    assert all(one is other for one, other in zip(model.parameters(), weights, strict=True))
    model(rows().float(), multigraph()).sum().backward()
    before = model.convs[0].lin_l.weight.detach().clone()
    optimizer.step()
    assert not torch.equal(model.convs[0].lin_l.weight, before)
    other = example.MODELS["sage"](IN, OUT)
    other.load_state_dict(model.state_dict())
    model.load_state_dict(other.state_dict())


def test_accelerating_twice_is_once_and_undoing_is_nothing(example):
    model = example.MODELS["gcn"](IN, OUT)
    accelerate(accelerate(model))
    assert type(model.conv1) is ours.GCNConv
    assert isinstance(model.conv1, pyg.GCNConv)
    assert repr(model.conv1) == "GCNConv(6, 16)"
    accelerate(model, undo=True)
    assert type(model.conv1) is pyg.GCNConv


def test_copies_pickles_and_other_types_stay_accelerated():
    layer = accelerate(pyg.GCNConv(IN, OUT))
    edges, x = multigraph(), rows()
    expected = layer(x.float(), edges).detach()
    for copied in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert type(copied) is ours.GCNConv
        torch.testing.assert_close(copied(x.float(), edges), expected)
        # PyG's own forward is still there.
        torch.testing.assert_close(copied(x.float(), edges.int()), expected)
    assert layer.double()(x, edges).dtype == torch.float64
    assert layer.bfloat16()(x.bfloat16(), edges).dtype == torch.bfloat16


def test_hooks_of_layers_run():
    layer, seen = accelerate(pyg.SAGEConv(IN, OUT)), []
    layer.register_forward_hook(lambda *_: seen.append("forward"))
    layer.register_full_backward_hook(lambda *_: seen.append("backward"))
    layer(rows().float().requires_grad_(), multigraph()).sum().backward()
    assert seen == ["forward", "backward"]


def watched(method):
    """Count the calls of a method of PyG's base class, which ours does not make."""
    calls = []

    def watching(self, *given, **named):
        calls.append(type(self).__name__)
        return method(self, *given, **named)

    return watching, calls


@pytest.fixture
def plain_calls(monkeypatch):
    """Classes of layers whose own forward of PyG ran."""
    calls = []
    for theirs in (one.__bases__[0] for one in ours.ACCELERATED):
        watching, found = watched(theirs.forward)
        monkeypatch.setattr(theirs, "forward", watching)
        calls.append(found)
    return lambda: [name for found in calls for name in found]


@pytest.mark.parametrize("name", LAYERS)
def test_our_kernels_answer(name, plain_calls):
    layer = accelerate(LAYERS[name]())
    for _ in range(2):
        layer(rows().float(), multigraph())
    assert plain_calls() == (["SGConv"] if "cached" in name and "sgc" in name else [])


def bipartite(layer):
    return layer, ((rows(), rows(10)), multigraph(10)), {}


OTHER_CALLS = {
    "bipartite": lambda: bipartite(pyg.SAGEConv((IN, IN), OUT)),
    "bipartite gat": lambda: bipartite(pyg.GATConv(IN, 3, add_self_loops=False)),
    "edge_attr": lambda: (pyg.GATConv(IN, 3), (rows(), multigraph(), torch.ones(173, 1)), {}),
    "int32": lambda: (pyg.GINConv(torch.tanh), (rows(), multigraph().int()), {}),
    "sparse": lambda: (pyg.SAGEConv(IN, OUT), (rows(), sparse()), {}),
    "size": lambda: (pyg.SAGEConv(IN, OUT), (rows(), multigraph()), {"size": (30, 30)}),
    "batched rows": lambda: (pyg.GCNConv(IN, OUT), (rows()[None], multigraph()), {}),
    "learned weights": lambda: (
        pyg.GCNConv(IN, OUT),
        (rows(), multigraph(), torch.ones(173, dtype=torch.float64, requires_grad=True)),
        {},
    ),
}


def sparse():
    ends = multigraph().flip(0)
    ones = torch.ones(ends.shape[1], dtype=torch.float64)
    return torch.sparse_coo_tensor(ends, ones, (30, 30)).coalesce()


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", OTHER_CALLS)
def test_other_calls_give_what_pyg_gives(name):
    torch.manual_seed(0)
    layer, given_, named = OTHER_CALLS[name]()
    layer = layer.double()
    expected = layer(*given_, **named)
    found = accelerate(copy.deepcopy(layer))(*given_, **named)
    assert_equal([found], [expected])


def test_weights_of_attention_are_returned_as_before():
    layer = pyg.GATConv(IN, 3)
    given_ = rows().float(), multigraph()
    expected = layer(*given_, return_attention_weights=True)
    found = accelerate(copy.deepcopy(layer))(*given_, return_attention_weights=True)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("kind", ["GCNConv", "SAGEConv", "GATConv", "GATv2Conv", "SGConv"])
def test_a_layer_that_waits_for_its_input_is_accelerated(kind, plain_calls):
    layer = accelerate(getattr(pyg, kind)(-1, OUT), strict=True)
    first = layer(rows().float(), multigraph())
    assert plain_calls() == [kind]
    torch.testing.assert_close(layer(rows().float(), multigraph()), first)
    assert plain_calls() == [kind]


def test_an_edge_that_ends_nowhere_is_pygs_error():
    layer = accelerate(pyg.SAGEConv(IN, OUT))
    with pytest.raises(IndexError, match="larger than 29"):
        layer(rows().float(), torch.tensor([[30], [0]]))
    with pytest.raises(ValueError, match="dim_size"):
        layer(rows().float(), torch.tensor([[0], [30]]))


def test_a_watched_or_replaced_map_is_left_to_pyg(plain_calls):
    layer, seen = accelerate(pyg.GCNConv(IN, OUT)), []
    layer.lin.register_forward_hook(lambda *_: seen.append(True))
    layer(rows().float(), multigraph())
    assert (seen, plain_calls()) == ([True], ["GCNConv"])


@pytest.mark.parametrize(
    ("kind", "name"), [("GCNConv", "lin"), ("GATConv", "lin"), ("SAGEConv", "lin_r")]
)
def test_a_map_with_a_bias_that_pygs_lacks_is_left_to_pyg(kind, name):
    layer = getattr(pyg, kind)(IN, OUT)
    setattr(layer, name, nn.Linear(IN, OUT))
    layer, accelerated = layer.double(), accelerate(copy.deepcopy(layer).double())
    assert_equal(values(accelerated, rows(), multigraph()), values(layer, rows(), multigraph()))
    with pytest.raises(InputError, match=f"{name} has a bias"):
        accelerate(layer, strict=True)
    replaced = accelerate(getattr(pyg, kind)(IN, OUT)).double()
    setattr(replaced, name, getattr(layer, name))
    assert replaced.reason() == f"{name} has a bias"


@pytest.mark.parametrize(
    ("kind", "name"), [("SAGEConv", "lin_l"), ("GATv2Conv", "lin_r"), ("SGConv", "lin")]
)
def test_a_map_put_in_place_of_one_with_a_bias_counts(kind, name):
    layer = getattr(pyg, kind)(IN, OUT)
    setattr(layer, name, nn.Linear(IN, OUT))
    layer, accelerated = both(layer)
    assert_equal(values(accelerated, rows(), multigraph()), values(layer, rows(), multigraph()))


def test_transforms_of_functions_are_left_to_pyg(plain_calls):
    layer = accelerate(pyg.GINConv(torch.tanh))
    edges = multigraph()
    found = torch.func.jacrev(lambda x: layer(x, edges).sum())(rows().float())
    assert found.shape == (30, IN)
    assert plain_calls() == ["GINConv"]


def test_results_may_be_written_to_in_place():
    # Wide enough that rows lie in memory that is used again. Sums of so many round differently.
    x, edges = torch.randn(3000, IN), multigraph(3000)
    for make in (
        lambda: pyg.GCNConv(IN, 64),
        lambda: pyg.GATConv(IN, 64, bias=False),
        lambda: pyg.APPNP(2, 0.1),
        lambda: pyg.GINConv(nn.Identity()),
    ):
        layer = make()
        expected = values(Relu(layer), x, edges)
        assert_equal(values(Relu(accelerate(layer)), x, edges), expected, tolerance=5e-5)


class Relu(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x, edges):
        return self.layer(x, edges).relu_()


def test_a_change_of_the_edges_is_noticed():
    layer, accelerated = both(pyg.SAGEConv(IN, OUT))
    edges, x = multigraph(), rows()
    for _ in range(3):
        accelerated(x, edges)
    edges[0, :40] = 1
    assert_equal([accelerated(x, edges)], [layer(x, edges)])


def test_a_change_of_the_input_is_noticed():
    layer, accelerated = both(pyg.SAGEConv(IN, OUT))
    edges, x = multigraph(), rows()
    for _ in range(3):
        accelerated(x, edges)
    x[3] = 7.0
    assert_equal([accelerated(x, edges)], [layer(x, edges)])
    x.data *= 2
    assert_equal([accelerated(x, edges)], [layer(x, edges)])


@pytest.mark.parametrize("layer", [pyg.SAGEConv(IN, OUT), pyg.GCNConv(IN, OUT)])
def test_evaluations_in_inference_mode_leave_nothing_that_cannot_be_trained(layer):
    layer, accelerated = both(layer)
    edges, x = multigraph(), rows()
    with torch.inference_mode():
        for _ in range(3):
            accelerated(x, edges)
    grads = []
    for each in (layer, accelerated):
        each.zero_grad()
        each(x, edges).square().sum().backward()
        grads.append([parameter.grad.clone() for parameter in each.parameters()])
    assert_equal(*grads)


def test_graphs_are_freed_with_their_edges():
    gc.collect()
    before = graphs.num_kept()
    layer = accelerate(pyg.GATConv(IN, OUT))
    edges = multigraph()
    layer(rows().float(), edges)
    assert graphs.num_kept() == before + 1
    del edges
    gc.collect()
    assert graphs.num_kept() == before


def test_dropped_weights_of_attention_are_drawn_by_torchs_generator():
    layer = accelerate(pyg.GATConv(IN, 40, dropout=0.5, bias=False)).train()
    edges, x = multigraph(), rows().float()
    results = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        results.append(layer(x, edges))
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])
    whole = layer.eval()(x, edges)
    draws = torch.stack([layer.train()(x, edges) for _ in range(2000)]).mean(0)
    torch.testing.assert_close(draws, whole, rtol=0.2, atol=0.12)


@pytest.mark.parametrize("kind", ["GATConv", "GATv2Conv"])
def test_all_weights_of_attention_may_be_dropped(kind, plain_calls):
    layer = accelerate(getattr(pyg, kind)(IN, OUT, dropout=1.0, bias=False), strict=True).train()
    found = layer(rows().float(), multigraph())
    assert plain_calls() == [kind]
    assert torch.equal(found, torch.zeros(30, OUT))
    layer.eval()(rows().float(), multigraph())
    assert plain_calls() == [kind]


def test_another_thread_never_meets_half_the_numbers_of_edges(monkeypatch):
    graph = graphs.graph_of(multigraph(), 30, "one", has_positions=True)
    arange, found = torch.arange, []

    def between(*given_):
        monkeypatch.setattr(torch, "arange", arange)
        with ThreadPoolExecutor(1) as pool:
            found.append(pool.submit(graph._edge_dropout, 0.5).result().mask("root_from_root"))
        return arange(*given_)

    monkeypatch.setattr(torch, "arange", between)
    found.append(graph._edge_dropout(0.5).mask("root_from_root"))
    assert len(found) == 2


def test_parallel_edges_are_dropped_each_for_itself():
    layer = accelerate(pyg.GATConv(1, 1, dropout=0.5, bias=False, add_self_loops=False)).train()
    with torch.no_grad():
        layer.lin.weight.fill_(1)
    edges = torch.zeros(2, 2, dtype=torch.int64)
    found = {round(float(layer(torch.ones(1, 1), edges).detach()), 3) for _ in range(60)}
    assert found == {0.0, 1.0, 2.0}


def test_what_stays_as_it_is_is_named(caplog):
    model = nn.ModuleDict(
        {
            "known": pyg.GCNConv(IN, OUT),
            "median": pyg.SAGEConv(IN, OUT, aggr="median"),
            "other": pyg.TransformerConv(IN, OUT),
        }
    )
    with caplog.at_level(logging.INFO, logger="distgnn"):
        accelerate(model)
    expected = "as they were stay: median (SAGEConv, aggr=median), other (TransformerConv)"
    assert caplog.messages == [f"accelerate: 1 convolutions run on our kernels; {expected}"]
    assert type(model["known"]) is ours.GCNConv
    assert type(model["median"]) is pyg.SAGEConv


def test_strictly_nothing_may_stay_as_it_is():
    model = nn.ModuleDict({"known": pyg.GCNConv(IN, OUT), "other": pyg.TransformerConv(IN, OUT)})
    with pytest.raises(InputError, match=r"strict=True knows no kernels for other \(Transf.*; lea"):
        accelerate(model, strict=True)
    assert type(model["known"]) is pyg.GCNConv
    with pytest.raises(InputError, match="found no convolution of PyG or DGL in the model; pass"):
        accelerate(nn.Linear(2, 2), strict=True)


def test_a_users_own_layer_stays_as_it_is():
    class Own(pyg.GCNConv):
        def message(self, x_j, edge_weight):
            return 2 * super().message(x_j, edge_weight)

    assert type(accelerate(Own(IN, OUT))) is Own


@pytest.mark.slow
def test_the_example_prints_its_table(example, capsys, tmp_path):
    out = tmp_path / "results.json"
    options = "--scale 1/1000 --shapes products --models gcn gat --rounds 2 --threads 1"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = example.race(example.LIBRARY, [*options.split(), "--out", str(out)])
    text = capsys.readouterr().out
    assert "products gcn: plain takes" in text
    assert "geometric mean of 2: sparse takes" in text
    assert [len(times) for times in results[0].seconds.values()] == [2, 2, 2]
    assert all(result.difference < 1e-5 for result in results)
    assert all(result.memory("plain") > 0 for result in results)
    assert out.exists()
