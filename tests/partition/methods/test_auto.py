from __future__ import annotations

import pytest

from distgnn.partition import METHODS
from distgnn.partition.methods.auto import NEEDS, USABLE_FRACTION, choose


def test_the_first_method_that_fits_is_chosen() -> None:
    for need in NEEDS:
        enough = need.bytes(1000, 10**6) / USABLE_FRACTION
        assert choose(1000, 10**6, int(enough) + 1).method == need.method
        if need is not NEEDS[-1]:
            assert choose(1000, 10**6, int(enough) - 10).method != need.method


def test_where_nothing_fits_the_smallest_is_chosen() -> None:
    choice = choose(10**6, 10**9, 2**30)
    assert choice.method == NEEDS[-1].method
    assert choice.reason.startswith("metis takes about ")
    assert choice.reason.endswith("of 1.00 GiB that are free")


@pytest.mark.parametrize("need", NEEDS)
def test_needs_are_those_of_methods(need: object) -> None:
    assert need.method in METHODS  # type: ignore[attr-defined]


def test_what_refinement_takes_counts_where_it_is_asked_for() -> None:
    ne = NEEDS[1]
    enough = int(ne.bytes(1000, 10**6) / USABLE_FRACTION) + 1
    assert choose(1000, 10**6, enough).method == "ne"
    assert choose(1000, 10**6, enough, refine=True).method == "hdrf"
    more = int(ne.bytes(1000, 10**6, refine=True) / USABLE_FRACTION) + 1
    assert choose(1000, 10**6, more, refine=True).method == "ne"
