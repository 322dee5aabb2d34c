"""Synthetic twins of three known graphs: their size, density, skew and communities.

A twin is a symmetric planted partition with skewed degrees. Scaling it keeps degree and community
size and lowers the number of vertices, so that density and locality stay what they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from distgnn.datasets import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

ORDERS = ("random", "community")
_MAX_SPREAD = 50.0
"""Largest expected degree over the mean: hubs, but no vertex joined to all others."""


@dataclass(frozen=True)
class Twin:
    """What is kept of a graph.

    Attributes:
        num_vertices: Of the original.
        mean_degree: Edges per vertex, both directions counted.
        community_size: Vertices of a community.
        inside_fraction: Edges inside a community.
        degree_sigma: Standard deviation of the logarithm of the expected degree.
        scale_factor: The scale is multiplied by it, up to the full size.
    """

    num_vertices: int
    mean_degree: float
    community_size: int
    inside_fraction: float
    degree_sigma: float
    scale_factor: int = 1


TWINS = {
    "reddit": Twin(232_965, 492.0, 5_700, 0.75, 1.2),
    "products": Twin(2_449_029, 50.5, 1_000, 0.8, 1.1),
    "arxiv": Twin(169_343, 13.7, 400, 0.65, 1.2, scale_factor=4),
}


@dataclass(frozen=True, eq=False, kw_only=True)
class Shape:
    """One graph of a benchmark; symmetric, without duplicate edges.

    Attributes:
        name: Of the twin.
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
    src, dst = _pairs(twin, num_vertices, rng)
    if order == "random":
        new_id = rng.permutation(num_vertices)
        src, dst = new_id[src], new_id[dst]
    return _symmetric(name, order, num_vertices, np.stack([src, dst]))


def _pairs(
    twin: Twin, num_vertices: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Join half-edges: within the community of the first, or with any."""
    spread = np.minimum(rng.lognormal(0.0, twin.degree_sigma, num_vertices), _MAX_SPREAD)
    num_stubs = np.maximum(spread / spread.mean() * twin.mean_degree, 1.0)
    num_stubs = (num_stubs + rng.random(num_vertices)).astype(np.int64)
    owner = np.repeat(np.arange(num_vertices), num_stubs)
    first_stub = np.concatenate([[0], np.cumsum(num_stubs)])
    src = owner[rng.integers(0, owner.size, owner.size // 2)]
    community = src // twin.community_size
    begin = first_stub[community * twin.community_size]
    end = first_stub[np.minimum((community + 1) * twin.community_size, num_vertices)]
    is_inside = rng.random(src.size) < twin.inside_fraction
    begin = np.where(is_inside, begin, 0)
    end = np.where(is_inside, end, owner.size)
    dst = owner[begin + (rng.random(src.size) * (end - begin)).astype(np.int64)]
    is_edge = src != dst
    return src[is_edge], dst[is_edge]


def _symmetric(name: str, order: str, num_vertices: int, ends: NDArray[np.int64]) -> Shape:
    both = np.concatenate([ends, ends[::-1]], axis=1).astype(np.int32)
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
