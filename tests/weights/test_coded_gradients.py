"""Gradients that are coded while ranks add them up: equal replicas, exact small tensors, resume."""

from __future__ import annotations

import pytest
import torch
from graphs import cut, make_graph
from torch import nn
from training import check_same_values, ends_of, make_config, run

from distgnn.comm.threads import run_ranks
from distgnn.datasets import InputError
from distgnn.exchange.clock import Clock
from distgnn.exchange.codec import EXACT, CodecSpec
from distgnn.ops.buffers import Buffers
from distgnn.training.loop.trainer import Trainer
from distgnn.weights.layout import LEAST_VALUES, WIDTH, Layout
from distgnn.weights.summed_gradients import SummedGradients

WIDE = {"model": "gcn", "hidden": 40, "layers": 3, "dropout": 0.2, "norm": "layer"}
"""A model whose inner map is large enough to be coded, and no other tensor."""


def trained(num_parts, **options):
    """Losses and state of each rank after 5 epochs."""
    graph = make_graph()
    parts, config = cut(graph, num_parts), make_config(**{**WIDE, "epochs": 5, **options})

    def on_rank(group):
        trainer = Trainer(config, ends_of(graph), parts[group.rank], group)
        losses = [record["loss"] for record in trainer.epochs()]
        return losses, {**trainer.model.state_dict(), "moments": trainer.optimizer.state_dict()}

    return run_ranks(num_parts, on_rank)


@pytest.mark.parametrize("num_parts", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("weights", ["bf16", "int8", "int4", "int2", "int1"])
def test_replicas_stay_the_same_to_the_bit(weights, num_parts):
    results = trained(num_parts, weights=weights)
    for losses, state in results[1:]:
        assert losses == results[0][0]
        check_same_values(state, results[0][1])
    exact = trained(num_parts)[0]
    assert (results[0][0] == exact[0]) == (num_parts == 1)
    assert results[0][0][0] == exact[0][0]


@pytest.mark.parametrize("num_parts", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("weights", ["machines(2)", "int8+machines(2)", "int4+machines(3)"])
@pytest.mark.slow
def test_replicas_stay_the_same_where_machines_add_up_first(weights, num_parts):
    results = trained(num_parts, weights=weights)
    for losses, state in results[1:]:
        assert losses == results[0][0]
        check_same_values(state, results[0][1])
    assert results[0][0] == pytest.approx(trained(num_parts)[0][0], rel=0.05)


@pytest.mark.parametrize("num_parts", [1, 2, 3, 4, 8])
def test_the_exact_code_has_the_bits_of_one_all_reduce(num_parts):
    def on_rank(group):
        sums = SummedGradients(group, Clock(), codec=EXACT)
        table = nn.Parameter(torch.zeros(70, 50))
        generator = torch.Generator().manual_seed(group.rank)
        table.grad = torch.randn(table.shape, generator=generator)
        expected = table.grad.clone()
        if group.size > 1:
            group.all_reduce(expected)
        sums.sum([table])
        return table.grad, expected

    for grad, expected in run_ranks(num_parts, on_rank):
        assert torch.equal(grad, expected)


@pytest.mark.parametrize("words", ["sum", "exact", "fp32"])
def test_names_of_the_exact_sum(words):
    check_same_values(dict(trained(3, weights=words)[0][1]), dict(trained(3)[0][1]))
    assert make_config(weights=words).weights == "sum"


def test_vectors_small_tensors_and_float64_are_summed_exactly():
    shapes = [(LEAST_VALUES,), (LEAST_VALUES - 1, 1), (2, LEAST_VALUES // 2), (), (0, 4)]

    def on_rank(group):
        generator = torch.Generator().manual_seed(group.rank)
        made = [torch.randn(shape, generator=generator) for shape in shapes]
        made.append(torch.randn(64, 64, generator=generator).double())
        parameters = [nn.Parameter(torch.zeros_like(each)) for each in made]
        for parameter, grad in zip(parameters, made, strict=True):
            parameter.grad = grad.clone()
        SummedGradients(group, Clock(), codec=CodecSpec(4)).sum(parameters)
        for each in made:
            group.all_reduce(each)
        return [
            torch.equal(parameter.grad, grad)
            for parameter, grad in zip(parameters, made, strict=True)
        ]

    for found in run_ranks(3, on_rank):
        assert found == [True, True, False, True, True, True]


def test_the_end_of_a_tensor_changes_no_unit():
    shapes = [(3, 500), (4,), (1030, 1)]
    layout = Layout.of(shapes, CodecSpec(8))
    assert layout.is_coded == (True, False, True)
    assert (layout.num_rows, layout.num_exact) == (3 + 3, 4)
    tensors = [torch.arange(1.0, 1 + torch.Size(shape).numel()).reshape(shape) for shape in shapes]
    rows = layout.rows(tensors, Buffers())
    assert rows.shape == (6, WIDTH)
    assert rows[2, 1500 - 2 * WIDTH :].unique().tolist() == [1500]
    assert rows[5, 1030 - 2 * WIDTH :].unique().tolist() == [1030]
    for tensor, again in zip(tensors, layout.split(tensors[1], rows), strict=True):
        assert torch.equal(tensor, again)


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
@pytest.mark.parametrize("weights", ["int8", "int4(round=near)"])
def test_a_resumed_run_has_the_bits_of_the_straight_one(weights, optimizer, tmp_path):
    graph = make_graph()
    parts = cut(graph, 3)
    options = {**WIDE, "epochs": 8, "checkpoint_every": 3, "clip_grad_norm": 0.05, "ema": 0.5}
    config = make_config(**options, weights=weights, optimizer=optimizer)
    straight = run(tmp_path / "straight", graph, parts, config)
    run(tmp_path / "again", graph, parts, config, stop_at=4)
    again = run(tmp_path / "again", graph, parts, config, resume=True)
    for one, other in zip(again, straight, strict=True):
        assert [r["loss"] for r in one.records] == [r["loss"] for r in other.records]
        check_same_values(one.trainer.model.state_dict(), other.trainer.model.state_dict())
        check_same_values(one.trainer.optimizer.state_dict(), other.trainer.optimizer.state_dict())


def test_resuming_with_another_code_is_a_difference():
    one, other = make_config(weights="int8"), make_config(weights="int4")
    assert one.differences(other) == ["weights (begun with int8, now int4)"]


@pytest.mark.parametrize("name", ["bytegrad", "cgx"])
def test_a_preset_codes_gradients_too(name):
    config = make_config(preset=name)
    assert config.weight_rule == make_config(weights=name).weight_rule
    assert config.weight_rule.codec != EXACT


def test_a_preset_beside_another_code_of_gradients_is_refused():
    sentence = (
        "--preset cgx and --weights int8 both say what gradients are sent as; give one of them"
    )
    with pytest.raises(InputError, match=sentence):
        make_config(preset="cgx", weights="int8")


def test_an_unknown_code_is_refused():
    with pytest.raises(InputError, match=r"^--weights has no item 'int3'"):
        make_config(weights="int3")
