"""Synthetic twins of three known graphs: their size, density, skew and communities.

A twin is a symmetric planted partition with skewed degrees and communities within communities.
Scaling it keeps degrees and the innermost communities and lowers the number of vertices, so that
density and locality stay what they are. Outer communities are shares of the graph: a number of
parts cuts a twin of any scale as it cuts the original.

What products and Reddit were matched with are published figures of the originals; beside them
those of the twins at 1/16, of seed 0 and in random order:

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
end at hubs more often than others do, as in amazon-computers, another graph of joint purchases: cut
into 4 parts, half of its cut edges touch the one percent of vertices with most edges, of all edges
a quarter.
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
_CHUNK = 1 << 22
"""Pairs that are drawn at a time: at full size there are a hundred million."""


@dataclass(frozen=True)
class Twin:
    """What is kept of a graph.

    Attributes:
        num_vertices: Of the original.
        mean_degree: Edges per vertex, both directions counted.
        levels: (size, share of the edges) of communities, from the innermost; sizes from 1 on are
            vertices, below 1 shares of the graph. The other edges join any vertices.
        degree_sigma: Standard deviation of the logarithm of the expected degree.
        most_spread: Largest expected degree over the median: no vertex joins all others.
        hub_draws: An edge that leaves the innermost community ends at the one with most edges of
            so many vertices.
        pairs_per_edge: Pairs drawn for each edge, because equal ones are merged.
        scale_factor: The scale is multiplied by it, up to the full size.
    """

    num_vertices: int
    mean_degree: float
    levels: tuple[tuple[float, float], ...]
    degree_sigma: float
    most_spread: float = 50.0
    hub_draws: int = 1
    pairs_per_edge: float = 1.0
    scale_factor: int = 1


TWINS = {
    "reddit": Twin(
        232_965,
        492.0,
        ((5_700, 0.8),),
        1.4,
        most_spread=60.0,
        hub_draws=2,
        pairs_per_edge=1.65,
    ),
    "products": Twin(
        2_449_029,
        50.5,
        ((600, 0.88), (1 / 64, 0.07), (1 / 16, 0.027), (1 / 4, 0.013)),
        1.45,
        most_spread=300.0,
        hub_draws=3,
        pairs_per_edge=1.65,
    ),
    "arxiv": Twin(169_343, 13.7, ((400, 0.65),), 1.2, scale_factor=4),
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
    ends = _pairs(twin, num_vertices, rng)
    if order == "random":
        ends = rng.permutation(num_vertices).astype(np.int32)[ends]
    return _symmetric(name, order, num_vertices, ends)


def _pairs(twin: Twin, num_vertices: int, rng: np.random.Generator) -> NDArray[np.int32]:
    """Join half-edges: within a community of the first one's, or with any."""
    spread = np.minimum(rng.lognormal(0.0, twin.degree_sigma, num_vertices), twin.most_spread)
    mean = twin.mean_degree * twin.pairs_per_edge
    num_stubs = np.maximum(spread / spread.mean() * mean, 1.0)
    num_stubs = (num_stubs + rng.random(num_vertices)).astype(np.int64)
    owner = np.repeat(np.arange(num_vertices, dtype=np.int32), num_stubs)
    first_stub = np.concatenate([[0], np.cumsum(num_stubs)])
    found = []
    for begin in range(0, owner.size // 2, _CHUNK):
        size = min(_CHUNK, owner.size // 2 - begin)
        src = owner[rng.integers(0, owner.size, size)]
        dst = _partners(twin, src, (owner, first_stub), rng)
        found.append(np.stack([src, dst])[:, src != dst])
    return np.concatenate(found, axis=1)


def _partners(
    twin: Twin,
    src: NDArray[np.int32],
    stubs: tuple[NDArray[np.int32], NDArray[np.int64]],
    rng: np.random.Generator,
) -> NDArray[np.int32]:
    """(num_pairs,) another end for each vertex; `stubs` holds owners, and first of each vertex."""
    owner, first_stub = stubs
    num_vertices = first_stub.size - 1
    begin, end = np.zeros(src.size, np.int64), np.full(src.size, owner.size)
    level = rng.random(src.size)
    least = 0.0
    width = 1
    for size, share in twin.levels:
        # Whole communities of the level inside; at least one, as a small twin's shares are less.
        wanted = size if size >= 1 else size * num_vertices
        width *= max(round(wanted / width), 1)
        is_here = (level >= least) & (level < least + share)
        least += share
        first = src[is_here] // width * width
        begin[is_here] = first_stub[first]
        end[is_here] = first_stub[np.minimum(first + width, num_vertices)]
    is_outside = level >= twin.levels[0][1]
    num_stubs = np.diff(first_stub)
    dst = owner[begin + (rng.random(src.size) * (end - begin)).astype(np.int64)]
    for _ in range(twin.hub_draws - 1):
        other = owner[begin + (rng.random(src.size) * (end - begin)).astype(np.int64)]
        dst = np.where(is_outside & (num_stubs[other] > num_stubs[dst]), other, dst)
    return dst


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
