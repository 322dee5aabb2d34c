from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from distgnn.datasets import Graph, InputError
from distgnn.partition import assign
from distgnn.partition.methods import kaminpar_library, metis, starts
from distgnn.partition.methods.library_process import LibraryFailedError
from distgnn.partition.methods.options import QUALITIES, check_quality
from distgnn.partition.methods.starts import Start, starts_of
from distgnn.partition.quality import measure

if TYPE_CHECKING:
    from distgnn.partition.arcs import Arcs
    from distgnn.partition.assignment import Assignment
    from distgnn.partition.refine.balance import Balance


def graph_of(num_vertices: int = 400, num_edges: int = 1600) -> Graph:
    ends = np.random.default_rng(0).integers(0, num_vertices, (2, num_edges))
    return Graph(name="random", num_vertices=num_vertices, src=ends[0], dst=ends[1])


def dealt(arcs: Arcs, covered: Assignment, balance: Balance) -> Assignment:
    """Deal arcs and roots in turn, which takes many rows."""
    edges, roots = (
        np.arange(size, dtype=np.int32) % 4 for size in (arcs.head.size, arcs.num_vertices)
    )
    return replace(covered, edge_part=edges, root_part=roots)


def found(num_parts: int = 4, **words: str) -> list[Start]:
    given: dict[str, Any] = {"quality": "default", "roots": "", "objective": ""} | words
    return starts_of(graph_of(), num_parts, seed=5, **given)


