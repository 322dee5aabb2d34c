"""Orders of the roots inside a part: rows that are read together should lie together.

An order changes the time of aggregation and nothing else: see `Part` in `build`.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from distgnn.partition.halo import group_by_part
from distgnn.partition.threads import in_order

if TYPE_CHECKING:
    from distgnn.datasets.graph import Graph
    from distgnn.partition.assignment import Assignment

__all__ = ["DEFAULT_ORDER", "ORDERS", "arrange"]

ORDERS: tuple[str, ...] = ("auto", "source", "degree", "community", "rabbit", "rcm")
DEFAULT_ORDER = "auto"


def arrange(
    name: str,
    graph: Graph,
    assignment: Assignment,
    *,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
    threads: int = 1,
) -> NDArray[np.int64]:
    """Order the vertices of each part by the edges between them that live there.

    Args:
        name: One of ORDERS; the module of that name in this package says what it does. `source` is
            that of the ids.
        graph: The graph.
        assignment: Its edges' and roots' parts.
        seed: Seed of orders that draw numbers. The same seed gives the same order.
        progress: Called with one line of text after each part.
        threads: How many to use; the order is the same for any number.

    Returns:
        (num_vertices,) int64. The roots of part 0 in order, then those of part 1, ...

    Raises:
        InputError: If the order is unknown or the assignment is of another graph.
    """
    from distgnn.datasets.errors import InputError

    if name not in ORDERS:
        near = difflib.get_close_matches(name, ORDERS, n=1, cutoff=0.0)[0]
        raise InputError(
            f"unknown order {name!r}; choose one of {', '.join(ORDERS)}, did you mean {near!r}?"
        )
    assignment.check_graph(graph)
    by_part, start = group_by_part(assignment.root_part, assignment.num_parts)
    order = by_part.astype(np.int64)
    if name == "source":
        return order
    # Both load compiled code, which readers of ORDERS do without.
    from distgnn.partition.orders.links import RootLinks

    module = import_module(f"distgnn.partition.orders.{name}")
    links = RootLinks(graph, assignment, order, start)

    def arranged_roots(part: int) -> NDArray[np.int64]:
        roots, links_there = order[start[part] : start[part + 1]], links.of(part)
        if links_there.indices.size:
            roots = roots[module.arrange(links_there, seed=seed)]
        return roots

    arranged = np.empty_like(order)
    with in_order(arranged_roots, range(assignment.num_parts), threads) as parts:
        for part, roots in enumerate(parts):
            arranged[start[part] : start[part + 1]] = roots
            if progress is not None:
                progress(f"part {part + 1} of {assignment.num_parts}: {roots.size} roots ordered")
    return arranged
