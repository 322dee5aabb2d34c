"""PyG's models on distgnn's kernels: one line more, the same outputs and gradients.

    python examples/accelerate_pyg.py [--shapes products reddit] [--models gcn ...] [--rounds 5]

Ten models as PyG's own examples write them train in turns: as they are on `edge_index`, as they are
on a `torch.sparse` matrix, and with `accelerate(model)`. Needs `pip install 'distgnn[pyg]'`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch_geometric.nn import (
    APPNP,
    GATConv,
    GATv2Conv,
    GCNConv,
    GINConv,
    JumpingKnowledge,
    SAGEConv,
    Sequential,
    SGConv,
)

from distgnn.bench.accelerate import Library, race

if TYPE_CHECKING:
    from distgnn.datasets import Graph

HIDDEN = 64


class GCN(nn.Module):
    """Model of PyG's examples/gcn.py."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.conv1 = GCNConv(in_channels, 16, cached=True)
        self.conv2 = GCNConv(16, out_channels, cached=True)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = F.dropout(x, p=0.5, training=self.training)
        x = self.conv1(x, edge_index).relu()
        x = F.dropout(x, p=0.5, training=self.training)
        return self.conv2(x, edge_index)


class SAGE(nn.Module):
    """Model of PyG's examples/ogbn_train.py, of three layers."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList(
            [
                SAGEConv(in_channels, HIDDEN),
                SAGEConv(HIDDEN, HIDDEN),
                SAGEConv(HIDDEN, out_channels),
            ]
        )

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for i, conv in enumerate(self.convs):
            x = conv(x, edge_index)
            if i < len(self.convs) - 1:
                x = x.relu_()
                x = F.dropout(x, p=0.5, training=self.training)
        return x


class GAT(nn.Module):
    """Model of PyG's examples/gat.py."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.conv1 = GATConv(in_channels, 8, heads=8, dropout=0.6)
        self.conv2 = GATConv(8 * 8, out_channels, heads=1, concat=False, dropout=0.6)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = F.dropout(x, p=0.6, training=self.training)
        x = F.elu(self.conv1(x, edge_index))
        x = F.dropout(x, p=0.6, training=self.training)
        return self.conv2(x, edge_index)


class GATv2(nn.Module):
    """Model of PyG's examples/gat.py, with the layers of GATv2."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.conv1 = GATv2Conv(in_channels, 8, heads=8, dropout=0.6)
        self.conv2 = GATv2Conv(8 * 8, out_channels, heads=1, concat=False, dropout=0.6)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = F.dropout(x, p=0.6, training=self.training)
        x = F.elu(self.conv1(x, edge_index))
        x = F.dropout(x, p=0.6, training=self.training)
        return self.conv2(x, edge_index)


class GIN(nn.Module):
    """The GIN of PyG's benchmarks, for vertices."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.conv1 = GINConv(
            nn.Sequential(
                nn.Linear(in_channels, HIDDEN),
                nn.ReLU(),
                nn.Linear(HIDDEN, HIDDEN),
                nn.ReLU(),
                nn.BatchNorm1d(HIDDEN),
            ),
            train_eps=True,
        )
        self.conv2 = GINConv(
            nn.Sequential(
                nn.Linear(HIDDEN, HIDDEN),
                nn.ReLU(),
                nn.Linear(HIDDEN, HIDDEN),
                nn.ReLU(),
                nn.BatchNorm1d(HIDDEN),
            ),
            train_eps=True,
        )
        self.lin = nn.Linear(HIDDEN, out_channels)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.conv1(x, edge_index)
        x = self.conv2(x, edge_index)
        x = F.dropout(x, p=0.5, training=self.training)
        return self.lin(x)


