"""Rows of learned tables that can have no gradient: the same training without sending them."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from graphs import cut, make_graph
from torch import nn
from training import check_same_values, ends_of, make_config

from distgnn.comm.single import SingleGroup
from distgnn.comm.threads import run_ranks
from distgnn.datasets import load
from distgnn.exchange.base import all_reduce_bytes
from distgnn.exchange.clock import Clock
from distgnn.forecast.traffic import forecast
from distgnn.partition import assign
from distgnn.partition.directory.store import read_manifest, read_part, write
from distgnn.partition.quality import measure
from distgnn.training.loop.trainer import Trainer
from distgnn.weights.summed_gradients import SummedGradients
from distgnn.weights.table_rows import NO_TABLES, TableRows


def few_train():
    """A typed graph without features, of which few vertices train."""
    graph = make_graph("featureless", num_vertices=90, seed=3)
    train = graph.train_mask.copy()
    train[:, 12:] = False
    return dataclasses.replace(graph, train_mask=train)


def trained(parts, graph, *, sends_all=False, **options):
    """Records, state and learned rows of each rank after some epochs."""
    config = make_config(**{"model": "rgcn", "epochs": 4, **options})

    def on_rank(group):
        trainer = Trainer(config, ends_of(graph), parts[group.rank], group)
        if sends_all:
            trainer.weights.tables = NO_TABLES
        records = list(trainer.epochs())
        state = {**trainer.model.state_dict(), "moments": trainer.optimizer.state_dict()}
        return records, state, trainer.weights.tables

    return run_ranks(len(parts), on_rank, timeout_s=600)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"layers": 1, "weight_decay": 0.0},
        {"layers": 3, "optimizer": "adamw", "dropout": 0.4},
        {"optimizer": "sgd", "lr": 0.1, "clip_grad_norm": 0.01},
        {"model": "rsage", "relation_norm": "all", "algorithm": "cd-2"},
        {"algorithm": "0c"},
    ],
)
@pytest.mark.parametrize("num_parts", [2, 3])
def test_leaving_them_out_changes_no_bit(num_parts, options):
    graph = few_train()
    parts = cut(graph, num_parts, how="either-end")
    fewer = trained(parts, graph, **options)
    whole = trained(parts, graph, sends_all=True, **options)
    for (records, state, tables), (all_records, all_state, _) in zip(fewer, whole, strict=True):
        assert [each["loss"] for each in records] == [each["loss"] for each in all_records]
        check_same_values(state, all_state)
        assert tables.num_left_out > 0
        assert records[0]["weight_bytes_sent"] < all_records[0]["weight_bytes_sent"]


def test_moments_of_rows_that_are_left_out_are_as_if_they_were_sent():
    """Weight decay alone made them, on every rank alike."""
    graph = few_train()
    parts = cut(graph, 2, how="either-end")
    words = {"weights": "qadam(2)", "weight_decay": 0.01}
    fewer = trained(parts, graph, **words)
    whole = trained(parts, graph, sends_all=True, **words)
    for (_, state, tables), (_, all_state, _) in zip(fewer, whole, strict=True):
        check_same_values(state, all_state)
        assert tables.num_left_out > 0


def test_every_rank_sends_the_rows_of_all_ranks():
    graph = few_train()
    results = trained(cut(graph, 3), graph)
    for _, _, tables in results:
        check_same_values(dict(enumerate(tables.rows)), dict(enumerate(results[0][2].rows)))
    alone = trained(cut(graph, 1), graph)[0][2]
    check_same_values(dict(enumerate(results[0][2].rows)), dict(enumerate(alone.rows)))


def test_rows_that_are_left_out_have_no_gradient():
    graph = few_train()
    config = make_config(model="rgcn")

    def on_rank(group):
        trainer = Trainer(config, ends_of(graph), cut(graph, 2)[group.rank], group)
        trainer.weights.tables, tables = NO_TABLES, trainer.weights.tables
        grads = []
        trainer.optimizer.step = lambda: grads.extend(table.grad for table in tables.tables)
        trainer.train_epoch()
        return [
            (grad.count_nonzero(dim=1).bool(), rows)
            for grad, rows in zip(grads, tables.rows, strict=True)
        ]

    for found in run_ranks(2, on_rank):
        assert len(found) == 2
        for has_gradient, rows in found:
            sent = torch.zeros_like(has_gradient)
            sent[rows] = True
            assert not (has_gradient & ~sent).any()
            assert has_gradient.sum() >= 0.9 * len(rows)


def test_all_rows_are_sent_where_the_loss_reads_all():
    graph = few_train()
    for options in ({"norm": "batch"}, {"receptive_field": False}):
        tables = trained(cut(graph, 2), graph, epochs=1, **options)[0][2]
        # Some vertices have no edges, but each has a row of its own.
        assert tables.num_left_out == 0
    assert list(tables.savings) == [
        "learned tables: 100.0 % of the rows can have a gradient and are summed"
    ]
    assert not list(NO_TABLES.savings)


def test_the_sum_is_that_of_the_rows_on_any_rank():
    def on_rank(group):
        table, other = nn.Parameter(torch.zeros(6, 2)), nn.Parameter(torch.zeros(3))
        own = torch.tensor([group.rank, 4])
        tables = TableRows.find([(table, own)], group)
        table.grad = torch.zeros(6, 2).index_fill_(0, own, 1.0 + group.rank)
        other.grad = torch.full((3,), 1.0)
        sums = SummedGradients(group, Clock(), tables)
        sums.sum([table, other])
        return table.grad, other.grad, sums.take_bytes(), tables

    for grad, other, sent, tables in run_ranks(2, on_rank):
        assert grad[:, 0].tolist() == [1, 2, 0, 0, 3, 0]
        assert other.tolist() == [2, 2, 2]
        assert sent == all_reduce_bytes(4 * (3 * 2 + 3), 2)
        assert tables.num_left_out == 3
        assert list(tables.savings) == [
            "learned tables: 50.0 % of the rows can have a gradient and are summed"
        ]


def test_one_rank_sends_nothing():
    table = nn.Parameter(torch.zeros(3, 2))
    tables = TableRows.find([(table, torch.tensor([1]))], SingleGroup())
    sums = SummedGradients(SingleGroup(), Clock(), tables)
    sums.sum([table])
    assert sums.take_bytes() == 0
    assert table.grad.tolist() == [[0, 0]] * 3


@pytest.mark.slow
def test_am_kg_sends_a_twelfth_with_the_same_losses(data_dir, tmp_path):
    graph = load(str(data_dir / "am-kg.npz"), inverse_relations=True)
    directory, config = tmp_path / "parts", make_config(model="rgcn", hidden=16)
    assignment = assign("random", graph, 4, seed=0)
    quality = measure(graph, assignment)
    write(directory, graph, assignment, method="random", options={}, seed=0, quality=quality)
    manifest = read_manifest(directory)
    parts = [read_part(directory, number) for number in range(4)]
    options = {"hidden": 16, "epochs": 2, "eval_every": 9}
    fewer, whole = (
        trained(parts, graph, sends_all=sends_all, **options)[0][0] for sends_all in (False, True)
    )
    assert [each["loss"] for each in fewer] == [each["loss"] for each in whole]
    assert 11.7 * fewer[0]["weight_bytes_sent"] < whole[0]["weight_bytes_sent"]
    found = forecast(directory, manifest, config)
    assert fewer[0]["weight_bytes_sent"] == found.weight_bytes
