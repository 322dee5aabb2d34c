"""Parts of an assignment, one for each rank: clones, local CSR, and rows to send to others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from distgnn import _partitioner
from distgnn.datasets.errors import InputError
from distgnn.datasets.graph import Graph
from distgnn.partition.arcs import starts_of_both
from distgnn.partition.assignment import Assignment
from distgnn.partition.halo import Slots, group_by_part
from distgnn.partition.structure import (
    MAX_CLONES,
    Leaves,
    VertexTables,
    leaves_of,
    structure_of,
)
from distgnn.partition.threads import in_order

# Memory to build a part: both directions and their sorting; ids, row pointers and degrees.
_EDGE_BYTES = 64
_CLONE_BYTES = 40


@dataclass(frozen=True, eq=False, kw_only=True)
class Part:
    """The part of a graph that one rank loads.

    Every array is C-contiguous and may be memory-mapped.

    Clones are numbered roots first, then leaves; a local id is a row in that order. The partitioner
    chooses the order of the roots, so that rows that are read together lie together. The edges of a
    row come by ascending global id in any case. So sums add up in the same order, and of equal
    maxima the same one comes first.
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
    labels: NDArray[np.int64] | NDArray[np.uint8] | NDArray[np.float32] | None
    """(num_roots,) int64 with -1 for unlabelled, or (num_roots, num_classes) uint8 or float32."""
    train_mask: NDArray[np.bool_] | None
    """(num_splits, num_roots) bool."""
    val_mask: NDArray[np.bool_] | None
    """(num_splits, num_roots) bool."""
    test_mask: NDArray[np.bool_] | None
    """(num_splits, num_roots) bool."""
    vertex_id: NDArray[np.int64] | NDArray[np.str_] | None
    """(num_roots,) int64 or str. Ids in the source, when they are not 0, 1, 2, ..."""
    edge_type: NDArray[np.int32] | None = None
    """(num_edges,) int32. The relation of each edge of a typed graph, in the order of `indices`."""
    edge_features: NDArray[np.float32] | None = None
    """(num_edges, num_edge_features) float32, in the order of `indices`."""
    relation_degree: NDArray[np.int32] | None = None
    """(num_edges,) int32. How many in-edges of that relation the edge's destination has in the
    whole graph, itself among them: what a mean over a relation divides by."""
    vertex_type: NDArray[np.int64] | None = None
    """(num_clones,) int64. The type of each vertex, if vertices have types."""
    val_links: NDArray[np.int64] | None = None
    """(num, 2) int64. Links held out for validation whose first end is a root here: global ids of
    both ends. The other end may be unknown to this part."""
    test_links: NDArray[np.int64] | None = None
    """(num, 2) int64. Links like these, for the test."""

    @property
    def num_clones(self) -> int:
        """Roots and leaves together."""
        return self.num_roots + self.num_leaves

    @property
    def num_edges(self) -> int:
        """Edges that live on this part."""
        return int(self.indices.size)

    def edges_of_transpose(self) -> NDArray[np.int64]:
        """Return `t_edge`, recomputed where the part has none."""
        if self.t_edge is not None:
            return self.t_edge
        by_id = np.argsort(self.global_id)
        return _partitioner.transpose_edges(self.indptr, self.indices, by_id)[2]


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
    builder = PartBuilder(graph, assignment, order=order)
    return map(builder.build, range(assignment.num_parts))


