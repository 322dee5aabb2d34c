"""The allocation of bits beside an exact solver of integer programs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, milp

from distgnn.exchange.bits import allocate

BITS = np.array([2, 4, 8])


def least(values, weights, limit):
    """Least total value by HiGHS; None where nothing fits."""
    groups, choices = values.shape
    one_each = np.kron(np.eye(groups), np.ones(choices))
    found = milp(
        values.ravel(),
        integrality=np.ones(values.size),
        bounds=Bounds(0, 1),
        constraints=[
            LinearConstraint(one_each, 1, 1),
            LinearConstraint(weights.ravel()[None], -np.inf, limit),
        ],
        options={"mip_rel_gap": 1e-9},
    )
    return found.fun if found.success else None


def check(values, weights, limit, exact=None):
    chosen = allocate(values, weights, limit)
    exact = least(values, weights, limit) if exact is None else exact
    assert chosen is not None
    places = np.arange(len(values)), chosen
    assert sum(weights[places].tolist()) <= limit
    assert values[places].sum() <= 1.01 * exact + 1e-7 * values.max()
    assert np.array_equal(chosen, allocate(values, weights, limit))


def rows_in_codes(sizes, spread):
    """Squared errors and bytes of groups of rows of 64 columns with 2, 4 and 8 bits."""
    errors = (sizes * spread**2)[:, None] / (6 * (2.0**BITS - 1) ** 2)
    num_bytes = sizes[:, None] * (4.0 + 64 * BITS / 8)
    return errors, num_bytes


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("share", [0.05, 0.3, 0.7])
def test_bits_of_groups_are_within_one_percent_of_the_best(seed, share):
    random = np.random.default_rng(seed)
    groups = int(random.integers(2, 60))
    sizes = random.integers(1, 2000, groups).astype(float)
    errors, num_bytes = rows_in_codes(sizes, random.lognormal(0, 1.5, groups))
    for values, weights in ((errors, num_bytes), (num_bytes, errors)):
        low, high = weights.min(1).sum(), weights.max(1).sum()
        check(values, weights, low + share * (high - low))


@pytest.mark.parametrize(
    ("sizes", "spread", "limit"),
    [
        # The step that gains most leaves no room for the only other step.
        ([100.0, 99.0], [1.0, 0.999], 20 * 199 + 16 * 100 - 1),
        ([1000.0, 1.0, 1.0], [1.0, 30.0, 30.0], 20 * 1002 + 16 * 1000),
        ([7.0] * 9, [1.0] * 9, 20 * 63 + 16 * 7 * 4.9),
    ],
)
def test_groups_of_which_marginal_gains_take_the_wrong_ones(sizes, spread, limit):
    errors, num_bytes = rows_in_codes(np.array(sizes), np.array(spread))
    check(errors, num_bytes, limit)


def test_marginal_gains_alone_would_lose_by_far():
    """One small step with a high rate, and a large one that would fill the limit."""
    values = np.array([[1.0, 0.0], [100.0, 0.0]])
    weights = np.array([[0.0, 1.0], [0.0, 101.0]])
    assert allocate(values, weights, 101.0).tolist() == [0, 1]


@given(
    groups=st.integers(1, 7),
    choices=st.integers(1, 4),
    seed=st.integers(0, 2**32 - 1),
    share=st.floats(0, 1),
    is_whole=st.booleans(),
)
@settings(max_examples=150)
def test_any_tables_are_within_one_percent_of_all_combinations(
    groups, choices, seed, share, is_whole
):
    random = np.random.default_rng(seed)
    values, weights = random.exponential(1, (2, groups, choices)) ** 3
    if is_whole:
        values, weights = np.floor(4 * values), np.floor(4 * weights)
    low, high = weights.min(1).sum(), weights.max(1).sum()
    limit = low + share * (high - low) + 1e-9
    best = min(
        (
            sum(values[np.arange(groups), list(one)])
            for one in itertools.product(range(choices), repeat=groups)
            if sum(weights[np.arange(groups), list(one)]) <= limit
        ),
    )
    check(values, weights, limit, best)


def test_a_limit_below_the_lightest_choices_has_no_allocation():
    assert allocate(np.ones((2, 2)), np.array([[2.0, 3.0], [2.0, 3.0]]), 3.9) is None


def test_thousands_of_groups_are_solved_and_fill_the_budget():
    random = np.random.default_rng(1)
    sizes = random.integers(1, 500, 2000).astype(float)
    errors, num_bytes = rows_in_codes(sizes, random.lognormal(0, 1, 2000))
    uniform = num_bytes[:, 1].sum()
    chosen = allocate(errors, num_bytes, uniform)
    picked = np.arange(2000), chosen
    assert 0.999 * uniform <= num_bytes[picked].sum() <= uniform
    assert errors[picked].sum() < 0.5 * errors[:, 1].sum()