class SGC(nn.Module):
    """Model of PyG's examples/sgc.py, without its cache."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.conv1 = SGConv(in_channels, out_channels, K=2)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv1(x, edge_index)


class APPNPNet(nn.Module):
    """Model of PyG's benchmark/citation/appnp.py."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.lin1 = nn.Linear(in_channels, HIDDEN)
        self.lin2 = nn.Linear(HIDDEN, out_channels)
        self.prop1 = APPNP(K=10, alpha=0.1)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = F.dropout(x, p=0.5, training=self.training)
        x = F.relu(self.lin1(x))
        x = F.dropout(x, p=0.5, training=self.training)
        x = self.lin2(x)
        return self.prop1(x, edge_index)


class JK(nn.Module):
    """Jumping knowledge over GraphSAGE, as in PyG's benchmark/kernel/graph_sage.py."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.conv1 = SAGEConv(in_channels, HIDDEN)
        self.convs = nn.ModuleList([SAGEConv(HIDDEN, HIDDEN) for _ in range(2)])
        self.jump = JumpingKnowledge(mode="cat")
        self.lin1 = nn.Linear(3 * HIDDEN, HIDDEN)
        self.lin2 = nn.Linear(HIDDEN, out_channels)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = F.relu(self.conv1(x, edge_index))
        xs = [x]
        for conv in self.convs:
            x = F.relu(conv(x, edge_index))
            xs += [x]
        x = self.jump(xs)
        x = F.relu(self.lin1(x))
        x = F.dropout(x, p=0.5, training=self.training)
        return self.lin2(x)


def sequential(in_channels: int, out_channels: int) -> nn.Module:
    """Build the model of the documentation of PyG's Sequential, without pooling."""
    return Sequential(
        "x, edge_index",
        [
            (nn.Dropout(p=0.5), "x -> x"),
            (GCNConv(in_channels, HIDDEN), "x, edge_index -> x1"),
            nn.ReLU(inplace=True),
            (GCNConv(HIDDEN, HIDDEN), "x1, edge_index -> x2"),
            nn.ReLU(inplace=True),
            (lambda x1, x2: [x1, x2], "x1, x2 -> xs"),
            (JumpingKnowledge("cat", HIDDEN, num_layers=2), "xs -> x"),
            nn.Linear(2 * HIDDEN, out_channels),
        ],
    )


class ResGCN(nn.Module):
    """A residual net with batch norm."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.lin1 = nn.Linear(in_channels, HIDDEN)
        self.convs = nn.ModuleList([GCNConv(HIDDEN, HIDDEN) for _ in range(3)])
        self.norms = nn.ModuleList([nn.BatchNorm1d(HIDDEN) for _ in range(3)])
        self.lin2 = nn.Linear(HIDDEN, out_channels)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.lin1(x)
        for conv, norm in zip(self.convs, self.norms, strict=True):
            h = norm(x).relu()
            h = F.dropout(h, p=0.5, training=self.training)
            x = x + conv(h, edge_index)
        return self.lin2(x)


MODELS = {
    "gcn": GCN,
    "sage": SAGE,
    "gat": GAT,
    "gatv2": GATv2,
    "gin": GIN,
    "sgc": SGC,
    "appnp": APPNPNet,
    "jk": JK,
    "sequential": sequential,
    "residual": ResGCN,
}


def edge_list(graph: Graph) -> Tensor:
    """Return edges as PyG's Data has them."""
    return torch.stack([torch.from_numpy(graph.src), torch.from_numpy(graph.dst)])


def sparse_matrix(graph: Graph) -> Tensor:
    """Return edges by target, as PyG's ToSparseTensor(layout=torch.sparse_csr) does."""
    size = (graph.num_vertices, graph.num_vertices)
    ends = torch.stack([torch.from_numpy(graph.dst), torch.from_numpy(graph.src)])
    return torch.sparse_coo_tensor(ends, torch.ones(graph.num_edges), size).to_sparse_csr()


LIBRARY = Library(
    name="PyG",
    models=MODELS,
    graphs={"plain": edge_list, "sparse": sparse_matrix},
    apply=lambda model, edges, x: model(x, edges),
    script=__file__,
)


def main() -> None:
    """Print the table."""
    race(LIBRARY, sys.argv[1:])


if __name__ == "__main__":
    main()
