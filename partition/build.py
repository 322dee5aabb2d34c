"""From an assignment to what each rank loads: clones, local CSR, and who sends what to whom."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from distgnn.datasets.errors import InputError
from distgnn.datasets.graph import Graph
from distgnn.partition.assignment import Assignment
from distgnn.partition.csr import order_by, pointers
from distgnn.partition.halo import Slots, distinct_slots, group_by_part

MAX_CLONES = np.iinfo(np.int32).max


@dataclass(frozen=True, eq=False, kw_only=True)
class Part:
    """What one rank loads. Every array is C-contiguous and may be memory-mapped.

    Clones are numbered roots first, then leaves; a local id is a row in that order. The partitioner
    chooses the order of the roots, so that rows that are read together lie together; the edges of a
    row come by ascending global id whatever it chose, so that sums add up in the same order and of
    equal maxima the same one comes first.
    """

    part: int
    """Number of this part."""
    num_parts: int
    """Number of parts of the partition."""
    num_roots: int
    """Vertices that this part owns."""
    num_leaves: int
    """Clones of vertices that other parts own."""
    global_id: NDArray[np.int64]
    """(num_clones,) int64. Roots, then leaves by (part of their root, its local id there)."""
    indptr: NDArray[np.int64]
    """(num_clones + 1,) int64. CSR by destination clone."""
    indices: NDArray[np.int32]
    """(num_edges,) int32. Source clone of each in-edge, by ascending global id inside a row."""
    t_indptr: NDArray[np.int64]
    """(num_clones + 1,) int64. The transpose: CSR by source clone."""
    t_indices: NDArray[np.int32]
    """(num_edges,) int32. Destination clone of each out-edge, by ascending global id inside a
    row."""
    t_edge: NDArray[np.int64] | None
    """(num_edges,) int64. Position in `indices` of each edge of the transpose; None where nobody
    has asked `edges_of_transpose` yet."""
    edge_weight: NDArray[np.float32] | None
    """(num_edges,) float32, in the order of `indices`."""
    leaf_counts: NDArray[np.int64]
    """(num_parts,) int64. Leaves per part of their root; 0 for this part."""
    is_reading: NDArray[np.bool_]
    """(num_leaves,) bool. The part has edges out of the leaf: it needs the root's row."""
    is_writing: NDArray[np.bool_]
    """(num_leaves,) bool. The part has edges into the leaf: it makes a partial."""
    send_counts: NDArray[np.int64]
    """(num_parts,) int64. Roots whose rows go to reading leaves on each part."""
    send_rows: NDArray[np.int32]
    """(sum of send_counts,) int32. Those roots, part by part, in the order of the leaves there."""
    reduce_counts: NDArray[np.int64]
    """(num_parts,) int64. Roots that get partials from writing leaves on each part."""
    reduce_rows: NDArray[np.int32]
    """(sum of reduce_counts,) int32. Those roots, part by part, in the order of the leaves."""
    in_degree: NDArray[np.int64]
    """(num_clones,) int64. In the whole graph; duplicates and self-loops count."""
    out_degree: NDArray[np.int64]
    """(num_clones,) int64. In the whole graph; duplicates and self-loops count."""
    self_loops: NDArray[np.int32]
    """(num_roots,) int32. Self-loop edges of the vertex in the whole graph."""
    features: NDArray[np.float32] | sp.csr_matrix | None
    """(num_roots, num_features) float32, dense or CSR."""
    labels: NDArray[np.int64] | NDArray[np.uint8] | None
    """(num_roots,) int64 with -1 for unlabelled, or (num_roots, num_classes) uint8."""
    train_mask: NDArray[np.bool_] | None
    """(num_splits, num_roots) bool."""
    val_mask: NDArray[np.bool_] | None
    """(num_splits, num_roots) bool."""
    test_mask: NDArray[np.bool_] | None
    """(num_splits, num_roots) bool."""
    vertex_id: NDArray[np.int64] | NDArray[np.str_] | None
    """(num_roots,) int64 or str. Ids in the source, when they are not 0, 1, 2, ..."""

    @property
    def num_clones(self) -> int:
        """Roots and leaves together."""
        return self.num_roots + self.num_leaves

    @property
    def num_edges(self) -> int:
        """Edges that live on this part."""
        return int(self.indices.size)

    def edges_of_transpose(self) -> NDArray[np.int64]:
        """Return `t_edge`, made anew where the part has none."""
        if self.t_edge is not None:
            return self.t_edge
        row = np.repeat(np.arange(self.num_clones, dtype=np.int32), np.diff(self.indptr))
        return _sorting(self.indices, row, self.global_id)


def build_parts(
    graph: Graph, assignment: Assignment, *, order: NDArray[np.int64] | None = None
) -> Iterator[Part]:
    """Build the parts one at a time; only the part just yielded is held.

    Args:
        graph: The whole graph.
        assignment: Its edges' and roots' parts.
        order: (num_vertices,) int64. All vertices; those of a part become its roots in this order.
            Ascending ids if None.

    Returns:
        The parts in order, each built when it is asked for.

    Raises:
        InputError: If the assignment or the order is of another graph or a part has too many
            clones.
    """
    assignment.check_graph(graph)
    ascending = np.arange(graph.num_vertices)
    if order is None:
        order = ascending
    elif not np.array_equal(np.sort(order), ascending):
        raise InputError(
            f"the order does not list each of the {graph.num_vertices} vertices of graph "
            f"{graph.name!r} once; order this graph again"
        )
    builder = _Builder(graph, assignment, order)
    return map(builder.build, range(assignment.num_parts))


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


