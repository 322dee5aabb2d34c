"""Graphs from PyG and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from distgnn.datasets.errors import InputError
from distgnn.interop.arrays import (
    as_table,
    from_numpy,
    tell_of_features,
    to_array,
    to_tensors,
    vertex_arrays,
)

if TYPE_CHECKING:
    from distgnn.datasets.graph import Graph


def from_pyg(data: Any, *, name: str = "memory", **arrays: Any) -> Graph:
    """Build a graph from PyG's Data or HeteroData.

    Args:
        data: `x`, `y`, the masks, `edge_index`, `edge_weight`, `edge_attr` (of one column and
            without `edge_weight`, as weights; else as features of edges), `edge_type` and
            `node_type` are taken. HeteroData becomes a typed graph as its
            `to_homogeneous` numbers it; features are taken if all types have equally many.
        name: Name of the graph in reports.
        arrays: Arrays of `from_numpy`, which win over those of the data.

    Returns:
        The graph.

    Raises:
        InputError: If there is no `edge_index`, or arrays contradict each other.
    """
    given: dict[str, Any] = {}
    if hasattr(data, "to_homogeneous"):
        given["relation_names"] = [" ".join(kinds) for kinds in data.edge_types]
        widths = {kind: data[kind].x.shape[1:] for kind in data.node_types if "x" in data[kind]}
        is_joint = len(widths) == len(data.node_types) and len(set(widths.values())) == 1
        data = data.to_homogeneous()
        if not is_joint:
            tell_of_features(widths)
            if "x" in data:
                del data.x  # of some types only, or filled up to the widest
    if getattr(data, "edge_index", None) is None:
        raise InputError(
            f"from_pyg takes Data or HeteroData with edge_index, got {type(data).__name__}; an "
            "adj_t is turned back by torch_geometric.utils.to_edge_index"
        )
    if "num_vertices" not in arrays:
        given["num_vertices"] = data.num_nodes
    given.update(vertex_arrays(data.to_dict()))
    for key in ("edge_weight", "edge_type"):
        if getattr(data, key, None) is not None:
            given[key] = to_array(getattr(data, key)).reshape(-1)
    attributes = getattr(data, "edge_attr", None)
    if attributes is not None:
        table = as_table(to_array(attributes))
        if table.shape[1] == 1 and "edge_weight" not in given:
            given["edge_weight"] = table[:, 0]
        else:
            given["edge_features"] = table
    if getattr(data, "node_type", None) is not None:
        given["vertex_type"] = to_array(data.node_type)
    return from_numpy(to_array(data.edge_index), name=name, **{**given, **arrays})


def to_pyg(graph: Graph) -> Any:
    """Return a graph as PyG's Data.

    Args:
        graph: The graph.

    Returns:
        Data with `edge_index` and, where ours has them, `x`, `y`, the masks, `edge_weight`,
        `edge_attr`, `edge_type` and `node_type`. Sparse features become dense; a single split is
        (num_vertices,), several are (num_vertices, num_splits).
    """
    import torch
    from torch_geometric.data import Data

    names = {"features": "x", "labels": "y"}
    fields = {names.get(key, key): tensor for key, tensor in to_tensors(graph).items()}
    for key, values in (
        ("edge_weight", graph.edge_weight),
        ("edge_attr", graph.edge_features),
        ("edge_type", graph.edge_type),
        ("node_type", graph.vertex_type),
    ):
        if values is not None:
            fields[key] = torch.from_numpy(values)
    edge_index = torch.from_numpy(np.stack([graph.src, graph.dst]))
    return Data(edge_index=edge_index, num_nodes=graph.num_vertices, **fields)
