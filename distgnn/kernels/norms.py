"""Normalisation of columns (batch norm) or rows (layer norm), with relu and dropout behind it.

The rules of `distgnn.kernels` hold here. What comes out, and its gradient, may be
stored as bfloat16 beside input in float32. Backward keeps neither a mask nor normalised rows: it
reads what went in, and what came out, which is positive just where relu and dropout let it pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from distgnn.kernels.devices import kernels_on
from distgnn.kernels.tensors import FLOATS, STORED, array, computed, float_type

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from distgnn.kernels.dense import Finish


class Outcome(NamedTuple):
    """The gradient of what a norm and the relu and dropout behind it made.

    Attributes:
        grad: (num_rows, width). May be bfloat16.
        activation: (num_rows, width), of the type of grad. What was made; None if there was no
            relu.
        scale: Scale of dropout.
    """

    grad: Tensor
    activation: Tensor | None = None
    scale: float = 1.0


def column_moments(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean of each column, and the sum of its squared deviations from that.

    Args:
        x: (num_rows, width), float32 or float64.

    Returns:
        Both (width,) float64; 0 where there are no rows.

    Raises:
        TypeError: If x has another dtype.
        ValueError: If x is not contiguous, or on a device without kernels.

    References:
        Chan, Golub and LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample
        Variances", COMPSTAT 1982.
    """
    dtype = float_type("x", x, FLOATS)
    mean, deviation = x.new_empty((2, x.shape[1]), dtype=torch.float64)
    rows = array("x", x, dtype, 2)
    outputs = [array(n, v, torch.float64, 1) for n, v in (("mean", mean), ("squares", deviation))]
    _with_workspace("column_moments", x, torch.float64, rows, *outputs)
    return mean, deviation


def normalise_columns(
    x: Tensor, mean: Tensor, scale: Tensor, out: Tensor, *, finish: Finish
) -> None:
    """Compute out = finish((x - mean) * scale).

    Args:
        x: (num_rows, width), float32 or float64.
        mean: (width,).
        scale: (width,).
        out: (num_rows, width). Written. May be bfloat16, and x.
        finish: Bias, relu and dropout; no factors of rows.

    References:
        Ioffe and Szegedy, "Batch Normalization: Accelerating Deep Network Training by Reducing
        Internal Covariate Shift", ICML 2015.
    """
    dtype = float_type("x", x, FLOATS)
    kernels_on("x", x).functions.normalise_columns(
        array("x", x, dtype, 2),
        array("mean", mean, dtype, 1),
        array("scale", scale, dtype, 1),
        _stored("out", out, dtype),
        **_ending(finish, dtype),
    )


def column_gradient_sums(x: Tensor, mean: Tensor, rstd: Tensor, outcome: Outcome) -> Tensor:
    """Sum g and g (x - mean) rstd over rows, where g is the gradient before relu and dropout.

    Args:
        x: (num_rows, width), float32 or float64.
        mean: (width,).
        rstd: (width,) 1 / standard deviation.
        outcome: The gradient.

    Returns:
        (2, width) float64: the gradients of bias and weight.
    """
    dtype = float_type("x", x, FLOATS)
    sums = x.new_empty((2, x.shape[1]), dtype=torch.float64)
    _with_workspace(
        "column_gradient_sums",
        x,
        torch.float64,
        array("x", x, dtype, 2),
        array("mean", mean, dtype, 1),
        array("rstd", rstd, dtype, 1),
        *_outcome(outcome, dtype),
        array("sums", sums, torch.float64, 2),
        scale=outcome.scale,
    )
    return sums


