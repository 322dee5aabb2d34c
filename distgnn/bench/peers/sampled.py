"""GraphSAGE on mini-batches of sampled neighbours, as examples of DGL and PyG train it."""

from __future__ import annotations

import importlib
import importlib.util
import os
import time
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from distgnn.datasets import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from distgnn.datasets import Graph

    Batch = tuple[Callable[[nn.ModuleList], Tensor], Tensor, int]

NAMES = ("dgl", "pyg")


@dataclass(frozen=True, kw_only=True)
class SampledRun:
    """A run on mini-batches.

    Attributes:
        epochs: Passes over the training vertices.
        hidden: Columns of hidden rows.
        dropout: Probability of dropping an entry of them.
        fan_outs: Neighbours that are drawn, from the vertex outward; one for each layer.
        batch_size: Training vertices of a batch.
        lr: Rate of Adam.
        seed: Seed of weights, batches and neighbours.
    """

    epochs: int
    hidden: int
    dropout: float
    fan_outs: tuple[int, ...]
    batch_size: int
    lr: float
    seed: int


def installed() -> list[str]:
    """Return the samplers that are there; PyG's needs one of two more packages."""
    has = importlib.util.find_spec
    found = ["dgl"] if has("dgl") else []
    if has("torch_geometric") and (has("pyg_lib") or has("torch_sparse")):
        found.append("pyg")
    return found


def train(peer: str, graph: Graph, race: SampledRun) -> Iterator[tuple[float, float, float, int]]:
    """Train on mini-batches, and evaluate with all neighbours.

    Args:
        peer: Name of the sampler.
        graph: A graph with dense features, single labels and a split.
        race: The run.

    Yields:
        Seconds of training, those of the first epoch with what is done once; seconds of evaluation;
        validation accuracy; bytes of the features that the batches gathered.

    Raises:
        InputError: If the sampler is not installed.
    """
    if peer not in NAMES or peer not in installed():
        raise InputError(
            f"sampler '{peer}' is not here; install dgl, or torch_geometric with pyg_lib, or leave "
            "it out of --peers"
        )
    _load(peer)
    start = time.perf_counter()
    torch.manual_seed(race.seed)
    features, labels, masks = _tensors(graph)
    made = (_Dgl if peer == "dgl" else _Pyg)(graph, features, labels, masks["train"], race)
    widths = [features.shape[1], *[race.hidden] * (len(race.fan_outs) - 1), int(labels.max()) + 1]
    layers = nn.ModuleList(made.layer(*pair) for pair in pairwise(widths))
    optimizer = torch.optim.Adam(layers.parameters(), lr=race.lr, weight_decay=5e-4)
    for _ in range(race.epochs):
        layers.train()
        num_bytes = 0
        for scores_of, wanted, num_rows in made.batches():
            loss = nn.functional.cross_entropy(scores_of(layers), wanted)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            num_bytes += num_rows * features.shape[1] * features.element_size()
        middle = time.perf_counter()
        layers.eval()
        with torch.no_grad():
            found = made.whole(layers).argmax(dim=1)[masks["val"]]
        metric = float((found == labels[masks["val"]]).float().mean())
        stop = time.perf_counter()
        yield middle - start, stop - middle, metric, num_bytes
        # Others train before the next epoch.
        start = time.perf_counter()


def _load(peer: str) -> None:
    """Import what a peer uses; that takes seconds, which are no work on the graph."""
    os.environ.setdefault("DGLBACKEND", "pytorch")
    rooms = {"dgl": ("nn", "dataloading"), "pyg": ("data", "loader", "nn")}[peer]
    package = {"dgl": "dgl", "pyg": "torch_geometric"}[peer]
    for room in rooms:
        importlib.import_module(f"{package}.{room}")
    # The first optimizer of torch loads its compiler.
    torch.optim.Adam([nn.Parameter(torch.zeros(1))])


