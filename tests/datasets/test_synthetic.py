from __future__ import annotations

import numpy as np
import pytest

from distgnn.datasets import Graph, InputError
from distgnn.datasets.planted import planted
from distgnn.datasets.synthetic import GENERATORS, grid, make, options, path, rmat, star


def edges(graph: Graph) -> set[tuple[int, int]]:
    return set(zip(graph.src.tolist(), graph.dst.tolist(), strict=True))


def fields(graph: Graph) -> list[object]:
    assert isinstance(graph.features, np.ndarray)
    assert graph.labels is not None
    assert graph.train_mask is not None
    arrays = (graph.src, graph.dst, graph.features, graph.labels, graph.train_mask)
    return [array.tolist() for array in arrays]


@pytest.mark.parametrize("name", sorted(GENERATORS))
def test_every_graph_can_be_trained_on(name: str) -> None:
    graph = make(f"synthetic:{name}")
    assert graph.num_features > 0
    assert graph.num_classes >= 2
    assert graph.num_splits == 1
    assert graph.name == name
    assert graph.source == f"synthetic:{name}"


@pytest.mark.parametrize("name", sorted(GENERATORS))
def test_every_graph_is_determined_by_its_seed(name: str) -> None:
    first, again, other = (fields(make(f"synthetic:{name},seed={s}")) for s in (3, 3, 4))
    assert first == again
    assert first != other


@pytest.mark.parametrize("name", ["grid", "path", "planted", "star"])
def test_undirected_graphs_have_both_directions_and_are_simple(name: str) -> None:
    graph = make(f"synthetic:{name}")
    both = edges(graph)
    assert {(v, u) for u, v in both} == both
    assert len(both) == graph.num_edges
    assert all(u != v for u, v in both)


def test_path_joins_each_vertex_with_the_next() -> None:
    assert edges(path(num_vertices=4)) == {(0, 1), (1, 0), (1, 2), (2, 1), (2, 3), (3, 2)}


def test_star_joins_the_middle_with_all() -> None:
    expected = {(0, 1), (1, 0), (0, 2), (2, 0), (0, 3), (3, 0)}
    assert edges(star(num_vertices=4)) == expected


def test_grid_joins_neighbours_in_rows_and_columns() -> None:
    graph = grid(rows=2, columns=3)
    pairs = {(0, 1), (1, 2), (3, 4), (4, 5), (0, 3), (1, 4), (2, 5)}
    assert edges(graph) == pairs | {(v, u) for u, v in pairs}
    assert graph.labels is not None
    assert graph.labels.tolist() == [0, 0, 1, 2, 2, 3]


def test_edges_come_sorted_by_destination() -> None:
    graph = rmat(scale=5, edge_factor=4)
    order = np.lexsort((graph.src, graph.dst))
    assert np.array_equal(order, np.arange(graph.num_edges))


def test_rmat_has_the_asked_size_and_skewed_degrees() -> None:
    graph = rmat(scale=10, edge_factor=8, seed=1)
    assert (graph.num_vertices, graph.num_edges) == (1024, 8192)
    degree = np.bincount(graph.dst, minlength=1024)
    assert degree.max() > 10 * degree.mean()


@pytest.mark.parametrize(
    ("probabilities", "source_share", "destination_share"),
    [((0.6, 0.3, 0.1), 0.1, 0.3), ((0.4, 0.1, 0.3), 0.5, 0.3)],
)
def test_rmat_quadrants_have_their_probabilities(
    probabilities: tuple[float, float, float], source_share: float, destination_share: float
) -> None:
    # Two levels give four vertices, whose shares are products of the shares of one level; sorting
    # undoes the permutation of the vertices.
    a, b, c = probabilities
    graph = rmat(scale=2, edge_factor=20_000, a=a, b=b, c=c, seed=0)
    out = np.sort(np.bincount(graph.src, minlength=4) / graph.num_edges)
    into = np.sort(np.bincount(graph.dst, minlength=4) / graph.num_edges)
    for measured, p in ((out, source_share), (into, destination_share)):
        expected = np.sort([p * p, p * (1 - p), p * (1 - p), (1 - p) ** 2])
        assert np.allclose(measured, expected, atol=0.01)