def test_the_default_is_two_objectives_of_metis_and_other_weights(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    twice = [Start("cut", 0.65, 5), Start("volume", 0.65, 5), Start("cut", 0.85, 5)]
    assert found() == twice
    assert [str(start) for start in twice[:2]] == ["METIS, cut", "METIS, volume"]
    assert found(10**5) == [twice[0], twice[2]]
    assert found(objective="volume") == [Start("volume", 0.65, 5)]
    monkeypatch.setattr(starts, "TWICE_EDGES", 1599)
    assert found() == twice[:2], "each more takes as long as the first"
    assert found(10**5) == [Start("cut", 0.65, 5)]


@pytest.mark.parametrize(("edges", "is_again"), [(1600, True), (1599, False)])
def test_default_refines_again_up_to_so_many_edges(
    edges: int, is_again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (starts, metis):
        monkeypatch.setattr(module, "TWICE_EDGES", edges)
    said: list[str] = []
    assign("metis", graph_of(), 4, progress=said.append)
    assert sum(line.startswith("roots by") for line in said) >= 2
    assert any(line.startswith("refined again") for line in said) == is_again


@pytest.mark.parametrize("quality", QUALITIES)
@pytest.mark.parametrize("is_costly", [False, True])
def test_edges_alone_are_balanced_where_balance_cost_rows(
    is_costly: bool, quality: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_costly:
        monkeypatch.setattr(metis, "_refined", dealt)

    def told(**words: str) -> int:
        said: list[str] = []
        assign("metis", graph_of(), 4, quality=quality, progress=said.append, **words)
        return sum("METIS, cut, edges weigh 1" in line for line in said)

    # The best quality tries it anyway.
    expected = {"fast": 0, "default": int(is_costly), "best": 1}[quality]
    assert told() == told(roots="metis") == expected
    assert told(objective="cut") == int(quality == "best")
    monkeypatch.setattr(starts, "COSTLY_EDGES", 1600)
    assert told() == expected
    monkeypatch.setattr(starts, "COSTLY_EDGES", 1599)
    assert told() == int(quality == "best")


def test_edges_alone_are_balanced_before_kaminpar_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def failed(*_: object, **__: object) -> None:
        raise LibraryFailedError("it was killed")

    monkeypatch.setattr(kaminpar_library, "is_installed", lambda: True)
    monkeypatch.setattr(starts, "check_installed", lambda: None)
    monkeypatch.setattr(kaminpar_library, "part_graph", failed)
    monkeypatch.setattr(metis, "_refined", dealt)
    said: list[str] = []
    assign("metis", graph_of(), 4, roots="best", progress=said.append)
    assert any("METIS, cut, edges weigh 1" in line for line in said)
    assert any("those so far are kept: it was killed" in line for line in said)


def test_fast_is_one_cut() -> None:
    assert found(quality="fast") == [Start("cut", 0.65, 5)]


@pytest.mark.parametrize("is_there", [False, True])
def test_best_tries_other_weights_seeds_and_libraries(
    is_there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starts, "is_installed", lambda: is_there)
    monkeypatch.setattr(kaminpar_library, "is_installed", lambda: is_there)
    of_metis = [
        *found(),
        Start("cut", 1.0, 5),
        Start("cut", 0.65, 6),
        *(Start("cut", 0.85, seed) for seed in (6, 7, 8, 9, 10)),
    ]
    of_kaminpar = [Start("eco", 1.0, 5), Start("eco", 1.0, 6)]
    assert found(quality="best") == of_metis + of_kaminpar * is_there
    assert found(quality="best", roots="metis") == of_metis
    assert str(of_metis[2]) == "METIS, cut, edges weigh 0.85"
    assert str(of_kaminpar[0]) == "KaMinPar, eco"


def test_kaminpar_has_a_quicker_preset_for_large_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kaminpar_library, "is_installed", lambda: True)
    assert found(roots="kaminpar") == [Start("eco", 1.0, 5)]
    assert found(10**5, roots="kaminpar") == [Start("default", 1.0, 5)]
    assert found(roots="kaminpar", quality="fast") == [Start("default", 1.0, 5)]


@pytest.mark.parametrize("balance", ["none", "train"])
def test_more_quality_moves_no_more_rows(balance: str) -> None:
    graph = graph_of()
    rows = [
        measure(
            graph, assign("metis", graph, 6, quality=quality, roots="metis", balance=balance)
        ).halo_rows
        for quality in QUALITIES
    ]
    assert rows == sorted(rows, reverse=True)
    assert rows[-1] < rows[0]


def test_the_best_quality_keeps_what_the_default_one_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes on from more starts, and where that ends depends on luck."""
    real = metis.polished

    def unlucky(arcs: Arcs, placed: Assignment, balance: Balance, times: int) -> Assignment:
        if times == metis.FEW_REFINEMENTS:
            return real(arcs, placed, balance, times)
        return replace(placed, root_part=np.roll(placed.root_part, 1))

    graph = graph_of()
    usual = assign("metis", graph, 4, quality="default", roots="metis")
    monkeypatch.setattr(metis, "polished", unlucky)
    best = assign("metis", graph, 4, quality="best", roots="metis")
    assert measure(graph, best).halo_rows <= measure(graph, usual).halo_rows


@pytest.mark.parametrize("quality", ["default", "best"])
def test_blocks_take_the_place_of_the_one_cover_that_default_makes(
    quality: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (starts, metis):
        monkeypatch.setattr(module, "TWICE_EDGES", 0)
    monkeypatch.setattr(starts, "QUICK_WORK", 0)
    calls: list[Assignment] = []
    monkeypatch.setattr(metis.BlockSearch, "instead_of", lambda _, covered: calls.append(covered))
    said: list[str] = []
    assign("metis", graph_of(), 4, quality=quality, roots="metis", progress=said.append)
    assert sum(line.startswith("roots by") for line in said) == (1 if quality == "default" else 4)
    assert len(calls) == 1


def test_a_quality_that_is_not_there_is_refused() -> None:
    with pytest.raises(InputError, match="unknown quality 'x'; choose one of fast, default, best"):
        found(quality="x")
    with pytest.raises(InputError, match="unknown quality 'x'; choose one of fast, default, best"):
        check_quality("metis", "x", [])
    with pytest.raises(InputError, match="quality 'best' and option 'quality' are two names of on"):
        check_quality("metis", "best", ["quality"])
    with pytest.raises(InputError, match="method 'ne' takes no quality; leave it out or choose me"):
        check_quality("ne", "fast", [])
    check_quality("ne", None, [])


def test_large_graphs_are_not_cut_with_many_seeds() -> None:
    assert len(found(10**5, quality="best", roots="metis")) == 4


@pytest.mark.parametrize(
    ("quality", "times", "most"),
    [("best", "MOST_REFINEMENTS", 8), ("default", "FEW_REFINEMENTS", 2)],
)
def test_what_was_cut_more_than_once_is_refined_again(
    quality: str, times: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = graph_of()
    rows = {}
    for more in (0, most):
        monkeypatch.setattr(metis, times, more)
        assignment = assign("metis", graph, 6, quality=quality, roots="metis")
        rows[more] = measure(graph, assignment).halo_rows
    assert rows[most] < rows[0]
