"""Graphs from DGL and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from distgnn.datasets.errors import InputError
from distgnn.interop.arrays import (
    MASKS,
    as_table,
    from_numpy,
    tell_of_features,
    to_array,
    to_tensors,
    vertex_arrays,
)
from distgnn.interop.import_dgl import import_dgl

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from distgnn.datasets.graph import Graph

# The mark of flags that nobody knows, as a Graph has it.
_UNKNOWN_FLAG = 255
_WEIGHTS = ("weight", "w", "edge_weight")
_EDGE_FEATURES = ("feat", "features", "edge_attr")


def from_dgl(graph: Any, *, name: str = "memory", **arrays: Any) -> Graph:
    """Build a graph from a DGLGraph.

    Args:
        graph: `feat`, `label`, the masks and `ntype` are taken from `ndata`, `weight`, `feat` and
            `etype` from `edata`, also under their other common names. A graph of several types
            becomes a typed one: vertices are numbered type after type, and relations in the order
            of `canonical_etypes`. Features of vertices are taken if all types have equally many;
            those of edges are not. Types without labels get unknown labels, types without a mask
            are in none, and edges of relations without weights weigh 1.
        name: Name of the graph in reports.
        arrays: Arrays of `from_numpy`, which win over those of the graph.

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
    given = {
        "num_vertices": graph.num_nodes(),
        "edge_weight": _weight(graph.edata),
        "edge_features": _edge_features(graph.edata),
        **vertex_arrays(graph.ndata),
    }
    for ours, theirs, values in (
        ("edge_type", "etype", graph.edata),
        ("vertex_type", "ntype", graph.ndata),
    ):
        if theirs in values:
            given[ours] = to_array(values[theirs]).reshape(-1)
    given.update(arrays)
    return from_numpy(np.stack([to_array(src), to_array(dst)]), name=name, **given)


def _weight(values: Any) -> Any:
    """Return the weights among what DGL has on edges; None if there are none."""
    key = next((key for key in _WEIGHTS if key in values), None)
    return None if key is None else to_array(values[key]).reshape(-1)


def _edge_features(values: Any) -> Any:
    """Return the features among what DGL has on edges, one row each; None if there are none."""
    key = next((key for key in _EDGE_FEATURES if key in values), None)
    return None if key is None else as_table(to_array(values[key]))


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
    else:
        tell_of_features(kind for kind, part in parts.items() if "features" in part)
    weights = [_weight(graph.edges[kinds].data) for kinds in graph.canonical_etypes]
    if any(weight is not None for weight in weights):
        found["edge_weight"] = np.concatenate(
            [
                np.ones(ends.shape[1], np.float32) if weight is None else weight
                for ends, weight in zip(edges, weights, strict=True)
            ]
        )
    for key in ("labels", *MASKS):
        if any(key in part for part in parts.values()):
            found[key] = _joined(key, counts, [part.get(key) for part in parts.values()])
    return found


def _joined(key: str, counts: list[int], parts: list[Any]) -> NDArray[Any]:
    """Join the labels or a mask of all types; vertices of types without get what says unknown."""
    is_mask = key in MASKS
    present = [part if is_mask else _markable(part) for part in parts if part is not None]
    kind = np.result_type(*present)
    nothing = False if is_mask else {"f": np.nan, "u": _UNKNOWN_FLAG}.get(kind.kind, -1)
    left = iter(present)
    filled = []
    for count, part in zip(counts, parts, strict=True):
        first = present[0].shape
        shape = (*first[:-1], count) if is_mask else (count, *first[1:])
        filled.append(np.full(shape, nothing, kind) if part is None else next(left))
        if filled[-1].shape != shape:
            raise InputError(
                f"from_dgl: the types of vertices have {key} of shapes "
                f"{', '.join(str(one.shape) for one in present)}, which cannot be one array; give "
                "all of them the same columns"
            )
    return np.concatenate(filled, axis=-1 if is_mask else 0)


def _markable(labels: NDArray[Any]) -> NDArray[Any]:
    """Return labels in a dtype that has a mark for what is not known."""
    if labels.ndim == 1:
        return labels if labels.dtype.kind == "f" else labels.astype(np.int64)
    if labels.dtype == np.bool_:
        return labels.astype(np.uint8)
    return labels if labels.dtype.kind == "f" or labels.dtype == np.uint8 else labels.astype(float)


def to_dgl(graph: Graph) -> Any:
    """Return a graph as a homogeneous DGLGraph.

    Args:
        graph: The graph.

    Returns:
        The graph, with `feat`, `label` and the masks in `ndata`, `weight`, `feat` and `etype` in
        `edata`, and `ntype` in `ndata`, where ours has them. Sparse features become dense.

    Raises:
        InputError: If DGL is not installed or cannot be imported.
    """
    import torch

    dgl = import_dgl()
    ends = torch.from_numpy(graph.src), torch.from_numpy(graph.dst)
    result = dgl.graph(ends, num_nodes=graph.num_vertices)
    names = {"features": "feat", "labels": "label"}
    for key, tensor in to_tensors(graph).items():
        result.ndata[names.get(key, key)] = tensor
    if graph.vertex_type is not None:
        result.ndata["ntype"] = torch.from_numpy(graph.vertex_type)
    for key, values in (
        ("weight", graph.edge_weight),
        ("feat", graph.edge_features),
        ("etype", graph.edge_type),
    ):
        if values is not None:
            result.edata[key] = torch.from_numpy(values)
    return result
