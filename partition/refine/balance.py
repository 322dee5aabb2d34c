"""Balances that parts should keep, and the weights of vertices with which METIS keeps them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from distgnn.datasets.errors import InputError
from distgnn.datasets.graph import Graph
from distgnn.partition.arcs import Adjacency
from distgnn.partition.refine.hubs import edges_beside
from distgnn.partition.refine.rebalance import rebalance

# pymetis passes one vertex weight, so edges and vertices share it. Over five real graphs at 2, 4
# and 8 parts, shares of 0.5, 0.65 and 0.8 gave halos within 1 %; 0.65 left the least to rebalance.
EDGE_SHARE = 0.65
# Units of the mean vertex weight: METIS weights are integers.
WEIGHT_SCALE = 1000
# Before refinement, which drains parts at a lower price in rows than moving vertices does. Over
# three real graphs at 4, 16 and 64 parts 1.3 ended with up to 9 % fewer rows than 1.1.
ROOT_EDGE_BALANCE = 1.3
# Largest part's training vertices over the mean, and what share of the vertices are few.
TRAIN_BALANCE = 1.1
FEW_TRAINING = 1 / 3


@dataclass(frozen=True, eq=False)
class Balance:
    """Largest part over the mean that an assignment should keep, where the graph allows it.

    Raises:
        InputError: If one is below 1.
    """

    edges: float
    vertices: float
    refine: bool = False
    """Whether refinement is to reach the balance of edges; roots may then be further from it."""
    training: NDArray[np.int32] | None = None
    """(num_vertices,) int32. Splits that each vertex is trained on in, which parts are to share
    evenly; None where they need not."""

    def __post_init__(self) -> None:
        """Check what a user may have chosen."""
        for name, value in (("edge_balance", self.edges), ("vertex_balance", self.vertices)):
            if not value >= 1.0:
                raise InputError(f"{name} must be at least 1, got {value}; 1 is perfect balance")

    def of_roots(self) -> Balance:
        """Return what roots should keep to before their edges are placed."""
        return replace(self, edges=max(self.edges, ROOT_EDGE_BALANCE)) if self.refine else self


def vertex_sizes(
    adjacency: Adjacency, *, hub: float = math.inf, edge_share: float = EDGE_SHARE
) -> NDArray[np.float64]:
    """Weigh vertices by their edges and by themselves, for methods that balance one sum.

    Args:
        adjacency: Graph that `adjacency_of` makes of the arcs.
        hub: Links from which on a vertex is a hub.
        edge_share: Share of the edges in the weights, from 0 to 1.

    Returns:
        (num_vertices,) float64, 1 on average where there are edges.
    """
    edges = edges_beside(adjacency, hub)
    mean = max(float(edges.mean()), 0.5)
    return np.asarray(edge_share * edges / mean + 1.0 - edge_share, np.float64)


def rounded_sizes(
    adjacency: Adjacency, *, hub: float = math.inf, edge_share: float = EDGE_SHARE
) -> NDArray[np.int64]:
    """Round `vertex_sizes` for METIS, in thousandths and at least 1.

    Args:
        adjacency: Graph that `adjacency_of` makes of the arcs.
        hub: Links from which on a vertex is a hub.
        edge_share: Share of the edges in the weights, from 0 to 1.

    Returns:
        (num_vertices,) int64. Isolated vertices weigh next to nothing: `level_isolated` places
        them.
    """
    sizes = (WEIGHT_SCALE * vertex_sizes(adjacency, hub=hub, edge_share=edge_share)).astype(
        np.int64
    )
    return np.where(np.diff(adjacency.indptr) > 0, np.maximum(sizes, 1), 1)


def level_isolated(
    roots: NDArray[np.int32], is_isolated: NDArray[np.bool_], others: NDArray[np.int64]
) -> NDArray[np.int32]:
    """Give isolated vertices to the parts with the least of something else.

    Nothing ties them to a part, so METIS puts them together. A part of these alone has no edges,
    and all other parts have more than their share.

    Args:
        roots: (num_vertices,) int32. Part of each vertex's root.
        is_isolated: (num_vertices,) bool. Which may be moved.
        others: (num_parts,) int64. What parts hold beside these: other roots, say.

    Returns:
        (num_vertices,) int32. The parts; each has as much in all as these vertices allow.
    """
    count = int(np.count_nonzero(is_isolated))
    if count == 0:
        return roots
    order = np.argsort(others, kind="stable")
    running = np.cumsum(others[order])
    # Isolated vertices that lift the first 1, 2, ... parts to the level of the last of them.
    lifting = np.arange(1, others.size + 1) * others[order] - running
    lifted = int(np.count_nonzero(lifting <= count))
    level, rest = divmod(count + int(running[lifted - 1]), lifted)
    goal = others.copy()
    goal[order[:lifted]] = level
    goal[order[:rest]] += 1
    levelled: NDArray[np.int32] = roots.copy()
    levelled[is_isolated] = np.repeat(np.arange(others.size, dtype=np.int32), goal - others)
    return levelled


def rebalanced(
    adjacency: Adjacency,
    roots: NDArray[np.int32],
    balance: Balance,
    guest_edges: NDArray[np.float64],
    *,
    hub: float = math.inf,
) -> NDArray[np.int32]:
    """Keep roots and the edges beside them, plus the guests of each part, below the limits.

    Args:
        adjacency: Graph that `adjacency_of` makes of the arcs.
        roots: (num_vertices,) int32. Part of each vertex's root.
        balance: Balance to aim at.
        guest_edges: (num_parts,) float64. Edges of each part beyond half of those at its roots.
        hub: Links from which on a vertex is a hub.

    Returns:
        (num_vertices,) int32. The parts, as few of them changed as need be.
    """
    num_parts = guest_edges.size
    edges = edges_beside(adjacency, hub)
    columns, most = [np.ones_like(edges), edges], [balance.vertices, balance.edges]
    fixed = [np.zeros_like(guest_edges), guest_edges]
    if balance.training is not None:
        columns.append(balance.training.astype(np.float64))
        most.append(TRAIN_BALANCE)
        fixed.append(np.zeros_like(guest_edges))
    size = np.stack(columns, axis=1)
    mean = np.maximum(size.sum(axis=0) / num_parts, 1.0)
    limit = np.maximum(mean * most, np.ceil(mean))
    return rebalance(adjacency, roots, size, limit, np.stack(fixed, axis=1))


def is_training_balanced(balance: str) -> bool:
    """Check what parts are to share evenly beside edges and vertices.

    Args:
        balance: "train" or "none".

    Returns:
        Whether it is training vertices.

    Raises:
        InputError: If it is something else.
    """
    if balance not in ("train", "none"):
        raise InputError(
            f"unknown balance {balance!r}; choose train, for few training vertices to be shared "
            "evenly, or none"
        )
    return balance == "train"


def training_counts(graph: Graph) -> NDArray[np.int32] | None:
    """Count for each vertex the splits that it is trained on in, if training vertices are few.

    The loss, and with it the last layers, then run on few rows. A partition that does not look at
    these may leave them to one part. Where they are many, they are spread like the others.

    Args:
        graph: Its masks are read.

    Returns:
        (num_vertices,) int32, or None if there are none, or FEW_TRAINING of all vertices or more.
    """
    mask = graph.train_mask
    if mask is None or not 0 < mask.sum() < FEW_TRAINING * mask.size:
        return None
    counts: NDArray[np.int32] = mask.sum(axis=0, dtype=np.int32)
    return counts


def most_training(training: NDArray[np.int32], num_parts: int) -> int:
    """Say how many training vertices a part may have.

    Args:
        training: (num_vertices,) int32. From `training_counts`.
        num_parts: At least 1.

    Returns:
        A sum of `training`, at least the mean rounded up.
    """
    mean = int(training.sum()) / num_parts
    return max(math.ceil(mean), math.floor(TRAIN_BALANCE * mean))
