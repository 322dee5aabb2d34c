"""What parts should hold alike, and vertices as METIS weighs them for that."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from distgnn.datasets.errors import InputError
from distgnn.datasets.graph import Graph
from distgnn.partition.jit import compiled
from distgnn.partition.rebalance import Adjacency, rebalance

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


@compiled
def _degree(indptr: NDArray[np.int64], weight: NDArray[np.int32]) -> NDArray[np.int64]:
    """(num_vertices,) edges of either direction at each vertex, self-loops apart."""
    degree = np.zeros(indptr.size - 1, np.int64)
    for vertex in range(degree.size):
        for k in range(indptr[vertex], indptr[vertex + 1]):
            degree[vertex] += weight[k]
    return degree


def vertex_sizes(adjacency: Adjacency) -> NDArray[np.float64]:
    """Weigh vertices by their edges and by themselves, for methods that balance one sum.

    Args:
        adjacency: What `adjacency_of` makes of arcs.

    Returns:
        (num_vertices,) float64, 1 on average where there are edges.
    """
    degree = _degree(adjacency.indptr, adjacency.weight)
    mean = max(float(degree.mean()), 1.0)
    return np.asarray(EDGE_SHARE * degree / mean + 1.0 - EDGE_SHARE, np.float64)


def rounded_sizes(adjacency: Adjacency) -> NDArray[np.int64]:
    """Round `vertex_sizes` for METIS, in thousandths and at least 1.

    Args:
        adjacency: What `adjacency_of` makes of arcs.

    Returns:
        (num_vertices,) int64.
    """
    return np.maximum((WEIGHT_SCALE * vertex_sizes(adjacency)).astype(np.int64), 1)


def rebalanced(
    adjacency: Adjacency,
    roots: NDArray[np.int32],
    balance: Balance,
    guest_edges: NDArray[np.float64],
) -> NDArray[np.int32]:
    """Keep roots and half of their edges, plus the guests of each part, below the limits.

    Args:
        adjacency: What `adjacency_of` makes of the arcs.
        roots: (num_vertices,) int32. Part of each vertex's root.
        balance: What to aim at.
        guest_edges: (num_parts,) float64. Edges of each part beyond half of those at its roots.

    Returns:
        (num_vertices,) int32. The parts, as few of them changed as need be.
    """
    num_parts = guest_edges.size
    half_degree = _degree(adjacency.indptr, adjacency.weight) / 2.0
    columns, most = [np.ones_like(half_degree), half_degree], [balance.vertices, balance.edges]
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

    The loss, and with it the last layers, then run on few rows, which a partition that does not
    look at them may leave to one part. Where they are many they are spread like the others.

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
