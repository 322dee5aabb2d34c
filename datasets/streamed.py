"""Synthetic twins of published graphs, drawn edge by edge, so that any size fits into memory.

A vertex has a place. The places form blocks of 128, 256, 512, ... neighbours. An edge joins two
places of one block, whose size is drawn first. So the graph has communities of every size, the
larger the looser, as citations have (papers of a topic, of a field, of a science). The share of
edges between parts grows with their number, by about `loose_fraction` for each doubling.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from distgnn.datasets.twins import class_signal

if TYPE_CHECKING:
    from numpy.typing import NDArray

BLOCK = 1 << 17
"""Edges or vertices drawn at once. Each block has its own random numbers, so it is the same in
whichever order blocks are drawn."""
# Sizes of blocks are looked up in a table by 16 random bits.
_TABLE_SIZE = 1 << 16
_SMALLEST_EXPONENT = 7
# Block sizes whose shares do not depend on the number of vertices: enough for 1024 parts.
_NUM_LOOSE = 10
# Places are renumbered to find sources and ids, by multiples of numbers without structure.
_SOURCE_FACTOR, _ID_FACTOR = 0x9E3779B1, 0x85EBCA6B
# Out-degrees range from 157 times the mean down to a seventh of it, and equally many edges leave
# the vertices of every tenfold range.
_OUT_SKEW = 7.0
# Bits of a destination's place that are cleared, one of four at random: half of the vertices, the
# odd places, have no edges in; citations have such a share of never cited papers.
_CLEARED = ~np.array([1, 3, 3, 7], np.int64)
_LEAST_VERTICES = 64


@dataclass(frozen=True)
class Twin:
    """Properties of a published graph that its twin keeps.

    Attributes:
        num_vertices: Number of vertices of the original.
        num_edges: Number of directed edges of the original.
        num_features: Columns of the features.
        num_classes: Classes of the labels.
        split: Shares of all vertices that train, validate and test; only those have labels.
        loose_fraction: Share of the edges in blocks of the whole, of half of it, of a quarter, ...
    """

    num_vertices: int
    num_edges: int
    num_features: int
    num_classes: int
    split: tuple[float, float, float]
    loose_fraction: float


# ogbn-papers100M. At a scale of 1/256 Libra's replication factors at 32, 64 and 128 parts are 4.6,
# 5.5 and 6.4; published are 4.63, 5.63 and 6.62 (DistGNN, SC 2021).
TWINS = {
    "papers": Twin(111_059_956, 1_615_685_872, 128, 172, (0.01087, 0.00113, 0.00193), 0.05),
}


@dataclass(frozen=True, eq=False)
class Sketch:
    """A twin at a scale, from which any of its edges and vertices is drawn.

    Attributes:
        twin: Properties of the original.
        num_vertices: At least 64.
        num_edges: Directed.
        seed: Another seed gives another graph.
        exponent: (65536,) uint8. Base-2 logarithm of the size of an edge's block.
    """

    twin: Twin
    num_vertices: int
    num_edges: int
    seed: int
    exponent: NDArray[np.uint8]


def sketch(twin: Twin, scale: float, seed: int) -> Sketch:
    """Scale a twin down; the mean degree stays.

    Args:
        twin: Properties of the original.
        scale: In (0, 1].
        seed: At least 0.

    Returns:
        The sketch to draw from.
    """
    num_vertices = max(round(twin.num_vertices * scale), _LEAST_VERTICES)
    num_edges = round(twin.num_edges * (num_vertices / twin.num_vertices))
    return Sketch(twin, num_vertices, num_edges, seed, _exponents(twin, num_vertices))


def _exponents(twin: Twin, num_vertices: int) -> NDArray[np.uint8]:
    largest = math.ceil(math.log2(num_vertices))
    exponents = np.arange(largest, min(_SMALLEST_EXPONENT, largest) - 1, -1)
    share = np.zeros(exponents.size)
    share[:_NUM_LOOSE] = twin.loose_fraction
    # The rest goes to the small blocks alike, however many there are.
    num_tight = max(exponents.size - _NUM_LOOSE, 1)
    share[-num_tight:] += (1.0 - share.sum()) / num_tight
    bounds = np.rint(np.cumsum(share) * _TABLE_SIZE).astype(np.int64)
    return np.repeat(exponents, np.diff(bounds, prepend=0)).astype(np.uint8)


def edges(graph: Sketch, block: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Draw a block of edges.

    Sources are drawn by their degrees. A destination is drawn from the block of its source by a
    power law, so that the in-degree of rank r falls like r**-0.56. There are no self-loops; edges
    may repeat.

    Args:
        graph: Sketch of the graph.
        block: Less than `num_edges` / `BLOCK`, rounded up.

    Returns:
        Sources and destinations, each (at most `BLOCK`,) int64.
    """
    count = min(BLOCK, graph.num_edges - block * BLOCK)
    generator = _generator(graph, 0, block)
    rank = np.expm1(_OUT_SKEW * generator.random(count)) / math.expm1(_OUT_SKEW)
    rank *= graph.num_vertices
    src = _scattered(rank.astype(np.int64), graph.num_vertices, _SOURCE_FACTOR)
    bits = generator.integers(0, _TABLE_SIZE, count, dtype=np.uint16)
    size = np.left_shift(np.int64(1), graph.exponent[bits].astype(np.int64))
    low = src & -size
    width = np.minimum(size, graph.num_vertices - low)
    uniform = generator.random(count)
    uniform *= uniform * np.sqrt(np.sqrt(uniform))
    offset = (uniform * width).astype(np.int64)
    offset &= _CLEARED[generator.integers(0, 4, count, dtype=np.uint8)]
    dst = low + offset
    dst = np.where(dst == src, _beside(dst, graph.num_vertices), dst)
    src = _scattered(src, graph.num_vertices, _ID_FACTOR)
    return src, _scattered(dst, graph.num_vertices, _ID_FACTOR)


