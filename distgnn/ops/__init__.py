"""Autograd operations of one rank: dropout that no partition changes, products, a loss."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy.sparse import csr_matrix
from torch.autograd.function import once_differentiable

from distgnn import kernels
from distgnn.kernels.dense import (
    Factor,
    Finish,
    GradientFactor,
    multiply,
    multiply_transposed,
)
from distgnn.kernels.devices import moved
from distgnn.kernels.tensors import computed
from distgnn.ops.host_rows import HostRows

if TYPE_CHECKING:
    from torch import Tensor

    from distgnn.ops.buffers import Buffers
    from distgnn.ops.rows import AnyRows


class _Dropout(torch.autograd.Function):
    """Keeps no mask: backward draws the same one again from the same counters."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, row_key: Tensor, seed: int, probability: float) -> Tensor:
        ctx.row_key, ctx.seed, ctx.probability = row_key, seed, probability
        return _masked(rows, row_key, seed, probability)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        return _masked(grads[0], ctx.row_key, ctx.seed, ctx.probability), None, None, None


def _masked(rows: Tensor, row_key: Tensor, seed: int, probability: float) -> Tensor:
    rows = rows.contiguous()
    out = torch.empty_like(rows)
    kernels.dropout(rows, row_key, out, seed=seed, probability=probability)
    return out


def dropout(rows: AnyRows, row_key: Tensor, *, seed: int, probability: float) -> AnyRows:
    """Zero entries at random and scale the others by 1 / (1 - probability).

    Whether an entry is kept is a function of (seed, its row's key, its column) alone, so that a
    vertex gets the same mask on any rank of any partition.

    Args:
        rows: (num_rows, width), float32, float64 or bfloat16; of any kind.
        row_key: (num_rows,) int64. Global vertex ids.
        seed: Differs from call to call and from epoch to epoch.
        probability: In [0, 1).

    Returns:
        (num_rows, width), of the same kind.
    """
    if isinstance(rows, SparseRows | HostRows):
        return rows.dropout(row_key, seed=seed, probability=probability)  # type: ignore[return-value]
    return _Dropout.apply(rows, row_key, seed, probability)  # type: ignore[no-any-return, no-untyped-call]


class _ReluDropout(torch.autograd.Function):
    """Keeps its output only: an entry is positive just where it passed both.

    The next layer keeps that output anyway, so the activation costs no memory of its own, and
    backward is one pass that draws no mask.
    """

    @staticmethod
    def forward(
        ctx: Any,
        rows: Tensor,
        row_key: Tensor,
        seed: int,
        probability: float,
        dtype: torch.dtype | None,
    ) -> Tensor:
        rows = rows.contiguous()
        out = torch.empty_like(rows, dtype=dtype)
        kernels.dropout(rows, row_key, out, seed=seed, probability=probability)
        out.clamp_(min=0)
        ctx.save_for_backward(out)
        ctx.scale, ctx.dtype = 1 / (1 - probability), rows.dtype
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None, None]:
        (out,) = ctx.saved_tensors
        grad = grads[0].to(ctx.dtype, copy=True, memory_format=torch.contiguous_format)
        multiply_transposed([], grad, activation=out.to(ctx.dtype), scale=ctx.scale)
        return grad, None, None, None, None


