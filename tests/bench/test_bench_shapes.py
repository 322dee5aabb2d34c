from __future__ import annotations

import numpy as np
import pytest

from distgnn.bench import shapes
from distgnn.datasets import InputError

SCALE = 1 / 512


@pytest.mark.parametrize("name", shapes.TWINS)
@pytest.mark.parametrize("order", shapes.ORDERS)
def test_a_twin_is_symmetric_sorted_and_simple(name, order):
    shape = shapes.make(name, scale=SCALE, order=order)
    rows = np.repeat(np.arange(shape.num_vertices), np.diff(shape.indptr))
    keys = rows * shape.num_vertices + shape.indices
    assert np.all(np.diff(keys) > 0)
    assert np.all(rows != shape.indices)
    np.testing.assert_array_equal(rows[shape.t_edge], shape.indices)
    np.testing.assert_array_equal(shape.indices[shape.t_edge], rows)


def test_scale_keeps_the_mean_degree():
    found = [shapes.make("products", scale=scale, order="random") for scale in (1 / 64, 1 / 256)]
    degrees = [shape.num_edges / shape.num_vertices for shape in found]
    assert found[0].num_vertices == pytest.approx(4 * found[1].num_vertices, rel=0.01)
    assert degrees[0] == pytest.approx(degrees[1], rel=0.05)
    assert degrees[0] == pytest.approx(50.5, rel=0.1)


def test_degrees_are_skewed():
    degree = np.diff(shapes.make("products", scale=1 / 64, order="random").indptr)
    assert degree.max() > 8 * degree.mean()
    assert np.median(degree) < 0.8 * degree.mean()


def test_community_order_puts_neighbours_at_close_ids():
    distances = {}
    for order in shapes.ORDERS:
        shape = shapes.make("products", scale=1 / 64, order=order)
        rows = np.repeat(np.arange(shape.num_vertices), np.diff(shape.indptr))
        distances[order] = np.median(np.abs(rows - shape.indices))
    assert distances["community"] < 0.1 * distances["random"]


def test_few_edges_leave_a_sixteenth_of_the_graph_and_most_of_them_end_at_hubs():
    shape = shapes.make("products", scale=1 / 64, order="community")
    degree = np.diff(shape.indptr)
    rows = np.repeat(np.arange(shape.num_vertices), degree)
    part = np.arange(shape.num_vertices) // 2_400
    is_cut = part[rows] != part[shape.indices]
    assert is_cut.mean() < 0.07
    is_hub = degree >= np.quantile(degree, 0.99)
    touches_hub = is_hub[rows] | is_hub[shape.indices]
    assert touches_hub[is_cut].mean() > 0.4 > touches_hub.mean()


def test_a_seed_fixes_the_graph():
    first, again, other = (
        shapes.make("arxiv", scale=SCALE, order="random", seed=seed) for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first.indices, again.indices)
    assert first.num_edges != other.num_edges or np.any(first.indices != other.indices)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "cora"}, "a shape must be one of reddit, products, arxiv, got 'cora'"),
        ({"order": "degree"}, "an order must be one of random, community, got 'degree'"),
        ({"scale": 0.0}, r"the scale must be in \(0, 1\], got 0\.0"),
        ({"scale": 1.5}, r"the scale must be in \(0, 1\], got 1\.5"),
    ],
)
def test_an_unknown_shape_order_or_scale_is_refused(changes, message):
    given = {"name": "arxiv", "scale": SCALE, "order": "random"}
    with pytest.raises(InputError, match=message):
        shapes.make(**(given | changes))
