"""PyTorch Geometric on an edge list: messages are written out, then scattered."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import torch

from distgnn.bench.cases import MAX_MESSAGE_BYTES, AutogradRunner, Inputs

if TYPE_CHECKING:
    from torch import Tensor


class _Pyg(AutogradRunner):
    def __init__(self, inputs: Inputs) -> None:
        self.scatter: Any = importlib.import_module("torch_geometric.utils").scatter
        self.inputs = inputs
        rows = torch.arange(inputs.num_vertices)
        self.dst = rows.repeat_interleave(inputs.indptr.diff())
        self.src = inputs.indices.long()

    def aggregate(self, operation: str, x: Tensor) -> Tensor | None:
        if 2 * self.src.shape[0] * x.shape[1] * x.element_size() > MAX_MESSAGE_BYTES:
            return None
        messages = x.index_select(0, self.src)
        if operation == "weighted":
            messages = messages * self.inputs.weight[:, None]
        reduce = "sum" if operation == "weighted" else operation
        result: Tensor = self.scatter(
            messages, self.dst, dim=0, dim_size=self.inputs.num_vertices, reduce=reduce
        )
        return result


def make(inputs: Inputs) -> AutogradRunner:
    """Return PyG without torch-sparse, holding a graph."""
    return _Pyg(inputs)
