"""Communities inside communities, found by merging each vertex into its best neighbour once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from distgnn import _partitioner
from distgnn.partition.orders.links import Links


def arrange(links: Links, *, seed: int) -> NDArray[np.int64]:
    """Order vertices along the tree of mergers.

    Vertices are visited once, those with few links first. A visited one, which stands for all that
    were merged into it, joins the neighbour with which modularity grows most, if it grows at all.
    The order lists every vertex before the communities that joined it, earliest first, so that
    what merged first, the smallest communities, lies closest together.

    Args:
        links: Links among the vertices of a part, which has at least one vertex.
        seed: Not used: ties go to the smaller number.

    Returns:
        (num_vertices,) int64. The vertices in their new order.

    References:
        Arai, Shiokawa, Yamamuro, Onizuka and Iwamura, "Rabbit Order: just-in-time parallel
        reordering for fast graph analysis", IPDPS 2016.
    """
    del seed
    visits = np.argsort(np.diff(links.indptr), kind="stable")
    parent = _partitioner.merge_communities(links.indptr, links.indices.copy(), visits)
    return _partitioner.walk_mergers(parent, visits)
