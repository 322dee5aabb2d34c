"""Small awkward graphs, and ways to cut them, for tests of the runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from distgnn.datasets import Graph
from distgnn.partition.assignment import Assignment
from distgnn.partition.build import build_parts

if TYPE_CHECKING:
    from distgnn.partition.directory.store import Part

KINDS = (
    *("random", "sparse-features", "weighted", "multi-label", "few-edges", "loops"),
    *("unknown-flags", "regression"),
)


TYPED_KINDS = ("typed", "featureless")
"""Three relations, the middle one without edges; two types of vertices, or weights and no rows."""


EDGE_KIND = "edge-features"
"""Three features an edge, some edges from a vertex to itself."""


def make_graph(kind: str = "random", *, num_vertices: int = 40, seed: int = 0) -> Graph:
    """Build a directed multigraph of a kind; every kind has isolated vertices."""
    rng = np.random.default_rng(seed)
    num_edges = 5 if kind == "few-edges" else 4 * num_vertices
    # The last three vertices are isolated.
    src = rng.integers(0, num_vertices - 3, num_edges)
    dst = rng.integers(0, num_vertices - 3, num_edges)
    if kind in ("loops", EDGE_KIND):
        src = np.concatenate([src, dst[:20], src[:10], src[:10]])
        dst = np.concatenate([dst, dst[:20], dst[:10], dst[:10]])
    features: np.ndarray | sp.csr_matrix = rng.normal(size=(num_vertices, 6)).astype(np.float32)
    if kind == "sparse-features":
        dense = features * (rng.random(features.shape) < 0.3)
        features = sp.csr_matrix(dense.astype(np.float32))
    labels = rng.integers(0, 3, num_vertices)
    if kind == "multi-label":
        labels = (rng.random((num_vertices, 3)) < 0.4).astype(np.uint8)
    if kind == "unknown-flags":
        labels = rng.choice([0.0, 1.0, np.nan], (num_vertices, 3), p=[0.5, 0.3, 0.2])
    if kind == "regression":
        labels = rng.normal(3, 2, (num_vertices, 2)).astype(np.float32)
        labels[rng.random(num_vertices) < 0.2, 1] = np.nan
    role = rng.permutation(num_vertices) % 4
    masks = [np.isin(role, roles)[None] for roles in ((0, 1), (2,), (3,))]
    if kind == "unknown-flags":
        masks = [mask & ~np.isnan(labels).all(axis=1) for mask in masks]
    weight = rng.random(len(src)).astype(np.float32) + 0.5 if kind == "weighted" else None
    types = {}
    if kind in TYPED_KINDS:
        types["edge_type"] = 2 * rng.integers(0, 2, len(src))
        types["relation_names"] = ("cites", "owns", "writes")
    if kind == "typed":
        types["vertex_type"] = rng.integers(0, 2, num_vertices)
    if kind == "featureless":
        weight = rng.random(len(src)).astype(np.float32) + 0.5
    return Graph(
        name=kind,
        num_vertices=num_vertices,
        src=src.astype(np.int64),
        dst=dst.astype(np.int64),
        features=None if kind == "featureless" else features,
        labels=labels,
        train_mask=masks[0],
        val_mask=masks[1],
        test_mask=masks[2],
        edge_weight=weight,
        edge_features=rng.normal(size=(len(src), 3)) if kind == EDGE_KIND else None,
        **types,
    )


def cut(graph: Graph, num_parts: int, *, how: str = "anywhere", seed: int = 0) -> list[Part]:
    """Cut a graph: edges anywhere, at their destination, or with an empty part."""
    rng = np.random.default_rng(seed)
    root_part = rng.integers(0, num_parts, graph.num_vertices).astype(np.int32)
    if how == "empty-part" and num_parts > 1:
        root_part = (root_part % (num_parts - 1)).astype(np.int32)
    if how == "anywhere":
        edge_part = rng.integers(0, num_parts, graph.num_edges).astype(np.int32)
    elif how == "either-end":
        ends = np.stack([root_part[graph.src], root_part[graph.dst]])
        edge_part = ends[rng.integers(0, 2, graph.num_edges), np.arange(graph.num_edges)]
    else:
        edge_part = root_part[graph.dst]
    return list(build_parts(graph, Assignment(num_parts, edge_part.astype(np.int32), root_part)))


CUTS = ("anywhere", "either-end", "at-destination", "empty-part")


def adjacency(graph: Graph) -> np.ndarray:
    """Dense (num_vertices, num_vertices) float64: [v, u] sums the weights of edges u -> v."""
    matrix = np.zeros((graph.num_vertices, graph.num_vertices))
    weight = np.ones(graph.num_edges) if graph.edge_weight is None else graph.edge_weight
    np.add.at(matrix, (graph.dst, graph.src), weight)
    return matrix
