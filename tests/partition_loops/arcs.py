"""Arcs sorted, merged and paired."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from partition_loops.placement import has, put


def edges_of_parts(
    first: int,
    last: int,
    part: NDArray[np.int32],
    weight: NDArray[np.integer[Any]],
    num_parts: int,
) -> NDArray[np.int64]:
    """Count the edges of each part.

    Args:
        first: First arc of the range.
        last: Arc behind it.
        part: (num_arcs,) int32. Of each arc.
        weight: (num_arcs,) int32 or int64. Edges behind each arc.
        num_parts: More than any part.

    Returns:
        (num_parts,) int64.
    """
    edges = np.zeros(num_parts, np.int64)
    for arc in range(first, last):
        edges[part[arc]] += weight[arc]
    return edges


def _starts(ends: NDArray[np.int64], num_vertices: int) -> NDArray[np.int64]:
    """(num_vertices + 1,) Where the edges of each vertex begin, grouped by one of their ends."""
    start = np.zeros(num_vertices + 1, np.int64)
    for vertex in ends:
        start[vertex + 1] += 1
    running: NDArray[np.int64] = np.cumsum(start)
    return running


def _count_heads(
    first: int,
    last: int,
    dst: NDArray[np.int64],
    order: NDArray[np.int64],
    num_vertices: int,
) -> NDArray[np.int64]:
    """Count the edges of a range, in an order unless it is empty, to each destination."""
    edge = order[first:last] if order.size else np.arange(first, last)
    return np.bincount(dst[edge], minlength=num_vertices).astype(np.int64)


def _sort_by_head(
    first: int,
    last: int,
    position: NDArray[np.int64],
    src: NDArray[np.int64],
    dst: NDArray[np.int64],
    order: NDArray[np.int64],
    found: NDArray[np.int32],
) -> None:
    """Sort a range of edges by destination, stably in an order; an empty one is as they are.

    Args:
        first: First of the range.
        last: The one behind it.
        position: (num_vertices,) Where those to each destination go next.
        src: (num_edges,) Source of each edge.
        dst: (num_edges,) Destination of each edge.
        order: (num_edges,) The edges in an order, or empty.
        found: (2 * num_edges,) The source and the number of each edge, in turns.
    """
    for i in range(first, last):
        edge = order[i] if order.size > 0 else i
        place = position[dst[edge]]
        position[dst[edge]] = place + 1
        found[2 * place : 2 * place + 2] = src[edge], edge


def _count_sources(
    first: int, last: int, by_head: NDArray[np.int64], by_destination: NDArray[np.int32]
) -> NDArray[np.int64]:
    """Count the edges to a range of destinations from each source."""
    source = by_destination[::2][by_head[first] : by_head[last]]
    return np.bincount(source, minlength=by_head.size - 1).astype(np.int64)


def _sort_by_source(
    first: int,
    last: int,
    position: NDArray[np.int64],
    by_head: NDArray[np.int64],
    *found: NDArray[np.int32],
) -> None:
    """Sort edges to a range, which are sorted by destination, by source.

    `found` has their sources and numbers in turns, and will have destinations and numbers.
    """
    by_destination, head, edge = found
    source, number = by_destination[::2], by_destination[1::2]
    for vertex in range(first, last):
        for k in range(by_head[vertex], by_head[vertex + 1]):
            place = position[source[k]]
            position[source[k]] = place + 1
            head[place] = vertex
            edge[place] = number[k]


def _inner_edges(
    edge: NDArray[np.int32],
    src: NDArray[np.int64],
    dst: NDArray[np.int64],
    *vertex: NDArray[np.int32],
    part: int,
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Number the ends of edges inside a part; `vertex` has the part of each, and its number."""
    owner, number = vertex
    source, target = src[edge], dst[edge]
    is_inner = (owner[source] == part) & (owner[target] == part) & (source != target)
    return number[source[is_inner]], number[target[is_inner]]


def _begins(
    row: tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]], begin: int, k: int
) -> bool:
    """Return whether an edge begins an arc: it is its row's first, or not like the one before."""
    head, edge, part = row
    if k == begin or head[k] != head[k - 1]:
        return True
    return part.size > 0 and bool(part[edge[k]] != part[edge[k - 1]])


def _count_arcs(
    first: int,
    last: int,
    start: NDArray[np.int64],
    *row: NDArray[np.int32],
) -> int:
    """Count the arcs of a range of vertices; `row` has heads, numbers and parts."""
    return sum(
        _begins(row, start[vertex], k)
        for vertex in range(first, last)
        for k in range(start[vertex], start[vertex + 1])
    )


