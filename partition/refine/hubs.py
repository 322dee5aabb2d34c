"""Hubs for METIS, where edges are placed by a cover.

A hub's row travels to a part once, however many of its neighbours live there. So to cut one of its
links costs next to nothing. The edges of these links live beside its neighbours, wherever its root
is. METIS would take each for a whole row, and a hub for a heavy vertex that fills its part.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from distgnn import _partitioner
from distgnn.partition.arcs import Adjacency

# A graph has hubs if the vertex at the end of a link has so many times the links of any vertex, in
# the mean. Below that METIS cut graphs as well without (products' twin, 3.4: better). Above it
# (eleven graphs, 7 to 15830, in 4, 16 and 64 parts) refinement ended with 0.3 to 1.0 times the
# rows, 0.9 in the median, and once with 1.2 times.
LEAST_TAIL = 6
# Links of a hub, at least, for each part: with fewer its row would not travel to most parts anyway.
LINKS_PER_PART = 4


def links_of_hub(adjacency: Adjacency, num_parts: int) -> float:
    """Say how many links a vertex has to have to be a hub.

    Args:
        adjacency: Graph that `adjacency_of` makes of the arcs.
        num_parts: At least 1.

    Returns:
        More than 0; infinity if there are too few hubs to matter.
    """
    return float(LINKS_PER_PART * num_parts) if has_hubs(np.diff(adjacency.indptr)) else math.inf


def has_hubs(degree: NDArray[np.int64]) -> bool:
    """Check whether there are hubs.

    Args:
        degree: (num_vertices,) int64. Links of each vertex. A factor common to all vertices
            changes nothing.

    Returns:
        False if there are too few to matter.
    """
    linked = degree[degree > 0].astype(np.float64)
    if linked.size == 0:
        return False
    return bool(np.mean(linked**2) >= LEAST_TAIL * np.mean(linked) ** 2)


def lightened(adjacency: Adjacency, hub: float) -> Adjacency:
    """Weigh the links of hubs less.

    Args:
        adjacency: Graph that `adjacency_of` makes of the arcs.
        hub: Links from which on a vertex is a hub.

    Returns:
        The same graph with other weights, in units of their own; itself if it has no hub.
    """
    if np.diff(adjacency.indptr).max(initial=0) <= hub:
        return adjacency
    return adjacency._replace(weight=_partitioner.light_weights(adjacency.whole(), hub))


def edges_beside(adjacency: Adjacency, hub: float) -> NDArray[np.float64]:
    """Expect edges to live beside roots: half of a link's beside each of its ends, less at hubs.

    Args:
        adjacency: Graph that `adjacency_of` makes of the arcs.
        hub: Links from which on a vertex is a hub.

    Returns:
        (num_vertices,) float64. Edges beside each root, self-loops apart; all are counted once.
    """
    return _partitioner.edges_beside(adjacency.whole(), hub)
