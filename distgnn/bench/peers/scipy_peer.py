"""SciPy: a CSR matrix times a dense one; single-threaded, the transpose built before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import scipy.sparse as sp
import torch

from distgnn.bench.cases import HEADS_OPERATIONS

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from distgnn.bench.cases import Case, CaseInputs


class _Scipy:
    def __init__(self, inputs: CaseInputs) -> None:
        self.inputs = inputs

    def job(self, case: Case, x: Tensor, grad: Tensor) -> Callable[[], Tensor] | None:
        if case.operation in ("max", *HEADS_OPERATIONS) or case.threads > 1:
            return None
        values = {
            "sum": lambda: torch.ones(self.inputs.num_edges),
            "mean": lambda: self.inputs.mean_weight,
            "weighted": lambda: self.inputs.weight,
        }[case.operation]()
        is_forward = case.direction == "forward"
        if not is_forward:
            values = values[self.inputs.t_edge]
        arrays = (values.numpy(), self.inputs.indices.numpy(), self.inputs.indptr.numpy())
        matrix = sp.csr_matrix(arrays, (self.inputs.num_vertices,) * 2)
        dense = (x if is_forward else grad).numpy()
        return lambda: torch.from_numpy(matrix @ dense)


def make(inputs: CaseInputs) -> _Scipy:
    """Return SciPy, holding a graph."""
    return _Scipy(inputs)
