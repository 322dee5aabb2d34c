"""Our kernels as a contestant: outputs and walk orders made once, as in a training."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import torch

from distgnn import kernels
from distgnn.bench.cases import HEADS_OPERATIONS
from distgnn.bench.ours_heads import HeadJobs
from distgnn.kernels.maxima import spmm_extreme, spmm_extreme_backward

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from distgnn.bench.cases import Case, CaseInputs


class Ours:
    """Our kernels, holding a graph.

    Args:
        inputs: The graph.
        is_ordered: Make walk orders for both directions.
    """

    def __init__(self, inputs: CaseInputs, *, is_ordered: bool = True) -> None:
        self.inputs = inputs
        start = time.perf_counter()
        # The graph is symmetric: one walk order serves both directions.
        self.walk = (
            kernels.WalkOrder(inputs.indptr, inputs.indices, num_sources=inputs.num_vertices)
            if is_ordered
            else None
        )
        graph = kernels.Csr(inputs.indptr, inputs.indices, inputs.num_vertices)
        self.graph = graph.walked(self.walk)
        self.order_s = time.perf_counter() - start
        self.t_weight = inputs.weight[inputs.t_edge]

    def job(self, case: Case, x: Tensor, grad: Tensor) -> Callable[[], Tensor]:
        """See `distgnn.bench.cases.Runner`."""
        if case.operation == "max":
            return self._max_job(case, x, grad)
        if case.operation in HEADS_OPERATIONS:
            return HeadJobs(self.inputs, self.graph).job(case, x, grad)
        is_forward = case.direction == "forward"
        weight = None
        if case.operation == "weighted":
            weight = self.inputs.weight if is_forward else self.t_weight
        is_mean = case.operation == "mean"
        row_factor = self.inputs.inverse_degree if is_mean and is_forward else None
        given, out = x if is_forward else grad, torch.empty_like(x)
        scaled = torch.empty_like(x) if is_mean and not is_forward else None

        def run() -> Tensor:
            source = given
            if scaled is not None:
                # Rows are fewer than edges: cheaper than a factor for every edge.
                source = torch.mul(given, self.inputs.inverse_degree[:, None], out=scaled)
            kernels.spmm_sum(
                self.graph,
                weight,
                source,
                out,
                accumulate=False,
                row_factor=row_factor,
            )
            return out

        return run

    def half_job(self, x: Tensor) -> Callable[[], Tensor]:
        """Make the sum over rows stored as bfloat16.

        It is written as bfloat16 too, unless the walk order cuts rows. Then it is float32: a sum
        that is rounded between its pieces would depend on the order.

        Args:
            x: (num_vertices, width) float32.

        Returns:
            A function that computes it.
        """
        is_cut = self.walk is not None and bool(self.walk.describe()["is_cut"])
        half = x.bfloat16()
        out = torch.empty_like(x if is_cut else half)

        def run() -> Tensor:
            kernels.spmm_sum(self.graph, None, half, out, accumulate=False)
            return out

        return run

    def roof_job(self, x: Tensor) -> Callable[[], Tensor]:
        """Make a gather of the very row sequence of the sum, with the same prefetching.

        Args:
            x: (num_vertices, width) float32.

        Returns:
            A function that reads the rows.
        """
        out = torch.zeros(self.inputs.num_vertices, 16)

        def run() -> Tensor:
            kernels.gather_roof(self.graph, x, out)
            return out

        return run

    def _max_job(self, case: Case, x: Tensor, grad: Tensor) -> Callable[[], Tensor]:
        out, source = torch.empty_like(x), torch.empty(x.shape, dtype=torch.int32)

        def forward() -> Tensor:
            spmm_extreme(self.graph, x, out, source=source, is_max=True)
            return out

        def backward() -> Tensor:
            spmm_extreme_backward(self.graph, source, grad, out=out, accumulate=False)
            return out

        if case.direction == "forward":
            return forward
        forward()
        return backward
