"""DGL: `dgl.ops` on a graph made from CSC, with both of its formats built before."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import torch

from distgnn.bench.cases import NUM_HEADS, SLOPE, AutogradRunner, CaseInputs

if TYPE_CHECKING:
    from torch import Tensor


class _Dgl(AutogradRunner):
    def __init__(self, inputs: CaseInputs) -> None:
        os.environ.setdefault("DGLBACKEND", "pytorch")
        import dgl

        self.inputs = inputs
        self.ops: Any = dgl.ops
        self.make_graph: Any = dgl.graph
        self.graphs: dict[bool, Any] = {}
        self.weight = inputs.weight[:, None]

    def _graph(self, *, has_ids: bool) -> Any:
        """Sums of nodes are faster without ids of edges, gradients of edges need them."""
        if has_ids not in self.graphs:
            num_ids = self.inputs.num_edges if has_ids else 0
            csc = (self.inputs.indptr.int(), self.inputs.indices, torch.arange(num_ids).int())
            graph = self.make_graph(("csc", csc), num_nodes=self.inputs.num_vertices)
            graph.create_formats_()
            self.graphs = {has_ids: graph}
        return self.graphs[has_ids]

    def aggregate(self, operation: str, x: Tensor, *others: Tensor) -> Tensor | None:
        if operation == "attention":
            return self._attend(self._graph(has_ids=True), x, *others)
        if operation == "weighted_heads":
            return self._sum_heads(self._graph(has_ids=True), x, self.inputs.head_weight)
        graph = self._graph(has_ids=operation == "sddmm")
        if operation == "sddmm":
            dots: Tensor = self.ops.u_dot_v(graph, _by_head(x), _by_head(others[0]))
            return dots.squeeze(-1)
        if operation == "weighted":
            weighted: Tensor = self.ops.u_mul_e_sum(graph, x, self.weight)
            return weighted
        result: Tensor = getattr(self.ops, f"copy_u_{operation}")(graph, x)
        return result

    def _attend(self, graph: Any, x: Tensor, *scores: Tensor) -> Tensor:
        """Attend as `dgl.nn.GATConv` does."""
        raw = self.ops.u_add_v(graph, *scores)
        e = torch.nn.functional.leaky_relu(raw, SLOPE)
        return self._sum_heads(graph, x, self.ops.edge_softmax(graph, e))

    def _sum_heads(self, graph: Any, x: Tensor, weight: Tensor) -> Tensor:
        total: Tensor = self.ops.u_mul_e_sum(graph, _by_head(x), weight[:, :, None])
        return total.flatten(1)


def _by_head(x: Tensor) -> Tensor:
    return x.view(x.shape[0], NUM_HEADS, -1)


def make(inputs: CaseInputs) -> AutogradRunner:
    """Return DGL, holding a graph."""
    return _Dgl(inputs)
