"""Features and activations stored as bfloat16: half the bytes, and nothing else beyond rounding."""

from __future__ import annotations

import pytest
import torch
from graphs import cut, make_graph
from training import MODELS, check_same_values, ends_of, first_step, make_config, run, task_of

from distgnn.comm.single import SingleGroup
from distgnn.comm.threads import run_ranks
from distgnn.datasets import InputError
from distgnn.forecast.memory import predict_peak_bytes
from distgnn.nn import convolution, gat, linear
from distgnn.training.data.inputs import load_inputs
from distgnn.training.loop.trainer import Trainer

BOTH = {"features_dtype": "bf16", "activations_dtype": "bf16"}
# A value that is rounded to 8 binary digits is off by at most this, relative to itself.
ROUNDING = 2.0**-9
# A layer rounds what it reads, aggregates and makes, and a partial that travels; backward as well.
ROUNDINGS_PER_LAYER = 8


def check_close(got, expected, *, num_layers=2, has_gradients=True):
    tolerance = ROUNDING * ROUNDINGS_PER_LAYER * num_layers
    for one, other in zip(got[0], expected[0], strict=True):
        assert one["loss"] == pytest.approx(other["loss"], rel=tolerance)
    for one, other in zip(got[1], expected[1], strict=True):
        largest = max(float(grad.abs().max()) for grad in other.values())
        for name, grad in other.items():
            assert grad.dtype == one[name].dtype == torch.float32
            if has_gradients:
                margin = tolerance * largest
                torch.testing.assert_close(one[name], grad, rtol=0, atol=margin, msg=name)


@pytest.mark.parametrize("num_parts", [2, 3, 7])
@pytest.mark.parametrize("model", MODELS)
def test_any_model_on_any_number_of_ranks(model, num_parts):
    graph = make_graph("random")
    expected = first_step(cut(graph, 1), graph, model, **BOTH)
    got = first_step(cut(graph, num_parts), graph, model, **BOTH)
    check_close(got, expected, num_layers=MODELS[model].get("layers", 2))


@pytest.mark.parametrize("model", MODELS)
def test_any_model_has_the_loss_of_fp32_but_for_rounding(model):
    """Not all gradients: where rounding changes the sign before a relu, they jump."""
    graph = make_graph("random")
    wide = first_step(cut(graph, 1), graph, model)
    narrow = first_step(cut(graph, 1), graph, model, **BOTH)
    check_close(narrow, wide, has_gradients=False)
    assert narrow[0][0]["loss"] != wide[0][0]["loss"], "something was rounded"


@pytest.mark.parametrize("kind", ["weighted", "multi-label", "few-edges", "loops"])
@pytest.mark.parametrize("static_input", [False, True])
def test_any_graph_with_input_that_is_static_or_not(kind, static_input):
    # A seed with which no rounding changes the sign before a relu.
    graph = make_graph(kind, seed=2)
    for model in ("sage-mean", "gcn", "gat"):
        options = {"static_input": static_input, "num_epochs": 2, **BOTH}
        expected = first_step(cut(graph, 1), graph, model, **options)
        check_close(first_step(cut(graph, 3), graph, model, **options), expected)


def test_sparse_features_stay_fp32_beside_narrow_activations():
    graph = make_graph("sparse-features")
    expected, got = (
        first_step(cut(graph, num_parts), graph, "sage-mean", activations_dtype="bf16")
        for num_parts in (1, 3)
    )
    check_close(got, expected)
    message = "--features-dtype bf16 is for dense features, but the graph has sparse ones"
    with pytest.raises(InputError, match=message):
        load_inputs(
            cut(graph, 1)[0],
            SingleGroup(),
            split_index=0,
            feature_norm="none",
            features_dtype="bf16",
            **task_of(cut(graph, 1)[0]),
        )


@pytest.mark.parametrize("feature_norm", ["none", "row", "standard"])
def test_features_are_rounded_once_after_they_were_normalised(feature_norm):
    part = cut(make_graph("random"), 1)[0]
    wide, narrow = (
        load_inputs(
            part,
            SingleGroup(),
            split_index=0,
            feature_norm=feature_norm,
            features_dtype=dtype,
            **task_of(part),
        ).features
        for dtype in ("fp32", "bf16")
    )
    assert torch.equal(narrow, wide.bfloat16())


def trainer_of(graph, part, **options):
    return Trainer(make_config(**options), ends_of(graph), part, SingleGroup())


@pytest.mark.parametrize("model", ["sage", "gcn"])
def test_what_is_made_of_static_features_is_stored_as_they_are(model):
    graph = make_graph("random")
    trainer = trainer_of(graph, cut(graph, 1)[0], model=model, features_dtype="bf16")
    trainer.train_epoch()
    (made,) = trainer.graphs.exact._memo.static_results.values()
    assert made.dtype == trainer.graphs.features.dtype == torch.bfloat16


@pytest.mark.usefixtures("multiplied_here")
@pytest.mark.parametrize("model", ["sage-mean", "sage-dropout", "gcn"])
def test_rows_of_a_model_that_is_one_operation_a_layer_travel_in_half_the_bytes(model):
    graph = make_graph("random")
    parts = cut(graph, 3)
    options = {"receptive_field": False, "static_input": True}
    sent = [
        first_step(parts, graph, model, **options, **dtypes)[0][0]["halo_bytes_sent"]
        for dtypes in ({}, BOTH)
    ]
    assert 0 < 2 * sent[1] == sent[0]


