"""DGL: `dgl.ops` on a graph made from CSC, with both of its formats built before."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import torch

from distgnn.bench.cases import AutogradRunner, Inputs

if TYPE_CHECKING:
    from torch import Tensor


class _Dgl(AutogradRunner):
    def __init__(self, inputs: Inputs) -> None:
        os.environ.setdefault("DGLBACKEND", "pytorch")
        import dgl

        no_ids = torch.empty(0, dtype=torch.int32)
        csc = ("csc", (inputs.indptr.int(), inputs.indices, no_ids))
        self.ops: Any = dgl.ops
        self.graph: Any = dgl.graph(csc, num_nodes=inputs.num_vertices)
        self.graph.create_formats_()
        self.weight = inputs.weight[:, None]

    def aggregate(self, operation: str, x: Tensor) -> Tensor | None:
        if operation == "weighted":
            weighted: Tensor = self.ops.u_mul_e_sum(self.graph, x, self.weight)
            return weighted
        result: Tensor = getattr(self.ops, f"copy_u_{operation}")(self.graph, x)
        return result


def make(inputs: Inputs) -> AutogradRunner:
    """Return DGL, holding a graph."""
    return _Dgl(inputs)
