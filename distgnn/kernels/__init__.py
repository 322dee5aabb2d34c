"""Kernels on tensors of one device: the typed front of the compiled module, and of `distgnn.gpu`.

Every function writes into tensors that the caller made and allocates nothing. One thread owns an
output row and adds in a fixed order, so that results have the same bits for any number of threads
(`torch.set_num_threads` counts here too) and on any instruction set. Values are float32 or float64,
the same in all arguments of a call; where stated, rows may be stored as bfloat16 and are computed
with as float32. Offsets and keys are int64, vertex ids and row numbers int32: more
than 2**31 - 1 rows or sources are refused. Tensors are contiguous, and an output overlaps no input
unless stated.

Indices are not checked: an index out of range reads or writes foreign memory. Whoever loads a
graph checks it, once.

Nothing here is seen by autograd; `distgnn.ops` and `distgnn.exchange` hold the differentiable
operations.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from distgnn.kernels.devices import kernels_on
from distgnn.kernels.tensors import STORED as _STORED
from distgnn.kernels.tensors import array as _array
from distgnn.kernels.tensors import computed as _computed
from distgnn.kernels.tensors import float_type as _float_type

if TYPE_CHECKING:
    from torch import Tensor

try:
    from distgnn import _kernels
except ImportError as error:
    _message = (
        f"distgnn was imported from {Path(__file__).parents[1]}, which has no usable compiled "
        f"kernels ({error}); install it with `pip install --no-build-isolation -e .`, or start "
        "Python outside the source folder"
    )
    raise ImportError(_message) from error

from distgnn.kernels.walk_order import WalkOrder as WalkOrder


def _handle(plan: WalkOrder | None) -> Any:
    return None if plan is None else plan.handle


def spmm_sum(
    indptr: Tensor,
    indices: Tensor,
    weight: Tensor | None,
    x: Tensor,
    out: Tensor,
    *,
    accumulate: bool,
    row_factor: Tensor | None = None,
    source_factor: Tensor | None = None,
    plan: WalkOrder | None = None,
) -> None:
    """Sum the source rows of every destination row.

    out[v] = row_factor[v] * sum over k in row v of weight[k] * x[indices[k]], in the order of k.
    With source_factor its entry indices[k] takes the place of weight[k].

    Args:
        indptr: (num_rows + 1,) int64. Where each row of the graph starts in `indices`.
        indices: (num_edges,) int32. Rows of x.
        weight: (num_edges,), or None for ones.
        x: (num_sources, width). May be bfloat16.
        out: (num_rows, width). Written. float32 or bfloat16 if x is bfloat16.
        accumulate: Start the sums from the values in `out` instead of zero.
        row_factor: (num_rows,), or None for ones. A mean has 1 / degree here.
        source_factor: (num_sources,), or None for ones; None where there is a weight.
        plan: Of this graph.

    Raises:
        TypeError: If a dtype is not the documented one.
        ValueError: If shapes do not fit, or a tensor is not contiguous or on another device.
    """
    stored = _float_type("x", x, _STORED)
    dtype = _computed(stored)
    out_dtype = torch.bfloat16 if stored == out.dtype == torch.bfloat16 else dtype
    named = {"row_factor": row_factor, "source_factor": source_factor}
    factors = {
        name: None if values is None else _array(name, values, dtype, 1)
        for name, values in named.items()
    }
    kernels_on("x", x).functions.spmm_sum(
        _array("indptr", indptr, torch.int64, 1),
        _array("indices", indices, torch.int32, 1),
        None if weight is None else _array("weight", weight, dtype, 1),
        _array("x", x, stored, 2),
        _array("out", out, out_dtype, 2),
        accumulate=accumulate,
        **factors,
        plan=_handle(plan),
    )


def gather_roof(
    indptr: Tensor, indices: Tensor, x: Tensor, out: Tensor, *, plan: WalkOrder | None = None
) -> None:
    """Read the source row of every edge as `spmm_sum` does, and hardly do anything with it.

    Its time is what a sum over the same graph cannot go below.

    Args:
        indptr: (num_rows + 1,) int64.
        indices: (num_edges,) int32. Rows of x.
        x: (num_sources, width) float32, at least 16 wide.
        out: (num_rows, 16) float32. Some rows are added to, so that nothing is optimised away.
        plan: Of this graph.

    Raises:
        TypeError: If a dtype is not the documented one.
        ValueError: If shapes do not fit, or a tensor is not contiguous or on another device.
    """
    _kernels.gather_roof(
        _array("indptr", indptr, torch.int64, 1),
        _array("indices", indices, torch.int32, 1),
        _array("x", x, torch.float32, 2),
        _array("out", out, torch.float32, 2),
        plan=_handle(plan),
    )


def gather_rows(x: Tensor, rows: Tensor, out: Tensor) -> None:
    """Copy rows into a buffer: out[k] = x[rows[k]].

    Args:
        x: (num_rows, width). May be bfloat16.
        rows: (num_gathered,) int32.
        out: (num_gathered, width). Written.

    Raises:
        TypeError: If a dtype is not the documented one.
        ValueError: If shapes do not fit, or a tensor is not contiguous or on another device.
    """
    dtype = _float_type("x", x, _STORED)
    kernels_on("x", x).functions.gather_rows(
        _array("x", x, dtype, 2), _array("rows", rows, torch.int32, 1), _array("out", out, dtype, 2)
    )


def scatter_add_rows(x: Tensor, rows: Tensor, out: Tensor) -> None:
    """Add the rows of a buffer where they belong: out[rows[k]] += x[k], in the order of k.

    Args:
        x: (num_gathered, width). May be bfloat16.
        rows: (num_gathered,) int32. May repeat.
        out: (num_rows, width). Added to; float32 if x is bfloat16.

    Raises:
        TypeError: If a dtype is not the documented one.
        ValueError: If shapes do not fit, or a tensor is not contiguous or on another device.
    """
    stored = _float_type("x", x, _STORED)
    kernels_on("x", x).functions.scatter_add_rows(
        _array("x", x, stored, 2),
        _array("rows", rows, torch.int32, 1),
        _array("out", out, _computed(stored), 2),
    )


def scale_rows(x: Tensor, factor: Tensor, out: Tensor) -> None:
    """Multiply each row by a number: out[i] = factor[i] * x[i].

    Args:
        x: (num_rows, width). May be bfloat16.
        factor: (num_rows,).
        out: (num_rows, width). Written; may be x. bfloat16 if x is; may be if x is float32.

    Raises:
        TypeError: If a dtype is not the documented one.
        ValueError: If shapes do not fit, or a tensor is not contiguous or on another device.
    """
    dtype = _float_type("x", x, _STORED)
    kernels_on("x", x).functions.scale_rows(
        _array("x", x, dtype, 2),
        _array("factor", factor, _computed(dtype), 1),
        _array("out", out, _rounded(dtype, out), 2),
    )


def blend_rows(x: Tensor, rows: Tensor, out: Tensor, *, weight: float) -> None:
    """Move rows towards those of a buffer: out[rows[k]] += weight * (x[k] - out[rows[k]]).

    Args:
        x: (num_rows, width). May be bfloat16, which is blended in float32.
        rows: (num_rows,) int32. No row may repeat.
        out: (num_out, width). Changed.
        weight: 1 copies bit by bit.

    Raises:
        TypeError: If a dtype is not the documented one.
        ValueError: If shapes do not fit, or a tensor is not contiguous or on another device.
    """
    dtype = _float_type("x", x, _STORED)
    kernels_on("x", x).functions.blend_rows(
        _array("x", x, dtype, 2),
        _array("rows", rows, torch.int32, 1),
        _array("out", out, dtype, 2),
        weight=weight,
    )


def dropout(x: Tensor, row_key: Tensor, out: Tensor, *, seed: int, probability: float) -> None:
    """Zero values at random, scale the others by 1 / (1 - probability).

    Whether a value is kept depends on (seed, key of its row, column) alone. With global ids as keys
    a vertex gets the same mask whatever the partition, and backward is this call on the gradient.

    Args:
        x: (num_rows, width). May be bfloat16.
        row_key: (num_rows,) int64.
        out: (num_rows, width). Written; may be x. bfloat16 if x is; may be if x is float32.
        seed: In [0, 2**64). Another seed gives an independent mask.
        probability: In [0, 1). Of being zeroed.

    Raises:
        TypeError: If a dtype is not the documented one.
        ValueError: If shapes do not fit, a tensor is not contiguous or on another device, or the
            seed or the probability is out of range.

    References:
        Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011.
    """
    dtype = _float_type("x", x, _STORED)
    kernels_on("x", x).functions.dropout(
        _array("x", x, dtype, 2),
        _array("row_key", row_key, torch.int64, 1),
        _array("out", out, _rounded(dtype, out), 2),
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
        ValueError: If shapes do not fit, a tensor is not contiguous or on another device, or the
            seed or the probability is out of range.
    """
    dtype = _float_type("values", values)
    kernels_on("values", values).functions.dropout_values(
        _array("values", values, dtype, 1),
        _array("row_key", row_key, torch.int64, 1),
        _array("column", column, torch.int32, 1),
        _array("out", out, dtype, 1),
        seed=_checked_seed(seed),
        probability=probability,
    )


def _rounded(dtype: torch.dtype, out: Tensor) -> torch.dtype:
    """Return the dtype of out that goes with one of x: float32 may be rounded."""
    is_rounded = (dtype, out.dtype) == (torch.float32, torch.bfloat16)
    return torch.bfloat16 if is_rounded else dtype


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


def cross_entropy(scores: Tensor, label: Tensor, loss: Tensor, gradient: Tensor | None) -> None:
    """Compute -log softmax(scores)[label] of each row, and its gradient in the same pass.

    Args:
        scores: (num_rows, num_classes).
        label: (num_rows,) int64. Checked on the CPU.
        loss: (num_rows,). Written.
        gradient: (num_rows, num_classes), or None. Written: softmax(scores), less 1 at the label.

    Raises:
        TypeError: If a dtype is not the documented one.
        ValueError: If a label is no class, shapes do not fit, or a tensor is not contiguous or on
            another device.
    """
    dtype = _float_type("scores", scores)
    kernels_on("scores", scores).functions.cross_entropy(
        _array("scores", scores, dtype, 2),
        _array("label", label, torch.int64, 1),
        _array("loss", loss, dtype, 1),
        None if gradient is None else _array("gradient", gradient, dtype, 2),
    )
