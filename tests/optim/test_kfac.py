"""K-FAC on one rank: dense solves, both views of a layer, scales, constants and failures."""

from __future__ import annotations

import copy
import dataclasses

import numpy as np
import pytest
import torch
from graphs import adjacency, cut, make_graph
from kfac_oracle import Terms, expected_steps, factors_of, plain_maps, solved

from distgnn.comm.single import SingleGroup
from distgnn.datasets.errors import InputError
from distgnn.edges.blocks import plan_blocks
from distgnn.exchange.base import Synchronous
from distgnn.graph.local_graph import LocalGraph
from distgnn.nn.config import ModelConfig
from distgnn.nn.models import GNN
from distgnn.nn.relational import GraphSize
from distgnn.ops import SparseRows
from distgnn.optim import kfac
from distgnn.optim.factors import Key, outer_products
from distgnn.optim.kfac import Kfac, preconditioned
from distgnn.settings.kfac import KfacOptions
from distgnn.training.data.inputs import load_features

PLAIN = KfacOptions(damping=0.02, clip=0.0)
LR = 0.25

pytestmark = pytest.mark.usefixtures("multiplied_here")


def whole_graph(kind="random", *, is_static=False, seed=0):
    """A graph on one rank, and its features in float64."""
    part = cut(make_graph(kind, seed=seed), 1)[0]
    graph = LocalGraph.exact(part, SingleGroup())
    if kind == "typed":
        blocks = plan_blocks(part, SingleGroup(), has_types=True)
        graph = LocalGraph(part, blocks, Synchronous(SingleGroup()))
    rows = load_features(part)
    rows = rows if isinstance(rows, SparseRows) else rows.double()
    if is_static:
        graph.set_static(rows)
    return graph, rows


def model_of(rows, **options):
    size = options.pop("size", GraphSize())
    model = GNN(ModelConfig(**{"dropout": 0.0, "hidden": 4, **options}), rows.shape[1], 3, size)
    model.reset_parameters(torch.Generator().manual_seed(0))
    return model.double()


def passed(model, graph, rows, labels=None):
    """Gradients of the mean cross-entropy."""
    model.zero_grad()
    graph.mask_seeds.end_epoch()
    graph.mask_seeds.epoch = 4
    scores = model(graph, rows)
    if labels is None:
        labels = torch.randint(0, 3, (len(scores),), generator=torch.Generator().manual_seed(1))
    torch.nn.functional.cross_entropy(scores, labels).backward()


def steps_of(model, graph, rows, options=PLAIN, **settings):
    """Return the first step of each weight by name, over the learning rate."""
    optimizer = Kfac(
        model, Terms(SingleGroup(), graph.num_rows), lr=LR, options=options, **settings
    )
    passed(model, graph, rows)
    before = {name: each.detach().clone() for name, each in model.named_parameters()}
    optimizer.step()
    return {name: (before[name] - each.detach()) / LR for name, each in model.named_parameters()}


def check(steps, expected, tolerance=1e-10):
    assert expected
    for name, value in expected.items():
        scale = float(value.abs().max())
        torch.testing.assert_close(steps[name], value, rtol=0, atol=tolerance * scale, msg=name)


MODELS = {
    "gcn-narrower": {"model": "gcn"},
    "gcn-wider": {"model": "gcn", "hidden": 9},
    "gcn-residual": {"model": "gcn", "hidden": 9, "residual": True, "norm": "layer"},
    "sage-narrower": {"hidden": 5},
    "sage-wider": {"hidden": 9},
    "sage-pool": {"aggregator": "pool"},
    "sage-gcn": {"aggregator": "gcn", "jumping": "cat", "layers": 3, "hidden": 7},
    "gin": {"model": "gin", "eps": 0.5, "learn_eps": True},
    "gat": {"model": "gat", "heads": 2},
    "gatv2": {"model": "gatv2", "heads": 2},
    "sgc": {"model": "sgc", "hops": 2, "layers": 1},
    "appnp": {"model": "appnp", "hops": 2},
}


