"""What is compared: operations on a graph, and what a contestant has to offer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch

from distgnn.datasets import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from distgnn.bench.shapes import Shape

OPERATIONS = ("sum", "mean", "weighted", "max")
DIRECTIONS = ("forward", "backward")

MAX_MESSAGE_BYTES = 4 * 2**30
"""A contestant that writes a message per edge takes no part where they need more."""


@dataclass(frozen=True)
class Case:
    """One cell of the table.

    Attributes:
        operation: One of `OPERATIONS`.
        direction: One of `DIRECTIONS`.
        width: Columns.
        threads: Threads of every contestant.
    """

    operation: str
    direction: str
    width: int
    threads: int

    def __post_init__(self) -> None:
        """Check the names."""
        for name, allowed in ((self.operation, OPERATIONS), (self.direction, DIRECTIONS)):
            if name not in allowed:
                raise InputError(f"'{name}' must be one of {', '.join(allowed)}")


@dataclass(frozen=True, eq=False, kw_only=True)
class Inputs:
    """A graph as tensors; symmetric, so that its transpose has the same indptr and indices.

    Attributes:
        name: Of the shape, with its order.
        indptr: (num_vertices + 1,) int64.
        indices: (num_edges,) int32.
        t_edge: (num_edges,) int64. Position in the graph of each edge of the transpose.
        weight: (num_edges,) float32.
        inverse_degree: (num_vertices,) float32, 0 without edges.
    """

    name: str
    indptr: Tensor
    indices: Tensor
    t_edge: Tensor
    weight: Tensor
    inverse_degree: Tensor

    @classmethod
    def of(cls, shape: Shape, *, seed: int = 0) -> Inputs:
        """Draw weights for a shape.

        Args:
            shape: The graph.
            seed: Of the weights.

        Returns:
            Tensors that share the shape's memory.
        """
        indptr = torch.from_numpy(shape.indptr)
        generator = torch.Generator().manual_seed(seed)
        degree = indptr.diff().float()
        return cls(
            name=f"{shape.name}-{shape.order}",
            indptr=indptr,
            indices=torch.from_numpy(shape.indices),
            t_edge=torch.from_numpy(shape.t_edge),
            weight=torch.rand(shape.num_edges, generator=generator),
            inverse_degree=torch.where(degree > 0, 1 / degree, 0),
        )

    @property
    def num_vertices(self) -> int:
        """Number of vertices."""
        return self.indptr.shape[0] - 1

    @property
    def num_edges(self) -> int:
        """Number of directed edges."""
        return self.indices.shape[0]

    @property
    def mean_weight(self) -> Tensor:
        """(num_edges,) float32. Weights whose weighted sum is the mean."""
        return self.inverse_degree.repeat_interleave(self.indptr.diff())


class Runner(Protocol):
    """A contestant that holds a graph."""

    def job(self, case: Case, x: Tensor, grad: Tensor) -> Callable[[], Tensor] | None:
        """Make what is timed.

        Args:
            case: The operation.
            x: (num_vertices, width) float32. Source rows.
            grad: (num_vertices, width) float32. Gradient of the result.

        Returns:
            A function that computes the result (forward) or the gradient of x (backward); None if
            the contestant has no such operation, or it would need too much memory.
        """
        ...


class AutogradRunner:
    """A contestant whose backward is what autograd makes of its forward."""

    def aggregate(self, operation: str, x: Tensor) -> Tensor | None:
        """Compute a result, differentiable in x; None if there is no such operation."""
        raise NotImplementedError

    def job(self, case: Case, x: Tensor, grad: Tensor) -> Callable[[], Tensor] | None:
        """See `Runner`."""
        if case.direction == "forward":
            with torch.no_grad():
                if self.aggregate(case.operation, x) is None:
                    return None

            def forward() -> Tensor:
                with torch.no_grad():
                    result = self.aggregate(case.operation, x)
                assert result is not None
                return result

            return forward
        source = x.detach().requires_grad_()
        total = self.aggregate(case.operation, source)
        if total is None:
            return None

        def backward() -> Tensor:
            return torch.autograd.grad(total, source, grad, retain_graph=True)[0]

        return backward
