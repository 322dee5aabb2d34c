"""Twins of Reddit, ogbn-products and ogbn-arxiv: their size, density, skew and communities.

A twin is a symmetric planted partition with skewed degrees and communities within communities.
`distgnn.bench.shapes` says what it was matched with. Here it also gets features and labels. The
innermost communities are shared out among the classes. The features tell a class faintly: from its
own, a vertex is hardly ever recognised; from the mean of its neighbours', it is.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from distgnn.datasets._generate import check_range
from distgnn.datasets.graph import Graph
from distgnn.datasets.simple_edges import simple_edges
from distgnn.datasets.splits import random_split

if TYPE_CHECKING:
    from numpy.typing import NDArray

_CHUNK = 1 << 22
"""Pairs that are drawn at a time: at full size there are a hundred million."""
# Threads that look up what was drawn; the twin is the same for any number.
_THREADS = 2
# Distance between the centres of two classes, in standard deviations of the noise of a vertex.
CLASS_DISTANCE = 2.0


@dataclass(frozen=True)
class Twin:
    """Properties of a graph that its twin keeps.

    Attributes:
        num_vertices: Number of vertices of the original.
        mean_degree: Edges per vertex, both directions counted.
        levels: (size, share of the edges) of communities, from the innermost; sizes from 1 on are
            vertices, below 1 shares of the graph. The other edges join any vertices.
        degree_sigma: Standard deviation of the logarithm of the expected degree.
        num_features: Columns of the original's features.
        num_classes: Number of classes of the original.
        split: Vertices of the original that train, validate and test.
        most_spread: Largest expected degree over the median: no vertex joins all others.
        hub_draws: An edge that leaves the innermost community ends at the one with most edges of
            so many vertices.
        pairs_per_edge: Pairs drawn for each edge, because equal ones are merged.
        scale_factor: In benchmarks the scale is multiplied by it, up to the full size.
    """

    num_vertices: int
    mean_degree: float
    levels: tuple[tuple[float, float], ...]
    degree_sigma: float
    num_features: int
    num_classes: int
    split: tuple[int, int, int]
    most_spread: float = 50.0
    hub_draws: int = 1
    pairs_per_edge: float = 1.0
    scale_factor: int = 1


TWINS = {
    "reddit": Twin(
        232_965,
        492.0,
        ((5_700, 0.8),),
        1.4,
        602,
        41,
        (153_431, 23_831, 55_703),
        most_spread=60.0,
        hub_draws=2,
        pairs_per_edge=1.65,
    ),
    "products": Twin(
        2_449_029,
        50.5,
        ((600, 0.88), (1 / 64, 0.07), (1 / 16, 0.027), (1 / 4, 0.013)),
        1.45,
        100,
        47,
        (196_615, 39_323, 2_213_091),
        most_spread=300.0,
        hub_draws=3,
        pairs_per_edge=1.65,
    ),
    "arxiv": Twin(
        169_343,
        13.7,
        ((400, 0.65),),
        1.2,
        128,
        40,
        (90_941, 29_799, 48_603),
        scale_factor=4,
    ),
}


def make_twin_graph(name: str, *, scale: float = 1.0, seed: int = 0) -> Graph:
    """Return a twin with features, labels and masks, its vertices in random order.

    Below some scale there are fewer communities than classes. Communities then shrink, so that
    every class still has one, and the graph is less dense than the original.

    Args:
        name: A key of `TWINS`.
        scale: Vertices over those of the original, in (0, 1].
        seed: Determines everything.

    Raises:
        InputError: If the scale is out of range or leaves a mask empty.
    """
    twin = TWINS[name]
    check_range("scale", scale, 10 * twin.num_classes / twin.num_vertices, 1)
    num_vertices = round(twin.num_vertices * scale)
    innermost = min(twin.levels[0][0], num_vertices // twin.num_classes)
    twin = replace(twin, levels=((innermost, twin.levels[0][1]), *twin.levels[1:]))
    # Not the stream of the random split: its first draw is a permutation, too, and the training
    # vertices would be the first communities.
    generator = np.random.default_rng([seed, 1])
    shuffle = generator.permutation(num_vertices)
    ends = shuffle.astype(np.int32)[draw_pairs(twin, num_vertices, generator)]
    labels = np.empty(num_vertices, dtype=np.int64)
    community = np.arange(num_vertices) // int(innermost)
    labels[shuffle] = community % twin.num_classes
    # Nothing random is left in the edges: features are drawn while those are sorted.
    with ThreadPoolExecutor(1) as pool:
        features = pool.submit(_features, labels, twin, generator)
        src, dst = simple_edges(ends[0], ends[1], num_vertices)
    graph = Graph(
        name=f"{name}-twin",
        num_vertices=num_vertices,
        src=src,
        dst=dst,
        features=features.result(),
        labels=labels,
        source=f"synthetic:{name}",
    )
    fractions = [count / twin.num_vertices for count in twin.split]
    return random_split(graph, fractions, seed=seed)


def class_signal(num_features: int) -> float:
    """Return the standard deviation of a class centre's columns, beside noise of 1."""
    return float(CLASS_DISTANCE / np.sqrt(2 * num_features))


