"""The arrays of a small sound graph file, for tests of what files may hold."""

from __future__ import annotations

from typing import Any

import numpy as np


def ring_arrays(**changes: Any) -> dict[str, Any]:
    """Make the arrays of a ring of 12 vertices, with changes; None takes an array away."""
    num_vertices = 12
    vertex = np.arange(num_vertices)
    arrays: dict[str, Any] = {
        "edge_index": np.stack([vertex, (vertex + 1) % num_vertices]),
        "features": np.eye(num_vertices, 5, dtype=np.float32),
        "labels": vertex % 3,
        "train_mask": vertex < 6,
        "val_mask": (vertex >= 6) & (vertex < 9),
        "test_mask": vertex >= 9,
        **changes,
    }
    return {name: array for name, array in arrays.items() if array is not None}