@pytest.mark.parametrize("homophily", [0.0, 0.3, 1.0])
def test_planted_partition_has_its_homophily(homophily: float) -> None:
    graph = planted(num_vertices=4000, average_degree=10, homophily=homophily, seed=2)
    assert graph.labels is not None
    inside = (graph.labels[graph.src] == graph.labels[graph.dst]).mean()
    assert inside == pytest.approx(homophily, abs=0.03)


def test_planted_partition_has_equal_classes_and_power_law_degrees() -> None:
    graph = planted(num_vertices=5000, num_classes=4, average_degree=10, exponent=2.2, seed=0)
    assert graph.labels is not None
    assert np.bincount(graph.labels).tolist() == [1250] * 4
    degree = np.bincount(graph.dst, minlength=5000)
    assert 7 < degree.mean() <= 10
    assert degree.max() > 8 * degree.mean()


def test_planted_features_tell_the_classes_apart() -> None:
    graph = planted(num_vertices=600, num_classes=3, num_features=8, signal=2.0, seed=0)
    assert isinstance(graph.features, np.ndarray)
    assert graph.labels is not None
    centres = np.stack([graph.features[graph.labels == c].mean(axis=0) for c in range(3)])
    distance = np.linalg.norm(graph.features[:, None] - centres, axis=2)
    assert (distance.argmin(axis=1) == graph.labels).mean() > 0.9


def test_options_of_the_source_are_taken() -> None:
    graph = make("synthetic:planted,num_vertices=50,average_degree=3.5,split=0.2/0.2/0.2,seed=1")
    assert graph.num_vertices == 50
    assert graph.train_mask is not None
    assert graph.train_mask.sum() == 10
    assert graph.source.startswith("synthetic:planted,num_vertices=50")


def test_features_can_be_left_out() -> None:
    assert make("synthetic:star,num_features=0").features is None


def test_options_are_listed_with_their_defaults() -> None:
    assert options("star") == {"num_vertices": 64, "num_features": 8, "seed": 0}


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            "synthetic:rmatt",
            r"no synthetic graph 'rmatt'; choose one of grid, path, .* \(did you mean rmat\?\)",
        ),
        (
            "synthetic:rmat,scales=3",
            r"'rmat' has no option 'scales'; choose one of scale, .* \(did you mean scale\?\)",
        ),
        ("synthetic:rmat,scale", "option 'scale' has no value; write scale=10"),
        ("synthetic:rmat,scale=2,scale=3", "option 'scale' is given twice"),
        ("synthetic:rmat,scale=big", "option 'scale' must be a whole number, got 'big'"),
        ("synthetic:rmat,scale=2.5", "option 'scale' must be a whole number, got '2.5'"),
        ("synthetic:rmat,a=x", "option 'a' must be a number, got 'x'"),
        ("synthetic:rmat,a=nan", "option 'a' must be finite, got 'nan'"),
        ("synthetic:rmat,seed=-1", "seed must be at least 0, got -1"),
        ("synthetic:rmat,scale=40", r"scale must be in \[2, 30\], got 40"),
        ("synthetic:rmat,edge_factor=0", "edge_factor must be at least 1, got 0"),
        ("synthetic:rmat,num_classes=0", "num_classes must be at least 1, got 0"),
        ("synthetic:rmat,a=0.9,b=0.2", "a, b and c are probabilities that sum to at most 1"),
        ("synthetic:grid,rows=1", "rows must be at least 2, got 1"),
        ("synthetic:grid,columns=1", "columns must be at least 2, got 1"),
        ("synthetic:star,num_vertices=3", "num_vertices must be at least 4, got 3"),
        ("synthetic:path,num_vertices=3", "num_vertices must be at least 4, got 3"),
        ("synthetic:path,num_features=-1", "num_features must be at least 0, got -1"),
        ("synthetic:planted,num_vertices=9", "num_vertices must be at least 10, got 9"),
        ("synthetic:planted,num_classes=1", r"num_classes must be in \[2, 500\], got 1"),
        ("synthetic:planted,homophily=1.5", r"homophily must be in \[0, 1\], got 1.5"),
        ("synthetic:planted,exponent=2", "exponent must be at least 2.01, got 2"),
        ("synthetic:planted,average_degree=0", r"average_degree must be in \[0.001, 1000\], got 0"),
        ("synthetic:planted,signal=-1", "signal must be at least 0, got -1"),
        ("synthetic:planted,split=1/2", "a split is three fractions"),
    ],
)
def test_bad_source_is_an_input_error_that_lists_what_is_allowed(source: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make(source)
