"""Models that read features of edges train to the same weights on any number of ranks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from graphs import CUTS, EDGE_KIND, cut, make_graph
from training import EDGE_MODELS, check_equal, ends_of, first_step, make_config

from distgnn.comm.single import SingleGroup
from distgnn.comm.threads import run_ranks
from distgnn.datasets import InputError
from distgnn.forecast.memory import memory_of_ranks, moment_bytes, score_bytes
from distgnn.forecast.traffic import forecast
from distgnn.partition import assign
from distgnn.partition.directory.store import read_manifest, read_part, write
from distgnn.partition.directory.whole import whole_part
from distgnn.partition.quality import measure
from distgnn.training.loop.trainer import Trainer
from distgnn.training.tasks.tasks import resolve


@pytest.mark.parametrize("model", EDGE_MODELS)
def test_any_number_of_ranks(model):
    graph, options = make_graph(EDGE_KIND), EDGE_MODELS[model]
    expected = first_step(cut(graph, 1), graph, num_epochs=2, **options)
    for num_parts, how in ((2, CUTS[1]), (3, CUTS[0]), (4, CUTS[3]), (7, CUTS[2])):
        parts = cut(graph, num_parts, how=how)
        check_equal(first_step(parts, graph, num_epochs=2, **options), expected)


@pytest.mark.parametrize("model", EDGE_MODELS)
@pytest.mark.parametrize("num_parts", [1, 3])
def test_savings_change_nothing_beyond_rounding(model, num_parts):
    graph, options = make_graph(EDGE_KIND, num_vertices=80), EDGE_MODELS[model]
    parts = cut(graph, num_parts)
    off = first_step(parts, graph, receptive_field=False, static_input=False, **options)
    check_equal(first_step(parts, graph, **options), off)
    if "batch" not in model:
        check_equal(first_step(parts, graph, recompute=True, **options), off)


@pytest.mark.parametrize("algorithm", ["cd-2", "0c"])
def test_delays_and_parts_alone_learn(algorithm):
    graph = make_graph(EDGE_KIND)
    parts = cut(graph, 3)
    for options in EDGE_MODELS.values():
        undropped = {**options, "dropout": 0.0, "attention_dropout": 0.0, "algorithm": algorithm}
        records, _ = first_step(parts, graph, num_epochs=12, eval_every=12, **undropped)
        assert records[-1]["loss"] < records[0]["loss"]


def test_models_read_features_of_edges_where_there_are_some():
    graph = make_graph(EDGE_KIND)
    for options in EDGE_MODELS.values():
        config = make_config(**options)
        assert resolve(config, ends_of(graph)).model.edge_features == "use"
        assert resolve(config, ends_of(make_graph())).model.edge_features == "auto"
    ignoring = make_config(model="gat", edge_features="ignore")
    assert resolve(ignoring, ends_of(graph)).model.edge_features == "ignore"
    bare = replace(graph, edge_features=None)
    expected = first_step(cut(bare, 2), bare, model="gat")
    found = first_step(cut(graph, 2), graph, model="gat", edge_features="ignore")
    assert [one["loss"] for one in found[0]] == [one["loss"] for one in expected[0]]


def test_choices_without_effect_are_refused():
    message = (
        "^--edge-features use has no effect on --model sage; drop it or use --model gat or gat"
    )
    with pytest.raises(InputError, match=message):
        make_config(edge_features="use")
    with pytest.raises(InputError, match="--edge-features must be one of auto, use, ignore, got"):
        make_config(model="gat", edge_features="yes")
    message = "^--edge-features use has no effect on a graph whose edges have no features; leave"
    with pytest.raises(InputError, match=message):
        resolve(make_config(model="gat", edge_features="use"), ends_of(make_graph()))


def test_edges_without_features_may_be_ignored():
    resolved = resolve(make_config(model="gat", edge_features="ignore"), ends_of(make_graph()))
    assert resolved.model.edge_features == "ignore"


@pytest.mark.parametrize("model", ["sage", *EDGE_MODELS])
def test_what_is_predicted_is_what_is_sent_and_said(model, tmp_path):
    graph = make_graph(EDGE_KIND, num_vertices=60)
    assignment = assign("random", graph, 3)
    quality = measure(graph, assignment)
    write(tmp_path / "p", graph, assignment, method="m", options={}, seed=0, quality=quality)
    config, manifest = make_config(**EDGE_MODELS.get(model, {})), read_manifest(tmp_path / "p")
    found = forecast(tmp_path / "p", manifest, config)

    def on_rank(group):
        part = read_part(tmp_path / "p", group.rank)
        trainer = Trainer(config, ends_of(manifest), part, group)
        return list(trainer.epochs()), trainer.graphs.savings

    records, savings = run_ranks(3, on_rank)[0]
    for epoch, record in enumerate(records):
        assert record["halo_bytes_sent"] == found.bytes_in_epoch(epoch)
        assert record["eval_halo_bytes_sent"] == found.evaluation_bytes
    assert savings == found.savings
    reads = "not read" if model == "sage" else "each layer reads them as they are"
    assert f"edge features: 3 columns, {reads}" in savings


@pytest.mark.parametrize(
    ("options", "effect"),
    [
        ({}, "rows are multiplied by them"),
        ({"model": "gcn"}, "rows are multiplied by them"),
        ({"model": "gat"}, "not read, as attention weighs edges itself"),
        ({"model": "gatv2"}, "not read, as attention weighs edges itself"),
        ({"aggregator": "pool"}, "not read, as a maximum takes rows as they are"),
    ],
)
def test_whether_weights_are_read_is_said(options, effect, tmp_path):
    graph, config = make_graph("weighted"), make_config(**options)
    assignment = assign("random", graph, 2)
    quality = measure(graph, assignment)
    write(tmp_path / "p", graph, assignment, method="m", options={}, seed=0, quality=quality)
    manifest = read_manifest(tmp_path / "p")
    savings = forecast(tmp_path / "p", manifest, config).savings
    assert f"edge weights: {effect}" in savings
    trainer = Trainer(config, ends_of(graph), whole_part(graph), SingleGroup())
    assert f"edge weights: {effect}" in trainer.graphs.savings
    bare = Trainer(config, ends_of(graph), whole_part(make_graph()), SingleGroup())
    assert not any("edge weights" in line for line in bare.graphs.savings)


def test_memory_of_features_and_their_scores_is_predicted(tmp_path):
    graph = make_graph(EDGE_KIND)
    assignment = assign("random", graph, 2)
    quality = measure(graph, assignment)
    write(tmp_path / "p", graph, assignment, method="m", options={}, seed=0, quality=quality)
    manifest = read_manifest(tmp_path / "p")

    def predict(**options):
        return forecast(tmp_path / "p", manifest, make_config(receptive_field=False, **options))

    def memory(**options):
        found = predict(**options)
        return np.array(memory_of_ranks(manifest, found)) - moment_bytes(found.model, 2)

    edges = np.array([part.num_edges for part in manifest.parts])
    gat = {"model": "gat", "heads": 2, "last_heads": 5}
    added = memory(**gat) - memory(**gat, edge_features="ignore")
    # The kernels leave one value for each edge and head, with features and without.
    assert added.tolist() == (edges * 4 * 3).tolist()
    ignored = {**gat, "edge_features": "ignore"}
    added = memory(**ignored, attention_dropout=0.5) - memory(**ignored)
    assert added.tolist() == (edges * 12).tolist()
    for model, dropout, use, num_scores in (
        ("gat", 0.5, "ignore", 1),
        ("gatv2", 0.5, "ignore", 1),
        ("gatv2", 0.0, "use", 4),
        ("gatv2", 0.5, "use", 6),
    ):
        options = {"model": model, "attention_dropout": dropout, "edge_features": use}
        one, two = (predict(**options, heads=2, last_heads=heads) for heads in (2, 5))
        scores = [score_bytes(found.model, 7) for found in (one, two)]
        assert scores[1] - scores[0] == 7 * 4 * num_scores * 3
        # Rows of the last layer are wider, too.
        added = np.subtract(*(memory_of_ranks(manifest, found) for found in (two, one)))
        assert np.all(added > edges * 4 * num_scores * 3)