def columns_backward(
    x: Tensor, mean: Tensor, factors: Tensor, outcome: Outcome, out: Tensor, *, num_counted: int
) -> None:
    """Compute out = g factors[0] - factors[1] - (x - mean) factors[2]; see `column_gradient_sums`.

    Args:
        x: (num_rows, width), float32 or float64.
        mean: (width,).
        factors: (3, width).
        outcome: The gradient.
        out: (num_rows, width), of the type of x. Written; may be the gradient.
        num_counted: Rows from this one on shaped no statistic: out = g factors[0].

    Raises:
        TypeError: If a dtype is not the documented one.
        ValueError: If shapes do not fit, a tensor is not contiguous or on another device, or there
            are fewer rows.
    """
    dtype = float_type("x", x, FLOATS)
    kernels_on("x", x).functions.columns_backward(
        array("x", x, dtype, 2),
        array("mean", mean, dtype, 1),
        array("factors", factors, dtype, 2),
        *_outcome(outcome, dtype),
        array("out", out, dtype, 2),
        num_counted=num_counted,
        scale=outcome.scale,
    )


def normalise_rows(x: Tensor, weight: Tensor, out: Tensor, *, eps: float, finish: Finish) -> None:
    """Compute out = finish((x - mean) / sqrt(variance + eps) * weight), by row.

    Args:
        x: (num_rows, width), float32 or float64.
        weight: (width,).
        out: (num_rows, width). Written. May be bfloat16, and x.
        eps: Added to the variance.
        finish: Bias, relu and dropout; no factors of rows.

    References:
        Ba, Kiros and Hinton, "Layer Normalization", 2016.
    """
    dtype = float_type("x", x, FLOATS)
    kernels_on("x", x).functions.normalise_rows(
        array("x", x, dtype, 2),
        array("weight", weight, dtype, 1),
        _stored("out", out, dtype),
        eps=eps,
        **_ending(finish, dtype),
    )


def rows_backward(
    x: Tensor, weight: Tensor, outcome: Outcome, out: Tensor, *, eps: float
) -> Tensor:
    """Turn the gradient of `normalise_rows` into that of x.

    Args:
        x: (num_rows, width), float32 or float64.
        weight: (width,).
        outcome: The gradient.
        out: (num_rows, width), of the type of x. Written; may be the gradient.
        eps: The eps of forward.

    Returns:
        (2, width) of the type of x: the gradients of bias and weight.
    """
    dtype = float_type("x", x, FLOATS)
    sums = x.new_empty((2, x.shape[1]))
    _with_workspace(
        "rows_backward",
        x,
        dtype,
        array("x", x, dtype, 2),
        array("weight", weight, dtype, 1),
        *_outcome(outcome, dtype),
        array("out", out, dtype, 2),
        array("sums", sums, dtype, 2),
        eps=eps,
        scale=outcome.scale,
    )
    return sums


def _with_workspace(name: str, x: Tensor, dtype: torch.dtype, *args: Any, **options: Any) -> None:
    """Call a kernel that says how much scratch it needs, which on other devices is none."""
    function: Callable[..., int] = getattr(kernels_on("x", x).functions, name)
    size = function(*args, **options, workspace=None)
    if size:
        function(*args, **options, workspace=torch.empty(size, dtype=dtype).numpy())


def _stored(name: str, rows: Tensor, dtype: torch.dtype) -> Any:
    """View rows that are computed with as a type."""
    stored = float_type(name, rows, STORED)
    return array(name, rows, stored if computed(stored) == dtype else dtype, 2)


def _outcome(outcome: Outcome, dtype: torch.dtype) -> tuple[Any, Any]:
    grad, activation = outcome.grad, outcome.activation
    passed = None if activation is None else array("activation", activation, grad.dtype, 2)
    return _stored("grad", grad, dtype), passed


def _ending(finish: Finish, dtype: torch.dtype) -> dict[str, Any]:
    """Name what follows a norm as the kernels do."""
    has_dropout = finish.row_key is not None and finish.probability > 0
    key = finish.row_key if has_dropout else None
    return {
        "bias": None if finish.bias is None else array("bias", finish.bias, dtype, 1),
        "has_relu": finish.has_relu,
        "row_key": None if key is None else array("row_key", key, torch.int64, 1),
        "seed": finish.seed,
        "probability": finish.probability,
    }