def _tensors(graph: Graph) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    features: Any = graph.features
    dense = features.toarray() if hasattr(features, "toarray") else features
    assert graph.labels is not None, "they were asked for"
    assert graph.train_mask is not None, "and so was a split"
    assert graph.val_mask is not None, "and so was a split"
    masks = {"train": graph.train_mask[0], "val": graph.val_mask[0]}
    return (
        torch.as_tensor(dense, dtype=torch.float32),
        torch.as_tensor(graph.labels, dtype=torch.int64),
        {name: torch.as_tensor(mask).nonzero()[:, 0] for name, mask in masks.items()},
    )


class _Dgl:
    """DGL's `NeighborSampler` and `SAGEConv`."""

    def __init__(
        self, graph: Graph, features: Tensor, labels: Tensor, train: Tensor, race: SampledRun
    ) -> None:
        import dgl
        from dgl.nn import SAGEConv

        ends = torch.from_numpy(graph.src).long(), torch.from_numpy(graph.dst).long()
        self._graph: Any = dgl.graph(ends, num_nodes=graph.num_vertices)
        self._graph.create_formats_()
        dgl.seed(race.seed)
        # DGL lists fan-outs from the input inward.
        sampler = dgl.dataloading.NeighborSampler([*reversed(race.fan_outs)])
        self._loader: Any = dgl.dataloading.DataLoader(
            self._graph, train, sampler, batch_size=race.batch_size, shuffle=True, num_workers=0
        )
        self._conv: Any = SAGEConv
        self._features, self._labels, self._dropout = features, labels, race.dropout

    def layer(self, width: int, out_width: int) -> nn.Module:
        layer: nn.Module = self._conv(width, out_width, "mean")
        return layer

    def batches(self) -> Iterator[Batch]:
        for sources, targets, blocks in self._loader:
            rows = self._features[sources]

            def scores(layers: nn.ModuleList, rows: Tensor = rows, blocks: Any = blocks) -> Tensor:
                return self._run(layers, blocks, rows)

            yield scores, self._labels[targets], len(sources)

    def whole(self, layers: nn.ModuleList) -> Tensor:
        return self._run(layers, [self._graph] * len(layers), self._features)

    def _run(self, layers: nn.ModuleList, graphs: Any, rows: Tensor) -> Tensor:
        for layer, graph in zip(layers[:-1], graphs, strict=False):
            rows = nn.functional.dropout(
                torch.relu(layer(graph, rows)), self._dropout, layers.training
            )
        result: Tensor = layers[-1](graphs[-1], rows)
        return result


class _Pyg:
    """PyG's `NeighborLoader` and `SAGEConv`."""

    def __init__(
        self, graph: Graph, features: Tensor, labels: Tensor, train: Tensor, race: SampledRun
    ) -> None:
        from torch_geometric.data import Data
        from torch_geometric.loader import NeighborLoader
        from torch_geometric.nn import SAGEConv

        edges = torch.stack([torch.from_numpy(graph.src), torch.from_numpy(graph.dst)]).long()
        self._edges, self._features, self._dropout = edges, features, race.dropout
        data = Data(x=features, y=labels, edge_index=edges)
        self._loader: Any = NeighborLoader(
            data, [*race.fan_outs], train, batch_size=race.batch_size, shuffle=True
        )
        self._conv: Any = SAGEConv

    def layer(self, width: int, out_width: int) -> nn.Module:
        layer: nn.Module = self._conv(width, out_width)
        return layer

    def batches(self) -> Iterator[Batch]:
        for batch in self._loader:
            size = batch.batch_size

            def scores(layers: nn.ModuleList, batch: Any = batch, size: int = size) -> Tensor:
                return self._run(layers, batch.edge_index, batch.x)[:size]

            yield scores, batch.y[:size], len(batch.x)

    def whole(self, layers: nn.ModuleList) -> Tensor:
        return self._run(layers, self._edges, self._features)

    def _run(self, layers: nn.ModuleList, edges: Tensor, rows: Tensor) -> Tensor:
        for layer in layers[:-1]:
            rows = nn.functional.dropout(
                torch.relu(layer(rows, edges)), self._dropout, layers.training
            )
        result: Tensor = layers[-1](rows, edges)
        return result
