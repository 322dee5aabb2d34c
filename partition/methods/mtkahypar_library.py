"""Calls of the Mt-KaHyPar library, which is an extra."""

from __future__ import annotations

import importlib.util
from typing import IO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distgnn.partition.methods.library_process import parts_by


class Hypergraph(NamedTuple):
    """Nodes with weights, and nets that join any number of them."""

    start: NDArray[np.int64]
    """(num_nets + 1,) int64. Where the nodes of each net begin."""
    pins: NDArray[np.int32]
    """(num_pins,) int32. Nodes, net by net."""
    weight: NDArray[np.int64]
    """(num_nodes,) int64, positive. What parts balance."""


def is_installed() -> bool:
    """Return whether Mt-KaHyPar can be imported."""
    return importlib.util.find_spec("mtkahypar") is not None


def part_hypergraph(
    graph: Hypergraph, num_parts: int, *, imbalance: float, seed: int
) -> NDArray[np.int32]:
    """Spread nodes over parts so that nets touch few parts, on one thread of a process of its own.

    What is least is the sum of the parts that each net touches, less one. The library limits its
    searches by multiples of the time that others took. So parts may differ from those of another
    call with the same seed where the process is stopped for a while.

    Args:
        graph: The hypergraph.
        num_parts: At least 2.
        imbalance: Largest part's weight over the mean, less 1, that is aimed at.
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
        sizes = graph.weight.size, graph.start.size - 1, graph.pins.size
        for array in (np.array(sizes, np.int64), graph.start, graph.pins, graph.weight):
            array.tofile(file)

    return parts_by(
        "Mt-KaHyPar",
        "mtkahypar_process",
        write,
        size=graph.weight.size,
        without="cut with --quality default",
        request={"parts": num_parts, "imbalance": imbalance, "seed": seed % (2**31 - 1)},
    )
