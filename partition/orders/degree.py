"""Vertices with many links first."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from distgnn.partition.orders.links import Links


def arrange(links: Links, *, seed: int) -> NDArray[np.int64]:
    """Order vertices by descending number of links, so that the rows read most lie together.

    Args:
        links: Links among the vertices of a part, which has at least one vertex.
        seed: Not used: ties go to the smaller number.

    Returns:
        (num_vertices,) int64. The vertices in their new order.
    """
    del seed
    return np.argsort(-np.diff(links.indptr), kind="stable")
