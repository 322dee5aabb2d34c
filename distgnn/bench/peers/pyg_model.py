"""PyG's layers with our weights, for whole epochs; with torch-sparse where it is there."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from distgnn.datasets import Graph
    from distgnn.nn.models import GNN


def build(graph: Graph, model: GNN) -> tuple[nn.Module, Callable[[Tensor], Tensor]]:
    """See `distgnn.bench.epoch.PeerModule`."""
    from torch_geometric.nn import GATConv, GATv2Conv, GCNConv, SAGEConv
    from torch_geometric.utils import add_self_loops

    edges: Any = torch.stack([torch.from_numpy(graph.src), torch.from_numpy(graph.dst)])
    if model.config.model in ("gat", "gatv2"):
        # Here, as the layer would add them in every call.
        edges, _ = add_self_loops(edges, num_nodes=graph.num_vertices)
    device = next(model.parameters()).device
    if device.type != "cpu" and model.config.model == "sage":
        # A message for each edge of a large graph would not fit there.
        edges = _matrix(graph, device)
    elif importlib.util.find_spec("torch_sparse"):
        from torch_sparse import SparseTensor

        size = (graph.num_vertices, graph.num_vertices)
        edges = SparseTensor.from_edge_index(edges.flip(0), sparse_sizes=size)
        # Its backward needs these; built here, not in the first epoch.
        edges.storage.rowptr(), edges.storage.colptr(), edges.storage.csr2csc()
    convs = [*model.hidden, model.last]
    layers = nn.ModuleList()
    for conv in convs:
        if model.config.model == "gcn":
            layer = GCNConv(conv.linear.in_channels, conv.linear.out_channels, cached=True)
            _copy(layer.lin.weight, conv.linear.weight)
            _copy(layer.bias, conv.bias)
        elif model.config.model == "gat":
            heads, width = conv.source.shape
            options = {"heads": heads, "concat": conv.concat, "add_self_loops": False}
            layer = GATConv(conv.linear.in_channels, width, **options)
            _copy(layer.lin.weight, conv.linear.weight)
            _copy(layer.att_src, conv.source[None])
            _copy(layer.att_dst, conv.target[None])
            _copy(layer.bias, conv.bias)
        elif model.config.model == "gatv2":
            heads, width = conv.vectors.shape
            options = {"heads": heads, "concat": conv.concat, "add_self_loops": False}
            layer = GATv2Conv(conv.source.in_channels, width, **options)
            for theirs, linear in ((layer.lin_l, conv.source), (layer.lin_r, conv.target)):
                _copy(theirs.weight, linear.weight)
                _copy(theirs.bias, linear.bias)
            _copy(layer.att, conv.vectors[None])
            _copy(layer.bias, conv.bias)
        else:
            layer = SAGEConv(conv.neighbour.in_channels, conv.neighbour.out_channels)
            _copy(layer.lin_l.weight, conv.neighbour.weight)
            _copy(layer.lin_l.bias, conv.neighbour.bias)
            _copy(layer.lin_r.weight, conv.root.weight)
        layers.append(layer)
    dropout = nn.Dropout(model.config.dropout)
    layers, edges = layers.to(device), edges.to(device)

    def scores_of(rows: Tensor) -> Tensor:
        for layer in layers[:-1]:
            rows = dropout(torch.relu(layer(rows, edges)))
        result: Tensor = layers[-1](rows, edges)
        return result

    return nn.ModuleList([layers, dropout]), scores_of


def _matrix(graph: Graph, device: torch.device) -> Tensor:
    """The edges by target, as PyG's sums hand them to torch.sparse."""
    order = np.argsort(graph.dst, kind="stable")
    size = graph.num_vertices
    start = np.concatenate([[0], np.bincount(graph.dst, minlength=size).cumsum()])
    ends = torch.from_numpy(start), torch.from_numpy(graph.src[order])
    return torch.sparse_csr_tensor(*ends, torch.ones(graph.num_edges), (size, size)).to(device)


def _copy(target: Tensor, source: Tensor) -> None:
    with torch.no_grad():
        target.copy_(source)
