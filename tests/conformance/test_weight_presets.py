"""Promises that every preset of weights keeps, on any number of ranks."""

from __future__ import annotations

import math

import pytest
from graphs import cut, make_graph
from training import check_same_values, make_config, run

from distgnn.training.config.codecs import parse_weights
from distgnn.training.config.presets import PRESETS

SIZES = (1, 2, 3, 4, pytest.param(8, marks=pytest.mark.slow))
NAMES = [name for name, preset in PRESETS.items() if parse_weights(preset.weights).is_local]
EPOCHS = 7


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.slow
def test_a_resumed_run_has_the_bits_of_the_straight_one(name, size, tmp_path):
    graph = make_graph()
    parts = cut(graph, size)
    config = make_config(
        preset=name, epochs=EPOCHS, checkpoint_every=1, dropout=0.3, norm="batch", eval_every=2
    )
    straight = run(tmp_path / "straight", graph, parts, config)
    run(tmp_path / "again", graph, parts, config, stop_at=4)
    again = run(tmp_path / "again", graph, parts, config, resume=True)
    for one, other in zip(again, straight, strict=True):
        for key in ("loss", "val_metric", "weight_bytes_sent", "weight_syncs"):
            assert [r[key] for r in one.records] == [r[key] for r in other.records]
        check_same_values(one.trainer.model.state_dict(), other.trainer.model.state_dict())
        check_same_values(one.trainer.optimizer.state_dict(), other.trainer.optimizer.state_dict())
    assert all(math.isfinite(record["loss"]) for record in straight[0].records)


@pytest.mark.parametrize("name", NAMES)
def test_one_rank_sends_nothing_and_has_the_bits_of_exact_training(name, tmp_path):
    graph = make_graph()
    parts = cut(graph, 1)
    [own] = run(tmp_path / "own", graph, parts, make_config(preset=name, epochs=EPOCHS))
    [exact] = run(tmp_path / "exact", graph, parts, make_config(epochs=EPOCHS))
    assert {record["weight_bytes_sent"] for record in own.records} == {0}
    check_same_values(own.trainer.model.state_dict(), exact.trainer.model.state_dict())
