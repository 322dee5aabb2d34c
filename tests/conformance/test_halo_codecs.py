"""Promises that every codec of rows keeps, for every model and number of ranks."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch
from conformance.halos import EXACT_ROWS, NAMES, codecs_of, trained, wide
from graphs import cut, make_graph
from training import MODELS, TYPED_MODELS, ends_of, make_config

from distgnn.comm.threads import run_ranks
from distgnn.training.loop.trainer import Trainer

ALL_MODELS = {**MODELS, **TYPED_MODELS}
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
]
# Largest relative error of the loss of the first step, where codes are fine enough to bound it.
LOSS_ERROR = {"bf16": 0.02, "int8": 0.02, "int8-near": 0.02, "int4": 0.25, "int4-near": 0.25}


def graph_for(model):
    return make_graph("typed" if model in TYPED_MODELS else "random", num_vertices=48)


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

        def note(route, rows, channel, picked=None, *, exact_columns=0):
            begun[rows.shape[1], rows.element_size(), exact_columns, exchange.is_backward] += 1
            return begin(route, rows, channel, picked, exact_columns=exact_columns)

        exchange.begin = note
        trainer.train_epoch()
        layers = trainer.model.traffic(is_sparse=False, is_static=False, feature_bytes=4)
        expected = Counter()
        for layer in layers:
            both = zip(layer.coded(EXACT_ROWS), (False, True), strict=True)
            for (legs, _), is_backward in both:
                expected.update((*leg[2:], is_backward) for leg in legs)
        return begun, expected

    for begun, expected in run_ranks(3, on_rank):
        assert begun == expected