@pytest.mark.parametrize("is_static", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_steps_of_dense_maps_are_those_of_a_dense_solve(name, is_static, monkeypatch):
    graph, rows = whole_graph(is_static=is_static)
    model = model_of(rows, **MODELS[name])
    with plain_maps(monkeypatch) as seen:
        passed(model, graph, rows)
    expected = expected_steps(model, factors_of(seen, graph.num_rows), PLAIN.damping)
    check(steps_of(model, graph, rows), expected)


def dense_gcn(graph, rows, weights, biases, views):
    """Scores of a GCN by dense matrices, and what its maps multiply and make in a view."""
    matrix = torch.from_numpy(adjacency(make_graph("random")))
    own = matrix.diagonal().clone()
    matrix.diagonal().copy_(torch.where(own > 0, own, 1.0))
    degree = matrix.sum(dim=1).rsqrt()
    spread = degree[:, None] * matrix * degree[None]
    made, read, h = [], [], rows
    for number, (weight, bias, view) in enumerate(zip(weights, biases, views, strict=True)):
        x = spread @ h if view == "aggregated" else h
        z = x @ weight.t()
        z.retain_grad()
        made.append(z)
        read.append(x.detach())
        h = (z if view == "aggregated" else spread @ z) + bias
        h = h if number == len(weights) - 1 else torch.relu(h)
    return h, read, made


@pytest.mark.parametrize(
    ("hidden", "is_static", "views"),
    [
        (4, False, ("source", "source")),
        (9, False, ("aggregated", "source")),
        (4, True, ("aggregated", "source")),
        (4, False, ("source", "source", "source")),
    ],
)
def test_each_view_of_a_layer_has_the_factors_of_its_own_dense_form(hidden, is_static, views):
    graph, rows = whole_graph(is_static=is_static)
    model = model_of(rows, model="gcn", hidden=hidden, layers=len(views))
    convs = model.convolutions
    weights = [conv.linear.weight for conv in convs]
    scores, read, made = dense_gcn(graph, rows, weights, [conv.bias for conv in convs], views)
    labels = torch.randint(0, 3, (len(scores),), generator=torch.Generator().manual_seed(1))
    torch.nn.functional.cross_entropy(scores, labels).backward()
    expected = {}
    for number, (x, z) in enumerate(zip(read, made, strict=True)):
        prefix = f"hidden.{number}" if number < len(read) - 1 else "last"
        a, g = x.t() @ x / len(x), len(x) * z.grad.t() @ z.grad
        expected[f"{prefix}.linear.weight"] = solved(weights[number].grad, a, g, PLAIN.damping)
        one = torch.ones(1, 1).double()
        expected[f"{prefix}.bias"] = solved(convs[number].bias.grad, one, g, PLAIN.damping)
    check(steps_of(model, graph, rows), expected)


def test_typed_maps_share_the_factors_of_sources_and_roots_and_own_maps_have_theirs():
    graph, rows = whole_graph("typed")
    model = model_of(rows, model="rsage", layers=1, size=GraphSize(40, 3, 2))
    read = model.typed_input(rows).detach()
    scores = model(graph, rows).detach().requires_grad_()
    labels = torch.randint(0, 3, (len(scores),), generator=torch.Generator().manual_seed(1))
    torch.nn.functional.cross_entropy(scores, labels).backward()
    delta, count, conv = scores.grad, len(rows), model.last
    passed(model, graph, rows)
    grads = {name: each.grad.clone() for name, each in model.named_parameters()}
    steps = steps_of(model, graph, rows)

    def expected(grad, x, d):
        a, g = x.t() @ x / len(x), count * d.t() @ d
        return solved(grad.t(), a, g, PLAIN.damping).t()

    for relation in range(len(conv.bases)):
        value = expected(grads["last.bases"][relation], read, delta)
        check({"": steps["last.bases"][relation]}, {"": value})
    for kind in range(2):
        chosen = graph.rows_of_type(kind).long()
        x, d = read[chosen], delta[chosen]
        value = expected(grads["last.own"][kind], x, d)
        check({"": steps["last.own"][kind]}, {"": value})
        value = expected(grads["last.bias"][kind][None], torch.ones(len(d), 1).double(), d)
        check({"": steps["last.bias"][kind]}, {"": value[0]})


def test_typed_maps_are_preconditioned_some_at_a_time_with_the_same_bits(monkeypatch):
    def steps():
        sizes = []
        inner = kfac.preconditioned
        with monkeypatch.context() as patch:
            patch.setattr(
                kfac,
                "preconditioned",
                lambda maps, *rest: sizes.append(len(maps)) or inner(maps, *rest),
            )
            graph, rows = whole_graph("typed")
            model = model_of(rows, model="rsage", layers=1, size=GraphSize(40, 3, 2))
            num_relations = len(model.last.bases)
            return steps_of(model, graph, rows), sizes, num_relations

    expected, sizes, num_relations = steps()
    assert num_relations > 2
    assert num_relations in sizes
    monkeypatch.setattr(kfac, "CHUNK_BYTES", 0)
    found, smaller, _ = steps()
    assert len(smaller) == len(sizes) + num_relations - 1
    assert all(torch.equal(found[name], value) for name, value in expected.items())


@pytest.mark.parametrize("name", MODELS)
def test_two_copies_of_a_graph_have_the_steps_of_one(name):
    one = make_graph("random")
    two = make_graph("random")
    two = dataclasses.replace(
        two,
        num_vertices=2 * one.num_vertices,
        src=np.concatenate([one.src, one.src + one.num_vertices]),
        dst=np.concatenate([one.dst, one.dst + one.num_vertices]),
        features=np.concatenate([one.features] * 2),
        labels=np.concatenate([one.labels] * 2),
        train_mask=np.concatenate([one.train_mask] * 2, axis=1),
        val_mask=np.concatenate([one.val_mask] * 2, axis=1),
        test_mask=np.concatenate([one.test_mask] * 2, axis=1),
    )
    found = []
    for graph in (one, two):
        part = cut(graph, 1)[0]
        whole, rows = LocalGraph.exact(part, SingleGroup()), load_features(part).double()
        model = model_of(rows, **MODELS[name])
        optimizer = Kfac(model, Terms(SingleGroup(), graph.num_vertices), lr=LR, options=PLAIN)
        passed(model, whole, rows, torch.from_numpy(graph.labels))
        optimizer.step()
        found.append({name: each.detach() for name, each in model.named_parameters()})
    for each, value in found[0].items():
        torch.testing.assert_close(found[1][each], value, rtol=1e-9, atol=1e-10)


def test_much_damping_leaves_the_direction_of_the_gradient():
    graph, rows = whole_graph()
    model, damping = model_of(rows, hidden=9), 1e12
    optimizer = Kfac(model, Terms(SingleGroup(), 40), options=KfacOptions(damping=damping))
    passed(model, graph, rows)
    # Weights have no digits for so short a step, so it is read before it is taken.
    optimizer._factors.update(40)
    optimizer._decompose(optimizer._factors.values)
    steps = optimizer._preconditioned()
    assert len(steps) == len(list(model.parameters()))
    for number, step in steps.items():
        grad = optimizer._parameters[number].grad
        torch.testing.assert_close(step * damping, grad, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["gcn-wider", "gcn-residual", "sage-wider", "gat", "gin"])
def test_recomputed_layers_have_the_same_steps(name):
    graph, rows = whole_graph()
    kept, again = (model_of(rows, **MODELS[name]) for _ in range(2))
    again.set_recompute(recomputes=True)
    steps = steps_of(kept, graph, rows)
    for each, step in steps_of(again, graph, rows).items():
        assert torch.equal(step, steps[each]), each


def test_rows_in_half_the_bytes_have_steps_of_about_the_same_direction():
    graph, rows = whole_graph()
    model = model_of(rows, hidden=9, layers=3, activations_dtype="bf16").float()
    rounded = steps_of(model, graph, rows.float().bfloat16())
    exact = steps_of(model_of(rows, hidden=9, layers=3), graph, rows)
    for name, step in exact.items():
        cosine = torch.nn.functional.cosine_similarity(
            step.flatten().float(), rounded[name].flatten(), dim=0
        )
        assert cosine > 0.95, name


def test_sparse_rows_have_the_factors_of_dense_ones_and_wide_ones_a_diagonal():
    graph, rows = whole_graph("sparse-features")
    dense = rows.to_dense()
    torch.testing.assert_close(outer_products(rows, None, is_diagonal=False), dense.t() @ dense)
    squares = dense.square().sum(dim=0)
    torch.testing.assert_close(outer_products(rows, None, is_diagonal=True), squares)
    torch.testing.assert_close(outer_products(dense, None, is_diagonal=True), squares)
    options = KfacOptions(damping=0.02, clip=0.0, widest=5)
    found = []
    for given in (rows, dense):
        model = model_of(dense, model="gat", heads=1).float()
        found.append(steps_of(model, graph, given, options))
    for name, step in found[0].items():
        torch.testing.assert_close(found[1][name], step, rtol=1e-4, atol=1e-5)
    model = model_of(dense, model="gat", heads=1).float()
    passed(model, graph, dense)
    weight = model.hidden[0].linear.weight
    optimizer = Kfac(model, Terms(SingleGroup(), 40), options=options)
    passed(model, graph, dense)
    optimizer._factors.update(40)
    key = min(key for key in optimizer._factors.values if not key.is_output)
    torch.testing.assert_close(optimizer._factors.values[key], squares / 40)
    grad = weight.grad.clone()
    expected = preconditioned(
        grad,
        kfac.Basis(None, squares / 40),
        kfac._decomposition(optimizer._factors.values[key._replace(is_output=True)]),
        0.02,
    )
    torch.testing.assert_close(found[0]["hidden.0.linear.weight"], expected, rtol=1e-4, atol=1e-5)


def test_the_factor_of_rows_that_stay_is_decomposed_once(monkeypatch):
    graph, rows = whole_graph(is_static=True)
    model = model_of(rows, model="gcn", hidden=5)
    widths = []
    decompose = kfac._decomposition
    monkeypatch.setattr(
        kfac, "_decomposition", lambda value: (widths.append(len(value)), decompose(value))[1]
    )
    options = KfacOptions(factors=1, inverses=1)
    optimizer = Kfac(model, Terms(SingleGroup(), 40), options=options)
    for _ in range(4):
        passed(model, graph, rows)
        optimizer.step()
    # A of the input has 6 columns. A of the last layer and both G change in every step.
    assert sorted(widths) == [3] * 4 + [5] * 8 + [6]


def test_rows_that_change_in_place_are_read_again():
    graph, rows = whole_graph()
    model = model_of(rows, model="sgc", layers=1, hops=1)
    optimizer = Kfac(model, Terms(SingleGroup(), 40), options=KfacOptions(factors=1))
    for _ in range(3):
        passed(model, graph, rows)
        optimizer.step()
    key = next(key for key in optimizer._factors.values if not key.is_output)
    assert key in optimizer._reader.constants
    before = optimizer._factors.values[key]
    rows *= 2
    for _ in range(2):
        passed(model, graph, rows)
        optimizer.step()
    torch.testing.assert_close(optimizer._factors.values[key], 4 * before)


@pytest.mark.parametrize("num_more", [0, 3])
def test_inputs_that_take_turns_are_read_each_time(num_more):
    _, rows = whole_graph()
    model = model_of(rows, model="sgc", layers=1, hops=1)
    optimizer = Kfac(model, Terms(SingleGroup(), 40), options=KfacOptions(factors=1))
    optimizer._reader._is_same(Key(0, 0, is_output=False), rows, None)
    # Both live, and neither of the shape of the other.
    other = torch.cat([2 * rows, rows[:num_more]])
    for each, is_same in ((other, False), (other, True), (rows, False), (rows, True)):
        assert optimizer._reader._is_same(Key(0, 0, is_output=False), each, None) == is_same


def failing(monkeypatch, when):
    """Let decompositions fail where a function of how many there were says so."""
    count = 0
    eigh = torch.linalg.eigh

    def maybe(value, **options):
        nonlocal count
        count += 1
        if when(count):
            raise torch.linalg.LinAlgError("it failed to converge")
        return eigh(value, **options)

    monkeypatch.setattr(torch.linalg, "eigh", maybe)


def test_a_decomposition_that_fails_once_is_tried_with_something_added(monkeypatch):
    graph, rows = whole_graph()
    exact = steps_of(model_of(rows), graph, rows)
    failing(monkeypatch, lambda count: count == 1)
    model = model_of(rows)
    optimizer = Kfac(model, Terms(SingleGroup(), 40), lr=LR, options=PLAIN)
    passed(model, graph, rows)
    before = {name: each.detach().clone() for name, each in model.named_parameters()}
    optimizer.step()
    for name, each in model.named_parameters():
        torch.testing.assert_close((before[name] - each) / LR, exact[name], rtol=1e-3, atol=1e-4)
    assert optimizer.take_note() == (
        "kfac, step 0: the factor A of hidden.0.neighbour.weight was decomposed with 1e-06 of its "
        "mean eigenvalue added"
    )
    assert optimizer.take_note() is None


def test_without_a_decomposition_the_older_one_stays_or_the_diagonal_serves(monkeypatch):
    graph, rows = whole_graph()
    model = model_of(rows, model="sgc", layers=1, hops=1)
    optimizer = Kfac(model, Terms(SingleGroup(), 40), options=KfacOptions(factors=1, inverses=1))
    with monkeypatch.context() as patched:
        failing(patched, lambda count: True)
        passed(model, graph, rows)
        optimizer.step()
    assert all(basis.vectors is None for basis in optimizer._bases.values())
    assert optimizer.take_note().splitlines()[1] == (
        "kfac, step 0: the factor G of last.linear.weight could not be decomposed; its diagonal "
        "takes its place"
    )
    passed(model, graph, rows)
    optimizer.step()
    assert optimizer.take_note() is None
    bases = dict(optimizer._bases)
    assert all(basis.vectors is not None for basis in bases.values())
    failing(monkeypatch, lambda count: True)
    passed(model, graph, rows)
    optimizer.step()
    assert optimizer._bases == bases
    assert "could not be decomposed; the older decomposition stays" in optimizer.take_note()
    assert all(weight.isfinite().all() for weight in model.parameters())


@pytest.mark.parametrize(
    ("first", "expected"), [(1, ([0, 2, 4, 6], [0, 3, 6])), (3, ([0, 1, 2, 4, 6], [0, 1, 2, 6]))]
)
def test_factors_and_decompositions_have_intervals_of_their_own(first, expected):
    graph, rows = whole_graph()
    model = model_of(rows)
    options = KfacOptions(factors=2, inverses=3, first=first)
    optimizer = Kfac(model, Terms(SingleGroup(), 40), options=options)
    read, decomposed = [], []
    for step in range(7):
        passed(model, graph, rows)
        values, bases = dict(optimizer._factors.values), dict(optimizer._bases)
        optimizer.step()
        if any(optimizer._factors.values[key] is not values.get(key) for key in values) or not step:
            read.append(step)
        if any(optimizer._bases[key] is not bases.get(key) for key in bases) or not step:
            decomposed.append(step)
    assert (read, decomposed) == expected


def test_older_factors_keep_their_share():
    graph, rows = whole_graph()
    found = {}
    for decay in (0.0, 0.75):
        model = model_of(rows, model="sgc", layers=1, hops=1)
        options = KfacOptions(factors=1, decay=decay)
        optimizer = Kfac(model, Terms(SingleGroup(), 40), options=options)
        values = []
        for _ in range(2):
            passed(model, graph, rows)
            optimizer.step()
            values.append(next(v for k, v in optimizer._factors.values.items() if k.is_output))
        found[decay] = values
    (first, new), (_, mixed) = found[0.0], found[0.75]
    torch.testing.assert_close(mixed, 0.75 * first + 0.25 * new)


def test_a_long_step_is_shortened_to_its_bound():
    graph, rows = whole_graph()
    long = steps_of(model_of(rows), graph, rows)
    model = model_of(rows)
    passed(model, graph, rows)
    form = LR**2 * sum(float((long[n] * p.grad).sum()) for n, p in model.named_parameters())
    clip = form / 4
    short = steps_of(model, graph, rows, KfacOptions(damping=PLAIN.damping, clip=clip))
    for name, step in long.items():
        torch.testing.assert_close(short[name], step / 2)


def test_what_no_map_holds_is_stepped_by_adam_and_steps_have_momentum_and_decay():
    graph, rows = whole_graph()
    model = model_of(rows, model="gat", heads=2, hidden=4)
    theirs = copy.deepcopy(model)
    options = {"lr": LR, "weight_decay": 0.125}
    optimizer = Kfac(model, Terms(SingleGroup(), 40), options=PLAIN, **options)
    vectors = [
        name for name, _ in theirs.named_parameters() if "source" in name or "target" in name
    ]
    adam = torch.optim.Adam(
        [each for name, each in theirs.named_parameters() if name in vectors],
        lr=0.1 * LR,
        weight_decay=0.125,
    )
    passed(model, graph, rows)
    passed(theirs, graph, rows)
    optimizer.step()
    adam.step()
    got = dict(model.named_parameters())
    assert vectors
    for name, each in theirs.named_parameters():
        if name in vectors:
            torch.testing.assert_close(got[name], each)
    state = optimizer.state_dict()
    weight = got["hidden.0.linear.weight"]
    number = list(got).index("hidden.0.linear.weight")
    old = dict(theirs.named_parameters())["hidden.0.linear.weight"]
    moved = old - LR * state[number]["momentum_buffer"]
    torch.testing.assert_close(weight, moved)


def test_frozen_weights_stay():
    graph, rows = whole_graph()
    model = model_of(rows)
    model.hidden[0].root.weight.requires_grad_(requires_grad=False)
    before = model.hidden[0].root.weight.clone()
    steps_of(model, graph, rows)
    assert torch.equal(model.hidden[0].root.weight, before)


def test_a_model_without_dense_maps_and_a_slow_processor_are_refused(monkeypatch):
    with pytest.raises(InputError, match=r"kfac finds no dense map of distgnn\.nn in Sequential"):
        Kfac(torch.nn.Sequential(torch.nn.Linear(3, 3)), Terms(SingleGroup(), 1))
    monkeypatch.setattr(kfac, "is_fast", lambda: False)
    _, rows = whole_graph()
    with pytest.raises(InputError, match="kfac reads factors from kernels that this processor lac"):
        Kfac(model_of(rows), Terms(SingleGroup(), 1))


def test_layers_without_such_an_optimizer_have_no_observer():
    _, rows = whole_graph()
    assert all(getattr(each, "observer", None) is None for each in model_of(rows).modules())
