"""Reverse Cuthill-McKee: breadth-first levels, so that links are short."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.csgraph import reverse_cuthill_mckee

from distgnn.partition.orders.links import Links


def arrange(links: Links, *, seed: int) -> NDArray[np.int64]:
    """Order vertices so that neighbours have near numbers. Good for meshes and road networks.

    Args:
        links: Links among the vertices of a part, which has at least one vertex.
        seed: Not used: the walk starts at a vertex with the fewest links.

    Returns:
        (num_vertices,) int64. The vertices in their new order.

    References:
        Cuthill and McKee, "Reducing the bandwidth of sparse symmetric matrices", ACM 1969.
    """
    del seed
    ones = np.ones(links.indices.size, np.int8)
    matrix = sp.csr_matrix((ones, links.indices, links.indptr), shape=(links.num_vertices,) * 2)
    order: NDArray[np.int32] = reverse_cuthill_mckee(matrix, symmetric_mode=True)
    return order.astype(np.int64)
