"""Synthetic graphs, deterministic in their seed, with features, labels and masks to train on."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from distgnn.datasets._generate import both_ways, check_range, class_features, labelled_graph
from distgnn.datasets.errors import InputError
from distgnn.datasets.planted import planted

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from distgnn.datasets.graph import Graph

PREFIX = "synthetic:"
"""Beginning of a source that names a synthetic graph."""


def rmat(
    *,
    scale: int = 10,
    edge_factor: int = 16,
    a: float = 0.57,
    b: float = 0.19,
    c: float = 0.19,
    num_features: int = 16,
    num_classes: int = 8,
    seed: int = 0,
) -> Graph:
    """Return an R-MAT graph: power-law degrees, self-loops and parallel edges, no communities.

    Args:
        scale: Base-2 logarithm of the number of vertices, in [2, 30].
        edge_factor: Directed edges per vertex, at least 1.
        a: Probability of the upper left quadrant, taken at each of the `scale` levels.
        b: Probability of the upper right quadrant.
        c: Probability of the lower left quadrant; the lower right one has 1 - a - b - c.
        num_features: Columns of the features, which tell the random labels apart.
        num_classes: At least 1.
        seed: Determines edges, features, labels and masks.

    Raises:
        InputError: If an option is out of range.

    References:
        Chakrabarti, Zhan, Faloutsos, "R-MAT: A Recursive Model for Graph Mining", SDM 2004; the
        default probabilities are those of the Graph500 benchmark.
    """
    check_range("scale", scale, 2, 30)
    check_range("edge_factor", edge_factor, 1)
    check_range("num_classes", num_classes, 1)
    if min(a, b, c) < 0 or a + b + c > 1:
        raise InputError(
            f"a, b and c are probabilities that sum to at most 1, got {a:g}, {b:g} and {c:g}; "
            "lower one of them"
        )
    generator = np.random.default_rng(seed)
    num_vertices, num_edges = 1 << scale, edge_factor << scale
    src, dst = _descend(scale, num_edges, (a, b, c), generator)
    # Without the permutation the vertices of low id would be those of high degree.
    shuffle = generator.permutation(num_vertices)
    labels = generator.integers(num_classes, size=num_vertices, dtype=np.int64)
    features = class_features(labels, num_features, generator)
    ends = shuffle[src], shuffle[dst]
    return labelled_graph("rmat", ends, labels, features=features, seed=seed)


def _descend(
    scale: int,
    num_edges: int,
    probabilities: tuple[float, float, float],
    generator: np.random.Generator,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return row and column of each edge, chosen by `scale` quadrants of the adjacency matrix."""
    a, b, c = probabilities
    src = np.zeros(num_edges, dtype=np.int64)
    dst = np.zeros(num_edges, dtype=np.int64)
    for _ in range(scale):
        # One draw chooses the quadrant: a upper left, b upper right, c lower left.
        draw = generator.random(num_edges)
        is_lower = draw >= a + b
        is_right = np.where(is_lower, draw >= a + b + c, draw >= a)
        src = 2 * src + is_lower
        dst = 2 * dst + is_right
    return src, dst


def grid(*, rows: int = 32, columns: int = 32, num_features: int = 8, seed: int = 0) -> Graph:
    """Return a rectangular grid of four-neighbour vertices, labelled by quadrant.

    Args:
        rows: At least 2.
        columns: At least 2.
        num_features: Columns of the features.
        seed: Determines features and masks.

    Raises:
        InputError: If an option is out of range.
    """
    check_range("rows", rows, 2)
    check_range("columns", columns, 2)
    vertex = np.arange(rows * columns, dtype=np.int64).reshape(rows, columns)
    first = np.concatenate([vertex[:, :-1].ravel(), vertex[:-1].ravel()])
    second = np.concatenate([vertex[:, 1:].ravel(), vertex[1:].ravel()])
    row, column = np.divmod(np.arange(rows * columns, dtype=np.int64), columns)
    labels = 2 * (2 * row >= rows) + (2 * column >= columns)
    labels = labels.astype(np.int64)
    ends = both_ways(first, second)
    features = class_features(labels, num_features, np.random.default_rng(seed))
    return labelled_graph("grid", ends, labels, features=features, seed=seed)