def relu_dropout(
    rows: Tensor,
    row_key: Tensor,
    *,
    seed: int,
    probability: float,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Return dropout(relu(rows)) in one operation; see `dropout`.

    Args:
        rows: (num_rows, width), float32 or float64.
        row_key: (num_rows,) int64. Global vertex ids.
        seed: Differs from call to call and from epoch to epoch.
        probability: In [0, 1).
        dtype: Of the result: that of rows if None, or bfloat16 for float32.

    Returns:
        (num_rows, width).
    """
    result: Tensor = _ReluDropout.apply(rows, row_key, seed, probability, dtype)  # type: ignore[no-untyped-call]
    return result


class _PickRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, picked: Tensor) -> Tensor:
        ctx.picked, ctx.shape = picked, rows.shape
        out = rows.new_empty((len(picked), rows.shape[1]))
        kernels.gather_rows(rows.contiguous(), picked, out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        dtype = grads[0].dtype
        grad = grads[0].new_zeros(ctx.shape, dtype=computed(dtype))
        kernels.scatter_add_rows(grads[0].contiguous(), ctx.picked, grad)
        return grad.to(dtype), None


def pick_rows(rows: Tensor, picked: Tensor) -> Tensor:
    """Pick rows by number; unlike torch's indexing, backward runs on all threads.

    Args:
        rows: (num_rows, width), float32, float64 or bfloat16.
        picked: (num_picked,) int32.

    Returns:
        (num_picked, width).
    """
    result: Tensor = _PickRows.apply(rows, picked)  # type: ignore[no-untyped-call]
    return result


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        rows: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        buffers: Buffers | None,
        dtype: torch.dtype | None,
    ) -> Tensor:
        rows = rows.contiguous()
        ctx.save_for_backward(rows, weight)
        ctx.empty = buffers.empty if buffers else partial(_empty, weight.device)
        out: Tensor = ctx.empty(rows.shape[0], weight.shape[0], dtype or weight.dtype)
        multiply([Factor(rows, weight.t())], out, finish=Finish(bias=bias))
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        rows, weight = ctx.saved_tensors
        grad = grads[0].contiguous()
        weight_grad = torch.empty_like(weight)
        bias_grad = weight.new_empty(weight.shape[0])
        multiply_transposed([GradientFactor(rows, weight_grad)], grad, bias_gradient=bias_grad)
        rows_grad = None
        if ctx.needs_input_grad[0]:
            rows_grad = ctx.empty(rows.shape[0], rows.shape[1], rows.dtype)
            multiply([Factor(grad, weight)], rows_grad)
        return rows_grad, weight_grad, bias_grad if ctx.needs_input_grad[2] else None, None, None


def _empty(device: torch.device, num_rows: int, width: int, dtype: torch.dtype) -> Tensor:
    return torch.empty((num_rows, width), dtype=dtype, device=device)


def linear(
    rows: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    buffers: Buffers | None = None,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Return rows W^T + b, with the same bits for any number of threads.

    Args:
        rows: (num_rows, in_width), float32 or float64; or bfloat16, for a weight in float32.
        weight: (out_width, in_width), contiguous.
        bias: (out_width,), or None.
        buffers: Where the result and the gradient of the rows lie; None for memory of their own.
        dtype: Of the result: that of the weight if None, or bfloat16 for float32.

    Returns:
        (num_rows, out_width).
    """
    result: Tensor = _Linear.apply(rows, weight, bias, buffers, dtype)  # type: ignore[no-untyped-call]
    return result


class _CrossEntropy(torch.autograd.Function):
    """Makes the gradient with the loss, from the same exponentials; backward scales it."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, label: Tensor) -> Tensor:
        scores = scores.contiguous()
        loss = scores.new_empty(len(scores))
        gradient = torch.empty_like(scores) if ctx.needs_input_grad[0] else None
        kernels.cross_entropy(scores, label, loss, gradient)
        ctx.held = [] if gradient is None else [gradient]
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        if not ctx.held:
            raise RuntimeError("the backward pass of a cross-entropy runs once only")
        gradient: Tensor = ctx.held.pop()
        kernels.scale_rows(gradient, grads[0].contiguous(), gradient)
        return gradient, None


def cross_entropy(scores: Tensor, label: Tensor) -> Tensor:
    """Return -log softmax(scores)[label] of each row, with the same bits for any number of threads.

    Args:
        scores: (num_rows, num_classes), float32 or float64.
        label: (num_rows,) int64. Classes.

    Returns:
        (num_rows,). Its backward pass runs once only.
    """
    result: Tensor = _CrossEntropy.apply(scores, label)  # type: ignore[no-untyped-call]
    return result


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
        kernels.spmm_sum(
            rows.indptr, rows.columns, rows.values, weight.contiguous(), out, accumulate=False
        )
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        rows: SparseRows = ctx.rows
        grad = grads[0].new_empty((rows.shape[1], grads[0].shape[1]))
        kernels.spmm_sum(
            rows.t_indptr, rows.t_rows, rows.t_values, grads[0].contiguous(), grad, accumulate=False
        )
        return grad, None


LoadedRows = torch.Tensor | SparseRows
"""Rows as a source gives them."""
