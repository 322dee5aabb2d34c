"""Synthetic twins of three known graphs: their size, density, skew and communities.

A twin is a symmetric planted partition with skewed degrees and communities within communities.
Scaling it keeps degrees and the innermost communities and lowers the number of vertices, so that
density and locality stay what they are. Outer communities are shares of the graph: a number of
parts cuts a twin of any scale as it cuts the original.

The twins of products and Reddit were matched with published figures of the originals. Here these
are beside those of the twins at 1/16, of seed 0 and in random order:

| | parts | ogbn-products | twin | Reddit | twin |
|---|---|---|---|---|---|
| edges per vertex | | 50.5 | 49.4 | 492 | 500 |
| Libra's replication factor | 2 | 1.49 | 1.49 | 1.75 | 1.76 |
| | 4 | 2.16 | 2.21 | 2.94 | 3.01 |
| | 8 | 2.98 | 3.10 | 4.66 | 4.99 |
| | 16 | 3.90 | 3.91 | 6.93 | 6.64 |
| | 32 | 4.85 | 4.55 | | |
| | 64 | 5.74 | 5.00 | | |
| halo of METIS's edge cut / vertices | 10 | 0.75 | 0.83 | | 7.94 |

Libra's are of DistGNN (Md et al., SC'21), for edges in the order of the file and without a cap on
the edges of a part; `distgnn partition --method libra` shuffles and caps. Edges between communities
end at hubs more often than others do, as in amazon-computers, another graph of joint purchases.
Where that is cut into 4 parts, half of the cut edges touch the one percent of vertices with most
edges, but only a quarter of all edges do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from distgnn.datasets import InputError
from distgnn.datasets.twins import TWINS, draw_pairs

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["ORDERS", "TWINS", "Shape", "make"]

ORDERS = ("random", "community")


@dataclass(frozen=True, eq=False, kw_only=True)
class Shape:
    """One graph of a benchmark; symmetric, without duplicate edges.

    Attributes:
        name: Name of the twin.
        order: How vertices are numbered: at random, or community by community.
        indptr: (num_vertices + 1,) int64.
        indices: (num_edges,) int32, ascending in a row.
        t_edge: (num_edges,) int64. Edge k of the transpose, whose indptr and indices are the same
            ones, is edge t_edge[k] of the graph.
    """

    name: str
    order: str
    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    t_edge: NDArray[np.int64]

    @property
    def num_vertices(self) -> int:
        """Number of vertices."""
        return self.indptr.size - 1

    @property
    def num_edges(self) -> int:
        """Number of directed edges."""
        return self.indices.size


def make(name: str, *, scale: float, order: str, seed: int = 0) -> Shape:
    """Build a twin.

    Args:
        name: A key of `TWINS`.
        scale: Fraction of the original's vertices, in (0, 1].
        order: One of `ORDERS`.
        seed: Another seed gives another graph.

    Returns:
        The graph.

    Raises:
        InputError: If the name, the scale or the order is unknown.

    References:
        Karrer and Newman, "Stochastic blockmodels and community structure in networks", 2011.
    """
    if name not in TWINS:
        raise InputError(f"a shape must be one of {', '.join(TWINS)}, got '{name}'")
    if order not in ORDERS:
        raise InputError(f"an order must be one of {', '.join(ORDERS)}, got '{order}'")
    if not 0 < scale <= 1:
        raise InputError(f"the scale must be in (0, 1], got {scale}")
    rng = np.random.default_rng(seed)
    twin = TWINS[name]
    num_vertices = max(round(twin.num_vertices * min(1.0, scale * twin.scale_factor)), 2)
    ends = draw_pairs(twin, num_vertices, rng)
    if order == "random":
        ends = rng.permutation(num_vertices).astype(np.int32)[ends]
    return _symmetric(name, order, num_vertices, ends)


def _symmetric(name: str, order: str, num_vertices: int, ends: NDArray[np.int32]) -> Shape:
    both = np.concatenate([ends, ends[::-1]], axis=1)
    ones = np.ones(both.shape[1], np.int8)
    matrix = sp.coo_matrix((ones, (both[0], both[1])), (num_vertices, num_vertices)).tocsr()
    # Of a symmetric matrix the positions, transposed, are those of the reverse edges.
    positions = np.arange(matrix.nnz, dtype=np.int64)
    transposed = sp.csr_matrix((positions, matrix.indices, matrix.indptr), matrix.shape).tocsc()
    return Shape(
        name=name,
        order=order,
        indptr=matrix.indptr.astype(np.int64),
        indices=matrix.indices.astype(np.int32),
        t_edge=transposed.data,
    )
