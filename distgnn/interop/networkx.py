"""Graphs from networkx and back."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from distgnn.datasets.errors import InputError
from distgnn.interop.arrays import from_numpy

if TYPE_CHECKING:
    from distgnn.datasets.graph import Graph


def from_networkx(graph: Any, *, name: str = "memory", **arrays: Any) -> Graph:
    """Build a graph from any graph of networkx; an undirected one gets both directions.

    Args:
        graph: Its nodes, all integers or all strings, become vertices in their order. Edges keep
            the attribute `weight`, if any has it; an edge without counts as 1.
        name: Name of the graph in reports.
        arrays: Arrays of `from_numpy`, with row k for the k-th node, such as
            `labels=[data["club"] for _, data in graph.nodes(data=True)]`.

    Returns:
        The graph, whose `vertex_id` has the nodes unless they are 0, 1, 2, ...

    Raises:
        InputError: If a node is neither an integer nor a string, or arrays contradict each other.
    """
    nodes = list(graph)
    kinds = {_kind_of(node) for node in nodes}
    if kinds - {int} and kinds - {str}:
        shown = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise InputError(
            f"nodes must be all integers or all strings, got {shown}; use "
            "networkx.convert_node_labels_to_integers"
        )
    number = dict(zip(nodes, range(len(nodes)), strict=True))
    ends = itertools.chain.from_iterable(graph.edges())
    edge_index = np.fromiter(map(number.__getitem__, ends), np.int64).reshape(-1, 2).T
    weight = np.fromiter((w for _, _, w in graph.edges(data="weight", default=1)), np.float64)
    if not graph.is_directed():
        is_loop = edge_index[0] == edge_index[1]
        edge_index = np.concatenate([edge_index, edge_index[::-1, ~is_loop]], axis=1)
        weight = np.concatenate([weight, weight[~is_loop]])
    is_range = nodes == list(range(len(nodes)))
    given = {
        "num_vertices": len(nodes),
        "edge_weight": None if bool((weight == 1).all()) else weight,
        "vertex_id": None if is_range else np.array(nodes),
        **arrays,
    }
    return from_numpy(edge_index, name=name, **given)


def _kind_of(node: Any) -> type:
    if isinstance(node, np.integer):
        return int
    return str if isinstance(node, str) else type(node)


def to_networkx(graph: Graph) -> Any:
    """Return a graph as a networkx.MultiDiGraph.

    Args:
        graph: Its vertices become nodes by their ids, with the attribute `label` where there are
            labels; features and masks stay behind, because networkx keeps an object a value.

    Returns:
        The graph; edges have the attributes `weight` and `relation` where ours have them.
    """
    import networkx

    ids = range(graph.num_vertices) if graph.vertex_id is None else graph.vertex_id.tolist()
    result = networkx.MultiDiGraph(name=graph.name)
    result.add_nodes_from(ids)
    named = np.arange(graph.num_vertices) if graph.vertex_id is None else graph.vertex_id
    attributes: dict[str, list[Any]] = {}
    if graph.edge_weight is not None:
        attributes["weight"] = graph.edge_weight.tolist()
    if graph.edge_type is not None:
        names = graph.relation_names
        relation = graph.edge_type if names is None else np.array(names)[graph.edge_type]
        attributes["relation"] = relation.tolist()
    rows = zip(*attributes.values(), strict=True) if attributes else itertools.repeat(())
    data = (dict(zip(attributes, row, strict=True)) for row in rows)
    ends = named[graph.src].tolist(), named[graph.dst].tolist()
    result.add_edges_from(zip(*ends, data, strict=False))
    if graph.labels is not None:
        networkx.set_node_attributes(
            result, dict(zip(ids, graph.labels.tolist(), strict=True)), "label"
        )
    return result
