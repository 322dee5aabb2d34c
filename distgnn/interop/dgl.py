"""Graphs from DGL and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from distgnn.datasets.errors import InputError
from distgnn.interop.arrays import MASKS, from_numpy, to_array, to_tensors, vertex_arrays

if TYPE_CHECKING:
    from distgnn.datasets.graph import Graph

_WEIGHTS = ("weight", "w", "edge_weight")


def from_dgl(graph: Any, *, name: str = "memory", **arrays: Any) -> Graph:
    """Build a graph from a DGLGraph.

    Args:
        graph: `feat`, `label` and the masks are taken from `ndata`, `weight` from `edata`, also
            under the names that are common beside these. A graph of several types becomes a typed
            one: vertices are numbered type after type, relations in the order of
            `canonical_etypes`; features are taken if all types have equally many.
        name: What reports call the graph.
        arrays: As for `from_numpy`; they win over those of the graph.

    Returns:
        The graph.

    Raises:
        InputError: If arrays contradict each other.
    """
    if not (hasattr(graph, "canonical_etypes") and hasattr(graph, "ndata")):
        raise InputError(f"from_dgl takes a DGLGraph, got {type(graph).__name__}; pass one")
    if len(graph.canonical_etypes) > 1 or len(graph.ntypes) > 1:
        return from_numpy(name=name, **{**_typed(graph), **arrays})
    src, dst = graph.edges(order="eid")
    key = next((key for key in _WEIGHTS if key in graph.edata), None)
    given = {
        "num_vertices": graph.num_nodes(),
        "edge_weight": None if key is None else to_array(graph.edata[key]).reshape(-1),
        **vertex_arrays(graph.ndata),
        **arrays,
    }
    return from_numpy(np.stack([to_array(src), to_array(dst)]), name=name, **given)


def _typed(graph: Any) -> dict[str, Any]:
    """Return the arrays of a graph of several types, edges included."""
    counts = [graph.num_nodes(kind) for kind in graph.ntypes]
    first = dict(zip(graph.ntypes, np.cumsum([0, *counts]).tolist(), strict=False))
    edges = []
    for source, relation, target in graph.canonical_etypes:
        ends = graph.edges(order="eid", etype=(source, relation, target))
        edges.append(
            np.stack([to_array(ends[0]) + first[source], to_array(ends[1]) + first[target]])
        )
    found: dict[str, Any] = {
        "edge_index": np.concatenate(edges, axis=1),
        "edge_type": np.repeat(np.arange(len(edges)), [ends.shape[1] for ends in edges]),
        "vertex_type": np.repeat(np.arange(len(counts)), counts),
        "relation_names": [" ".join(kinds) for kinds in graph.canonical_etypes],
        "num_vertices": sum(counts),
    }
    parts = {kind: vertex_arrays(graph.nodes[kind].data) for kind in graph.ntypes}
    widths = {part["features"].shape[1:] if "features" in part else None for part in parts.values()}
    if len(widths) == 1 and None not in widths:
        found["features"] = np.concatenate([part["features"] for part in parts.values()])
    for key, nothing in (("labels", -1), *((mask, False) for mask in MASKS)):
        if any(key in part for part in parts.values()):
            found[key] = np.concatenate(
                [
                    part[key] if key in part else np.full(count, nothing)
                    for count, part in zip(counts, parts.values(), strict=True)
                ]
            )
    return found


def to_dgl(graph: Graph) -> Any:
    """Return a graph as a homogeneous DGLGraph.

    Args:
        graph: The graph.

    Returns:
        The graph, with `feat`, `label` and the masks in `ndata`, `weight` and `etype` in `edata`,
        and `ntype` in `ndata`, where ours has them. Sparse features become dense.
    """
    import dgl
    import torch

    ends = torch.from_numpy(graph.src), torch.from_numpy(graph.dst)
    result = dgl.graph(ends, num_nodes=graph.num_vertices)
    names = {"features": "feat", "labels": "label"}
    for key, tensor in to_tensors(graph).items():
        result.ndata[names.get(key, key)] = tensor
    if graph.vertex_type is not None:
        result.ndata["ntype"] = torch.from_numpy(graph.vertex_type)
    for key, values in (("weight", graph.edge_weight), ("etype", graph.edge_type)):
        if values is not None:
            result.edata[key] = torch.from_numpy(values)
    return result
