"""Calls of the Mt-KaHyPar library, which is an extra."""

from __future__ import annotations

import importlib.util
from typing import IO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distgnn.partition.methods.library_process import parts_by


class Hypergraph(NamedTuple):
    """Nodes, and nets that join any number of them."""

    num_nodes: int
    start: NDArray[np.int64]
    """(num_nets + 1,) int64. Where the nodes of each net begin."""
    pins: NDArray[np.int32]
    """(num_pins,) int32. Nodes, net by net."""


def is_installed() -> bool:
    """Return whether Mt-KaHyPar can be imported."""
    return importlib.util.find_spec("mtkahypar") is not None


def part_hypergraph(
    graph: Hypergraph,
    num_parts: int,
    *,
    weight: NDArray[np.floating],
    most: NDArray[np.floating],
    begun: NDArray[np.int32] | None,
    seed: int,
) -> NDArray[np.int32]:
    """Spread nodes over parts so that nets touch few parts, on one thread of a process of its own.

    What is least is the sum of the parts that each net touches, less one. Nothing that it does
    depends on time, so that a seed fixes the parts.

    Args:
        graph: The hypergraph.
        num_parts: At least 2.
        weight: (num_nodes,). What parts balance, whole and positive.
        most: (num_parts,). Largest weight of each part that is aimed at, whole.
        begun: (num_nodes,) int32. Parts that are improved by one cycle of coarsening and
            refinement; None to cut without any.
        seed: Seed of Mt-KaHyPar.

    Returns:
        (num_nodes,) int32. Part of each node; parts may be empty.

    Raises:
        LibraryFailedError: If its file cannot be written, or its process cannot start or dies.

    References:
        Gottesbueren, Heuer, Maas, Sanders and Schlag, "Scalable high-quality hypergraph
        partitioning", ACM Transactions on Algorithms 2024.
    """

    def write(file: IO[bytes]) -> None:
        sizes = graph.num_nodes, graph.start.size - 1, graph.pins.size
        for numbers in (np.array(sizes), graph.start, weight, most):
            numbers.astype(np.int64).tofile(file)
        graph.pins.tofile(file)
        if begun is not None:
            begun.tofile(file)

    return parts_by(
        "Mt-KaHyPar",
        "mtkahypar_process",
        write,
        size=graph.num_nodes,
        without="cut with --quality fast",
        request={"parts": num_parts, "seed": seed % (2**31 - 1)},
    )
