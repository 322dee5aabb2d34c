"""The only part of a graph that is not cut, made in little more memory than it takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from distgnn.partition.arcs import is_symmetric
from distgnn.partition.build import Part, relation_degrees
from distgnn.partition.csr import Csr, order_by, pointers, transposed
from distgnn.partition.structure import check_clones

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from distgnn.datasets.graph import Graph


def whole_part(graph: Graph) -> Part:
    """Build the only part of a graph that is not cut.

    Args:
        graph: The graph.

    Returns:
        The part; it has no leaves and no `t_edge`. Features, labels and masks are the graph's own
        arrays.

    Raises:
        InputError: If the graph has too many vertices.
    """
    num_vertices = graph.num_vertices
    check_clones(0, num_vertices)
    csr = _by_destination(graph)
    if not _is_ascending(csr):
        # Edges by column come by ascending row: twice transposed, they are sorted by both.
        transpose = transposed(csr, num_vertices)
        csr = transposed(transpose, num_vertices)
    elif is_symmetric(csr.indptr, csr.indices):
        transpose = csr
    else:
        transpose = transposed(csr, num_vertices)
    values: dict[str, NDArray[Any] | None] = {"edge_weight": csr.values}
    if _knows_positions(graph):
        assert csr.values is not None, "these edges know their positions"
        values = _edge_values(graph, csr.values)
    loops = np.bincount(graph.src[graph.src == graph.dst], minlength=num_vertices)
    none, nobody, no_rows = np.zeros(1, np.int64), np.zeros(0, bool), np.zeros(0, np.int32)
    return Part(
        part=0,
        num_parts=1,
        num_roots=num_vertices,
        num_leaves=0,
        global_id=np.arange(num_vertices),
        indptr=csr.indptr,
        indices=csr.indices,
        t_indptr=transpose.indptr,
        t_indices=transpose.indices,
        t_edge=None,
        **values,
        vertex_type=graph.vertex_type,
        leaf_counts=none,
        is_reading=nobody,
        is_writing=nobody,
        send_counts=none,
        send_rows=no_rows,
        reduce_counts=none,
        reduce_rows=no_rows,
        in_degree=np.diff(csr.indptr),
        out_degree=np.diff(transpose.indptr),
        self_loops=loops.astype(np.int32),
        features=graph.features,
        labels=graph.labels,
        train_mask=graph.train_mask,
        val_mask=graph.val_mask,
        test_mask=graph.test_mask,
        vertex_id=graph.vertex_id,
        val_links=graph.val_links,
        test_links=graph.test_links,
    )


def _is_ascending(csr: Csr) -> bool:
    """Return whether the columns of each row ascend; equal ones may stand together."""
    falls = csr.indices[1:] < csr.indices[:-1]
    if np.count_nonzero(falls) >= csr.indptr.size:
        return False  # There are more than rows, and their positions would take memory.
    return bool(np.isin(np.flatnonzero(falls) + 1, csr.indptr).all())


def _knows_positions(graph: Graph) -> bool:
    """Return whether edges are sorted with their positions, to pick what else is known of them."""
    return graph.edge_type is not None or graph.edge_features is not None


def _edge_values(graph: Graph, edge: NDArray[Any]) -> dict[str, NDArray[Any] | None]:
    """Pick what is known of edges, in the order of `edge`, as fields of `Part`."""
    weight, features = graph.edge_weight, graph.edge_features
    values: dict[str, NDArray[Any] | None] = {
        "edge_weight": None if weight is None else weight[edge],
        "edge_features": None if features is None else features[edge],
    }
    if graph.edge_type is not None:
        values["edge_type"] = graph.edge_type[edge].astype(np.int32)
        values["relation_degree"] = relation_degrees(graph.dst, graph.edge_type)[edge]
    return values


def _by_destination(graph: Graph) -> Csr:
    """Group edges by destination; equal ones keep their order.

    Their values are their weights, or their positions where they have more than these.
    """
    src, dst = graph.src, graph.dst
    values = np.arange(src.size) if _knows_positions(graph) else graph.edge_weight
    indptr = pointers(dst, graph.num_vertices)
    if np.all(dst[1:] >= dst[:-1]):
        return Csr(indptr, src.astype(np.int32), values)
    order = order_by(dst, graph.num_vertices)
    return Csr(indptr, src[order].astype(np.int32), None if values is None else values[order])
