"""Links held out of a graph: which edges go, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from distgnn.datasets import Graph, InputError, load
from distgnn.datasets.held_out import hold_out_links
from distgnn.datasets.npz import read_npz, write_npz


def ring(num_vertices: int = 20, **fields) -> Graph:
    """Both directions of a ring, its first edge twice, and two self-loops."""
    vertex = np.arange(num_vertices)
    src = np.concatenate([vertex, (vertex + 1) % num_vertices, [0, 3, 3]])
    dst = np.concatenate([(vertex + 1) % num_vertices, vertex, [1, 3, 3]])
    return Graph(name="ring", num_vertices=num_vertices, src=src, dst=dst, **fields)


def pairs_of(graph: Graph) -> set[tuple[int, int]]:
    return {(min(u, v), max(u, v)) for u, v in zip(graph.src, graph.dst, strict=True) if u != v}


def test_all_edges_of_a_link_that_is_held_out_go():
    number = np.arange(43, dtype=np.float32)
    graph = ring(edge_weight=number, edge_features=np.stack([number, -number], axis=1))
    found = hold_out_links(graph, "0.5/0.2/0.3", seed=1)
    val, test = set(map(tuple, found.val_links)), set(map(tuple, found.test_links))
    assert (len(val), len(test)) == (4, 6)
    assert pairs_of(found) | val | test == pairs_of(graph)
    assert not (pairs_of(found) & (val | test))
    assert not val & test
    assert np.count_nonzero(found.src == found.dst) == 2
    edge = found.edge_weight.astype(int)
    np.testing.assert_array_equal(found.src, graph.src[edge])
    np.testing.assert_array_equal(found.dst, graph.dst[edge])
    np.testing.assert_array_equal(found.edge_features, graph.edge_features[edge])


def test_the_seed_chooses_the_links():
    first, again, other = (hold_out_links(ring(), "0.8/0.1/0.1", seed=s) for s in (1, 1, 2))
    np.testing.assert_array_equal(first.test_links, again.test_links)
    assert first.test_links.tolist() != other.test_links.tolist()


def test_links_come_with_a_source_and_go_with_a_file(tmp_path):
    graph = load("cora", edge_split="0.9/0.05/0.05", seed=3)
    assert len(graph.val_links) == len(graph.test_links) == 264
    write_npz(graph, tmp_path / "held.npz")
    again = read_npz(tmp_path / "held.npz")
    np.testing.assert_array_equal(again.test_links, graph.test_links)
    np.testing.assert_array_equal(again.val_links, graph.val_links)


def test_links_that_are_edges_as_well_are_told_of(tmp_path, caplog):
    links = {"val_links": np.array([[1, 0], [2, 9]]), "test_links": np.array([[3, 4]])}
    write_npz(ring(**links), tmp_path / "leaking.npz")
    read_npz(tmp_path / "leaking.npz")
    assert (
        "2 of the links that are held out are edges as well, which gives them away" in caplog.text
    )
    caplog.clear()
    write_npz(hold_out_links(ring(), "0.5/0.2/0.3"), tmp_path / "sound.npz")
    read_npz(tmp_path / "sound.npz")
    assert not caplog.text


@pytest.mark.parametrize(
    ("split", "expected"),
    [
        ("0.5/0.2/0.2", r"the shares of links must add up to 1, got '0.5/0.2/0.2'; write for"),
        ("0.98/0.01/0.01", r"the split 0.98/0.01/0.01 of the 20 links of graph 'ring' leaves trai"),
        ("0.5/0.5", r"a split is three fractions for train, val and test, got '0.5/0.5'; write"),
    ],
)
def test_shares_that_do_not_do_are_refused(split, expected):
    with pytest.raises(InputError, match=expected):
        hold_out_links(ring(), split)


def test_links_are_held_out_once():
    graph = hold_out_links(ring(), "0.8/0.1/0.1")
    with pytest.raises(InputError, match="'ring' holds links out already; leave out its val_links"):
        hold_out_links(graph, "0.8/0.1/0.1")


@pytest.mark.parametrize(
    ("links", "expected"),
    [
        ([[1, 20]], r"val_links holds the link \[1, 20\] in row 0, but a link joins two different"),
        ([[1, 2], [4, 4]], r"val_links holds the link \[4, 4\] in row 1, but a link joins two"),
        ([1, 2], r"val_links must hold integers of shape \(num, 2\), got int64 of shape \(2,\);"),
        ([[0.5, 1.0]], r"val_links must hold integers of shape \(num, 2\), got float64 of shape"),
    ],
)
def test_links_that_are_none_are_refused(links, expected):
    with pytest.raises(InputError, match=expected):
        ring(val_links=np.array(links), test_links=np.array([[0, 1]]))


def test_val_links_and_test_links_go_together():
    with pytest.raises(InputError, match=r"^val_links and test_links go together; give both"):
        ring(val_links=np.array([[0, 1]]))


def test_a_link_in_both_is_refused():
    expected = r"the link \[2, 9\] in row 1 of test_links is in val_links, too \(1 rows are\)"
    with pytest.raises(InputError, match=expected):
        ring(val_links=np.array([[9, 2]]), test_links=np.array([[0, 1], [2, 9]]))


def test_the_smaller_end_comes_first():
    found = ring(val_links=np.array([[5, 1]]), test_links=np.array([[0, 1]]))
    assert found.val_links.tolist() == [[1, 5]]