class _Builder:
    """What all parts need of the whole graph, computed once.

    A vertex's place is its root's number when the roots of all parts are counted through, part by
    part: sorting by place is sorting by (part of the root, local id there).
    """

    def __init__(self, graph: Graph, assignment: Assignment, order: NDArray[np.int64]) -> None:
        num_vertices, num_parts = graph.num_vertices, assignment.num_parts
        self.graph = graph
        self.num_parts = num_parts
        self.edge_order, self.edge_start = group_by_part(assignment.edge_part, num_parts)
        by_part, self.root_start = group_by_part(assignment.root_part[order], num_parts)
        self.vertex_at = order[by_part]
        self.place = np.empty(num_vertices, np.int64)
        self.place[self.vertex_at] = np.arange(num_vertices)
        self.root_part = assignment.root_part[self.vertex_at]  # by place
        self.in_degree = np.bincount(graph.dst, minlength=num_vertices).astype(np.int64)
        self.out_degree = np.bincount(graph.src, minlength=num_vertices).astype(np.int64)
        loops = np.bincount(graph.src[graph.src == graph.dst], minlength=num_vertices)
        self.self_loops = loops.astype(np.int32)
        self.readers = self._by_owner(graph.src, assignment.edge_part)
        self.writers = self._by_owner(graph.dst, assignment.edge_part)
        # Local ids, by place, of the part in progress; entries of others are stale.
        self.local_id = np.empty(num_vertices, np.int32)

    def _by_owner(
        self, vertex: NDArray[np.int64], edge_part: NDArray[np.int32]
    ) -> tuple[Slots, NDArray[np.int64]]:
        """Leaves, by place, in the order (root's part, leaf's part, place).

        Also where each root's part begins.
        """
        slots = distinct_slots(self.place[vertex], edge_part, self.graph.num_vertices)
        leaves = slots.away_from(self.root_part)
        order, start = group_by_part(self.root_part[leaves.vertex], self.num_parts)
        return Slots(leaves.vertex[order], leaves.part[order]), start

    def _rows_for(
        self, owned: tuple[Slots, NDArray[np.int64]], part: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Counts per peer and the root rows that peers' leaves mirror, in the leaves' order."""
        slots, start = owned
        mine = slice(start[part], start[part + 1])
        counts = np.bincount(slots.part[mine], minlength=self.num_parts).astype(np.int64)
        return counts, (slots.vertex[mine] - self.root_start[part]).astype(np.int32)

    def _places(
        self, part: int, src: NDArray[np.int64], dst: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Places of the clones of a part, roots first; given those of its edges' ends."""
        roots = np.arange(self.root_start[part], self.root_start[part + 1])
        present = np.unique(np.concatenate([src, dst]))
        leaves = present[self.root_part[present] != part]
        check_clones(part, roots.size + leaves.size)
        return np.concatenate([roots, leaves])

    def build(self, part: int) -> Part:
        """Build one part."""
        graph = self.graph
        edges = self.edge_order[self.edge_start[part] : self.edge_start[part + 1]]
        src, dst = self.place[graph.src[edges]], self.place[graph.dst[edges]]
        places = self._places(part, src, dst)
        self.local_id[places] = np.arange(places.size, dtype=np.int32)
        clones = self.vertex_at[places]
        num_roots = int(self.root_start[part + 1] - self.root_start[part])
        roots, leaf_part = clones[:num_roots], self.root_part[places[num_roots:]]
        row, column = self.local_id[dst], self.local_id[src]
        edge = _sorting(row, column, clones)
        row, column = row[edge], column[edge]
        indptr, t_indptr = pointers(row, clones.size), pointers(column, clones.size)
        t_edge = _sorting(column, row, clones)
        send_counts, send_rows = self._rows_for(self.readers, part)
        reduce_counts, reduce_rows = self._rows_for(self.writers, part)
        weight = graph.edge_weight
        return Part(
            part=part,
            num_parts=self.num_parts,
            num_roots=num_roots,
            num_leaves=int(leaf_part.size),
            global_id=clones,
            indptr=indptr,
            indices=column,
            t_indptr=t_indptr,
            t_indices=row[t_edge],
            t_edge=t_edge,
            edge_weight=None if weight is None else weight[edges[edge]],
            leaf_counts=np.bincount(leaf_part, minlength=self.num_parts).astype(np.int64),
            is_reading=np.diff(t_indptr)[num_roots:] > 0,
            is_writing=np.diff(indptr)[num_roots:] > 0,
            send_counts=send_counts,
            send_rows=send_rows,
            reduce_counts=reduce_counts,
            reduce_rows=reduce_rows,
            in_degree=self.in_degree[clones],
            out_degree=self.out_degree[clones],
            self_loops=self.self_loops[roots],
            **_vertex_data(graph, roots),
        )


def _vertex_data(graph: Graph, roots: NDArray[np.int64]) -> dict[str, Any]:
    """Rows of everything the graph knows per vertex, for the roots of one part."""
    masks = {
        name: None if mask is None else np.ascontiguousarray(mask[:, roots])
        for name, mask in (
            ("train_mask", graph.train_mask),
            ("val_mask", graph.val_mask),
            ("test_mask", graph.test_mask),
        )
    }
    return {
        "features": None if graph.features is None else graph.features[roots],
        "labels": None if graph.labels is None else graph.labels[roots],
        "vertex_id": None if graph.vertex_id is None else graph.vertex_id[roots],
        **masks,
    }


def _sorting(
    row: NDArray[np.int32], column: NDArray[np.int32], global_id: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return positions that sort edges by (row, global id of the column, position)."""
    num_rows = global_id.size
    rank = np.empty(num_rows, np.int32)
    rank[np.argsort(global_id)] = np.arange(num_rows, dtype=np.int32)
    by_column = order_by(rank[column], num_rows)
    edge: NDArray[np.int64] = by_column[order_by(row[by_column], num_rows)].astype(np.int64)
    return edge
