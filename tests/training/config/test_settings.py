"""The configuration of a run: what is allowed, and what a resumed run may change."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from training import make_config

from distgnn.datasets import InputError
from distgnn.exchange.rule import delayed
from distgnn.nn.config import ModelConfig
from distgnn.training.config import data
from distgnn.training.config.settings import TrainConfig
from distgnn.training.tasks import tasks

NAN, INFINITY = float("nan"), float("inf")

REFUSED = [
    (
        {"model": "gtn"},
        "--model must be one of sage, gcn, gat, gatv2, gin, sgc, appnp, rgcn, rsage, got 'gtn'",
    ),
    ({"aggregator": "sum"}, "--aggregator must be one of mean, gcn, max, pool, got 'sum'"),
    ({"activation": "gelu"}, "--activation must be one of relu, elu, got 'gelu'"),
    ({"degrees": "out"}, "--degrees must be one of in, out-in, got 'out'"),
    ({"model": "sgc", "hops": 0}, "--hops must be at least 1, got 0"),
    ({"model": "appnp", "alpha": 0.0}, "--alpha must be above 0 and at most 1, got 0.0"),
    ({"model": "appnp", "alpha": NAN}, "--alpha must be above 0 and at most 1, got nan"),
    ({"model": "gin", "eps": INFINITY}, "--eps must be finite, got inf"),
    ({"norm": "group"}, "--norm must be one of none, batch, layer, got 'group'"),
    ({"jumping": "lstm"}, "--jumping must be one of none, cat, max, last, got 'lstm'"),
    ({"optimizer": "lion"}, "--optimizer must be one of adam, adamw, sgd, kfac, lbfgs, got 'lion'"),
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
    ({"goal": INFINITY}, "--goal must be finite, got inf"),
    ({"split_index": -1}, "--split-index must be at least 0, got -1"),
    ({"checkpoint_every": -1}, "--checkpoint-every must be at least 0, got -1"),
    ({"weight_decay": -0.1}, "--weight-decay must be at least 0 and finite, got -0.1"),
    ({"weight_decay": INFINITY}, "--weight-decay must be at least 0 and finite, got inf"),
    ({"weight_decay": NAN}, "--weight-decay must be at least 0 and finite, got nan"),
    ({"dropout": 1.0}, "--dropout must be at least 0 and below 1, got 1.0"),
    ({"dropout": NAN}, "--dropout must be at least 0 and below 1, got nan"),
    ({"input_dropout": -0.1}, "--input-dropout must be at least 0 and below 1, got -0.1"),
    *(
        (
            {"labels_as_input": share},
            f"--labels-as-input must be at least 0 and below 1, got {share}",
        )
        for share in (-0.1, 1.0, NAN)
    ),
    (
        {"labels_as_input": 0.5, "model": "rgcn"},
        "--labels-as-input 0.5 does not go with --model rgcn; drop one of the two",
    ),
    (
        {"labels_as_input": 0.5, "algorithm": "cd-2"},
        "--labels-as-input 0.5 would let rows that --algorithm cd-2 delays hold labels that the ",
    ),
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
    (
        {"hops": 3},
        "--hops 3 has no effect on --model sage; drop it or use --model sgc or appnp",
    ),
    (
        {"learn_eps": True},
        "--learn-eps has no effect on --model sage; drop it or use --model gin",
    ),
    (
        {"heads": 8},
        "--heads 8 has no effect on --model sage; drop it or use --model gat or gatv2",
    ),
    ({"model": "gat", "last_heads": -1}, "--last-heads must be at least 0, got -1"),
    (
        {"model": "gat", "last_heads": 1, "jumping": "cat"},
        "--last-heads 1 has no effect with --jumping cat, whose linear layer gives the classes",
    ),
    *(
        (
            {"model": "appnp", "jumping": name},
            f"--jumping {name} leaves out the last layer, but --model appnp reads neighbours in no",
        )
        for name in ("cat", "max", "last")
    ),
    (
        {"model": "gat", "attention_dropout": 1.0},
        "--attention-dropout must be at least 0 and below 1, got 1.0",
    ),
    (
        {"overlap": False, "algorithm": "cd-2"},
        "--overlap off has an effect with --algorithm cd-0 only, got cd-2; drop one of the two",
    ),
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
        {"coverage_correction": 0.5},
        "--coverage-correction 0.5 has an effect with --algorithm 0c only, got cd-0; drop one",
    ),
    (
        {"algorithm": "0c", "coverage_correction": 0.5, "reweight_loss": True},
        "--coverage-correction 0.5 and --reweight-loss both weigh vertices by the in-edges that",
    ),
    (
        {"algorithm": "0c", "coverage_correction": 1.5},
        "--coverage-correction must be at least 0 and at most 1, got 1.5",
    ),
    *(
        (
            {"algorithm": algorithm, **options},
            f"{given} has no effect with --algorithm {algorithm}; use cd-R with R at least 1",
        )
        for algorithm in ("cd-0", "0c")
        for options, given in (
            ({"bins": 2}, "--bins 2"),
            ({"delay": 3}, "--delay 3"),
            ({"delay_cache": False}, "--delay-cache off"),
            ({"gradient_cache": False}, "--gradient-cache off"),
            ({"smoothing": 0.5}, "--smoothing 0.5"),
            ({"gradient_smoothing": 0.5}, "--gradient-smoothing 0.5"),
            ({"warm_up_epochs": 2}, "--warm-up-epochs 2"),
        )
    ),
    *(
        ({"algorithm": "cd-2", **options}, expected)
        for options, expected in (
            ({"bins": 0}, "--bins must be at least 1, got 0"),
            ({"delay": -1}, "--delay must be at least 0, got -1"),
            ({"warm_up_epochs": -1}, "--warm-up-epochs must be at least 0, got -1"),
            ({"smoothing": 1.0}, "--smoothing must be at least 0 and below 1, got 1.0"),
            ({"smoothing": NAN}, "--smoothing must be at least 0 and below 1, got nan"),
            (
                {"gradient_smoothing": -0.5},
                "--gradient-smoothing must be at least 0 and below 1, got -0.5",
            ),
            ({"bins": 1, "delay": 0}, "--bins 1 --delay 0 delays nothing; use --algorithm cd-0"),
            (
                {"bins": 1, "delay_cache": False},
                "--delay-cache off has no effect with 1 bin, as all rows arrive in every epoch; ",
            ),
            (
                {"bins": 1, "gradient_cache": False},
                "--gradient-cache off has no effect with 1 bin, as all rows arrive in every ep",
            ),
            (
                {"smoothing": 0.5, "delay_cache": False},
                "--smoothing 0.5 averages the values of a row, but --delay-cache off drops them;",
            ),
            (
                {"gradient_smoothing": 0.5, "gradient_cache": False},
                "--gradient-smoothing 0.5 averages the values of a row, but --gradient-cache off ",
            ),
            (
                {"smoothing": 0.5, "model": "gat"},
                "--smoothing 0.5 averages sums, but --model gat sends others; use --smoothing 0 ",
            ),
            (
                {"gradient_smoothing": 0.5, "aggregator": "max"},
                "--gradient-smoothing 0.5 averages sums, but --aggregator max sends others; use -",
            ),
            (
                {"smoothing": 0.5, "aggregator": "pool"},
                "--smoothing 0.5 averages sums, but --aggregator pool sends others; use -",
            ),
        )
    ),
]


@pytest.mark.parametrize(("options", "expected"), REFUSED)
def test_a_value_that_is_not_allowed_is_refused_with_its_flag(options, expected):
    with pytest.raises(InputError, match=f"^{expected}"):
        make_config(**options)


def test_names_of_metrics_are_those_that_the_tasks_measure():
    assert data.METRIC_NAMES == tasks.METRIC_NAMES


def test_the_defaults_are_allowed_and_synchronous():
    config = TrainConfig()
    assert (config.algorithm, config.is_isolated) == ("cd-0", False)
    assert config.halo_rule.is_synchronous


@pytest.mark.parametrize(
    ("algorithm", "bins", "delay", "is_isolated"),
    [("0c", 1, 0, True), ("cd-0", 1, 0, False), ("cd-1", 1, 1, False), ("cd-25", 25, 25, False)],
)
def test_an_algorithm_says_its_bins_and_its_delay(algorithm, bins, delay, is_isolated):
    config = make_config(algorithm=algorithm)
    assert config.halo_rule == delayed(num_bins=bins, delay=delay)
    assert config.is_isolated == is_isolated


def test_flags_override_what_the_algorithm_says():
    plain = make_config(algorithm="cd-5", bins=1, smoothing=0.5, warm_up_epochs=2)
    both = (True, 0.5)
    assert plain.halo_rule == delayed(delay=5, warm_up_epochs=2, forward=both, backward=both)
    paper = make_config(algorithm="cd-5", delay=0, delay_cache=False)
    assert paper.halo_rule == delayed(num_bins=5, forward=(False, 0.0), backward=(False, 0.0))
    mixed = make_config(algorithm="cd-5", gradient_cache=False, smoothing=0.25)
    either = (mixed.halo_rule.forward, mixed.halo_rule.backward)
    assert [(rule.is_cached, rule.smoothing) for rule in either] == [(True, 0.25), (False, 0.0)]
    gradients = make_config(algorithm="cd-5", gradient_smoothing=0.25)
    either = (gradients.halo_rule.forward, gradients.halo_rule.backward)
    assert [(rule.is_cached, rule.smoothing) for rule in either] == [(True, 0.0), (True, 0.25)]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"algorithm": "cd-2", "bins": 4097}, "--bins must be from 1 to 4096, got 4097"),
        (
            {"algorithm": "cd-5000"},
            "--algorithm cd-5000 deals rows among 5000 bins, but at most 4096 are allowed; use a ",
        ),
    ],
)
def test_too_many_bins_are_refused_with_the_flag_they_come_from(options, expected):
    with pytest.raises(InputError, match=f"^{expected}"):
        make_config(**options)
    make_config(algorithm="cd-5000", bins=4096)


@pytest.mark.parametrize(
    "config",
    [
        TrainConfig(),
        make_config(model="gat", heads=8),
        make_config(model="gcn", norm="batch", optimizer="sgd", lr=0.1, seed=2**63 - 1),
        make_config(algorithm="0c", reweight_loss=True, jumping="cat", patience=5),
        make_config(algorithm="cd-5", delay_cache=False, weight_decay=0),
        make_config(algorithm="cd-5", delay=0, gradient_cache=False, smoothing=0.5),
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
        ({"bins": None}, "holds None for bins, which must be of type int"),
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
    now = TrainConfig(lr=0.5, algorithm="cd-2", warm_up_epochs=9, model=ModelConfig(hidden=7))
    assert begun.differences(now) == [
        "lr (begun with 0.01, now 0.5)",
        "algorithm (begun with cd-0, now cd-2)",
        "bins (begun with 1, now 2)",
        "delay (begun with 0, now 2)",
        "warm_up_epochs (begun with 0, now 9)",
        "hidden (begun with 64, now 7)",
    ]
