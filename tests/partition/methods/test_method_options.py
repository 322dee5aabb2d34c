from __future__ import annotations

import pytest

from distgnn.datasets import InputError
from distgnn.partition import METHODS
from distgnn.partition.methods.options import defaults, parse


def test_values_take_the_type_of_the_default() -> None:
    texts = ["objective=cut", "edge_balance=2"]
    assert parse("metis", texts) == {"objective": "cut", "edge_balance": 2.0}
    assert parse("fennel", ["passes=3"]) == {"passes": 3}
    assert parse("random", []) == {}


@pytest.mark.parametrize("method", METHODS)
def test_every_option_has_a_default_that_can_be_written(method: str) -> None:
    known = defaults(method)
    assert parse(method, [f"{name}={value}" for name, value in known.items()]) == known


@pytest.mark.parametrize(
    ("method", "texts", "message"),
    [
        ("hdrf", ["edge_balance"], "must be NAME=VALUE, got 'edge_balance'; .*balance_weight=1.1"),
        ("random", ["=1"], "must be NAME=VALUE, got '=1'; those of method 'random' are: none"),
        ("hep", ["tu=1"], "method 'hep' has no option 'tu'; its options are: edge_balance, clone"),
        ("hep", ["tau=1", "tau=2"], "option 'tau' is given twice; give it once"),
        (
            "hep",
            ["tau=x"],
            "option 'tau' of method 'hep' must be a number such as 10.0 and at most 1e",
        ),
        ("hep", ["tau=inf"], "must be a number such as 10.0 and at most .*, got 'inf'"),
        (
            "fennel",
            ["passes=1.5"],
            "must be a whole number such as 10 and at most 2.*, got '1.5'",
        ),
        ("hep", ["tau=-1e31"], "must be a number such as 10.0 and at most .*, got '-1e31'"),
        ("fennel", ["passes=2147483648"], "at most 2147483647, got '2147483648'"),
        ("fennel", ["passes=1" + 400 * "0"], "at most 2147483647, got '10000"),
        ("fennel", ["passes=1" + 5000 * "0"], "at most 2147483647, got '10000"),
    ],
)
def test_other_texts_are_refused(method: str, texts: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse(method, texts)
