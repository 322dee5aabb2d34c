"""Groups of parts that are improved together, where all at once are too many."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# Each part is in so many windows, beside other parts each time.
ROUNDS = 3
# A part that has too much is beside parts that may take in so many times as much: not all of what
# it has moves for the same price.
SPARE_ROOM = 3


def windows(
    between: NDArray[np.int64],
    sizes: NDArray[np.int64],
    most_edges: int,
    *,
    most_parts: int | None = None,
    rounds: int = ROUNDS,
) -> list[list[int]]:
    """Choose windows, parts between which many edges lie in the same one.

    Args:
        between: (num_parts, num_parts) int64. Edges from roots on one part to roots on another.
        sizes: (num_parts,) int64. What a window has to hold of each part, edges or other numbers.
        most_edges: Number of edges that a window may hold.
        most_parts: Number of parts that a window may have; None for any.
        rounds: Windows that a part is in, at most.

    Returns:
        Parts of each window, at least two, ascending. Only one window if all parts fit.
    """
    num_parts = sizes.size
    if num_parts < 2:
        return []
    most_parts = num_parts if most_parts is None else most_parts
    if sizes.sum() <= most_edges and num_parts <= most_parts:
        return [list(range(num_parts))]
    waiting = (between + between.T).astype(np.float64)
    np.fill_diagonal(waiting, 0.0)
    found = []
    for _ in range(rounds):
        is_free = np.ones(num_parts, np.bool_)
        while is_free.any():
            window = _window(waiting, is_free, sizes, most_edges, most_parts)
            is_free[window] = False
            # Parts that were refined together once gain less a second time.
            waiting[np.ix_(window, window)] /= num_parts
            if len(window) > 1:
                found.append(sorted(window))
    return found


def _window(
    waiting: NDArray[np.float64],
    is_free: NDArray[np.bool_],
    sizes: NDArray[np.int64],
    most_edges: int,
    most_parts: int,
) -> list[int]:
    """Grow a window from the free part with the most edges to others that are free."""
    ties = np.where(is_free, waiting[:, is_free].sum(axis=1), -1.0)
    window = [int(np.argmax(ties))]
    held = int(sizes[window[0]])
    gain = waiting[window[0]].copy()
    while len(window) < most_parts:
        gain[window] = -1.0
        fits = is_free & (gain >= 0) & (held + sizes <= most_edges)
        if not fits.any():
            break
        part = int(np.argmax(np.where(fits, gain, -1.0)))
        window.append(part)
        held += int(sizes[part])
        gain += waiting[part]
    return window


def apart(planned: list[list[int]]) -> list[list[list[int]]]:
    """Divide windows into batches of such as have no part in common, in their order.

    Args:
        planned: Parts of each window.
    """
    batches: list[list[list[int]]] = []
    taken: set[int] = set()
    for window in planned:
        if not batches or not taken.isdisjoint(window):
            batches.append([])
            taken = set()
        batches[-1].append(window)
        taken.update(window)
    return batches


def leveller(
    load: NDArray[np.int64], sizes: NDArray[np.int64], limit: int, most_edges: int
) -> list[int]:
    """Choose the fullest part and the emptiest ones.

    Args:
        load: (num_parts,) int64. Edges of each part.
        sizes: (num_parts,) int64. Edges of each part that a window has to hold.
        limit: Edges that a part may hold.
        most_edges: Number of edges that a window may hold.

    Returns:
        Parts, ascending; none where no part is too full, or no two fit.
    """
    order = np.argsort(load, kind="stable")
    if load[order[-1]] <= limit or load.size < 2:
        return []
    window = [int(order[-1])]
    held = int(sizes[window[0]])
    for part in order[:-1]:
        if load[part] >= limit or held + sizes[part] > most_edges:
            break
        window.append(int(part))
        held += int(sizes[part])
    return sorted(window) if len(window) > 1 else []


def eveners(
    excess: NDArray[np.float64],
    room: NDArray[np.float64],
    sizes: NDArray[np.int64],
    most_edges: int,
) -> list[list[int]]:
    """Choose windows of one part each that has too much of something, and of parts with room.

    The roomiest part goes to the window that lacks most, and so on.

    Args:
        excess: (num_parts,) float64. What each part has above the limit; no more than 0 if nothing.
        room: (num_parts,) float64. What each part may take in, in the same unit.
        sizes: (num_parts,) int64. Edges of each part that a window has to hold.
        most_edges: Number of edges that a window may hold.

    Returns:
        Parts of each window, at least two, ascending; no part is in two.
    """
    crowded = np.flatnonzero(excess > 0)
    found = [[int(part)] for part in crowded]
    lacks, held = SPARE_ROOM * excess[crowded], sizes[crowded].copy()
    room = np.where(excess > 0, 0.0, room)
    for part in np.argsort(-room, kind="stable"):
        # What lacks nothing any more is done with.
        wants = np.where(held + sizes[part] <= most_edges, lacks, 0.0)
        if room[part] <= 0 or not (wants > 0).any():
            continue
        window = int(np.argmax(wants))
        found[window].append(int(part))
        lacks[window] -= room[part]
        held[window] += sizes[part]
    return [sorted(window) for window in found if len(window) > 1]
