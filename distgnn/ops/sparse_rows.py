"""Constant rows with few non-zero entries, such as bags of words."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy.sparse import csr_matrix
from torch.autograd.function import once_differentiable

from distgnn import kernels
from distgnn.kernels.csr import Csr
from distgnn.kernels.devices import moved

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, eq=False)
class SparseRows:
    """Constant rows with few non-zero entries, such as bags of words; never a result of a layer.

    Attributes:
        shape: (num_rows, width).
        indptr: (num_rows + 1,) int64.
        columns: (num_entries,) int32.
        values: (num_entries,) float32.
        t_indptr: (width + 1,) int64. The same entries by column.
        t_rows: (num_entries,) int32.
        t_position: (num_entries,) int64. Where each of them stands in `values`.
    """

    shape: tuple[int, int]
    indptr: Tensor
    columns: Tensor
    values: Tensor
    t_indptr: Tensor
    t_rows: Tensor
    t_position: Tensor

    @classmethod
    def from_scipy(cls, matrix: csr_matrix) -> SparseRows:
        """Copy a scipy CSR matrix.

        Args:
            matrix: (num_rows, width), any float type; stored as float32.

        Returns:
            The same rows.
        """
        positions = np.arange(matrix.nnz, dtype=np.int64)
        transposed = type(matrix)((positions, matrix.indices, matrix.indptr), matrix.shape).tocsc()
        return cls(
            shape=(int(matrix.shape[0]), int(matrix.shape[1])),
            indptr=torch.from_numpy(matrix.indptr.astype(np.int64)),
            columns=torch.from_numpy(matrix.indices.astype(np.int32)),
            values=torch.from_numpy(matrix.data.astype(np.float32)),
            t_indptr=torch.from_numpy(transposed.indptr.astype(np.int64)),
            t_rows=torch.from_numpy(transposed.indices.astype(np.int32)),
            t_position=torch.from_numpy(transposed.data.astype(np.int64)),
        )

    @cached_property
    def row_of_entry(self) -> Tensor:
        """(num_entries,) int64. Row of each entry."""
        rows = torch.arange(self.shape[0], device=self.indptr.device)
        return torch.repeat_interleave(rows, self.indptr.diff())

    @cached_property
    def entries(self) -> Csr:
        """The entries as edges by row, for kernels."""
        return Csr(self.indptr, self.columns, self.shape[1])

    @cached_property
    def t_entries(self) -> Csr:
        """The entries as edges by column, for kernels."""
        return Csr(self.t_indptr, self.t_rows, self.shape[0])

    @cached_property
    def t_values(self) -> Tensor:
        """(num_entries,) The values by column: gathered once for rows that stay the same."""
        return self.values[self.t_position]

    @property
    def device(self) -> torch.device:
        """Device that the rows are on."""
        return self.values.device

    @property
    def dtype(self) -> torch.dtype:
        """Type of a stored value."""
        return self.values.dtype

    @property
    def is_sparse(self) -> bool:
        """Whether only some entries are stored."""
        return True

    def detach(self) -> SparseRows:
        """Return the rows themselves: constants have no history."""
        return self

    def __getitem__(self, rows: Tensor) -> SparseRows:
        """Copy some of the rows; for set-up, as it sorts the entries by column again.

        Args:
            rows: (num_selected,) int64.
        """
        selected = self.to_scipy()[rows.cpu().numpy()]
        return SparseRows.from_scipy(selected).to(self.values.device)

    def to_scipy(self) -> csr_matrix:
        """Return the same rows as a scipy CSR matrix, on the processor."""
        arrays = [part.cpu().numpy() for part in (self.values, self.columns, self.indptr)]
        return csr_matrix(tuple(arrays), shape=self.shape)

    def to(self, device: torch.device) -> SparseRows:
        """Return the same rows on a device."""
        return replace(self, **moved(self, device))

    def with_values(self, values: Tensor) -> SparseRows:
        """Return rows with the same pattern and other values."""
        return replace(self, values=values)

    def dropout(self, row_key: Tensor, *, seed: int, probability: float) -> SparseRows:
        """Drop stored entries exactly as `dropout` would drop them in a dense matrix."""
        values = torch.empty_like(self.values)
        keys = row_key[self.row_of_entry]
        kernels.dropout_values(
            self.values, keys, self.columns, values, seed=seed, probability=probability
        )
        return self.with_values(values)

    def matmul(self, weight: Tensor) -> Tensor:
        """Multiply by a dense matrix, differentiable in that matrix.

        Args:
            weight: (width, out_width), of the dtype of `values`.

        Returns:
            (num_rows, out_width).
        """
        product: Tensor = _SparseMatmul.apply(weight, self)  # type: ignore[no-untyped-call]
        return product

    def to_dense(self) -> Tensor:
        """Return (num_rows, width) dense rows."""
        dense = self.values.new_zeros(self.shape)
        dense[self.row_of_entry, self.columns.long()] = self.values
        return dense


class _SparseMatmul(torch.autograd.Function):
    """A sparse product is a weighted aggregation: rows gather rows of the weight matrix."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, rows: SparseRows) -> Tensor:
        ctx.rows = rows
        out = weight.new_empty((rows.shape[0], weight.shape[1]))
        kernels.spmm_sum(rows.entries, rows.values, weight.contiguous(), out, accumulate=False)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        rows: SparseRows = ctx.rows
        grad = grads[0].new_empty((rows.shape[1], grads[0].shape[1]))
        grad_rows = grads[0].contiguous()
        kernels.spmm_sum(rows.t_entries, rows.t_values, grad_rows, grad, accumulate=False)
        return grad, None
