"""DGL's models on distgnn's kernels: one line more, the same outputs and gradients.

    python examples/accelerate_dgl.py [--shapes products reddit] [--models gcn ...] [--rounds 5]

Models as DGL's own examples write them train in turns: as they are, and with `accelerate(model)`.
Needs `pip install 'distgnn[dgl]'`, which brings DGL on Python 3.10 and 3.11 alone.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

os.environ.setdefault("DGLBACKEND", "pytorch")

import dgl
import torch
import torch.nn.functional as F  # noqa: N812
from dgl.nn import APPNPConv, GATConv, GATv2Conv, GINConv, GraphConv, SAGEConv, SGConv
from torch import Tensor, nn

from distgnn.bench.accelerate import Library, race

if TYPE_CHECKING:
    from distgnn.datasets import Graph

HIDDEN = 64


class GCN(nn.Module):
    """Model of DGL's examples/pytorch/gcn."""

    def __init__(self, in_size: int, out_size: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            [GraphConv(in_size, 16, activation=F.relu), GraphConv(16, out_size)]
        )
        self.dropout = nn.Dropout(0.5)

    def forward(self, g: Any, features: Tensor) -> Tensor:
        h = features
        for i, layer in enumerate(self.layers):
            if i != 0:
                h = self.dropout(h)
            h = layer(g, h)
        return h


class SAGE(nn.Module):
    """Model of DGL's examples/pytorch/graphsage/train_full.py, of three layers."""

    def __init__(self, in_size: int, out_size: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            [
                SAGEConv(in_size, HIDDEN, "mean"),
                SAGEConv(HIDDEN, HIDDEN, "mean"),
                SAGEConv(HIDDEN, out_size, "mean"),
            ]
        )
        self.dropout = nn.Dropout(0.5)

    def forward(self, graph: Any, x: Tensor) -> Tensor:
        h = self.dropout(x)
        for number, layer in enumerate(self.layers):
            h = layer(graph, h)
            if number != len(self.layers) - 1:
                h = F.relu(h)
                h = self.dropout(h)
        return h


class GAT(nn.Module):
    """Model of DGL's examples/pytorch/gat."""

    def __init__(self, in_size: int, out_size: int) -> None:
        super().__init__()
        drops = {"feat_drop": 0.6, "attn_drop": 0.6}
        self.gat_layers = nn.ModuleList(
            [
                GATConv(in_size, 8, 8, **drops, activation=F.elu),
                GATConv(64, out_size, 1, **drops, activation=None),
            ]
        )

    def forward(self, g: Any, inputs: Tensor) -> Tensor:
        h = inputs
        for i, layer in enumerate(self.gat_layers):
            h = layer(g, h)
            h = h.mean(1) if i == 1 else h.flatten(1)
        return h


class GATv2(nn.Module):
    """Model of DGL's examples/pytorch/gatv2."""

    def __init__(self, in_size: int, out_size: int) -> None:
        super().__init__()
        drops = {"feat_drop": 0.6, "attn_drop": 0.6}
        self.gatv2_layers = nn.ModuleList(
            [
                GATv2Conv(in_size, 8, 8, **drops, activation=F.elu, bias=False, share_weights=True),
                GATv2Conv(64, out_size, 1, **drops, bias=False, share_weights=True),
            ]
        )

    def forward(self, g: Any, inputs: Tensor) -> Tensor:
        h = self.gatv2_layers[0](g, inputs).flatten(1)
        return self.gatv2_layers[1](g, h).mean(1)


class MLP(nn.Module):
    """Model of DGL's examples/pytorch/gin."""

    def __init__(self, in_size: int, hidden: int, out_size: int) -> None:
        super().__init__()
        self.linears = nn.ModuleList(
            [nn.Linear(in_size, hidden, bias=False), nn.Linear(hidden, out_size, bias=False)]
        )
        self.batch_norm = nn.BatchNorm1d(hidden)

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.batch_norm(self.linears[0](x)))
        return self.linears[1](h)


class GIN(nn.Module):
    """Model of DGL's examples/pytorch/gin, for vertices."""

    def __init__(self, in_size: int, out_size: int) -> None:
        super().__init__()
        self.ginlayers = nn.ModuleList(
            [
                GINConv(MLP(in_size, HIDDEN, HIDDEN), learn_eps=False),
                GINConv(MLP(HIDDEN, HIDDEN, HIDDEN), learn_eps=False),
            ]
        )
        self.batch_norms = nn.ModuleList([nn.BatchNorm1d(HIDDEN) for _ in range(2)])
        self.linear = nn.Linear(HIDDEN, out_size)
        self.drop = nn.Dropout(0.5)

    def forward(self, g: Any, h: Tensor) -> Tensor:
        for layer, norm in zip(self.ginlayers, self.batch_norms, strict=True):
            h = F.relu(norm(layer(g, h)))
        return self.drop(self.linear(h))


class SGC(nn.Module):
    """Model of DGL's examples/pytorch/sgc, without its cache."""

    def __init__(self, in_size: int, out_size: int) -> None:
        super().__init__()
        self.conv = SGConv(in_size, out_size, k=2)

    def forward(self, g: Any, features: Tensor) -> Tensor:
        return self.conv(g, features)


class APPNP(nn.Module):
    """Model of DGL's examples/pytorch/appnp, without dropped edges."""

    def __init__(self, in_size: int, out_size: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(in_size, HIDDEN), nn.Linear(HIDDEN, out_size)])
        self.feat_drop = nn.Dropout(0.5)
        self.propagate = APPNPConv(10, 0.1, 0.0)

    def forward(self, g: Any, features: Tensor) -> Tensor:
        h = self.feat_drop(features)
        h = F.relu(self.layers[0](h))
        h = self.layers[1](self.feat_drop(h))
        return self.propagate(g, h)


MODELS = {
    "gcn": GCN,
    "sage": SAGE,
    "gat": GAT,
    "gatv2": GATv2,
    "gin": GIN,
    "sgc": SGC,
    "appnp": APPNP,
}


def graph_of(graph: Graph) -> Any:
    """Return a DGLGraph with loops and both of the formats that training uses."""
    ends = torch.from_numpy(graph.src).int(), torch.from_numpy(graph.dst).int()
    result = dgl.add_self_loop(dgl.graph(ends, num_nodes=graph.num_vertices))
    result.create_formats_()
    return result


LIBRARY = Library(
    name="DGL",
    models=MODELS,
    graphs={"plain": graph_of},
    apply=lambda model, graph, x: model(graph, x),
    script=__file__,
)


def main() -> None:
    """Print the table."""
    race(LIBRARY, sys.argv[1:])


if __name__ == "__main__":
    main()
