"""The vertices of some edges, numbered among themselves."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from distgnn.datasets.graph import Graph
from distgnn.partition.large.piles import Records


def local_graph(records: Records, num_vertices: int) -> tuple[Graph, NDArray[np.int64]]:
    """Make a graph of some edges.

    Args:
        records: (num_edges,) at least one.
        num_vertices: Number of vertices of their graph.

    Returns:
        graph: The edges, between vertices 0, 1, 2, ...
        vertices: (num_local,) int64, ascending. Which those are.
    """
    is_there = np.zeros(num_vertices, np.bool_)
    for name in ("src", "dst"):
        is_there[records[name]] = True
    vertices = np.flatnonzero(is_there)
    del is_there
    # Zeros that nobody writes to take no memory.
    local = np.zeros(num_vertices, np.int32)
    local[vertices] = np.arange(vertices.size, dtype=np.int32)
    src, dst = local[records["src"]], local[records["dst"]]
    del local
    return Graph(name="edges", num_vertices=vertices.size, src=src, dst=dst), vertices
