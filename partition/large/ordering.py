"""The order of the roots inside each part, from the edges that lie there."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distgnn.partition.halo import group_by_part
from distgnn.partition.large.clock import Progress, StageProgress
from distgnn.partition.large.piles import Piles
from distgnn.partition.orders.links import link
from distgnn.partition.threads import in_order

# Links of both directions, an order, and what is taken from the pile.
BYTES_PER_EDGE = 60


def arrange(
    name: str,
    root_part: NDArray[np.int32],
    num_parts: int,
    piles: Piles,
    *,
    seed: int,
    threads: int = 1,
    progress: Progress | None,
) -> NDArray[np.integer[Any]]:
    """Order the vertices of each part, as `orders.arrange` does in memory.

    Args:
        name: One of `orders.ORDERS`.
        root_part: (num_vertices,) int32. Part of each vertex's root.
        num_parts: How many there are.
        piles: Pile p has the edges inside part p.
        seed: Seed of orders that draw numbers.
        threads: Parts that are ordered at a time.
        progress: Called with one line of text now and then.

    Returns:
        (num_vertices,) int32, or int64 where ids need it. The roots of part 0 in order, then those
        of part 1, ...
    """
    order, start = group_by_part(root_part, num_parts)
    order = order.astype(piles.dtype["src"])
    if name == "source":
        return order
    module = import_module(f"distgnn.partition.orders.{name}")
    number = np.empty(order.size, np.int32)
    number[order] = np.arange(order.size) - np.repeat(start[:-1], np.diff(start))
    clock = StageProgress(f"{name} order", "vertices", order.size, progress)

    def put_in_order(part: int) -> int:
        records = piles.read(part)
        records = records[records["src"] != records["dst"]]
        roots = order[start[part] : start[part + 1]]
        if records.size:
            links = link(number[records["src"]], number[records["dst"]], roots.size)
            del records
            roots[:] = roots[module.arrange(links, seed=seed)]
        return int(roots.size)

    with in_order(put_in_order, range(num_parts), threads) as sizes:
        for size in sizes:
            clock.add(size)
    clock.end()
    return order
