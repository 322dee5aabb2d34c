"""A part's rows and edges, from its own edges and what all parts know of every vertex.

Nothing here needs the edges of another part, so parts may be made one at a time from files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distgnn import _partitioner
from distgnn.datasets.distinct import distinct
from distgnn.datasets.errors import InputError
from distgnn.partition.halo import distinct_slots

MAX_CLONES = np.iinfo(np.int32).max


@dataclass(frozen=True, eq=False, kw_only=True)
class VertexTables:
    """Tables of the vertices of the whole graph that all parts share: a few integers for each.

    A vertex's place is its root's number when the roots of all parts are counted, part by part. So
    sorting by place is sorting by (part of the root, local id there).
    """

    vertex_at: NDArray[np.integer[Any]]
    """(num_vertices,) The vertex at each place."""
    place: NDArray[np.integer[Any]]
    """(num_vertices,) The place of each vertex."""
    root_start: NDArray[np.int64]
    """(num_parts + 1,) int64. Where the places of each part's roots begin."""
    in_degree: NDArray[np.integer[Any]]
    """(num_vertices,) By vertex, as the next two."""
    out_degree: NDArray[np.integer[Any]]
    """(num_vertices,)"""
    self_loops: NDArray[np.integer[Any]]
    """(num_vertices,)"""
    local_id: NDArray[np.int32]
    """(num_vertices,) int32. Work array: by place, of the part in progress; others are stale."""

    @property
    def num_parts(self) -> int:
        """Number of parts."""
        return self.root_start.size - 1

    def roots_of(self, part: int) -> NDArray[np.int64]:
        """List the roots of a part, (num_roots,) int64, in their order."""
        places = slice(self.root_start[part], self.root_start[part + 1])
        return self.vertex_at[places].astype(np.int64)

    def owner_of(self, place: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
        """Find the part of the root at each place, (num_places,) int64."""
        return np.searchsorted(self.root_start, place, side="right") - 1


class Leaves(NamedTuple):
    """Clones on a part whose roots are elsewhere."""

    place: NDArray[np.integer[Any]]
    """(num_leaves,) ascending."""
    is_reading: NDArray[np.bool_]
    """(num_leaves,) bool. The part has edges out of the leaf."""
    is_writing: NDArray[np.bool_]
    """(num_leaves,) bool. The part has edges into the leaf."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Structure:
    """The arrays of a `Part` that have one entry per clone or per edge; see there."""

    num_roots: int
    num_leaves: int
    global_id: NDArray[np.int64]
    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    t_indptr: NDArray[np.int64]
    t_indices: NDArray[np.int32]
    t_edge: NDArray[np.int64]
    leaf_counts: NDArray[np.int64]
    is_reading: NDArray[np.bool_]
    is_writing: NDArray[np.bool_]
    in_degree: NDArray[np.int64]
    out_degree: NDArray[np.int64]
    self_loops: NDArray[np.int32]


def check_clones(part: int, num_clones: int) -> None:
    """Check that row numbers of a part fit.

    Args:
        part: Its number.
        num_clones: Its rows.

    Raises:
        InputError: If there are too many.
    """
    if num_clones > MAX_CLONES:
        raise InputError(
            f"part {part} has {num_clones} clones, but row numbers are 32-bit and allow "
            f"{MAX_CLONES}; use more parts"
        )


def leaves_of(
    tables: VertexTables,
    part: int,
    src: NDArray[np.integer[Any]],
    dst: NDArray[np.integer[Any]],
) -> Leaves:
    """Find the leaves of a part.

    Args:
        tables: Tables that all parts share.
        part: Its number.
        src: (num_edges,) Places of the sources of its edges.
        dst: (num_edges,) Places of their destinations.

    Returns:
        The leaves.
    """
    reading, writing = (_away(tables, part, ends) for ends in (src, dst))
    place = distinct(np.concatenate([reading, writing]))
    is_reading, is_writing = np.zeros((2, place.size), np.bool_)
    is_reading[np.searchsorted(place, reading)] = True
    is_writing[np.searchsorted(place, writing)] = True
    return Leaves(place, is_reading, is_writing)


def _away(
    tables: VertexTables, part: int, ends: NDArray[np.integer[Any]]
) -> NDArray[np.integer[Any]]:
    """List the distinct places among the ends of a part's edges, its own roots left out."""
    here = np.zeros(ends.size, np.int32)
    place = distinct_slots(ends, here, tables.place.size).vertex.astype(ends.dtype, copy=False)
    begin, end = np.searchsorted(place, tables.root_start[part : part + 2])
    return np.concatenate([place[:begin], place[end:]])


def structure_of(
    tables: VertexTables,
    part: int,
    src: NDArray[np.integer[Any]],
    dst: NDArray[np.integer[Any]],
    leaves: Leaves,
) -> tuple[Structure, NDArray[np.int64]]:
    """Number the clones of a part and sort its edges both ways.

    Args:
        tables: Tables that all parts share; the work array is overwritten.
        part: Its number.
        src: (num_edges,) Places of the sources of its edges.
        dst: (num_edges,) Places of their destinations.
        leaves: Leaves that `leaves_of` makes of these.

    Returns:
        structure: The arrays.
        edge: (num_edges,) int64. The edges in the order of `indices`; equal ones keep theirs.

    Raises:
        InputError: If there are too many clones.
    """
    roots = tables.roots_of(part)
    num_clones = roots.size + leaves.place.size
    check_clones(part, num_clones)
    begin, end = tables.root_start[part : part + 2]
    tables.local_id[begin:end] = np.arange(roots.size, dtype=np.int32)
    tables.local_id[leaves.place] = np.arange(roots.size, num_clones, dtype=np.int32)
    clones = np.concatenate([roots, tables.vertex_at[leaves.place]])
    by_id = np.argsort(clones)
    row, column = tables.local_id[dst], tables.local_id[src]
    indptr, indices, edge = _partitioner.sort_edges(row, column, by_id)
    del row, column
    t_indptr, t_indices, t_edge = _partitioner.transpose_edges(indptr, indices, by_id)
    owner = tables.owner_of(leaves.place)
    structure = Structure(
        num_roots=roots.size,
        num_leaves=leaves.place.size,
        global_id=clones,
        indptr=indptr,
        indices=indices,
        t_indptr=t_indptr,
        t_indices=t_indices,
        t_edge=t_edge,
        leaf_counts=np.bincount(owner, minlength=tables.num_parts).astype(np.int64),
        is_reading=leaves.is_reading,
        is_writing=leaves.is_writing,
        in_degree=tables.in_degree[clones].astype(np.int64),
        out_degree=tables.out_degree[clones].astype(np.int64),
        self_loops=tables.self_loops[roots].astype(np.int32),
    )
    return structure, edge
