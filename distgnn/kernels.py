"""Shared-memory kernels on CPU tensors: the typed front of the compiled module.

Every function writes into tensors that the caller made and allocates nothing. One thread owns an
output row and adds in a fixed order, so that results have the same bits for any number of threads
(`torch.set_num_threads` counts here too) and on any instruction set. Values are float32 or float64,
the same in all arguments of a call; offsets, positions and keys are int64, vertex ids and row
numbers int32. Tensors are contiguous, and an output overlaps no input unless stated.

Indices are not checked: an index out of range reads or writes foreign memory. Whoever loads a
graph checks it, once.

Nothing here is seen by autograd; `distgnn.ops` and `distgnn.exchange` hold the differentiable
operations.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch import Tensor

try:
    from distgnn import _kernels
except ImportError as error:
    _message = (
        f"distgnn was imported from {Path(__file__).parent}, which has no usable compiled kernels "
        f"({error}); install it with `pip install --no-build-isolation -e .`, or start Python "
        "outside the source folder"
    )
    raise ImportError(_message) from error

_FLOATS = (torch.float32, torch.float64)


def _array(name: str, tensor: Tensor, dtype: torch.dtype, num_dims: int) -> Any:
    """Return the tensor as a numpy view after checking what the kernels rely on."""
    if tensor.device.type != "cpu":
        message = f"{name} must be on the CPU, got device {tensor.device}; call {name}.cpu()"
        raise ValueError(message)
    if tensor.dtype != dtype:
        message = f"{name} must be {dtype}, got {tensor.dtype}; call {name}.to({dtype})"
        raise TypeError(message)
    if tensor.dim() != num_dims:
        message = f"{name} must have {num_dims} dimensions, got shape {tuple(tensor.shape)}"
        raise ValueError(message)
    if not tensor.is_contiguous():
        message = f"{name} must be contiguous, got strides {tensor.stride()}; call .contiguous()"
        raise ValueError(message)
    if tensor.requires_grad and torch.is_grad_enabled():
        message = (
            f"{name} requires a gradient, which kernels do not track; use the differentiable "
            f"operations of distgnn.ops, or pass {name}.detach()"
        )
        raise ValueError(message)
    return tensor.detach().numpy()


def _float_type(name: str, tensor: Tensor) -> torch.dtype:
    if tensor.dtype not in _FLOATS:
        message = f"{name} must be torch.float32 or torch.float64, got {tensor.dtype}"
        raise TypeError(message)
    return tensor.dtype


def spmm_sum(
    indptr: Tensor,
    indices: Tensor,
    weight: Tensor | None,
    x: Tensor,
    out: Tensor,
    *,
    accumulate: bool,
) -> None:
    """Sum the source rows of every destination row.

    out[v] = sum over k in row v of weight[k] * x[indices[k]], in the order of k.

    Args:
        indptr: (num_rows + 1,) int64. Where each row of the graph starts in `indices`.
        indices: (num_edges,) int32. Rows of x.
        weight: (num_edges,), or None for ones.
        x: (num_sources, width).
        out: (num_rows, width). Written.
        accumulate: Start the sums from the values in `out` instead of zero.

    Raises:
        TypeError: If a dtype is not the documented one.
        ValueError: If shapes do not fit, or a tensor is not contiguous or not on the CPU.
    """
    dtype = _float_type("x", x)
    _kernels.spmm_sum(
        _array("indptr", indptr, torch.int64, 1),
        _array("indices", indices, torch.int32, 1),
        None if weight is None else _array("weight", weight, dtype, 1),
        _array("x", x, dtype, 2),
        _array("out", out, dtype, 2),
        accumulate=accumulate,
    )


def spmm_max(
    indptr: Tensor,
    indices: Tensor,
    key: Tensor,
    x: Tensor,
    out: Tensor,
    *,
    arg: Tensor,
    arg_key: Tensor,
    edge_offset: int,
    accumulate: bool,
) -> None:
    """Take the maximum over the source rows of every destination row, and remember who won.

    Of equal values the one with the smaller key wins, then the one with the smaller position. A NaN
    is larger than any number. Where there is no edge, the maximum is 0 and its position -1.

    Args:
        indptr: (num_rows + 1,) int64.
        indices: (num_edges,) int32. Rows of x.
        key: (num_sources,) int64, below the largest int64. Global ids, so that the winner does not
            depend on the partition.
        x: (num_sources, width).
        out: (num_rows, width). The maxima, written.
        arg: (num_rows, width) int64. `edge_offset` + position of the winning edge in `indices`, or
            -1; written.
        arg_key: (num_rows, width) int64. Key of the winner, undefined where arg is -1; written.
        edge_offset: Number of the first edge; not negative.
        accumulate: Let the state already in (out, arg, arg_key) take part.

    Raises:
        TypeError: If a dtype is not the documented one.
        ValueError: If shapes do not fit, or a tensor is not contiguous or not on the CPU.
    """
    dtype = _float_type("x", x)
    _kernels.spmm_max(
        _array("indptr", indptr, torch.int64, 1),
        _array("indices", indices, torch.int32, 1),
        _array("key", key, torch.int64, 1),
        _array("x", x, dtype, 2),
        _array("out", out, dtype, 2),
        arg=_array("arg", arg, torch.int64, 2),
        arg_key=_array("arg_key", arg_key, torch.int64, 2),
        edge_offset=edge_offset,
        accumulate=accumulate,
    )


def spmm_max_backward(
    t_indptr: Tensor,
    t_indices: Tensor,
    t_edge: Tensor,
    arg: Tensor,
    grad: Tensor,
    *,
    out: Tensor,
    edge_offset: int,
    accumulate: bool,
) -> None:
    """Send the gradient of every maximum to the source that won it.

    out[u] = sum over k in row u of the transpose of grad[v] where arg[v] is the position of edge k,
    with v = t_indices[k].

    Args:
        t_indptr: (num_sources + 1,) int64. The graph by source.
        t_indices: (num_edges,) int32. Destinations: rows of arg and grad.
        t_edge: (num_edges,) int64. Position of each edge in the `indices` of the forward graph.
        arg: (num_rows, width) int64. As `spmm_max` wrote it.
        grad: (num_rows, width).
        out: (num_sources, width). Written.
        edge_offset: As in `spmm_max`.
        accumulate: Start the sums from the values in `out` instead of zero.

    Raises:
        TypeError: If a dtype is not the documented one.
        ValueError: If shapes do not fit, or a tensor is not contiguous or not on the CPU.
    """
    dtype = _float_type("grad", grad)
    _kernels.spmm_max_backward(
        _array("t_indptr", t_indptr, torch.int64, 1),
        _array("t_indices", t_indices, torch.int32, 1),
        _array("t_edge", t_edge, torch.int64, 1),
        _array("arg", arg, torch.int64, 2),
        _array("grad", grad, dtype, 2),
        out=_array("out", out, dtype, 2),
        edge_offset=edge_offset,
        accumulate=accumulate,
    )


def gather_rows(x: Tensor, rows: Tensor, out: Tensor) -> None:
    """Copy rows into a buffer: out[k] = x[rows[k]].

    Args:
        x: (num_rows, width).
        rows: (num_gathered,) int32.
        out: (num_gathered, width). Written.

    Raises:
        TypeError: If a dtype is not the documented one.
        ValueError: If shapes do not fit, or a tensor is not contiguous or not on the CPU.
    """
    dtype = _float_type("x", x)
    _kernels.gather_rows(
        _array("x", x, dtype, 2), _array("rows", rows, torch.int32, 1), _array("out", out, dtype, 2)
    )


def scatter_add_rows(x: Tensor, rows: Tensor, out: Tensor) -> None:
    """Add the rows of a buffer where they belong: out[rows[k]] += x[k], in the order of k.

    Args:
        x: (num_gathered, width).
        rows: (num_gathered,) int32. May repeat.
        out: (num_rows, width). Added to.

    Raises:
        TypeError: If a dtype is not the documented one.
        ValueError: If shapes do not fit, or a tensor is not contiguous or not on the CPU.
    """
    dtype = _float_type("x", x)
    _kernels.scatter_add_rows(
        _array("x", x, dtype, 2), _array("rows", rows, torch.int32, 1), _array("out", out, dtype, 2)
    )


def dropout(x: Tensor, row_key: Tensor, out: Tensor, *, seed: int, probability: float) -> None:
    """Zero values at random, scale the others by 1 / (1 - probability).

    Whether a value is kept depends on (seed, key of its row, column) alone. With global ids as keys
    a vertex gets the same mask whatever the partition, and backward is this call on the gradient.

    Args:
        x: (num_rows, width).
        row_key: (num_rows,) int64.
        out: (num_rows, width). Written; may be x.
        seed: In [0, 2**64). Another seed gives an independent mask.
        probability: In [0, 1). Of being zeroed.

    Raises:
        TypeError: If a dtype is not the documented one.
        ValueError: If shapes do not fit, a tensor is not contiguous or not on the CPU, or the seed
            or the probability is out of range.

    References:
        Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011.
    """
    dtype = _float_type("x", x)
    _kernels.dropout(
        _array("x", x, dtype, 2),
        _array("row_key", row_key, torch.int64, 1),
        _array("out", out, dtype, 2),
        seed=_checked_seed(seed),
        probability=probability,
    )


def dropout_values(
    values: Tensor,
    row_key: Tensor,
    column: Tensor,
    out: Tensor,
    *,
    seed: int,
    probability: float,
) -> None:
    """Apply `dropout` to the stored entries of sparse rows.

    An entry meets the fate it would meet in the dense matrix.

    Args:
        values: (num_entries,).
        row_key: (num_entries,) int64. Key of the row of each entry.
        column: (num_entries,) int32.
        out: (num_entries,). Written; may be `values`.
        seed: In [0, 2**64).
        probability: In [0, 1).

    Raises:
        TypeError: If a dtype is not the documented one.
        ValueError: If shapes do not fit, a tensor is not contiguous or not on the CPU, or the seed
            or the probability is out of range.
    """
    dtype = _float_type("values", values)
    _kernels.dropout_values(
        _array("values", values, dtype, 1),
        _array("row_key", row_key, torch.int64, 1),
        _array("column", column, torch.int32, 1),
        _array("out", out, dtype, 1),
        seed=_checked_seed(seed),
        probability=probability,
    )


def _checked_seed(seed: int) -> int:
    if not 0 <= seed < 2**64:
        message = f"seed must be in [0, 2**64), got {seed}"
        raise ValueError(message)
    return seed


def num_threads() -> int:
    """Return the number of threads of the next kernel called from this thread."""
    return _kernels.num_threads()


def instruction_set() -> str:
    """Return "x86-64-v4", "x86-64-v3", "neon" or "baseline": the kernels chosen for this CPU."""
    return _kernels.instruction_set()
