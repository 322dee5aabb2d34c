"""PyTorch: a CSR tensor times a dense one, and its reductions."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import torch

from distgnn.bench.cases import HEADS_OPERATIONS, AutogradRunner, CaseInputs

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor


class _Torch(AutogradRunner):
    def __init__(self, inputs: CaseInputs) -> None:
        self.inputs = inputs
        self.multiply: Callable[..., Tensor] = torch.sparse.mm
        self.matrices: dict[str, Tensor] = {}

    def aggregate(self, operation: str, x: Tensor, *others: Tensor) -> Tensor | None:
        if operation in HEADS_OPERATIONS:
            return None
        matrix = self._matrix(operation)
        if operation == "max":
            return self.multiply(matrix, x, "amax")
        return self.multiply(matrix, x)

    def _matrix(self, operation: str) -> Tensor:
        kind = "sum" if operation == "max" else operation
        if kind not in self.matrices:
            values = {
                "sum": lambda: torch.ones(self.inputs.num_edges),
                "mean": lambda: self.inputs.mean_weight,
                "weighted": lambda: self.inputs.weight,
            }[kind]()
            shape = (self.inputs.num_vertices,) * 2
            with warnings.catch_warnings():
                # CSR tensors announce that they are in beta.
                warnings.simplefilter("ignore", UserWarning)
                self.matrices = {
                    kind: torch.sparse_csr_tensor(
                        self.inputs.indptr, self.inputs.indices.long(), values, shape
                    )
                }
        return self.matrices[kind]


def make(inputs: CaseInputs) -> AutogradRunner:
    """Return PyTorch, holding a graph."""
    return _Torch(inputs)
