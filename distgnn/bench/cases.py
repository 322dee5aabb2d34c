"""Cases of a comparison: operations on a graph, and the interface of a contestant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch

from distgnn.datasets import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from distgnn.bench.shapes import Shape

OPERATIONS = ("sum", "mean", "weighted", "max", "attention", "weighted_heads", "sddmm")
HEADS_OPERATIONS = OPERATIONS[4:]
DIRECTIONS = ("forward", "backward")
# The gradients of dot products are weighted sums per head, an operation of its own.
PAIRS = tuple(
    (operation, direction)
    for operation in OPERATIONS
    for direction in DIRECTIONS
    if (operation, direction) != ("sddmm", "backward")
)

NUM_HEADS = 4
"""Heads that the columns are divided into, where an operation has heads."""

SLOPE = 0.2
"""Slope of the leaky ReLU of attention."""

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
        if (self.operation, self.direction) not in PAIRS:
            raise InputError(f"'{self.operation}' is compared forward, got '{self.direction}'")
        if self.operation in HEADS_OPERATIONS and self.width % NUM_HEADS:
            message = f"widths must be multiples of {NUM_HEADS} heads for '{self.operation}'"
            raise InputError(f"{message}, got {self.width}")


@dataclass(frozen=True, eq=False, kw_only=True)
class CaseInputs:
    """A graph as tensors; symmetric, so that its transpose has the same indptr and indices.

    Attributes:
        name: Name of the shape, with its order.
        indptr: (num_vertices + 1,) int64.
        indices: (num_edges,) int32.
        t_edge: (num_edges,) int64. Position in the graph of each edge of the transpose.
        weight: (num_edges,) float32.
        inverse_degree: (num_vertices,) float32, 0 without edges.
        source_score: (num_vertices, NUM_HEADS) float32. Scores of sources in attention.
        target_score: (num_vertices, NUM_HEADS) float32. Scores of targets in attention.
        head_weight: (num_edges, NUM_HEADS) float32.
    """

    name: str
    indptr: Tensor
    indices: Tensor
    t_edge: Tensor
    weight: Tensor
    inverse_degree: Tensor
    source_score: Tensor
    target_score: Tensor
    head_weight: Tensor

    @classmethod
    def of(cls, shape: Shape, *, seed: int = 0) -> CaseInputs:
        """Draw weights for a shape.

        Args:
            shape: The graph.
            seed: Seed of the weights.

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
            source_score=torch.randn(degree.shape[0], NUM_HEADS, generator=generator),
            target_score=torch.randn(degree.shape[0], NUM_HEADS, generator=generator),
            head_weight=torch.rand(shape.num_edges, NUM_HEADS, generator=generator),
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

    def operands(self, case: Case, x: Tensor, grad: Tensor) -> tuple[Tensor, ...]:
        """List what the result depends on: x, and what else backward makes gradients of.

        Args:
            case: The operation.
            x: (num_vertices, width) float32.
            grad: (num_vertices, width) float32. The rows at the other end for `sddmm`.
        """
        if case.operation == "attention":
            return x, self.source_score, self.target_score
        return (x, grad) if case.operation == "sddmm" else (x,)


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

    inputs: CaseInputs

    def aggregate(self, operation: str, x: Tensor, *others: Tensor) -> Tensor | None:
        """Compute a result, differentiable in its operands; None if there is no such operation."""
        raise NotImplementedError

    def job(self, case: Case, x: Tensor, grad: Tensor) -> Callable[[], Tensor] | None:
        """See `Runner`."""
        operands = self.inputs.operands(case, x, grad)
        if case.direction == "forward":
            with torch.no_grad():
                if self.aggregate(case.operation, *operands) is None:
                    return None

            def forward() -> Tensor:
                with torch.no_grad():
                    result = self.aggregate(case.operation, *operands)
                assert result is not None
                return result

            return forward
        leaves = [operand.detach().requires_grad_() for operand in operands]
        total = self.aggregate(case.operation, *leaves)
        if total is None:
            return None

        def backward() -> Tensor:
            return torch.autograd.grad(total, leaves, grad, retain_graph=True)[0]

        return backward