def _merge(
    first: int,
    last: int,
    first_arc: int,
    start: NDArray[np.int64],
    row: tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]],
    found: tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]],
) -> None:
    """Keep one of equal neighbours in each row of a range.

    `found` has the first arc of each vertex, heads, weights, and the arc of each edge.
    """
    (head, edge, _), (arc_start, arc_head, weight, of_edge) = row, found
    arc = first_arc - 1
    for vertex in range(first, last):
        arc_start[vertex] = arc + 1
        for k in range(start[vertex], start[vertex + 1]):
            if _begins(row, start[vertex], k):
                arc += 1
                arc_head[arc], weight[arc] = head[k], 0
            weight[arc] += 1
            of_edge[edge[k]] = arc


def _pair(
    first: int,
    last: int,
    start: NDArray[np.int64],
    head: NDArray[np.int32],
    mate: NDArray[np.int32],
) -> bool:
    """Find the arc back of each arc from a range: a row meets its arcs in the order of sources.

    Returns:
        Whether all have one.
    """
    rows = range(start.size - 1)
    places = [
        [start[row] + np.searchsorted(head[start[row] : start[row + 1]], end) for row in rows]
        for end in (first, last)
    ]
    position = places[0]
    for vertex in range(first, last):
        for k in range(start[vertex], start[vertex + 1]):
            back = position[head[k]]
            position[head[k]] = back + 1
            if back == head.size or head[back] != vertex:
                return False
            mate[k] = back
    return position == places[1]


def _with_mates(
    first: int,
    last: int,
    weight: NDArray[np.int32],
    mate: NDArray[np.int32],
    *,
    is_simple: bool,
    both: NDArray[np.int32],
) -> int:
    """Add the weight of the mate, unless it is the arc itself; it is 1 if the graph is simple.

    Returns:
        How many arcs are their own mates.
    """
    num_loops = 0
    for arc in range(first, last):
        both[arc] = weight[arc]
        if mate[arc] != arc:
            both[arc] += 1 if is_simple else weight[mate[arc]]
        num_loops += int(mate[arc] == arc)
    return num_loops


def _group(
    first: int,
    last: int,
    position: NDArray[np.int64],
    part: NDArray[np.int32],
    order: NDArray[np.int32],
) -> None:
    """Put the items of a range where those of their part go next."""
    for item in range(first, last):
        order[position[part[item]]] = item
        position[part[item]] += 1


def _mark_slots(
    first: int,
    last: int,
    vertex: NDArray[np.int32],
    part: NDArray[np.int32],
    num_vertices: int,
    is_slot: NDArray[np.uint8],
) -> None:
    """Mark the pairs of a range of edges."""
    for k in range(first, last):
        is_slot[int(part[k]) * num_vertices + int(vertex[k])] = 1


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
    first: int,
    last: int,
    start: NDArray[np.int64],
    arc_part: NDArray[np.int32],
    root_part: NDArray[np.int32],
    num_parts: int,
) -> int:
    # The last vertex that was met in each part.
    rows, seen = 0, np.full(num_parts, -1, np.int64)
    for vertex in range(first, last):
        seen[root_part[vertex]] = vertex
        for arc in range(start[vertex], start[vertex + 1]):
            part = arc_part[arc]
            if seen[part] != vertex:
                seen[part] = vertex
                rows += 1
    return rows


def _rows_written(
    first: int,
    last: int,
    head: NDArray[np.int32],
    arc_part: NDArray[np.int32],
    root_part: NDArray[np.int32],
    is_written: NDArray[np.uint64],
) -> int:
    """`is_written` has a set of parts for each vertex, empty at first."""
    rows = 0
    for arc in range(first, last):
        vertex, part = head[arc], arc_part[arc]
        if part != root_part[vertex] and not has(is_written, vertex, part):
            put(is_written, vertex, part)
            rows += 1
    return rows


def _count_clones(
    first: int,
    last: int,
    graph: tuple[NDArray[np.int64], NDArray[np.int32]],
    parts: tuple[NDArray[np.int32], NDArray[np.int32]],
    is_there: NDArray[np.uint64],
    num_parts: int,
) -> NDArray[np.int64]:
    """`is_there` has a set of parts for each vertex, empty at first."""
    (start, head), (arc_part, root_part) = graph, parts
    clones = np.zeros(num_parts, np.int64)
    for vertex in range(first, last):
        _note(is_there, clones, vertex, root_part[vertex])
        for arc in range(start[vertex], start[vertex + 1]):
            _note(is_there, clones, vertex, arc_part[arc])
            _note(is_there, clones, head[arc], arc_part[arc])
    return clones


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


def _sort_edges(
    row: NDArray[np.int32], column: NDArray[np.int32], order: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]:
    """Sort edges by row, then by where the column stands in the order."""
    rank = np.argsort(order)
    edge = np.lexsort((rank[column], row))
    indptr = np.searchsorted(row[edge], np.arange(order.size + 1)).astype(np.int64)
    return indptr, column[edge], edge


def _transpose_edges(
    indptr: NDArray[np.int64], indices: NDArray[np.int32], order: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]:
    """Sort edges by row into edges by column, then by where the row stands in the order."""
    row = np.repeat(np.arange(order.size, dtype=np.int32), np.diff(indptr))
    return _sort_edges(indices, row, order)