def _features(
    labels: NDArray[np.int64], twin: Twin, generator: np.random.Generator
) -> NDArray[np.float32]:
    shape = (twin.num_classes, twin.num_features)
    centres = generator.standard_normal(shape, dtype=np.float32)
    centres *= np.float32(class_signal(twin.num_features))
    features = generator.standard_normal((labels.size, twin.num_features), dtype=np.float32)
    for begin in range(0, labels.size, _CHUNK // twin.num_features):
        rows = slice(begin, begin + _CHUNK // twin.num_features)
        features[rows] += centres[labels[rows]]
    return features


def draw_pairs(twin: Twin, num_vertices: int, rng: np.random.Generator) -> NDArray[np.int32]:
    """Join half-edges: within a community of the first one's, or with any.

    Args:
        twin: Whose degrees and communities; communities are runs of vertices.
        num_vertices: At least 2.
        rng: Source of random numbers.

    Returns:
        (2, num_pairs) int32. Both ends of each pair, which may repeat; no self-loops.

    References:
        Karrer and Newman, "Stochastic blockmodels and community structure in networks", 2011.
    """
    spread = np.minimum(rng.lognormal(0.0, twin.degree_sigma, num_vertices), twin.most_spread)
    mean = twin.mean_degree * twin.pairs_per_edge
    num_stubs = np.maximum(spread / spread.mean() * mean, 1.0)
    num_stubs = (num_stubs + rng.random(num_vertices)).astype(np.int64)
    owner = np.repeat(np.arange(num_vertices, dtype=np.int32), num_stubs)
    first_stub = np.concatenate([[0], np.cumsum(num_stubs)])

    def pairs(drawn: tuple[NDArray[np.int64], list[NDArray[np.float64]]]) -> NDArray[np.int32]:
        src = owner[drawn[0]]
        dst = _partners(twin, src, (owner, first_stub), drawn[1])
        return np.stack([src, dst])[:, src != dst]

    found: list[NDArray[np.int32]] = []
    in_hand: deque[Future[NDArray[np.int32]]] = deque()
    with ThreadPoolExecutor(_THREADS) as pool:
        for begin in range(0, owner.size // 2, _CHUNK):
            size = min(_CHUNK, owner.size // 2 - begin)
            # Numbers are drawn in one order, whatever threads make of them.
            stubs = rng.integers(0, owner.size, size)
            levels_and_draws = [rng.random(size) for _ in range(1 + twin.hub_draws)]
            if len(in_hand) > _THREADS:
                found.append(in_hand.popleft().result())
            in_hand.append(pool.submit(pairs, (stubs, levels_and_draws)))
        found += [each.result() for each in in_hand]
    return np.concatenate(found, axis=1)


def _partners(
    twin: Twin,
    src: NDArray[np.int32],
    stubs: tuple[NDArray[np.int32], NDArray[np.int64]],
    drawn: list[NDArray[np.float64]],
) -> NDArray[np.int32]:
    """(num_pairs,) another end for each vertex.

    `stubs` holds owners, and first of each vertex; `drawn` a number in [0, 1) for the level of each
    pair, and one for each stub that is drawn for it.
    """
    owner, first_stub = stubs
    num_vertices = first_stub.size - 1
    begin, end = np.zeros(src.size, np.int64), np.full(src.size, owner.size)
    level, first_draw, *hub_draws = drawn
    least = 0.0
    width = 1
    for size, share in twin.levels:
        # Whole communities of the level inside; at least one, as a small twin's shares are less.
        wanted = size if size >= 1 else size * num_vertices
        width *= max(round(wanted / width), 1)
        is_here = (level >= least) & (level < least + share)
        least += share
        first = src[is_here] // width * width
        begin[is_here] = first_stub[first]
        end[is_here] = first_stub[np.minimum(first + width, num_vertices)]
    is_outside = level >= twin.levels[0][1]
    num_stubs = np.diff(first_stub)
    dst = owner[begin + (first_draw * (end - begin)).astype(np.int64)]
    for draw in hub_draws:
        other = owner[begin + (draw * (end - begin)).astype(np.int64)]
        dst = np.where(is_outside & (num_stubs[other] > num_stubs[dst]), other, dst)
    return dst
