"""Move vertices out of overfull parts where that cuts the fewest edges."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from distgnn import _partitioner

if TYPE_CHECKING:
    from distgnn.partition.arcs import Adjacency

# Later passes are for parts that a move itself overfilled.
MAX_PASSES = 8


def rebalance(
    adjacency: Adjacency,
    part: NDArray[np.int32],
    size: NDArray[np.float64],
    limit: NDArray[np.float64],
    fixed_load: NDArray[np.float64],
) -> NDArray[np.int32]:
    """Move vertices until no part exceeds a limit, or until moves no longer help.

    Args:
        adjacency: The graph.
        part: (num_vertices,) int32. Part of each vertex.
        size: (num_vertices, num_constraints) float64. What each vertex adds to its part.
        limit: (num_constraints,) float64. Largest load of a part.
        fixed_load: (num_parts, num_constraints) float64. Load of each part beside its vertices;
            may be negative.

    Returns:
        (num_vertices,) int32. The new parts.
    """
    part = part.copy()
    num_parts = fixed_load.shape[0]
    load = fixed_load.copy()
    for constraint in range(limit.size):
        load[:, constraint] += np.bincount(part, weights=size[:, constraint], minlength=num_parts)
    # Loads in units of their limits: above 1 is too much, whatever the constraint.
    load /= limit
    share = size / limit
    if load.max() <= 1.0:
        return part
    links = adjacency.whole()
    for _ in range(MAX_PASSES):
        if load.max() <= 1.0 or _partitioner.drain_vertices(links, part, share, load) == 0:
            break
    return part
