"""The planted partition: communities that labels, edges and features agree on, more or less."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from distgnn.datasets._generate import (
    SPLIT,
    both_ways,
    check_range,
    class_features,
    labelled_graph,
)
from distgnn.datasets.distinct import distinct

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from distgnn.datasets.graph import Graph


def planted(
    *,
    num_vertices: int = 1000,
    num_classes: int = 5,
    average_degree: float = 10.0,
    homophily: float = 0.8,
    exponent: float = 2.5,
    num_features: int = 16,
    signal: float = 0.5,
    split: str = SPLIT,
    seed: int = 0,
) -> Graph:
    """Return a degree-corrected planted partition, undirected and simple.

    Both ends of an edge are drawn in proportion to power-law weights. The second comes from the
    class of the first with probability `homophily`, and otherwise from all other classes. Unlike
    the reference, self-loops and repeated edges are dropped, because most real benchmarks have
    none; the average degree comes out a little lower than asked.

    Args:
        num_vertices: At least 10.
        num_classes: In [2, num_vertices / 2]; the classes have equal sizes.
        average_degree: Edges drawn per vertex, both directions counted, above 0.
        homophily: Fraction of the edges inside a class, in [0, 1].
        exponent: Exponent of the power law of the degrees, above 2; large values give equal ones.
        num_features: Columns of the features; 0 for none.
        signal: Distance of the class centres in the features, in standard deviations of the noise.
        split: Shares of train, val and test, such as 0.6/0.2/0.2.
        seed: Determines everything.

    Raises:
        InputError: If an option is out of range.

    References:
        Karrer, Newman, "Stochastic blockmodels and community structure in networks", Physical
        Review E 83, 2011.
    """
    check_range("num_vertices", num_vertices, 10)
    check_range("num_classes", num_classes, 2, num_vertices // 2)
    check_range("average_degree", average_degree, 1 / num_vertices, num_vertices)
    check_range("homophily", homophily, 0, 1)
    check_range("exponent", exponent, 2.01)
    check_range("signal", signal, 0)
    generator = np.random.default_rng(seed)
    labels = generator.permutation(np.arange(num_vertices, dtype=np.int64) % num_classes)
    weights = _power_law(num_vertices, exponent, generator)
    num_draws = max(1, round(num_vertices * average_degree / 2))
    first, second = _draw_edges(weights, labels, num_draws, homophily, generator)
    features = class_features(labels, num_features, generator, signal=signal)
    ends = both_ways(first, second)
    return labelled_graph("planted", ends, labels, features=features, seed=seed, split=split)


def _power_law(
    num_vertices: int, exponent: float, generator: np.random.Generator
) -> NDArray[np.float64]:
    weights = (1 - generator.random(num_vertices)) ** (-1 / (exponent - 1))
    # The structural cut-off: heavier vertices would need repeated edges to reach their degree.
    limited: NDArray[np.float64] = np.minimum(weights, np.sqrt(num_vertices * weights.mean()))
    return limited


def _draw_edges(
    weights: NDArray[np.float64],
    labels: NDArray[np.int64],
    num_draws: int,
    homophily: float,
    generator: np.random.Generator,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the distinct edges among the draws, first end below second."""
    by_class = np.argsort(labels, kind="stable")
    # cumulative[i] is the weight before the i-th vertex in class order, so that a uniform draw
    # from an interval of it picks a vertex of that interval in proportion to its weight.
    cumulative = np.concatenate([[0.0], np.cumsum(weights[by_class])])
    bounds = cumulative[np.searchsorted(labels[by_class], np.arange(labels.max() + 2))]
    total = cumulative[-1]
    first = _pick(generator.random(num_draws) * total, cumulative, by_class)
    low, high = bounds[labels[first]], bounds[labels[first] + 1]
    draw = generator.random(num_draws)
    inside = low + draw * (high - low)
    outside = draw * (total - (high - low))
    outside = np.where(outside < low, outside, outside + (high - low))
    is_inside = generator.random(num_draws) < homophily
    second = _pick(np.where(is_inside, inside, outside), cumulative, by_class)
    num_vertices = labels.size
    key = np.minimum(first, second) * num_vertices + np.maximum(first, second)
    key = distinct(key[first != second])
    return key // num_vertices, key % num_vertices


def _pick(
    position: NDArray[np.float64], cumulative: NDArray[np.float64], by_class: NDArray[np.int64]
) -> NDArray[np.int64]:
    index = np.searchsorted(cumulative, position, side="right") - 1
    # A draw may round up to the total.
    return by_class[np.minimum(index, by_class.size - 1)]
