"""DGL's layers with our weights, for whole epochs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from distgnn.datasets import Graph
    from distgnn.nn.models import GNN


def build(graph: Graph, model: GNN) -> tuple[nn.Module, Callable[[Tensor], Tensor]]:
    """See `distgnn.bench.epoch.PeerModule`."""
    os.environ.setdefault("DGLBACKEND", "pytorch")
    import dgl
    from dgl.nn import GATConv, GATv2Conv, GraphConv, SAGEConv

    ends = (torch.from_numpy(graph.src).int(), torch.from_numpy(graph.dst).int())
    theirs: Any = dgl.graph(ends, num_nodes=graph.num_vertices)
    convs = [*model.hidden, model.last]
    layers = nn.ModuleList()
    if model.config.model in ("gcn", "gat", "gatv2"):
        theirs = dgl.add_self_loop(theirs)
    if model.config.model == "gat":
        for conv in convs:
            heads, width = conv.source.shape
            layer = GATConv(conv.linear.in_channels, width, heads, bias=False)
            _copy(layer.fc.weight, conv.linear.weight)
            _copy(layer.attn_l, conv.source[None])
            _copy(layer.attn_r, conv.target[None])
            layers.append(_Heads(layer, conv.bias, concat=conv.concat))
    elif model.config.model == "gatv2":
        for conv in convs:
            heads, width = conv.vectors.shape
            layer = GATv2Conv(conv.source.in_channels, width, heads)
            for name, linear in (("fc_src", conv.source), ("fc_dst", conv.target)):
                _copy(getattr(layer, name).weight, linear.weight)
                _copy(getattr(layer, name).bias, linear.bias)
            _copy(layer.attn, conv.vectors[None])
            layers.append(_Heads(layer, conv.bias, concat=conv.concat))
    elif model.config.model == "gcn":
        for conv in convs:
            layer = GraphConv(conv.linear.in_channels, conv.linear.out_channels)
            _copy(layer.weight, conv.linear.weight.t())
            _copy(layer.bias, conv.bias)
            layers.append(layer)
    else:
        for conv in convs:
            layer = SAGEConv(conv.neighbour.in_channels, conv.neighbour.out_channels, "mean")
            _copy(layer.fc_neigh.weight, conv.neighbour.weight)
            _copy(layer.fc_self.weight, conv.root.weight)
            _copy(layer.fc_self.bias, conv.neighbour.bias)
            layers.append(layer)
    theirs.create_formats_()
    dropout = nn.Dropout(model.config.dropout)

    def scores_of(rows: Tensor) -> Tensor:
        for layer in layers[:-1]:
            rows = dropout(torch.relu(layer(theirs, rows)))
        result: Tensor = layers[-1](theirs, rows)
        return result

    return nn.ModuleList([layers, dropout]), scores_of


class _Heads(nn.Module):
    """Joins the heads of a layer and adds a bias: DGL's own is there before heads are averaged."""

    def __init__(self, layer: nn.Module, bias: Tensor, *, concat: bool) -> None:
        super().__init__()
        self.layer = layer
        self.concat = concat
        self.bias = nn.Parameter(bias.detach().clone())

    def forward(self, graph: Any, rows: Tensor) -> Tensor:
        heads: Tensor = self.layer(graph, rows)
        return (heads.flatten(1) if self.concat else heads.mean(1)) + self.bias


def _copy(target: Tensor, source: Tensor) -> None:
    with torch.no_grad():
        target.copy_(source)