@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_layers_keep_half_the_memory(dropout):
    graph = make_graph("random", num_vertices=400)
    sizes, predicted = [], []
    for dtype in ("fp32", "bf16"):
        trainer = trainer_of(
            graph,
            cut(graph, 1)[0],
            layers=3,
            hidden=2048,
            dropout=dropout,
            activations_dtype=dtype,
            receptive_field=False,
        )
        predicted.append(predict_peak_bytes(trainer.model, trainer.graphs))
        trainer.train_epoch()
        sizes.append(trainer.graph.exchange.buffers.num_bytes)
    assert sizes[1] == pytest.approx(sizes[0] / 2, rel=0.01)
    assert predicted[0] - predicted[1] < 3 * sizes[1]


def test_a_line_says_what_is_stored_in_fewer_bytes():
    graph = make_graph("random")
    part = cut(graph, 1)[0]
    plain = trainer_of(graph, part).graphs.savings
    lines = [line for line in trainer_of(graph, part, **BOTH).graphs.savings if line not in plain]
    assert lines == [
        "features: bf16, they and what is made of them once take half the memory",
        "activations: bf16, rows between layers take half the memory and half the traffic",
    ]
    for options, effect in (
        ({"model": "gat"}, "with the gradients of averages; parts of averages travel as fp32"),
        ({"model": "gat", "norm": "layer"}, "; gradients and parts of averages travel as fp32"),
        ({"model": "gat", "residual": True}, "; gradients and parts of averages travel as fp32"),
        ({"model": "gatv2"}, "averages fp32"),
    ):
        attending = trainer_of(graph, part, **options, activations_dtype="bf16").graphs.savings
        (line,) = (line for line in attending if line.startswith("activations: bf16, rows between"))
        assert line.endswith(effect)


@pytest.mark.usefixtures("multiplied_here")
def test_mapped_rows_of_attention_and_gradients_of_its_averages_travel_in_half_the_bytes():
    graph, heads, columns = make_graph("random"), 3, 24
    parts = cut(graph, 3)
    options = {"model": "gat", "heads": heads, "hidden": columns // heads, "layers": 2}
    options |= {"receptive_field": False, "attention_dropout": 0.3}

    def bytes_of_epoch(**dtypes):
        def on_rank(group):
            config = make_config(**options, **dtypes)
            trainer = Trainer(config, ends_of(graph), parts[group.rank], group)
            trainer.train_epoch()
            route = trainer.graph.blocks.forward
            num_read, num_written = route.send.route.num_out, route.reduce.route.num_out
            return trainer.graph.exchange.bytes_sent, num_read, num_written

        return [sum(values) for values in zip(*run_ranks(3, on_rank), strict=True)]

    wide, num_read, num_written = bytes_of_epoch()
    narrow = bytes_of_epoch(activations_dtype="bf16")[0]
    last = heads * ends_of(graph).num_classes
    # Rows of both layers, and gradients of the first, which alone is followed by an activation.
    assert wide - narrow == 2 * (num_read * (columns + last) + num_written * columns) > 0


@pytest.mark.parametrize("algorithm", ["cd-0", "cd-2", "0c"])
def test_a_run_that_is_resumed_has_the_bits_of_one_that_was_not(algorithm, tmp_path):
    graph = make_graph("random")
    parts = cut(graph, 3)
    options = {"algorithm": algorithm, "dropout": 0.3, "epochs": 6, "checkpoint_every": 2, **BOTH}
    straight = run(tmp_path / "straight", graph, parts, make_config(**options))
    run(tmp_path / "resumed", graph, parts, make_config(**options), stop_at=3)
    resumed = run(tmp_path / "resumed", graph, parts, make_config(**options), resume=True)
    for one, other in zip(straight, resumed, strict=True):
        check_same_values(one.trainer.model.state_dict(), other.trainer.model.state_dict())


@pytest.mark.parametrize("model", ["sage", "gcn", "gat"])
def test_recomputed_layers_have_the_same_bits(model):
    graph = make_graph("random")

    def weights(recompute):
        trainer = trainer_of(
            graph, cut(graph, 1)[0], model=model, layers=4, dropout=0.4, recompute=recompute, **BOTH
        )
        for _ in range(3):
            trainer.train_epoch()
        return trainer.model.state_dict()

    check_same_values(weights(True), weights(False))


@pytest.mark.parametrize("name", ["sage-mean", "gcn", "gat"])
def test_a_processor_that_is_left_to_torch_gives_nearly_the_same(name, monkeypatch):
    graph = make_graph("random")
    expected = first_step(cut(graph, 1), graph, name, **BOTH)
    for module in (linear, convolution, gat):
        monkeypatch.setattr(module, "is_multiplied_here", lambda rows, weight: False)
    check_close(first_step(cut(graph, 1), graph, name, **BOTH), expected)


def test_ranks_draw_the_masks_of_one_process_for_rows_of_bfloat16():
    graph = make_graph("random")

    def zeros(group, parts):
        config = make_config(input_dropout=0.4, **BOTH)
        trainer = Trainer(config, ends_of(graph), parts[group.rank], group)
        rows = trainer.graph.dropout(trainer.inputs.features, 0.4)
        assert rows.dtype == torch.bfloat16
        num_roots = parts[group.rank].num_roots
        return dict(zip(parts[group.rank].global_id[:num_roots].tolist(), rows, strict=True))

    whole = run_ranks(1, lambda group: zeros(group, cut(graph, 1)))[0]
    parts = cut(graph, 3)
    for found in run_ranks(3, lambda group: zeros(group, parts)):
        check_same_values(found, {vertex: whole[vertex] for vertex in found})
