from __future__ import annotations

import numpy as np
import pytest

from distgnn.datasets import Graph, InputError
from distgnn.partition import assign
from distgnn.partition.arcs import undirected
from distgnn.partition.methods.hierarchical import _split
from distgnn.partition.methods.levels import halo_rows_per_level, parse_levels
from distgnn.partition.quality import measure
from distgnn.partition.refine.balance import Balance


def chains_of_cliques() -> Graph:
    """Two halves without a link, each a ring of 12 cliques joined by single links."""
    pairs = []
    for half in range(2):
        for number in range(12):
            base, following = (8 * (12 * half + n) for n in (number, (number + 1) % 12))
            pairs += [(base + u, base + v) for u in range(8) for v in range(u)]
            pairs.append((base, following + 1))
    one, other = np.array(pairs).T
    new = np.random.default_rng(0).permutation(192)
    src, dst = new[np.concatenate([one, other])], new[np.concatenate([other, one])]
    return Graph(name="g", num_vertices=192, src=src, dst=dst)


def test_nothing_travels_between_machines_that_need_not_talk() -> None:
    graph = chains_of_cliques()
    quality = measure(graph, assign("hierarchical", graph, 6, levels="2x3"))
    between, inside = halo_rows_per_level(quality.read_rows + quality.write_rows, (2, 3))
    assert between == 0
    assert inside == quality.halo_rows > 0
    assert quality.edge_balance <= 1.1


def test_each_group_is_split_alone() -> None:
    adjacency = undirected(chains_of_cliques())
    parts = _split(adjacency, (2, 3), 0, "volume", Balance(1.1, 1.25))
    assert sorted(set(parts)) == list(range(6))
    group = parts // 3
    assert (np.repeat(group, np.diff(adjacency.indptr)) == group[adjacency.indices]).all()


@pytest.mark.parametrize(
    ("text", "num_parts", "levels"),
    [
        ("2x4", 8, (2, 4)),
        ("2x1x3", 6, (2, 1, 3)),
        ("5", 5, (5,)),
        ("", 12, (2, 6)),
        ("", 7, (1, 7)),
    ],
)
def test_levels_are_read(text: str, num_parts: int, levels: tuple[int, ...]) -> None:
    assert parse_levels(text, num_parts) == levels


def test_rows_are_split_by_the_highest_level_that_differs() -> None:
    rows = np.zeros((8, 8), np.int64)
    rows[0, 1], rows[2, 0], rows[3, 4], rows[7, 0], rows[6, 5] = 1, 10, 100, 1000, 10000
    assert halo_rows_per_level(rows, (2, 2, 2)) == (1100, 10010, 1)
    assert halo_rows_per_level(rows, (8,)) == (11111,)


def test_one_level_is_metis() -> None:
    graph = chains_of_cliques()
    metis, one = assign("metis", graph, 4), assign("hierarchical", graph, 4, levels="4")
    assert np.array_equal(metis.edge_part, one.edge_part)


def test_no_more_rows_travel_between_machines_than_with_flat_metis() -> None:
    src, dst = np.random.default_rng(3).integers(0, 90, (2, 400))
    graph = Graph(name="g", num_vertices=90, src=src, dst=dst)
    between = []
    for method in ("metis", "hierarchical"):
        quality = measure(graph, assign(method, graph, 6))
        between.append(halo_rows_per_level(quality.read_rows + quality.write_rows, (2, 3))[0])
    assert between[1] <= between[0]


@pytest.mark.parametrize("text", ["2x" + 5000 * "3", "x".join(999 * ["99"]), 65 * "1"])
def test_levels_of_endless_numbers_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="such as 2x4, in at most 64 characters, got '"):
        parse_levels(text, 4)