class PartBuilder:
    """Tables of the whole graph for all parts, computed once; parts may be built on threads."""

    def __init__(
        self,
        graph: Graph,
        assignment: Assignment,
        *,
        order: NDArray[np.int64] | None = None,
        threads: int = 1,
    ) -> None:
        """Find the leaves of all parts.

        Args:
            graph: The graph, as for `build_parts`.
            assignment: Parts of its edges and roots.
            order: (num_vertices,) int64. Order of the roots, as for `build_parts`.
            threads: Number of threads to use.

        Raises:
            InputError: If the assignment or the order is of another graph.
        """
        assignment.check_graph(graph)
        num_vertices, num_parts = graph.num_vertices, assignment.num_parts
        self.graph = graph
        self.num_parts = num_parts
        self.edge_order, self.edge_start = assignment.edges_by_part
        order = _checked(order, graph)
        by_part, root_start = group_by_part(assignment.root_part[order], num_parts)
        vertex_at = order[by_part]
        # Narrow where they fit: places are gathered for both ends of every edge.
        place = np.empty(num_vertices, np.int32 if num_vertices <= MAX_CLONES else np.int64)
        place[vertex_at] = np.arange(num_vertices)
        by_src, by_dst = starts_of_both(graph.src, graph.dst, num_vertices)
        self.tables = VertexTables(
            vertex_at=vertex_at,
            place=place,
            root_start=root_start,
            in_degree=np.diff(by_dst),
            out_degree=np.diff(by_src),
            self_loops=np.bincount(graph.src[graph.src == graph.dst], minlength=num_vertices),
            local_id=np.empty(0, np.int32),
        )
        self.relation_degree: NDArray[np.int32] | None = None
        if graph.edge_type is not None:
            self.relation_degree = relation_degrees(graph.dst, graph.edge_type)
        with in_order(self._leaves, range(num_parts), threads) as leaves:
            self.leaves = list(leaves)
        self.readers = self._by_owner([one.place[one.is_reading] for one in self.leaves])
        self.writers = self._by_owner([one.place[one.is_writing] for one in self.leaves])

    def _leaves(self, part: int) -> Leaves:
        return leaves_of(self.tables, part, *self._ends(self._edges(part)))

    def _edges(self, part: int) -> NDArray[np.integer[Any]]:
        return self.edge_order[self.edge_start[part] : self.edge_start[part + 1]]

    def _ends(self, edges: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Places of the sources and of the destinations of edges."""
        place: NDArray[Any] = self.tables.place
        both: tuple[NDArray[Any], NDArray[Any]] = self.graph.src, self.graph.dst
        if place.dtype != np.int32:
            return place[both[0][edges]], place[both[1][edges]]
        taken = np.empty(edges.size, np.int32), np.empty(edges.size, np.int32)
        for ends, places in zip(both, taken, strict=True):
            _partitioner.take_ends(edges, ends, place, places)
        return taken

    def _by_owner(self, leaves: list[NDArray[Any]]) -> tuple[Slots, NDArray[np.int64]]:
        """Leaves, by place, in the order (root's part, leaf's part, place).

        Also where each root's part begins.
        """
        place = np.concatenate(leaves)
        part = np.repeat(np.arange(self.num_parts), [one.size for one in leaves])
        owner = self.tables.owner_of(place).astype(np.int32)
        order, start = group_by_part(owner, self.num_parts)
        return Slots(place[order], part[order]), start

    def _rows_for(
        self, owned: tuple[Slots, NDArray[np.int64]], part: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Counts per peer and the root rows that peers' leaves mirror, in the leaves' order."""
        slots, start = owned
        mine = slice(start[part], start[part + 1])
        counts = np.bincount(slots.part[mine], minlength=self.num_parts).astype(np.int64)
        return counts, (slots.vertex[mine] - self.tables.root_start[part]).astype(np.int32)

    def bytes_of_largest(self) -> int:
        """Estimate what the largest part takes while it is built: features, edges and clones."""
        roots = np.diff(self.tables.root_start)
        clones = roots + [one.place.size for one in self.leaves]
        features, row_bytes = self.graph.features, 0.0
        if isinstance(features, np.ndarray):
            row_bytes = features.shape[1] * features.itemsize
        elif features is not None:
            entry_bytes = features.data.itemsize + features.indices.itemsize
            row_bytes = entry_bytes * features.nnz / self.graph.num_vertices
        edges, edge_bytes = np.diff(self.edge_start), _EDGE_BYTES
        if self.graph.edge_features is not None:
            edge_bytes += self.graph.num_edge_features * self.graph.edge_features.itemsize
        each = roots * row_bytes + edges * edge_bytes + clones * _CLONE_BYTES
        return int(each.max()) + self.tables.place.size * np.dtype(np.int32).itemsize

    def build(self, part: int) -> Part:
        """Build one part."""
        edges = self._edges(part)
        # Those of this part alone: others may be in progress.
        tables = replace(self.tables, local_id=np.empty(self.tables.place.size, np.int32))
        structure, order = structure_of(tables, part, *self._ends(edges), self.leaves[part])
        send_counts, send_rows = self._rows_for(self.readers, part)
        reduce_counts, reduce_rows = self._rows_for(self.writers, part)
        edges = edges[order]
        weight, kind = self.graph.edge_weight, self.graph.edge_type
        edge_features, vertex_type = self.graph.edge_features, self.graph.vertex_type
        return Part(
            part=part,
            num_parts=self.num_parts,
            edge_weight=None if weight is None else weight[edges],
            edge_features=None if edge_features is None else edge_features[edges],
            edge_type=None if kind is None else kind[edges].astype(np.int32),
            vertex_type=None if vertex_type is None else vertex_type[structure.global_id],
            relation_degree=None if self.relation_degree is None else self.relation_degree[edges],
            send_counts=send_counts,
            send_rows=send_rows,
            reduce_counts=reduce_counts,
            reduce_rows=reduce_rows,
            **vars(structure),
            val_links=self._links(self.graph.val_links, part),
            test_links=self._links(self.graph.test_links, part),
            **vertex_data(self.graph, structure.global_id[: structure.num_roots]),
        )

    def _links(self, links: NDArray[np.int64] | None, part: int) -> NDArray[np.int64] | None:
        """Pick the links whose first end is a root of a part."""
        if links is None:
            return None
        owner = self.tables.owner_of(self.tables.place[links[:, 0]])
        return np.ascontiguousarray(links[owner == part])


def _checked(order: NDArray[np.int64] | None, graph: Graph) -> NDArray[np.int64]:
    ascending = np.arange(graph.num_vertices)
    if order is None:
        return ascending
    if not np.array_equal(np.sort(order), ascending):
        raise InputError(
            f"the order does not list each of the {graph.num_vertices} vertices of graph "
            f"{graph.name!r} once; order this graph again"
        )
    return order


def relation_degrees(
    dst: NDArray[np.integer[Any]], edge_type: NDArray[np.integer[Any]]
) -> NDArray[np.int32]:
    """Count, for each edge, the edges of its relation into its destination.

    Args:
        dst: (num_edges,) Destinations.
        edge_type: (num_edges,) Relations.

    Returns:
        (num_edges,) int32, at least 1.
    """
    num_relations = int(edge_type.max(initial=0)) + 1
    key = dst.astype(np.int64) * num_relations + edge_type
    _, number, counts = np.unique(key, return_inverse=True, return_counts=True)
    degrees: NDArray[np.int32] = counts.astype(np.int32)[number]
    return degrees


def vertex_data(graph: Graph, roots: NDArray[np.int64]) -> dict[str, Any]:
    """Take the rows of everything the graph knows per vertex.

    Args:
        graph: The graph.
        roots: (num_roots,) int64. Of one part.

    Returns:
        Fields of `Part`.
    """
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
