"""The outcome of a partitioner: a part for every edge and for every vertex's root."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distgnn.datasets.errors import InputError
from distgnn.datasets.graph import Graph

# Any number will do: what counts is that no other room draws from this stream.
PARTITION_STREAM = 7001


def random_numbers(seed: int) -> np.random.Generator:
    """Make the generator of a partitioner.

    A synthetic graph may have been drawn with the same seed. From the same stream, "random" parts
    would then be a function of the edges' ends.

    Args:
        seed: At least 0.

    Returns:
        A generator that shares no stream with `default_rng(seed)`.
    """
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(PARTITION_STREAM,)))


@dataclass(frozen=True, eq=False)
class Assignment:
    """Parts on which the edges and the roots of a graph live.

    Raises:
        InputError: If an array is not one-dimensional int32 or names a part that does not exist.
    """

    num_parts: int
    """Number of parts, at least 1; parts may be empty."""
    edge_part: NDArray[np.int32]
    """(num_edges,) int32. Part of each edge."""
    root_part: NDArray[np.int32]
    """(num_vertices,) int32. Part of each vertex's root."""

    def __post_init__(self) -> None:
        """Check what every later step relies on."""
        if self.num_parts < 1:
            raise InputError(
                f"num_parts must be at least 1, got {self.num_parts}; ask for 1 part or more"
            )
        for name in ("edge_part", "root_part"):
            parts = getattr(self, name)
            _check_parts(name, parts, self.num_parts)
            # A column of a table is strided, which compiled loops do not take.
            object.__setattr__(self, name, np.ascontiguousarray(parts))

    @cached_property
    def edges_by_part(self) -> tuple[NDArray[np.integer[Any]], NDArray[np.int64]]:
        """Edges in the order of their parts, and where those of each part begin.

        They are `group_by_part`'s; found once, for the order of the roots and for the parts, and
        kept: 4 bytes an edge, 8 where there are too many.
        """
        # It loads SciPy, which commands that cut nothing do without.
        from distgnn.partition.halo import group_by_part

        return group_by_part(self.edge_part, self.num_parts)

    def check_graph(self, graph: Graph) -> None:
        """Check that the assignment was made for a graph of this size.

        Args:
            graph: The graph that is to be built or measured.

        Raises:
            InputError: If the number of edges or vertices differs.
        """
        for name, got, expected in (
            ("edge_part", self.edge_part.size, graph.num_edges),
            ("root_part", self.root_part.size, graph.num_vertices),
        ):
            if got != expected:
                raise InputError(
                    f"{name} has {got} entries, but graph {graph.name!r} needs {expected}; "
                    "assign this graph again"
                )


def _check_parts(name: str, parts: NDArray[Any], num_parts: int) -> None:
    if parts.dtype != np.int32 or parts.ndim != 1:
        raise InputError(
            f"{name} must be a one-dimensional int32 array, got {parts.ndim} dimension(s) of "
            f"{parts.dtype}; convert it with numpy"
        )
    if parts.size and (parts.min() < 0 or parts.max() >= num_parts):
        raise InputError(
            f"{name} names parts {parts.min()}..{parts.max()}, but num_parts is {num_parts}; "
            f"parts are numbered 0..{num_parts - 1}"
        )
