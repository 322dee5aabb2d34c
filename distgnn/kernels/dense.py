"""Products of tall matrices of rows with small dense ones: the dense update.

The rules of `distgnn.kernels` hold here. Packed copies of the small matrices and sums of slices are
scratch of a few megabytes at most.

Rows, and gradients of rows, may be stored as bfloat16 beside matrices, biases and their gradients
in float32: sums are float32, and rounded once when they are written. If the rows of all factors are
bfloat16, their matrices are rounded to bfloat16 as well. Terms are then added in pairs, which newer
processors do in one instruction, and numbers too small to be normal floats count as 0.

A processor without fused multiply-adds computes them in software: `is_fast` tells.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from distgnn import _kernels
from distgnn.kernels.devices import kernels_on
from distgnn.kernels.tensors import STORED, array, computed, float_type, stored_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

MAX_FACTORS = 2


class Factor(NamedTuple):
    """Rows and the matrix that they are multiplied with.

    Attributes:
        x: (num_rows, depth), or more rows if some are picked. May be bfloat16.
        matrix: (depth, width), contiguous or the transpose of a contiguous one.
        picked: (num_rows,) int32. Rows of x; None for all in order.
    """

    x: Tensor
    matrix: Tensor
    picked: Tensor | None = None


class Finish(NamedTuple):
    """Operations on each row of a product before it is left, in this order.

    Attributes:
        row_factor: (num_rows,) Multiplied.
        bias: (width,) Added.
        has_relu: Whether what is negative becomes 0; a NaN stays one.
        row_key: (num_rows,) int64. Keys of dropout's mask; see `distgnn.kernels.dropout`.
        seed: Seed of dropout.
        probability: Probability of dropout.
    """

    row_factor: Tensor | None = None
    bias: Tensor | None = None
    has_relu: bool = False
    row_key: Tensor | None = None
    seed: int = 0
    probability: float = 0.0


class GradientFactor(NamedTuple):
    """Rows that were multiplied, and where the gradient of their weight goes.

    Attributes:
        x: (num_rows, depth), or more rows if some were picked. May be bfloat16.
        gradient: (width, depth): the layout of weights. Written.
        picked: (num_rows,) int32, or None.
    """

    x: Tensor
    gradient: Tensor
    picked: Tensor | None = None


_PLAIN = Finish()


def is_fast() -> bool:
    """Whether this processor multiplies and adds in one instruction."""
    return _kernels.instruction_set() != "baseline"


def multiply(
    factors: Sequence[Factor],
    out: Tensor,
    *,
    out_rows: Tensor | None = None,
    accumulate: bool = False,
    finish: Finish = _PLAIN,
) -> None:
    """Sum up to two products of rows: out = finish([out +] x W [+ x' W']).

    Args:
        factors: One or two, of matrices in float32 or float64; none to finish what is in `out`.
        out: (num_rows, width), or more rows if `out_rows` says which. Written. May be bfloat16,
            and the rows of a factor where none are picked and nothing is accumulated.
        out_rows: (num_rows,) int32, distinct. Rows of out that are written; None for all in order.
        accumulate: Whether the product is added to what is in `out`.
        finish: Operations on each row.

    Raises:
        TypeError: If a dtype is not the documented one.
        ValueError: If shapes do not fit, a tensor is not contiguous or on another device, or there
            are no factors and nothing is added to.

    References:
        Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", TOMS 2008.
    """
    dense = kernels_on("out", out).dense
    is_paired = all(factor.x.dtype == torch.bfloat16 for factor in factors)
    if dense is not None:
        options = finish._asdict()
        if is_paired:
            factors = [f._replace(matrix=f.matrix.bfloat16().to(f.matrix.dtype)) for f in factors]
        dense.multiply(factors, out, out_rows=out_rows, accumulate=accumulate, **options)
        return
    dtype = float_type("matrix", factors[0].matrix) if factors else _computed_of(out)
    has_dropout = finish.row_key is not None and finish.probability > 0
    panels = [(f.x, f.picked, _packed(f, dtype, is_paired=is_paired)) for f in factors]
    named = {
        **_numbered("panels", panels, dtype),
        "out": stored_rows("out", out, dtype),
        "out_rows": _picked(out_rows),
        "accumulate": accumulate,
        "row_factor": _vector("row_factor", finish.row_factor, dtype),
        "bias": _vector("bias", finish.bias, dtype),
        "has_relu": finish.has_relu,
        "row_key": _vector("row_key", finish.row_key if has_dropout else None, torch.int64),
        "seed": finish.seed,
        "probability": finish.probability,
    }
    size = _kernels.multiply(**named, workspace=None)
    if size:
        _kernels.multiply(**named, workspace=torch.empty(size, dtype=dtype).numpy())


def multiply_transposed(
    factors: Sequence[GradientFactor],
    grad: Tensor,
    *,
    activation: Tensor | None = None,
    scale: float = 1.0,
    bias_gradient: Tensor | None = None,
) -> None:
    """Compute the gradients of weights and bias from that of a product.

    Args:
        factors: Up to two; none for the bias and the activation alone.
        grad: (num_rows, width). May be bfloat16. With an activation it is changed in place:
            multiplied by scale where the activation is positive, 0 elsewhere.
        activation: (num_rows, width), of the type of grad. Output of relu, dropped out or not,
            whose gradient `grad` is; None if there was no relu.
        scale: Scale of dropout.
        bias_gradient: (width,). Written: sums of grad's columns.
    """
    dense = kernels_on("grad", grad).dense
    if dense is not None:
        options = {"activation": activation, "scale": scale, "bias_gradient": bias_gradient}
        dense.multiply_transposed(factors, grad, **options)
        return
    dtype = float_type("gradient", factors[0].gradient) if factors else _computed_of(grad)
    outputs = [(f.x, f.picked, array("gradient", f.gradient, dtype, 2)) for f in factors]
    passed = None if activation is None else array("activation", activation, grad.dtype, 2)
    named = {
        **_numbered("out", outputs, dtype),
        "grad": stored_rows("grad", grad, dtype),
        "activation": passed,
        "scale": scale,
        "bias": _vector("bias_gradient", bias_gradient, dtype),
    }
    size = _kernels.multiply_transposed(**named, workspace=None)
    workspace = torch.empty(size, dtype=dtype).numpy()
    _kernels.multiply_transposed(**named, workspace=workspace)


def _numbered(
    third: str, operands: Sequence[tuple[Tensor, Tensor | None, Any]], dtype: torch.dtype
) -> dict[str, Any]:
    """Name the arguments of one or two factors as the compiled functions do."""
    named: dict[str, Any] = {}
    for number in range(MAX_FACTORS):
        x, picked, other = operands[number] if number < len(operands) else (None, None, None)
        end = "2" if number else ""
        named["x" + end] = None if x is None else stored_rows("x", x, dtype)
        named["rows" + end] = _picked(picked)
        named[third + end] = other
    return named


def _computed_of(rows: Tensor) -> torch.dtype:
    return computed(float_type("rows", rows, STORED))


def _packed(factor: Factor, dtype: torch.dtype, *, is_paired: bool) -> Any:
    is_transposed = not factor.matrix.is_contiguous()
    matrix = factor.matrix.t() if is_transposed else factor.matrix
    entries = array("matrix", matrix, dtype, 2)
    how = {"is_transposed": is_transposed, "is_paired": is_paired}
    panels = torch.empty(_kernels.pack_panels(entries, None, **how), dtype=dtype).numpy()
    _kernels.pack_panels(entries, panels, **how)
    return panels


def _picked(rows: Tensor | None) -> Any:
    return _vector("picked", rows, torch.int32)


def _vector(name: str, values: Tensor | None, dtype: torch.dtype) -> Any:
    return None if values is None else array(name, values, dtype, 1)
