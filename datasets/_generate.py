"""Parts that synthetic graphs share: checks of options, labels, features, the final graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from distgnn.datasets.errors import InputError
from distgnn.datasets.graph import Graph
from distgnn.datasets.splits import parse_fractions, random_split

if TYPE_CHECKING:
    from numpy.typing import NDArray

SPLIT = "0.6/0.2/0.2"
"""Shares of train, val and test where a generator has no option for them."""


def check_range(option: str, value: float, least: float, most: float = float("inf")) -> None:
    """Raise `InputError` unless least <= value <= most."""
    if not least <= value <= most:
        allowed = f"at least {least:g}" if most == float("inf") else f"in [{least:g}, {most:g}]"
        raise InputError(f"{option} must be {allowed}, got {value:g}; choose such a value")


def class_features(
    labels: NDArray[np.int64],
    num_features: int,
    generator: np.random.Generator,
    *,
    signal: float = 1.0,
) -> NDArray[np.float32] | None:
    """Return normal noise around one random centre for each class.

    Args:
        labels: (num_vertices,) int64.
        num_features: Number of columns; 0 gives None.
        generator: MaskSeeds centres and noise.
        signal: Standard deviation of the centres, where that of the noise is 1.

    Returns:
        (num_vertices, num_features) float32.
    """
    check_range("num_features", num_features, 0)
    if num_features == 0:
        return None
    shape = (int(labels.max()) + 1, num_features)
    centres = signal * generator.standard_normal(shape, dtype=np.float32)
    noise = generator.standard_normal((labels.size, num_features), dtype=np.float32)
    return noise + centres.astype(np.float32)[labels]


def labelled_graph(
    name: str,
    ends: tuple[NDArray[np.int64], NDArray[np.int64]],
    labels: NDArray[np.int64],
    *,
    features: NDArray[np.float32] | None,
    seed: int,
    split: str = SPLIT,
) -> Graph:
    """Return a graph of the given edges with a random split, sorted by destination, then source."""
    src, dst = ends
    order = np.lexsort((src, dst))
    graph = Graph(
        name=name,
        num_vertices=labels.size,
        src=src[order],
        dst=dst[order],
        features=features,
        labels=labels,
        source=f"synthetic:{name}",
    )
    return random_split(graph, parse_fractions(split), seed=seed)


def both_ways(
    first: NDArray[np.int64], second: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return sources and destinations of both directions of every edge."""
    return np.concatenate([first, second]), np.concatenate([second, first])