def vertices(
    graph: Sketch, block: int
) -> tuple[NDArray[np.int16], tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]]:
    """Draw labels and masks of a block of vertices.

    A class is a run of places, so most edges join vertices of one class or of classes beside it.

    Args:
        graph: Sketch of the graph.
        block: Less than `num_vertices` / `BLOCK`, rounded up.

    Returns:
        Labels, (at most `BLOCK`,) int16, -1 where no mask is set; and the three masks.
    """
    label = _classes(graph, block)
    uniform = _generator(graph, 1, block).random(label.size)
    bounds = np.cumsum((0.0, *graph.twin.split))
    masks = tuple((uniform >= bounds[k]) & (uniform < bounds[k + 1]) for k in range(3))
    return np.where(uniform < bounds[3], label, -1).astype(np.int16), masks


def features(graph: Sketch, block: int) -> NDArray[np.float32]:
    """Draw the features of a block of vertices: normal noise around a centre for each class.

    The centres are so close that a vertex alone is hardly ever recognised, its neighbourhood is.

    Args:
        graph: Sketch of the graph.
        block: Less than `num_vertices` / `BLOCK`, rounded up.

    Returns:
        (at most `BLOCK`, num_features) float32.
    """
    shape = (graph.twin.num_classes, graph.twin.num_features)
    centre = _generator(graph, 2, 0).standard_normal(shape, np.float32)
    centre *= np.float32(class_signal(graph.twin.num_features))
    rows: NDArray[np.float32] = centre[_classes(graph, block)]
    rows += _generator(graph, 3, block).standard_normal(rows.shape, np.float32)
    return rows


def _classes(graph: Sketch, block: int) -> NDArray[np.int64]:
    """Class of each vertex of a block, whether or not it has a label."""
    begin = block * BLOCK
    vertex = np.arange(begin, min(begin + BLOCK, graph.num_vertices), dtype=np.int64)
    inverse = pow(_factor(_ID_FACTOR, graph.num_vertices), -1, graph.num_vertices)
    place = vertex * inverse % graph.num_vertices
    return place * graph.twin.num_classes // graph.num_vertices


def _generator(graph: Sketch, purpose: int, block: int) -> np.random.Generator:
    key = [graph.seed, purpose, block]
    return np.random.Generator(np.random.SFC64(np.random.SeedSequence(key)))


def _scattered(number: NDArray[np.int64], num_vertices: int, factor: int) -> NDArray[np.int64]:
    """Map 0 .. num_vertices - 1 onto itself, numbers beside each other far apart."""
    return number * _factor(factor, num_vertices) % num_vertices


def _factor(factor: int, num_vertices: int) -> int:
    factor %= num_vertices
    while math.gcd(factor, num_vertices) != 1:
        factor += 1
    return factor


def _beside(place: NDArray[np.int64], num_vertices: int) -> NDArray[np.int64]:
    other = place ^ 1
    return np.where(other < num_vertices, other, place - 1)
