"""Our kernels that have several heads: attention, weighted sums and dot products."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from distgnn.bench.cases import NUM_HEADS, SLOPE
from distgnn.kernels import attention, edge_values

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from distgnn.bench.cases import Case, CaseInputs
    from distgnn.kernels.csr import Csr


class HeadJobs:
    """Makes what is timed; outputs are made once.

    Args:
        inputs: The graph, which is symmetric.
        graph: Its edges, with the order in which they are walked.
    """

    def __init__(self, inputs: CaseInputs, graph: Csr) -> None:
        self.inputs = inputs
        self.graph = graph
        self.transpose = replace(graph, position=inputs.t_edge).walked(graph.order)

    def job(self, case: Case, x: Tensor, grad: Tensor) -> Callable[[], Tensor]:
        """See `distgnn.bench.cases.Runner`."""
        if case.operation == "sddmm":
            return self._dot(x, grad)
        if case.operation == "weighted_heads":
            return self._weighted(case, x, grad)
        attend, state = self._attend(x)
        if case.direction == "forward":
            return attend
        attend()
        return self._attend_backward(x, grad, state)

    def _dot(self, x: Tensor, y: Tensor) -> Callable[[], Tensor]:
        out = torch.empty(self.inputs.num_edges, NUM_HEADS)

        def run() -> Tensor:
            edge_values.sddmm_dot(self.graph, x, y, out)
            return out

        return run

    def _weighted(self, case: Case, x: Tensor, grad: Tensor) -> Callable[[], Tensor]:
        is_forward = case.direction == "forward"
        weight = self.inputs.head_weight
        weight = weight if is_forward else weight[self.inputs.t_edge]
        source, out = x if is_forward else grad, torch.empty_like(x)

        def run() -> Tensor:
            edge_values.spmm_heads(self.graph, weight, source, out, accumulate=False)
            return out

        return run

    def _attend(self, x: Tensor) -> tuple[Callable[[], Tensor], tuple[Tensor, ...]]:
        score = self.inputs.source_score, self.inputs.target_score
        out, maximum = torch.empty_like(x), torch.empty_like(score[1])
        denominator = torch.empty_like(maximum)

        def run() -> Tensor:
            attention.attend(
                self.graph,
                *score,
                x,
                out=out,
                maximum=maximum,
                denominator=denominator,
                slope=SLOPE,
                accumulate=False,
            )
            attention.finish_attention(out, maximum, denominator)
            return out

        return run, (out, maximum)

    def _attend_backward(
        self, x: Tensor, grad: Tensor, state: tuple[Tensor, ...]
    ) -> Callable[[], Tensor]:
        score = self.inputs.source_score, self.inputs.target_score
        out, log_sum = state
        grad_x, grad_source = torch.empty_like(x), torch.empty_like(score[0])
        grad_target = torch.empty_like(score[1])
        edge_grad = torch.empty(self.inputs.num_edges, NUM_HEADS)

        def run() -> Tensor:
            delta = (grad * out).view(grad.shape[0], NUM_HEADS, -1).sum(2)
            attention.attend_backward(
                self.transpose,
                *score,
                log_sum=log_sum,
                x=x,
                grad=grad,
                delta=delta,
                grad_x=grad_x,
                grad_source=grad_source,
                edge_grad=edge_grad,
                slope=SLOPE,
                accumulate=False,
            )
            attention.edge_sum(self.inputs.indptr, edge_grad, grad_target, accumulate=False)
            return grad_x

        return run
