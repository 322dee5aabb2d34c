"""Search spaces: what is read, what is drawn, and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest

from distgnn.datasets.errors import InputError
from distgnn.tuning.samplers import GridSampler, RandomSampler, changed_settings
from distgnn.tuning.space import Choice, Numbers, Space, WholeNumbers, split_words
from distgnn.tuning.trial import Trial


def test_every_form_is_read():
    space = Space.of(
        {
            "lr": "log(1e-4, 1e-1)",
            "dropout": "uniform(0,0.6)",
            "layers": "int(2,4)",
            "model": "choice(gcn, gat)",
            "hidden": [16, 32],
            "residual": "choice(on,off)",
        }
    )
    assert space.values == {
        "lr": Numbers(1e-4, 1e-1, is_log=True),
        "dropout": Numbers(0.0, 0.6),
        "layers": WholeNumbers(2, 4),
        "model": Choice(("gcn", "gat")),
        "hidden": Choice((16, 32)),
        "residual": Choice((True, False)),
    }


@pytest.mark.parametrize(
    ("search", "sentence"),
    [
        ({}, "tune needs a setting to search; give --search"),
        ({"colour": "choice(1,2)"}, "--search colour: train has no such setting"),
        ({"epochs": "int(1,9)"}, "--search epochs: train has no such setting"),
        ({"lr": "log(0,1)"}, "is not allowed; --lr must be positive and finite"),
        ({"dropout": "log(0,0.5)"}, "a logarithmic range starts above 0"),
        ({"lr": "uniform(0.5,0.1)"}, "the first bound must be below the second"),
        ({"lr": "uniform(0.5)"}, "uniform takes two bounds, got 1"),
        ({"lr": "normal(0,1)"}, "no such form; write NAME=log(1e-4,1e-1)"),
        ({"lr": "int(1,2)"}, "--lr takes a number; use log(LOW,HIGH)"),
        ({"hidden": "log(1,2)"}, "--hidden takes a whole number; use int(LOW,HIGH)"),
        ({"model": "uniform(1,2)"}, "--model takes a name or a switch; use choice(...)"),
        ({"model": "choice(gcn,cnn)"}, "'cnn' is not allowed; --model is one of sage, gcn"),
        ({"hidden": "choice(16,)"}, "a value is empty"),
        ({"hidden": "choice(16,x)"}, "'x' is not allowed; --hidden takes a whole number"),
        ({"hidden": "choice(0,1)"}, "'0' is not allowed; --hidden must be at least 1"),
        ({"hidden": [16.7]}, "--search hidden: 16.7 is not allowed; --hidden takes a whole number"),
        ({"metric": "choice(mse,r2)"}, "trials that differ in --metric cannot be compared; give"),
        ({"select_by": "choice(metric,loss)"}, "trials that differ in --select-by cannot be comp"),
        ({"split_index": [0, 1]}, "trials that differ in --split-index cannot be compared; give"),
        ({"hidden": []}, "search of hidden must be a text or a list of values, got []"),
        ({"residual": "choice(on,maybe)"}, "'maybe' is not allowed; use on or off"),
    ],
)
def test_what_cannot_be_searched_is_refused(search, sentence):
    with pytest.raises(InputError) as caught:
        Space.of(search)
    assert sentence in str(caught.value)


def test_words_of_the_command_line_are_split():
    assert Space.parse(["lr=log(1,2)", "halo=choice(a(b=c),d)"]) == {
        "lr": "log(1,2)",
        "halo": "choice(a(b=c),d)",
    }
    assert split_words("a(b,c), d,e") == ["a(b,c)", "d", "e"]
    with pytest.raises(InputError, match="lr: a setting and its values are missing"):
        Space.parse(["lr"])
    with pytest.raises(InputError, match="lr was given twice; give each setting once"):
        Space.parse(["lr=log(1,2)", "lr=log(1,3)"])


def test_draws_are_within_bounds_and_spread():
    random = np.random.default_rng(0)
    drawn = np.array([Numbers(1e-4, 1e-1, is_log=True).sample(random) for _ in range(3000)])
    assert drawn.min() >= 1e-4
    assert drawn.max() <= 1e-1
    # As many below the middle of the logarithms as above.
    assert abs((drawn < math.sqrt(1e-5)).mean() - 0.5) < 0.04
    assert {WholeNumbers(2, 4).sample(random) for _ in range(99)} == {2, 3, 4}
    assert {Choice(("a", "b")).sample(random) for _ in range(99)} == {"a", "b"}


def test_a_draw_depends_on_its_number_alone():
    space = Space.of({"lr": "log(1e-4,1e-1)", "hidden": [16, 32]})
    straight = [RandomSampler(space, 3).suggest(number, []) for number in range(5)]
    assert [RandomSampler(space, 3).suggest(number, [None]) for number in (4, 0)] == [
        straight[4],
        straight[0],
    ]
    assert RandomSampler(space, 4).suggest(0, []) != straight[0]


def test_a_grid_has_every_combination_once():
    space = Space.of({"layers": "int(2,4)", "hidden": [16, 32]})
    grid = GridSampler(space, 0)
    assert grid.size == 6
    found = {tuple(grid.suggest(number, []).values()) for number in range(6)}
    assert found == {(layers, hidden) for layers in (2, 3, 4) for hidden in (16, 32)}
    with pytest.raises(InputError, match="--sampler grid needs values that can be listed"):
        GridSampler(Space.of({"lr": "log(1e-4,1e-1)"}), 0)


def test_a_copy_continues_near_its_parent():
    space = Space.of(
        {"lr": "log(1e-4,1e-1)", "layers": "int(2,9)", "hidden": [16, 32, 64], "dropout": [0.5]}
    )
    parent = Trial(0, {"lr": 0.01, "layers": 5, "hidden": 32, "dropout": 0.5})
    found = []
    for number in range(400):
        child = Trial(number + 1, {}, num_clones=2)
        found.append(changed_settings(space, child, parent, seed=0))
    rates = np.array([settings["lr"] for settings in found])
    near = np.isclose(rates, 0.008) | np.isclose(rates, 0.012)
    assert abs(near.mean() - 0.75) < 0.08
    assert {settings["layers"] for settings in found} == set(range(2, 10))
    assert {settings["hidden"] for settings in found} == {16, 32, 64}
    assert {settings["dropout"] for settings in found} == {0.5}
    again = changed_settings(space, Trial(7, {}, num_clones=2), parent, seed=0)
    assert again == found[6]
