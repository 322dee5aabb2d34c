"""Typed models train to the same weights on any number of ranks."""

from __future__ import annotations

import pytest
from graphs import TYPED_KINDS, cut, make_graph
from training import TYPED_MODELS, check_equal, ends_of, first_step, make_config

from distgnn.datasets import InputError
from distgnn.training.tasks.tasks import resolve, resolve_again


@pytest.mark.parametrize("kind", TYPED_KINDS)
@pytest.mark.parametrize("model", TYPED_MODELS)
def test_any_number_of_ranks(model, kind):
    graph = make_graph(kind)
    expected = first_step(cut(graph, 1), graph, model, num_epochs=2)
    for num_parts, how in ((2, "either-end"), (3, "anywhere"), (4, "empty-part"), (7, "anywhere")):
        parts = cut(graph, num_parts, how=how)
        check_equal(first_step(parts, graph, model, num_epochs=2), expected)


def test_features_are_dropped_out_alike_on_any_number_of_ranks():
    graph = make_graph("typed")
    expected = first_step(cut(graph, 1), graph, "rgcn", input_dropout=0.3)
    check_equal(first_step(cut(graph, 3), graph, "rgcn", input_dropout=0.3), expected)


NO_EFFECT = "has no effect on a graph without features, as"


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"input_dropout": 0.3}, f"^--input-dropout 0.3 {NO_EFFECT} there is none; drop it$"),
        ({"bases": 2, "layers": 1}, f"^--bases 2 with --layers 1 {NO_EFFECT} the first layer lea"),
        ({"residual": True}, f"^--residual with one hidden layer {NO_EFFECT} the first layer has"),
        ({"residual": True, "layers": 1, "jumping": "cat"}, f"^--residual with one .* {NO_EFFECT}"),
    ],
)
def test_what_has_no_effect_without_features_is_refused(options, match):
    config, graph = make_config(model="rgcn", **options), make_graph("featureless")
    with pytest.raises(InputError, match=match):
        resolve(config, ends_of(graph))
    # A run that was trained so is read all the same, and features make it effective.
    resolve_again(config, ends_of(graph))
    resolve(config, ends_of(make_graph("typed")))


@pytest.mark.parametrize("kind", TYPED_KINDS)
@pytest.mark.parametrize("model", ["rgcn-dropout", "rsage-dropout"])
@pytest.mark.parametrize("num_parts", [1, 3])
def test_savings_change_nothing_beyond_rounding(kind, model, num_parts):
    graph = make_graph(kind, num_vertices=80)
    parts = cut(graph, num_parts)
    off = first_step(parts, graph, model, num_epochs=3, receptive_field=False)
    check_equal(first_step(parts, graph, model, num_epochs=3), off)
    check_equal(first_step(parts, graph, model, num_epochs=3, recompute=True), off)


def test_few_edges_and_parts_alone():
    graph = make_graph("typed")
    for algorithm in ("cd-2", "0c"):
        records, _ = first_step(
            cut(graph, 3), graph, "rgcn", num_epochs=12, algorithm=algorithm, eval_every=12
        )
        assert records[-1]["loss"] < records[0]["loss"]
