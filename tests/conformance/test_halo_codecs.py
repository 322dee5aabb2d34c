"""Promises that every codec of rows keeps, for every model and number of ranks."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch
from conformance.halos import ALL_MODELS, EDGE_READERS, EXACT_ROWS, NAMES, codecs_of, trained, wide
from graphs import EDGE_KIND, cut, make_graph
from training import MODELS, TYPED_MODELS, check_same_values, ends_of, make_config, run

from distgnn.comm.threads import run_ranks
from distgnn.datasets import InputError
from distgnn.edges.blocks import plan_blocks
from distgnn.exchange.base import Synchronous
from distgnn.exchange.codec import Adaptation, CodecSpec, HaloCodecs
from distgnn.graph.local_graph import LocalGraph
from distgnn.training.loop.trainer import Trainer

SIZES = (1, 2, 3, 4, 8)
SHORT = [
    ("sage-mean", "int8", 3),
    ("sage-max", "int4", 2),
    ("gat-dropout", "int4", 3),
    ("gatv2", "int8-near", 4),
    ("gcn-dropout", "bf16", 8),
    ("rgcn", "mixed", 3),
    ("appnp", "int1", 2),
    ("gin", "int2", 1),
    ("edges-gin-deep", "int8", 3),
    ("edges-gatv2", "int4-near", 2),
]
# Largest relative error of the loss of the first step, where codes are fine enough to bound it.
LOSS_ERROR = {"bf16": 0.02, "int8": 0.02, "int8-near": 0.02, "int4": 0.25, "int4-near": 0.25}


def graph_for(model):
    kind = "typed" if model in TYPED_MODELS else "random"
    return make_graph(EDGE_KIND if model in EDGE_READERS else kind, num_vertices=48)


def check(model, name, num_parts):
    """A codec sends what it says, means what it should, and does nothing where nothing travels."""
    graph, codecs = graph_for(model), codecs_of(name)
    parts = cut(graph, num_parts)
    exact = trained(parts, graph, model, EXACT_ROWS)
    coded = trained(parts, graph, model, codecs)
    (one,), (other,) = exact.records, coded.records
    assert other["halo_bytes_sent"] == coded.planned
    assert one["halo_bytes_sent"] == exact.planned
    if num_parts == 1:
        assert coded.planned == 0
        assert one["loss"] == other["loss"]
        for grads, expected in zip(coded.grads, exact.grads, strict=True):
            assert all(torch.equal(grads[key], expected[key]) for key in expected)
        return
    assert coded.planned < exact.planned
    assert math.isfinite(other["loss"])
    for grads in coded.grads:
        assert all(bool(grad.isfinite().all()) for grad in grads.values())
    if name in LOSS_ERROR:
        assert other["loss"] == pytest.approx(one["loss"], rel=LOSS_ERROR[name])


@pytest.mark.slow
@pytest.mark.parametrize("num_parts", SIZES)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("model", ALL_MODELS)
def test_every_model_with_every_codec_on_any_number_of_ranks(model, name, num_parts):
    check(model, name, num_parts)


@pytest.mark.parametrize(("model", "name", "num_parts"), SHORT)
def test_a_few_of_each(model, name, num_parts):
    check(model, name, num_parts)


@pytest.mark.parametrize("model", ["sage-mean", "gat", "sage-max"])
def test_rows_that_are_too_narrow_to_code_keep_every_bit(model):
    graph = graph_for(model)
    parts = cut(graph, 3)
    exact = trained(parts, graph, model, EXACT_ROWS, num_epochs=2)
    coded = trained(parts, graph, model, wide(codecs_of("int4"), 10**6), num_epochs=2)
    assert [r["loss"] for r in exact.records] == [r["loss"] for r in coded.records]
    assert exact.planned == coded.planned
    for grads, expected in zip(coded.grads, exact.grads, strict=True):
        assert all(torch.equal(grads[key], expected[key]) for key in expected)


@pytest.mark.parametrize("name", ["int4", "int8-near", "int1"])
@pytest.mark.parametrize("model", ["gcn-dropout", "gat-attention-dropout"])
def test_the_same_seed_gives_the_same_bits_and_overlap_changes_none(model, name):
    graph = graph_for(model)
    parts = cut(graph, 3)
    one, two, blocking = (
        trained(parts, graph, model, codecs_of(name), num_epochs=4, overlap=overlap)
        for overlap in (True, True, False)
    )
    assert [r["loss"] for r in one.records] == [r["loss"] for r in two.records]
    assert [r["loss"] for r in one.records] == [r["loss"] for r in blocking.records]


def test_another_seed_rounds_otherwise_and_the_nearest_does_not():
    graph = graph_for("gcn")
    parts = cut(graph, 3)

    def loss(name, seed):
        # No step, so that a later epoch differs by its rounding alone.
        found = trained(parts, graph, "gcn", codecs_of(name), num_epochs=2, seed=seed, lr=1e-30)
        return [record["loss"] for record in found.records]

    random, near = loss("int4", 0), loss("int4-near", 0)
    assert random[0] != random[1]
    assert near[0] == near[1]
    assert loss("int4", 0) == random


# Layers with batch norm are not computed again.
AGAIN = [name for name in ALL_MODELS if ALL_MODELS[name].get("norm") != "batch"]


@pytest.mark.parametrize(
    ("model", "recompute"),
    [*((name, False) for name in ALL_MODELS), *((name, True) for name in AGAIN)],
)
def test_messages_have_the_columns_that_the_forecast_says(model, recompute):
    settings = {**ALL_MODELS[model], "static_input": False, "recompute": recompute}
    graph, config = graph_for(model), make_config(hidden=5, **settings)
    parts = cut(graph, 3)

    def on_rank(group):
        trainer = Trainer(config, ends_of(graph), parts[group.rank], group)
        exchange = trainer.graph.exchange
        begin, begun = exchange.begin, Counter()

        def note(route, rows, channel, picked=None, *, exact_columns=0, least_bits=1):
            columns = rows.shape[1], rows.element_size(), exact_columns, least_bits
            begun[(*columns, exchange.is_backward)] += 1
            kept = {"exact_columns": exact_columns, "least_bits": least_bits}
            return begin(route, rows, channel, picked, **kept)

        exchange.begin = note
        trainer.train_epoch()
        layers = trainer.model.traffic(is_sparse=False, is_static=False, feature_bytes=4)
        expected = Counter()
        for layer in layers:
            for legs, is_backward in layer.passes:
                expected.update((*leg[2:], is_backward) for leg in legs)
        return begun, expected

    for begun, expected in run_ranks(3, on_rank):
        assert begun == expected


@pytest.mark.parametrize("stops", [(1,), (0, 3)])
@pytest.mark.parametrize("model", ["gcn-dropout", "gat-dropout"])
def test_a_run_that_is_resumed_rounds_as_the_straight_one(model, stops, tmp_path):
    graph = graph_for(model)
    parts = cut(graph, 3)
    options = {**MODELS[model], "hidden": 20, "epochs": 6, "checkpoint_every": 1}
    config = make_config(**options, halo="fwd:int4+bwd:int2")
    straight = run(tmp_path / "straight", graph, parts, config)
    for number, stop in enumerate((*stops, None)):
        resumed = run(tmp_path / "resumed", graph, parts, config, resume=number > 0, stop_at=stop)
    losses = [[r["loss"] for r in found[0].records] for found in (straight, resumed)]
    assert len(losses[0]) == 6
    assert losses[0] == losses[1]
    check_same_values(straight[0].trainer.model.state_dict(), resumed[0].trainer.model.state_dict())


def test_a_run_that_diverges_ends_on_all_ranks_with_one_sentence():
    graph = graph_for("gcn")
    parts = cut(graph, 3)
    # Evaluation is exact and would see it first.
    config = make_config(
        model="gcn", hidden=20, layers=3, halo="int8", lr=1e30, epochs=5, eval_every=10
    )

    def on_rank(group):
        trainer = Trainer(config, ends_of(graph), parts[group.rank], group)
        with pytest.raises(InputError, match="lower --lr"):
            list(trainer.epochs())
        return True

    assert run_ranks(3, on_rank) == [True] * 3


@pytest.mark.parametrize("bits", [8, 4, 2])
def test_both_directions_are_adjoint_on_average_and_round_apart(bits):
    graph, width, num_epochs = graph_for("gcn"), 20, 200
    parts = cut(graph, 3)
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(2, graph.num_vertices, width, generator=generator)

    def on_rank(group, codecs):
        part = parts[group.rank]
        exchange = Synchronous(group, codecs)
        view = LocalGraph(part, plan_blocks(part, group), exchange)
        exchange.seeds = view.mask_seeds
        found = []
        for _ in range(num_epochs if codecs != EXACT_ROWS else 1):
            rows = x[view.row_id].requires_grad_()
            total = view.aggregate(rows)
            total.backward(y[view.row_id])
            sums = (total * y[view.row_id]).sum(), (rows * rows.grad).sum()
            found.append([float(value.detach()) for value in sums])
            view.end_epoch()
        return torch.tensor(found, dtype=torch.float64)

    codec = CodecSpec(bits)
    coded = sum(run_ranks(3, lambda group: on_rank(group, HaloCodecs(codec, codec))))
    exact = sum(run_ranks(3, lambda group: on_rank(group, EXACT_ROWS)))
    assert float(exact[0, 0]) == pytest.approx(float(exact[0, 1]), rel=1e-5)
    errors = coded - exact
    spread = errors.std(dim=0)
    assert bool((spread > 0).all())
    assert bool((errors.mean(dim=0).abs() < 4 * spread / num_epochs**0.5).all())
    # Four standard deviations of the correlation of so many independent pairs.
    assert abs(float(torch.corrcoef(errors.t())[0, 1])) < 4 / num_epochs**0.5


@pytest.mark.parametrize("by", ["row", "layer"])
@pytest.mark.parametrize(
    ("model", "num_parts"),
    [("sage-max", 2), ("gat-dropout", 3), ("gatv2", 4), ("gcn-dropout", 8), ("gin", 1)],
)
def test_bits_that_adapt_never_exceed_the_bytes_that_were_predicted(model, num_parts, by):
    graph, how = graph_for(model), Adaptation(every=3, by=by)
    codec = CodecSpec(4, least_columns=1, adaptation=how)
    halo = f"adapt(2|4|8,every=3,bits=4,by={by})"
    options = {"num_epochs": 5, "hidden": 20, "halo": halo}
    parts = cut(graph, num_parts)
    found = trained(parts, graph, model, HaloCodecs(codec, codec), **options)
    for record in found.records:
        assert record["halo_bytes_sent"] <= found.planned
        assert num_parts == 1 or 2 <= record["codec_bits"] <= 8
        assert math.isfinite(record["loss"])
    uniform = trained(parts, graph, model, HaloCodecs(codec.plain, codec.plain), **options)
    for record, other in zip(found.records[:1], uniform.records, strict=False):
        told = by == "row"
        assert record["loss"] == other["loss"]
        assert record["halo_bytes_sent"] - other["halo_bytes_sent"] == (
            found.planned - uniform.planned if told else 0
        )
