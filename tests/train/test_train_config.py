"""The configuration of a run: what is allowed, and what a resumed run may change."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from training import make_config

from distgnn.datasets import InputError
from distgnn.nn.models import ModelConfig
from distgnn.train.config import TrainConfig

NAN, INFINITY = float("nan"), float("inf")

REFUSED = [
    ({"model": "gin"}, "--model must be one of sage, gcn, gat, got 'gin'"),
    ({"aggregator": "sum"}, "--aggregator must be one of mean, gcn, max, got 'sum'"),
    ({"norm": "group"}, "--norm must be one of none, batch, layer, got 'group'"),
    ({"jumping": "lstm"}, "--jumping must be one of none, cat, max, got 'lstm'"),
    ({"optimizer": "lion"}, "--optimizer must be one of adam, adamw, sgd, got 'lion'"),
    ({"feature_norm": "l2"}, "--feature-norm must be one of none, row, standard, got 'l2'"),
    ({"features_dtype": "fp16"}, "--features-dtype must be one of fp32, bf16, got 'fp16'"),
    ({"activations_dtype": "half"}, "--activations-dtype must be one of fp32, bf16, got 'half'"),
    ({"heads": 0}, "--heads must be at least 1, got 0"),
    ({"hidden": 0}, "--hidden must be at least 1, got 0"),
    ({"layers": 0}, "--layers must be at least 1, got 0"),
    ({"epochs": 0}, "--epochs must be at least 1, got 0"),
    ({"seed": -1}, "--seed must be at least 0, got -1"),
    ({"seed": 2**63}, r"--seed must be below 2\*\*63, got 9223372036854775808"),
    ({"eval_every": 0}, "--eval-every must be at least 1, got 0"),
    ({"patience": -1}, "--patience must be at least 0, got -1"),
    ({"split_index": -1}, "--split-index must be at least 0, got -1"),
    ({"checkpoint_every": -1}, "--checkpoint-every must be at least 0, got -1"),
    ({"weight_decay": -0.1}, "--weight-decay must be at least 0 and finite, got -0.1"),
    ({"weight_decay": INFINITY}, "--weight-decay must be at least 0 and finite, got inf"),
    ({"weight_decay": NAN}, "--weight-decay must be at least 0 and finite, got nan"),
    ({"dropout": 1.0}, "--dropout must be at least 0 and below 1, got 1.0"),
    ({"dropout": NAN}, "--dropout must be at least 0 and below 1, got nan"),
    ({"input_dropout": -0.1}, "--input-dropout must be at least 0 and below 1, got -0.1"),
    ({"lr": 0.0}, "--lr must be positive and finite, got 0.0"),
    ({"lr": INFINITY}, "--lr must be positive and finite, got inf"),
    ({"lr": NAN}, "--lr must be positive and finite, got nan"),
    (
        {"model": "gcn", "aggregator": "max"},
        "--aggregator max has no effect on --model gcn; drop it or use --model sage",
    ),
    (
        {"model": "gat", "aggregator": "gcn"},
        "--aggregator gcn has no effect on --model gat; drop it or use --model sage",
    ),
    ({"heads": 8}, "--heads 8 has no effect on --model sage; drop it or use --model gat"),
    *(
        (
            {"algorithm": name},
            "--algorithm must be 0c, cd-0 or cd-R with R the delay in epochs, got",
        )
        for name in ("cd", "cd-", "cd--1", "cd-1.5", "CD-1", "1c", "", "cd-0 ", "cd-" + "9" * 5000)
    ),
    (
        {"reweight_loss": True},
        "--reweight-loss has an effect with --algorithm 0c only; drop one of the two",
    ),
    (
        {"delay_cache": False},
        "--delay-cache off has no effect with --algorithm cd-0; use cd-R with R at least 1",
    ),
    (
        {"delay_cache": False, "algorithm": "0c"},
        "--delay-cache off has no effect with --algorithm 0c; use cd-R with R at least 1",
    ),
]


@pytest.mark.parametrize(("options", "expected"), REFUSED)
def test_a_value_that_is_not_allowed_is_refused_with_its_flag(options, expected):
    with pytest.raises(InputError, match=f"^{expected}"):
        make_config(**options)


def test_the_defaults_are_allowed_and_synchronous():
    config = TrainConfig()
    assert (config.algorithm, config.delay, config.is_isolated) == ("cd-0", 0, False)


@pytest.mark.parametrize(
    ("algorithm", "delay", "is_isolated"),
    [("0c", 0, True), ("cd-0", 0, False), ("cd-1", 1, False), ("cd-25", 25, False)],
)
def test_an_algorithm_says_its_delay(algorithm, delay, is_isolated):
    config = make_config(algorithm=algorithm)
    assert (config.delay, config.is_isolated) == (delay, is_isolated)


@pytest.mark.parametrize(
    "config",
    [
        TrainConfig(),
        make_config(model="gat", heads=8),
        make_config(model="gcn", norm="batch", optimizer="sgd", lr=0.1, seed=2**63 - 1),
        make_config(algorithm="0c", reweight_loss=True, jumping="cat", patience=5),
        make_config(algorithm="cd-5", delay_cache=False, weight_decay=0),
    ],
)
def test_json_gives_the_same_configuration_back(config):
    assert TrainConfig.from_json(json.loads(json.dumps(config.to_json()))) == config


def values_with(**changes):
    values = TrainConfig().to_json()
    model = {name: changes.pop(name) for name in list(changes) if name in values["model"]}
    return {**values, **changes, "model": {**values["model"], **model}}


def without(name):
    values = TrainConfig().to_json()
    del (values if name in values else values["model"])[name]
    return values


FIELDS = r"the run's configuration must have the fields \[.*\], got {}.*; it was written by another"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, FIELDS.format(r"\[\]")),
        (None, FIELDS.format("None")),
        ([1], FIELDS.format(r"\[1\]")),
        ("text", FIELDS.format("text")),
        (without("lr"), FIELDS.format(r"\[")),
        (without("hidden"), FIELDS.format(r"\[")),
        ({**TrainConfig().to_json(), "momentum": 0.9}, FIELDS.format(r"\[")),
        ({**TrainConfig().to_json(), "model": "sage"}, FIELDS.format("sage")),
    ],
)
def test_json_with_other_fields_is_refused(values, expected):
    with pytest.raises(InputError, match=expected):
        TrainConfig.from_json(values)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"epochs": "9"}, "holds '9' for epochs, which must be of type int; it was altered: train"),
        ({"epochs": 2.5}, "holds 2.5 for epochs, which must be of type int"),
        ({"hidden": True}, "holds True for hidden, which must be of type int"),
        ({"lr": None}, "holds None for lr, which must be of type float"),
        ({"delay_cache": 1}, "holds 1 for delay_cache, which must be of type bool"),
        ({"algorithm": 5}, "holds 5 for algorithm, which must be of type str"),
        ({"norm": ["batch"]}, r"holds \['batch'\] for norm, which must be of type str"),
        ({"epochs": 0}, "--epochs must be at least 1, got 0"),
    ],
)
def test_json_with_a_value_of_another_type_is_refused(changes, expected):
    with pytest.raises(InputError, match=expected):
        TrainConfig.from_json(values_with(**changes))


def test_a_resumed_run_may_change_how_long_it_runs_and_how_often_it_saves():
    begun = make_config(epochs=10, patience=3, checkpoint_every=5)
    assert begun.differences(replace(begun, epochs=20, patience=0, checkpoint_every=1)) == []


def test_a_resumed_run_may_change_nothing_else():
    begun = TrainConfig()
    now = replace(begun, lr=0.5, algorithm="cd-2", model=ModelConfig(hidden=7))
    assert begun.differences(now) == [
        "lr (begun with 0.01, now 0.5)",
        "algorithm (begun with cd-0, now cd-2)",
        "hidden (begun with 64, now 7)",
    ]
