"""Edges to parts: partitioners, their quality, and the partition directory.

Importing this package loads none of the partitioners: the runtime reads `store` alone.
"""

from __future__ import annotations

import difflib
import inspect
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from distgnn.datasets.graph import Graph
    from distgnn.partition.assignment import Assignment

__all__ = ["METHODS", "assign"]

METHODS: tuple[str, ...] = (
    "metis",
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
# Modules whose name is not that of their method.
_MODULES = {"2ps-l": "two_phase"}


# Options of this module's `assign`, of methods that have them and of the step that follows others.
_STEPS = ("refine", "progress")


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
        graph: The graph to cut.
        num_parts: At least 1, at most the number of vertices.
        seed: Fixes every choice: the same seed gives the same assignment.
        refine: Whether to move edges afterwards where fewer rows travel; None leaves it to the
            method, of which only "metis" refines.
        imbalance: Largest part's edges over the mean, at least 1; None leaves it to the method.
        progress: Called with one line of text after each stage of a method that has stages.
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
    module_name = _MODULES.get(method, method.replace("-", "_"))
    module = import_module(f"distgnn.partition.{module_name}")
    parameters = [
        name
        for name, parameter in inspect.signature(module.assign).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY and name != "seed"
    ]
    known = [name for name in parameters if name not in _STEPS]
    if unknown := sorted(set(options) - set(known)):
        raise InputError(
            f"method {method!r} has no option {unknown[0]!r}; its options are: "
            f"{', '.join(known) or 'none'}"
        )
    if imbalance is not None:
        if not imbalance >= 1.0:
            raise InputError(f"imbalance must be at least 1, got {imbalance}; 1 is perfect balance")
        if "edge_balance" not in known and not refine:
            raise InputError(
                f"method {method!r} takes no imbalance; leave it out or refine the assignment"
            )
    steps: dict[str, Any] = {"refine": refine, "edge_balance": imbalance, "progress": progress}
    given = {k: v for k, v in steps.items() if k in parameters and v is not None}
    assignment: Assignment = module.assign(graph, num_parts, seed=seed, **given, **options)
    if refine and "refine" not in parameters:
        from distgnn.partition import refine as refinement
        from distgnn.partition.stopwatch import Stopwatch

        watch = Stopwatch(progress)
        cap = options.get("edge_balance", imbalance) or refinement.EDGE_BALANCE
        assignment = refinement.refine(graph, assignment, edge_balance=cap)
        watch.note("refined")
    return assignment
