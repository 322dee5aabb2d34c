"""Pieces of parts, put together to other parts."""

from __future__ import annotations

import heapq

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from distgnn.partition.arcs import Adjacency
from distgnn.partition.methods.metis_library import part_graph
from distgnn.partition.refine.balance import EDGE_SHARE, WEIGHT_SCALE
from distgnn.partition.refine.rebalance import rebalance

# Largest group over the mean, for equal pieces.
_BALANCE = 1.05


def num_pieces(num_parts: int, wanted: int) -> int:
    """Say into how many pieces parts must be split so that groups of them can be of equal size.

    Args:
        num_parts: There are, of about equal size.
        wanted: Number of groups.

    Returns:
        The smallest sufficient multiple of num_parts. It is at least `wanted`, and its equal pieces
        can be dealt to the groups with at most 5 % more than the mean in any.
    """
    count = num_parts * -(-wanted // num_parts)
    while -(-count // wanted) * wanted > _BALANCE * count:
        count += num_parts
    return count


def shares(sizes: NDArray[np.int64], most: NDArray[np.int64], total: int) -> NDArray[np.int64]:
    """Divide a number of pieces among parts in proportion to their sizes, at least one each.

    Args:
        sizes: (num_parts,) int64.
        most: (num_parts,) int64, at least 1. Pieces that a part can be split into.
        total: At least num_parts.

    Returns:
        (num_parts,) int64. They add up to `total`, or to the sum of `most` where that is less.

    References:
        Highest averages (D'Hondt): the largest piece is as small as can be.
    """
    count = np.ones(sizes.size, np.int64)
    # The part whose pieces would be the largest comes first; the lowest number of equal ones.
    waiting = [(-int(size) / 1, part) for part, size in enumerate(sizes.tolist())]
    heapq.heapify(waiting)
    missing = min(total, int(most.sum())) - sizes.size
    while missing > 0:
        _, part = heapq.heappop(waiting)
        if count[part] >= most[part]:
            continue
        count[part] += 1
        missing -= 1
        heapq.heappush(waiting, (-int(sizes[part]) / int(count[part]), part))
    return count


def group(
    rows: NDArray[np.int64],
    num_edges: NDArray[np.int64],
    num_roots: NDArray[np.int64],
    num_groups: int,
    *,
    seed: int = 0,
) -> NDArray[np.int32]:
    """Group pieces by METIS on the rows that travel between them, in balance of edges and roots.

    Args:
        rows: (num_pieces, num_pieces) int64. Rows that travel from one to another.
        num_edges: (num_pieces,) int64.
        num_roots: (num_pieces,) int64.
        num_groups: At least 1.
        seed: Seed of METIS.

    Returns:
        (num_pieces,) int32. Group of each piece; where there are no more pieces than groups, one of
        its own.
    """
    count = len(num_edges)
    if count <= num_groups:
        return np.arange(count, dtype=np.int32)
    if num_groups == 1:
        return np.zeros(count, np.int32)
    links = sp.csr_matrix(rows + rows.T)
    links.setdiag(0)
    links.eliminate_zeros()
    adjacency = Adjacency(
        links.indptr.astype(np.int64), links.indices.astype(np.int32), links.data.astype(np.int64)
    )
    size = np.stack([num_roots, num_edges], axis=1).astype(np.float64)
    mean = np.maximum(size.sum(axis=0) / num_groups, 1.0)
    weight = WEIGHT_SCALE * (size / mean) @ [1 - EDGE_SHARE, EDGE_SHARE]
    if links.nnz:
        found = part_graph(
            adjacency,
            num_groups,
            vertex_weight=np.maximum(weight.astype(np.int64), 1),
            seed=seed,
            objective="cut",
        )
    else:
        found = (np.arange(count) % num_groups).astype(np.int32)
    limit = np.maximum(_BALANCE * mean, size.max(axis=0))
    return rebalance(adjacency, found, size, limit, np.zeros((num_groups, 2)))