def star(*, num_vertices: int = 64, num_features: int = 8, seed: int = 0) -> Graph:
    """Return a star: vertex 0 in the middle, joined with all others; labels alternate.

    Args:
        num_vertices: At least 4, the middle included.
        num_features: Columns of the features.
        seed: Determines features and masks.

    Raises:
        InputError: If an option is out of range.
    """
    check_range("num_vertices", num_vertices, 4)
    leaves = np.arange(1, num_vertices, dtype=np.int64)
    labels = np.arange(num_vertices, dtype=np.int64) % 2
    ends = both_ways(np.zeros_like(leaves), leaves)
    features = class_features(labels, num_features, np.random.default_rng(seed))
    return labelled_graph("star", ends, labels, features=features, seed=seed)


def path(*, num_vertices: int = 64, num_features: int = 8, seed: int = 0) -> Graph:
    """Return a path: each vertex is joined with the next one; labels split it into halves.

    Args:
        num_vertices: At least 4.
        num_features: Columns of the features.
        seed: Determines features and masks.

    Raises:
        InputError: If an option is out of range.
    """
    check_range("num_vertices", num_vertices, 4)
    vertex = np.arange(num_vertices, dtype=np.int64)
    labels = (2 * vertex >= num_vertices).astype(np.int64)
    ends = both_ways(vertex[:-1], vertex[1:])
    features = class_features(labels, num_features, np.random.default_rng(seed))
    return labelled_graph("path", ends, labels, features=features, seed=seed)


GENERATORS: dict[str, Callable[..., Graph]] = {
    "grid": grid,
    "path": path,
    "planted": planted,
    "rmat": rmat,
    "star": star,
}
"""Every synthetic graph by name."""


def options(name: str) -> dict[str, int | float | str]:
    """Return the options of a generator with their defaults."""
    parameters = inspect.signature(GENERATORS[name]).parameters
    return {key: parameter.default for key, parameter in parameters.items()}


def make(source: str) -> Graph:
    """Return the graph of a source such as "synthetic:rmat,scale=14,edge_factor=8,seed=1".

    Raises:
        InputError: If the name, an option or a value is not allowed.
    """
    name, *settings = source.removeprefix(PREFIX).split(",")
    if name not in GENERATORS:
        raise InputError(
            f"there is no synthetic graph {name!r}; choose one of {', '.join(GENERATORS)}"
            f"{_nearest(name, list(GENERATORS))}"
        )
    defaults = options(name)
    chosen: dict[str, Any] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if key not in defaults:
            raise InputError(
                f"synthetic graph {name!r} has no option {key!r}; choose one of "
                f"{', '.join(defaults)}{_nearest(key, list(defaults))}"
            )
        if not equals:
            raise InputError(f"option {key!r} has no value; write {key}={defaults[key]}")
        if key in chosen:
            raise InputError(f"option {key!r} is given twice in {source!r}; give it once")
        chosen[key] = _convert(key, value, defaults[key])
    graph = GENERATORS[name](**chosen)
    return dataclasses.replace(graph, source=source)


def _convert(key: str, value: str, default: float | str) -> int | float | str:
    kind = "a whole number" if isinstance(default, int) else "a number"
    try:
        converted = type(default)(value)
    except ValueError as error:
        raise InputError(
            f"option {key!r} must be {kind}, got {value!r}; write for example {key}={default}"
        ) from error
    if isinstance(converted, float) and not math.isfinite(converted):
        raise InputError(f"option {key!r} must be finite, got {value!r}; write {key}={default}")
    if key == "seed" and isinstance(converted, int) and converted < 0:
        raise InputError(f"seed must be at least 0, got {converted}; write for example seed=0")
    return converted


def _nearest(word: str, allowed: list[str]) -> str:
    close = difflib.get_close_matches(word, allowed, n=1)
    return f" (did you mean {close[0]}?)" if close else ""
