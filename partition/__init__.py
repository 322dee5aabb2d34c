"""Edges to parts: partitioners, their quality, and the partition directory.

Importing this package loads none of the partitioners: the runtime reads `store` alone.
"""

from __future__ import annotations

import difflib
import inspect
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distgnn.datasets.graph import Graph
    from distgnn.partition.assignment import Assignment

__all__ = ["METHODS", "assign"]

METHODS: tuple[str, ...] = ("metis", "edge-cut", "libra", "random")


def assign(
    method: str, graph: Graph, num_parts: int, *, seed: int = 0, **options: Any
) -> Assignment:
    """Assign every edge and every root of a graph to a part.

    Args:
        method: One of METHODS; the module of that name in this package documents its options.
        graph: The graph to cut.
        num_parts: At least 1, at most the number of vertices.
        seed: Fixes every choice: the same seed gives the same assignment.
        **options: Options of the method.

    Returns:
        The assignment.

    Raises:
        InputError: If the method, an option or the number of parts cannot be used.
    """
    from distgnn.datasets.errors import InputError

    if method not in METHODS:
        near = difflib.get_close_matches(method, METHODS, n=1, cutoff=0.0)[0]
        raise InputError(
            f"unknown partitioning method {method!r}; choose one of {', '.join(METHODS)}, "
            f"did you mean {near!r}?"
        )
    if num_parts < 1:
        raise InputError(f"num_parts must be at least 1, got {num_parts}; ask for 1 part or more")
    if num_parts > graph.num_vertices:
        raise InputError(
            f"more parts than vertices: num_parts is {num_parts}, but graph {graph.name!r} has "
            f"{graph.num_vertices}; ask for at most {graph.num_vertices} parts"
        )
    if not 0 <= seed < 1 << 63:
        raise InputError(f"seed must be in 0..2**63 - 1, got {seed}; choose another seed")
    module = import_module(f"distgnn.partition.{method.replace('-', '_')}")
    known = [
        name
        for name, parameter in inspect.signature(module.assign).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY and name != "seed"
    ]
    if unknown := sorted(set(options) - set(known)):
        raise InputError(
            f"method {method!r} has no option {unknown[0]!r}; its options are: "
            f"{', '.join(known) or 'none'}"
        )
    assignment: Assignment = module.assign(graph, num_parts, seed=seed, **options)
    return assignment
