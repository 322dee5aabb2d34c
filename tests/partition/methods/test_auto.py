from __future__ import annotations

import numpy as np
import pytest

from distgnn.datasets import Graph
from distgnn.partition import METHODS
from distgnn.partition.methods import auto
from distgnn.partition.methods.auto import (
    NEEDS,
    UNDIRECTED_NEED,
    USABLE_FRACTION,
    choose,
    takes_little,
)


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


def test_metis_takes_less_of_undirected_graphs() -> None:
    enough = int(UNDIRECTED_NEED.bytes(1000, 10**7) / USABLE_FRACTION) + 1
    assert choose(1000, 10**7, enough, is_undirected=True).method == "metis"
    assert choose(1000, 10**7, enough).method != "metis"
    assert choose(1000, 10**7, enough - 10, is_undirected=True).method != "metis"


def test_undirected_graphs_without_hubs_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = np.random.default_rng(0).integers(0, 50, (2, 300))
    both = np.append(one, other), np.append(other, one)
    star = np.zeros(200, np.int64), np.arange(200)
    hub = np.append(*star), np.append(*star[::-1])

    def told(src: np.ndarray, dst: np.ndarray) -> bool:
        graph = Graph(name="some", num_vertices=200, src=src, dst=dst)
        assert takes_little(graph.narrowed()) == takes_little(graph)
        return takes_little(graph)

    assert not told(*both), "so few that growth is tried, too"
    monkeypatch.setattr(auto, "QUICK_EDGES", 0)
    monkeypatch.setattr(auto, "_CHUNK", 64)
    assert told(*both)
    assert not told(*hub)
    assert not told(one, other)
    assert not told(both[0][1:], both[1][1:]), "one reverse is not there"
    assert not told(np.append(both[0], both[0][0]), np.append(both[1], both[1][0])), "one is double"
