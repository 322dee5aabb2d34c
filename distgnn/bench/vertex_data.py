"""Features, labels and masks of twins, in the numbers of their originals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from distgnn.datasets import Graph

if TYPE_CHECKING:
    from distgnn.bench.shapes import Shape


@dataclass(frozen=True)
class _Data:
    """Vertex data of a twin's original.

    Attributes:
        num_features: Columns.
        num_classes: Classes.
        train_fraction: Share of training vertices.
    """

    num_features: int
    num_classes: int
    train_fraction: float


_DATA = {
    "reddit": _Data(602, 41, 0.66),
    "products": _Data(100, 47, 0.08),
    "arxiv": _Data(128, 40, 0.54),
}


def with_data(shape: Shape, name: str, seed: int) -> Graph:
    """Draw features, labels that can be learned from them, and masks.

    Args:
        shape: The twin.
        name: Name of its original.
        seed: Seed of the twin; another one than its edges have is used here.

    Returns:
        The graph.
    """
    data = _DATA[name]
    rng = np.random.default_rng(seed + 1)
    num_vertices = shape.num_vertices
    labels = rng.integers(0, data.num_classes, num_vertices)
    centres = rng.normal(size=(data.num_classes, data.num_features)).astype(np.float32)
    features = centres[labels]
    features += rng.normal(size=features.shape).astype(np.float32)
    draw = rng.random(num_vertices)
    half = (1 + data.train_fraction) / 2
    return Graph(
        name=f"{shape.name}-{shape.order}",
        num_vertices=num_vertices,
        src=shape.indices.astype(np.int64),
        dst=np.repeat(np.arange(num_vertices), np.diff(shape.indptr)),
        features=features,
        labels=labels,
        train_mask=(draw < data.train_fraction)[None],
        val_mask=((draw >= data.train_fraction) & (draw < half))[None],
        test_mask=(draw >= half)[None],
    )
