"""PyTorch Geometric on an edge list: messages are written out, then scattered."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import torch

from distgnn.bench.cases import (
    HEADS_OPERATIONS,
    MAX_MESSAGE_BYTES,
    NUM_HEADS,
    SLOPE,
    AutogradRunner,
    CaseInputs,
)

if TYPE_CHECKING:
    from torch import Tensor


class _Pyg(AutogradRunner):
    def __init__(self, inputs: CaseInputs) -> None:
        utils: Any = importlib.import_module("torch_geometric.utils")
        self.scatter: Any = utils.scatter
        self.softmax: Any = utils.softmax
        self.inputs = inputs
        rows = torch.arange(inputs.num_vertices)
        self.dst = rows.repeat_interleave(inputs.indptr.diff())
        self.src = inputs.indices.long()

    def aggregate(self, operation: str, x: Tensor, *others: Tensor) -> Tensor | None:
        # Messages and their gradients; where a product makes them, its factors are kept too.
        num_copies = 4 if operation in HEADS_OPERATIONS else 2
        if num_copies * self.src.shape[0] * x.shape[1] * x.element_size() > MAX_MESSAGE_BYTES:
            return None
        messages = x.index_select(0, self.src)
        if operation == "sddmm":
            products = messages * others[0].index_select(0, self.dst)
            return products.view(-1, NUM_HEADS, x.shape[1] // NUM_HEADS).sum(-1)
        weight = self._weight(operation, *others)
        if weight is not None:
            messages = (
                messages.view(-1, weight.shape[1], x.shape[1] // weight.shape[1])
                * weight[:, :, None]
            ).flatten(1)
        reduce = operation if weight is None else "sum"
        result: Tensor = self.scatter(
            messages, self.dst, dim=0, dim_size=self.inputs.num_vertices, reduce=reduce
        )
        return result

    def _weight(self, operation: str, *scores: Tensor) -> Tensor | None:
        """Return (num_edges, num_heads); None where every message counts as it is."""
        if operation == "weighted":
            return self.inputs.weight[:, None]
        if operation == "weighted_heads":
            return self.inputs.head_weight
        if operation != "attention":
            return None
        raw = scores[0].index_select(0, self.src) + scores[1].index_select(0, self.dst)
        e = torch.nn.functional.leaky_relu(raw, SLOPE)
        alpha: Tensor = self.softmax(e, self.dst, num_nodes=self.inputs.num_vertices)
        return alpha


def make(inputs: CaseInputs) -> AutogradRunner:
    """Return PyG without torch-sparse, holding a graph."""
    return _Pyg(inputs)
