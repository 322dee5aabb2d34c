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
    assert choose(1000, 10**7, enough, takes_little=lambda: True).method == "metis"
    assert choose(1000, 10**7, enough).method != "metis"
    assert choose(1000, 10**7, enough - 10, takes_little=lambda: True).method != "metis"


def test_the_graph_is_looked_at_only_where_metis_does_not_fit_anyway() -> None:
    looks: list[int] = []

    def look() -> bool:
        looks.append(1)
        return True

    enough = int(NEEDS[0].bytes(1000, 10**7) / USABLE_FRACTION) + 1
    assert choose(1000, 10**7, enough, takes_little=look).takes_little is None
    assert not looks
    assert choose(1000, 10**7, enough - 10, takes_little=look).takes_little
    assert len(looks) == 1


def test_a_method_that_gets_a_wide_copy_needs_room_for_it() -> None:
    for need, least in zip(NEEDS, (0, 16 * 10**6, 0), strict=True):
        enough = int((need.bytes(1000, 10**6) + least) / USABLE_FRACTION) + 1
        assert choose(1000, 10**6, enough, is_narrow=True).method == need.method
    enough = int(NEEDS[1].bytes(1000, 10**6) / USABLE_FRACTION) + 1
    assert choose(1000, 10**6, enough, is_narrow=True).method == "hdrf"


def test_undirected_graphs_without_hubs_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = np.unique(np.random.default_rng(0).integers(0, 50 * 50, 300))
    pair = pair[pair // 50 < pair % 50]
    one, other = pair // 50, pair % 50
    both = np.append(one, other), np.append(other, one)
    star = np.zeros(30, np.int64), np.arange(1, 31)
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
    twice = np.append(both[0], [one[0], other[0]]), np.append(both[1], [other[0], one[0]])
    assert not told(*twice), "one and its reverse are double"
    loops = np.arange(200)
    assert not told(np.append(hub[0], loops), np.append(hub[1], loops)), "loops hide no hub"
    assert told(np.append(both[0], loops), np.append(both[1], loops))
