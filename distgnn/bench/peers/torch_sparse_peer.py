"""PyTorch Geometric on a `torch_sparse.SparseTensor`, its fast path."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from distgnn.bench.cases import HEADS_OPERATIONS, AutogradRunner, CaseInputs

if TYPE_CHECKING:
    from torch import Tensor


class _TorchSparse(AutogradRunner):
    def __init__(self, inputs: CaseInputs) -> None:
        self.inputs = inputs
        torch_sparse: Any = importlib.import_module("torch_sparse")
        self.matmul: Any = torch_sparse.matmul
        shape = (inputs.num_vertices,) * 2
        parts = {"rowptr": inputs.indptr, "col": inputs.indices.long(), "sparse_sizes": shape}
        self.plain: Any = torch_sparse.SparseTensor(**parts, is_sorted=True)
        # What backward needs is made once, as PyG makes it for a whole training.
        self.plain = self.plain.fill_cache_()
        self.weighted: Any = self.plain.set_value(inputs.weight, layout="csr")

    def aggregate(self, operation: str, x: Tensor, *others: Tensor) -> Tensor | None:
        if operation in HEADS_OPERATIONS:
            return None
        is_weighted = operation == "weighted"
        reduce = "sum" if is_weighted else operation
        result: Tensor = self.matmul(self.weighted if is_weighted else self.plain, x, reduce=reduce)
        return result


def make(inputs: CaseInputs) -> AutogradRunner:
    """Return PyG with torch-sparse, holding a graph."""
    return _TorchSparse(inputs)
