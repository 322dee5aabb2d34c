"""Edges to parts: partitioners, their quality, and the partition directory.

Importing this package loads none of the partitioners: the runtime reads `store` alone.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from distgnn.datasets.graph import Graph
    from distgnn.partition.assignment import Assignment

__all__ = ["METHODS", "assign"]

METHODS: tuple[str, ...] = (
    "metis",
    "hierarchical",
    "edge-cut",
    "ne",
    "hep",
    "spac",
    "fennel",
    "libra",
    "hdrf",
    "2ps-l",
    "dbh",
    "grid",
    "random",
)

# Methods that take a graph whose ends are 32 bits wide.
TAKE_NARROW = ("metis",)


def assign(
    method: str,
    graph: Graph,
    num_parts: int,
    *,
    seed: int = 0,
    refine: bool | None = None,
    imbalance: float | None = None,
    progress: Callable[[str], None] | None = None,
    **options: Any,
) -> Assignment:
    """Assign every edge and every root of a graph to a part.

    Args:
        method: One of METHODS; its module in this package documents its options.
        graph: The graph to cut, with ends of 64 bits or, as `Graph.narrowed` makes them, 32.
        num_parts: At least 1, at most the number of vertices.
        seed: Fixes every choice: the same seed gives the same assignment.
        refine: Whether to move edges afterwards where fewer rows travel; None leaves it to the
            method, of which "metis" and "hierarchical" refine.
        imbalance: Largest part's edges over the mean, at least 1; None leaves it to the method.
        progress: Called with one line of text after each stage of a method that has stages.
        **options: Options of the method.

    Returns:
        The assignment.

    Raises:
        InputError: If the method, an option or the number of parts cannot be used.
    """
    from distgnn.datasets.errors import InputError
    from distgnn.partition.methods import options as options_of_methods

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
    options_of_methods.check(method, list(options))
    options_of_methods.check_imbalance(method, imbalance, list(options), refine=bool(refine))
    steps: dict[str, Any] = {"refine": refine, "edge_balance": imbalance, "progress": progress}
    taken = options_of_methods.keywords(method)
    given = {k: v for k, v in steps.items() if k in taken and v is not None}
    module = options_of_methods.module_of(method)
    # A wide copy lives no longer than the method runs.
    assignment: Assignment = module.assign(
        graph if method in TAKE_NARROW else graph.widened(),
        num_parts,
        seed=seed,
        **given,
        **options,
    )
    if refine and "refine" not in taken:
        from distgnn.partition.refine.refinement import refine_after

        cap = options.get("edge_balance", imbalance)
        assignment = refine_after(graph, assignment, edge_balance=cap, progress=progress)
    return assignment
