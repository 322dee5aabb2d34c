"""Arcs sorted, merged and paired."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from partition_loops.placement import has, put


def edges_of_parts(
    part: NDArray[np.int32], weight: NDArray[np.integer[Any]], num_parts: int
) -> NDArray[np.int64]:
    """Count the edges of each part.

    Args:
        part: (num_arcs,) int32. Of each arc.
        weight: (num_arcs,) int32 or int64. Edges behind each arc.
        num_parts: More than any part.

    Returns:
        (num_parts,) int64.
    """
    edges = np.zeros(num_parts, np.int64)
    for arc in range(part.size):
        edges[part[arc]] += weight[arc]
    return edges


def _starts(ends: NDArray[np.int64], num_vertices: int) -> NDArray[np.int64]:
    """(num_vertices + 1,) Where the edges of each vertex begin, grouped by one of their ends."""
    start = np.zeros(num_vertices + 1, np.int64)
    for vertex in ends:
        start[vertex + 1] += 1
    running: NDArray[np.int64] = np.cumsum(start)
    return running


def _sort_by_head(
    first: int,
    last: int,
    src: NDArray[np.int64],
    dst: NDArray[np.int64],
    order: NDArray[np.int64],
    found: tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]],
) -> None:
    """Sort edges to a range by destination, stably in an order; an empty one is that of the edges.

    `found` has where those of each destination begin, their sources and their numbers.
    """
    start, source, number = found
    position = start[first:last].copy()
    for i in range(dst.size):
        edge = order[i] if order.size > 0 else i
        vertex = dst[edge] - first
        if 0 <= vertex < last - first:
            place = position[vertex]
            position[vertex] = place + 1
            source[place] = src[edge]
            number[place] = edge


def _sort_by_source(
    first: int,
    last: int,
    by_head: NDArray[np.int64],
    source: NDArray[np.int32],
    number: NDArray[np.int32],
    found: tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]],
) -> None:
    """Sort edges from a range, which are sorted by destination, by source.

    `found` has where those of each source begin, their destinations and their numbers.
    """
    start, head, edge = found
    position = start[first:last].copy()
    for vertex in range(start.size - 1):
        for k in range(by_head[vertex], by_head[vertex + 1]):
            row = source[k] - first
            if 0 <= row < last - first:
                place = position[row]
                position[row] = place + 1
                head[place] = vertex
                edge[place] = number[k]


def _merge(
    start: NDArray[np.int64],
    head: NDArray[np.int32],
    edge: NDArray[np.int32],
    part: NDArray[np.int32],
    of_edge: NDArray[np.int32],
) -> NDArray[np.int32]:
    """Keep one of equal neighbours in each row, in place; return how many there were of each."""
    weight = np.empty(head.size, np.int32)
    num_arcs, begin = 0, start[0]
    for vertex in range(start.size - 1):
        end = start[vertex + 1]
        for k in range(begin, end):
            is_new = k == begin or head[k] != head[num_arcs - 1]
            if not is_new and part.size > 0:
                is_new = part[edge[k]] != part[edge[k - 1]]
            if is_new:
                head[num_arcs] = head[k]
                weight[num_arcs] = 0
                num_arcs += 1
            weight[num_arcs - 1] += 1
            of_edge[edge[k]] = num_arcs - 1
        begin, start[vertex + 1] = end, num_arcs
    found: NDArray[np.int32] = weight[:num_arcs].copy()
    return found


def _pair(
    first: int,
    last: int,
    start: NDArray[np.int64],
    head: NDArray[np.int32],
    mate: NDArray[np.int32],
) -> bool:
    """Find the arc back of each arc to a range: a row meets its arcs in the order of their sources.

    Returns:
        Whether all have one.
    """
    position = start[first:last].copy()
    for vertex in range(start.size - 1):
        for k in range(start[vertex], start[vertex + 1]):
            row = head[k] - first
            if 0 <= row < last - first:
                back = position[row]
                if back == start[head[k] + 1] or head[back] != vertex:
                    return False
                position[row] = back + 1
                mate[k] = back
    return True


def _with_mates(
    weight: NDArray[np.int32], mate: NDArray[np.int32], *, is_simple: bool
) -> NDArray[np.int32]:
    """Add the weight of the mate, unless it is the arc itself; it is 1 if the graph is simple."""
    both: NDArray[np.int32] = weight.copy()
    for arc in range(mate.size):
        if mate[arc] != arc:
            both[arc] += 1 if is_simple else weight[mate[arc]]
    return both


def _both_ways(
    start: NDArray[np.int64], head: NDArray[np.int32], weight: NDArray[np.int32]
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]]:
    """Merge each row with the same row of the transpose, without loops."""
    num_vertices = start.size - 1
    back_start = np.zeros(num_vertices + 1, np.int64)
    for other in head:
        back_start[other + 1] += 1
    back_start = np.cumsum(back_start)
    position = back_start.copy()
    back, back_weight = np.empty_like(head), np.empty_like(weight)
    for vertex in range(num_vertices):
        for k in range(start[vertex], start[vertex + 1]):
            place = position[head[k]]
            position[head[k]] = place + 1
            back[place], back_weight[place] = vertex, weight[k]
    indptr = np.zeros(num_vertices + 1, np.int64)
    indices = np.empty(2 * head.size, np.int32)
    both = np.empty(2 * head.size, np.int32)
    size = 0
    for vertex in range(num_vertices):
        i, j = start[vertex], back_start[vertex]
        while i < start[vertex + 1] or j < back_start[vertex + 1]:
            is_out = i < start[vertex + 1]
            is_in = j < back_start[vertex + 1]
            if is_out and is_in:
                is_out, is_in = head[i] <= back[j], back[j] <= head[i]
            other = head[i] if is_out else back[j]
            if other != vertex:
                indices[size] = other
                both[size] = (weight[i] if is_out else 0) + (back_weight[j] if is_in else 0)
                size += 1
            i += is_out
            j += is_in
        indptr[vertex + 1] = size
    return indptr, indices[:size].copy(), both[:size].copy()


def _spread(
    order: NDArray[np.int64],
    start: NDArray[np.int64],
    candidate: NDArray[np.int32],
    num_parts: int,
) -> NDArray[np.int32]:
    """Give each vertex, in order, the candidate part with the fewest roots; the lowest if equal."""
    load = np.zeros(num_parts, np.int64)
    root_part = np.empty(order.size, np.int32)
    for vertex in order:
        best = -1
        for k in range(start[vertex], start[vertex + 1]):
            if best < 0 or load[candidate[k]] < load[best]:
                best = candidate[k]
        if best < 0:
            best = int(np.argmin(load))
        root_part[vertex] = best
        load[best] += 1
    return root_part


def _rows_read(
    start: NDArray[np.int64],
    arc_part: NDArray[np.int32],
    root_part: NDArray[np.int32],
    seen: NDArray[np.int64],
) -> int:
    """`seen` has the last vertex that was met in each part."""
    rows = 0
    for vertex in range(start.size - 1):
        seen[root_part[vertex]] = vertex
        for arc in range(start[vertex], start[vertex + 1]):
            part = arc_part[arc]
            if seen[part] != vertex:
                seen[part] = vertex
                rows += 1
    return rows


def _rows_written(
    head: NDArray[np.int32],
    arc_part: NDArray[np.int32],
    root_part: NDArray[np.int32],
    is_written: NDArray[np.uint64],
) -> int:
    """`is_written` has a set of parts for each vertex, empty at first."""
    rows = 0
    for arc in range(head.size):
        vertex, part = head[arc], arc_part[arc]
        if part != root_part[vertex] and not has(is_written, vertex, part):
            put(is_written, vertex, part)
            rows += 1
    return rows


def _count_clones(
    graph: tuple[NDArray[np.int64], NDArray[np.int32]],
    parts: tuple[NDArray[np.int32], NDArray[np.int32]],
    is_there: NDArray[np.uint64],
    clones: NDArray[np.int64],
) -> None:
    """`is_there` has a set of parts for each vertex, empty at first."""
    (start, head), (arc_part, root_part) = graph, parts
    for vertex in range(root_part.size):
        _note(is_there, clones, vertex, root_part[vertex])
        for arc in range(start[vertex], start[vertex + 1]):
            _note(is_there, clones, vertex, arc_part[arc])
            _note(is_there, clones, head[arc], arc_part[arc])


def _note(is_there: NDArray[np.uint64], clones: NDArray[np.int64], vertex: int, part: int) -> None:
    if not has(is_there, vertex, part):
        put(is_there, vertex, part)
        clones[part] += 1


def _count_fetches(
    begin: NDArray[np.int64],
    end: NDArray[np.int64],
    indices: NDArray[np.int32],
    window_of: NDArray[np.int64],
    num_rows: int,
) -> int:
    """Walk the runs; `window_of` is the last window that fetched each source."""
    fetches, window, num_held = 0, 0, 0
    for run in range(begin.size):
        for k in range(begin[run], end[run]):
            source = indices[k]
            if window_of[source] == window:
                continue
            if num_held == num_rows:
                window += 1
                num_held = 0
            window_of[source] = window
            num_held += 1
            fetches += 1
    return fetches
