"""Attention over neighbors, in states that parts of a cut vertex can merge.

For edge u -> v and head h, with source scores s and target scores t::

    raw = s[u, h] + t[v, h]
    e = leaky_relu(raw)
    alpha = softmax of e over the edges into v
    out[v, h] = sum of alpha * x[u, h]

An edge may add a score of its own to raw. Its alpha may be dropped: set to 0, or scaled up. Until
`finish_attention` the softmax is kept as a state::

    out = sum of exp(e - maximum) * x, maximum, denominator = sum of exp(e - maximum)

A denominator of 0 means that nothing was seen. Rows of x have `num_heads` heads of equal width, one
after the other. They, and gradients of rows, may be stored as bfloat16, which is computed with as
float32; all else is float32 then.

The rules of `distgnn.kernels` hold here. One thing is allocated: a row that a thread keeps where
gradients of rows are rounded to bfloat16.

References:
    Velickovic et al., "Graph Attention Networks", ICLR 2018; Milakov and Gimelshein, "Online
    normalizer calculation for softmax", 2018; Mostafa, "Sequential Aggregation and
    Rematerialization", MLSys 2022, for the backward that computes alpha again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from distgnn.kernels.csr import ends, handle
from distgnn.kernels.dense import Finish
from distgnn.kernels.devices import kernels_on
from distgnn.kernels.tensors import STORED, array, computed, float_type, stored_rows

if TYPE_CHECKING:
    from torch import Tensor

    from distgnn.kernels.csr import Csr


NO_FINISH = Finish()


class EdgeMask(NamedTuple):
    """Which weights of edges are dropped: as `distgnn.kernels.dropout` of a (num_edges, num_heads).

    Attributes:
        key: (num_edges,) int64. In the order of the forward graph.
        seed: In [0, 2**64).
        probability: In [0, 1).
    """

    key: Tensor
    seed: int
    probability: float


def _of_edges(score: Tensor | None, mask: EdgeMask | None, dtype: torch.dtype) -> dict[str, Any]:
    """Return what kernels take of edges."""
    key, seed, probability = mask or (None, 0, 0.0)
    return {
        "edge_score": None if score is None else array("edge_score", score, dtype, 2),
        "edge_key": None if key is None else array("mask.key", key, torch.int64, 1),
        "seed": seed,
        "probability": probability,
    }


def attend(
    graph: Csr,
    source_score: Tensor,
    target_score: Tensor,
    x: Tensor,
    *,
    out: Tensor,
    maximum: Tensor,
    denominator: Tensor,
    slope: float,
    accumulate: bool,
    edge_score: Tensor | None = None,
    mask: EdgeMask | None = None,
) -> None:
    """Take the edges of every row into its state.

    Args:
        graph: Edges by destination; columns are rows of x.
        source_score: (num_sources, num_heads) float32 or float64, as all values.
        target_score: (num_rows, num_heads).
        x: (num_sources, num_heads * width). May be bfloat16.
        out: (num_rows, num_heads * width). Sums of exp(e - maximum) * x, not divided; written.
        maximum: (num_rows, num_heads). Of e, 0 where nothing was seen; written.
        denominator: (num_rows, num_heads). Sums of exp(e - maximum); written.
        slope: Slope of the leaky ReLU below 0.
        accumulate: Let the state already there take part where its denominator is not 0. A
            self-loop is such a state: (x, e, 1).
        edge_score: (num_edges, num_heads). Added to raw; None for nothing.
        mask: Mask of the weights of the edges, which drops them from `out` alone; None for none.
    """
    stored = float_type("x", x, STORED)
    dtype = computed(stored)
    kernels_on("x", x).functions.attend(
        *ends(graph),
        array("source_score", source_score, dtype, 2),
        array("target_score", target_score, dtype, 2),
        array("x", x, stored, 2),
        out=array("out", out, dtype, 2),
        maximum=array("maximum", maximum, dtype, 2),
        denominator=array("denominator", denominator, dtype, 2),
        slope=slope,
        accumulate=accumulate,
        **_of_edges(edge_score, mask, dtype),
        walk=handle(graph),
    )


def merge_attention(
    received: Tensor, rows: Tensor, *, out: Tensor, maximum: Tensor, denominator: Tensor
) -> None:
    """Merge states that others have made into the states of rows, in the order received.

    Args:
        received: (num_received, num_heads * (width + 1)) float32 or float64. A state a row, as
            `sendable` leaves it: all means, then the logarithms. Where one is 0, nothing changes.
        rows: (num_received,) int32. May repeat.
        out: (num_rows, num_heads * width). As `attend` left it; merged into.
        maximum: (num_rows, num_heads). Likewise.
        denominator: (num_rows, num_heads). Likewise.
    """
    dtype = float_type("received", received)
    kernels_on("out", out).functions.merge_attention(
        array("received", received, dtype, 2),
        array("rows", rows, torch.int32, 1),
        out=array("out", out, dtype, 2),
        maximum=array("maximum", maximum, dtype, 2),
        denominator=array("denominator", denominator, dtype, 2),
    )


def finish_attention(
    out: Tensor,
    maximum: Tensor,
    denominator: Tensor,
    *,
    result: Tensor | None = None,
    finish: Finish = NO_FINISH,
) -> None:
    """Divide sums by denominators, do what follows, and make maxima what backward needs.

    Where nothing was seen, quotients and maxima become 0.

    Args:
        out: (num_rows, num_heads * width) float32 or float64. Sums.
        maximum: (num_rows, num_heads). Becomes the logarithm of the sum of exp(e).
        denominator: (num_rows, num_heads).
        result: (num_rows, num_heads * width). The finished quotients; may be bfloat16, and `out`,
            which it is if None. Written.
        finish: Bias, ReLU and dropout of the quotients; without a factor of rows.
    """
    dtype = float_type("out", out)
    has_dropout = finish.row_key is not None and finish.probability > 0
    row_key = finish.row_key if has_dropout else None
    kernels_on("out", out).functions.finish_attention(
        array("out", out, dtype, 2),
        array("maximum", maximum, dtype, 2),
        array("denominator", denominator, dtype, 2),
        result=stored_rows("result", out if result is None else result, dtype),
        bias=None if finish.bias is None else array("bias", finish.bias.detach(), dtype, 1),
        has_relu=finish.has_relu,
        row_key=None if row_key is None else array("row_key", row_key, torch.int64, 1),
        seed=finish.seed,
        probability=finish.probability,
    )


def sendable(out: Tensor, maximum: Tensor, denominator: Tensor) -> tuple[Tensor, Tensor]:
    """Make states what `merge_attention` takes: means, and logarithms of the sums of exp(e).

    A logarithm that is 0 becomes the least positive number, as 0 stands for nothing seen. Rows of
    zeros, which are there in place of states that never arrived, stand for nothing as well.

    Args:
        out: (num_rows, num_heads * width) float32 or float64. Sums; become means.
        maximum: (num_rows, num_heads). Becomes the logarithms.
        denominator: (num_rows, num_heads).

    Returns:
        The first two.
    """
    finish_attention(out, maximum, denominator)
    is_seen = denominator > 0
    maximum.masked_fill_(is_seen & (maximum == 0), torch.finfo(maximum.dtype).tiny)
    return out, maximum


def attention_delta(
    grad: Tensor, result: Tensor, out: Tensor, *, bias: Tensor | None = None, scale: float = 1.0
) -> None:
    """Multiply gradients with what they are of, and sum each head's columns.

    Args:
        grad: (num_rows, num_heads * width) float32, float64 or bfloat16.
        result: (num_rows, num_heads * width), of the type of grad.
        out: (num_rows, num_heads), float32 for bfloat16. Sums of grad * (scale * result - bias);
            written.
        bias: (num_heads * width,); None for zeros.
        scale: Factor of the result.
    """
    stored = float_type("grad", grad, STORED)
    dtype = computed(stored)
    kernels_on("grad", grad).functions.attention_delta(
        array("grad", grad, stored, 2),
        array("result", result, stored, 2),
        array("out", out, dtype, 2),
        bias=None if bias is None else array("bias", bias.detach(), dtype, 1),
        scale=scale,
    )


def attend_backward(
    graph: Csr,
    source_score: Tensor,
    target_score: Tensor,
    *,
    log_sum: Tensor,
    x: Tensor,
    grad: Tensor,
    delta: Tensor,
    grad_x: Tensor,
    grad_source: Tensor,
    edge_grad: Tensor,
    slope: float,
    accumulate: bool,
    edge_score: Tensor | None = None,
    mask: EdgeMask | None = None,
) -> None:
    """Compute the gradients of finished attention in one pass over the edges out of every row.

    grad_x[u] = sum of alpha * grad[v], and grad_source[u] = sum of the gradients of raw. These are
    also written edge by edge: `edge_sum` turns them into the gradients of the target scores.

    Args:
        graph: Edges by source, with positions; columns are destinations, rows of grad.
        source_score: (num_sources, num_heads) float32 or float64, as all values.
        target_score: (num_rows, num_heads).
        log_sum: (num_rows, num_heads). The maxima, finished.
        x: (num_sources, num_heads * width). May be bfloat16.
        grad: (num_rows, num_heads * width). Of the finished out. May be bfloat16.
        delta: (num_rows, num_heads). Sum over the columns of a head of grad * out.
        grad_x: (num_sources, num_heads * width). Written. May be bfloat16: rounded once.
        grad_source: (num_sources, num_heads). Of the source scores; written.
        edge_grad: (num_edges, num_heads). Gradients of raw, in the order of the forward graph;
            written. May be `edge_score`, of which they are the gradients too.
        slope: Slope of the leaky ReLU below 0.
        accumulate: Start grad_x and grad_source from the values there instead of zero.
        edge_score: (num_edges, num_heads). In the order of the forward graph, as given to `attend`.
        mask: Likewise.
    """
    dtype = float_type("source_score", source_score)
    assert graph.position is not None, "gradients travel over transposed blocks"
    kernels_on("x", x).functions.attend_backward(
        *ends(graph),
        array("position", graph.position, torch.int64, 1),
        array("source_score", source_score, dtype, 2),
        array("target_score", target_score, dtype, 2),
        log_sum=array("log_sum", log_sum, dtype, 2),
        x=stored_rows("x", x, dtype),
        grad=stored_rows("grad", grad, dtype),
        delta=array("delta", delta, dtype, 2),
        grad_x=stored_rows("grad_x", grad_x, dtype),
        grad_source=array("grad_source", grad_source, dtype, 2),
        edge_grad=array("edge_grad", edge_grad, dtype, 2),
        slope=slope,
        accumulate=accumulate,
        **_of_edges(edge_score, mask, dtype),
        walk=handle(graph),
    )


def edge_sum(indptr: Tensor, edge_value: Tensor, out: Tensor, *, accumulate: bool) -> None:
    """Sum the values of the edges of every row, in their order.

    Args:
        indptr: (num_rows + 1,) int64.
        edge_value: (num_edges, num_heads) float32 or float64.
        out: (num_rows, num_heads). Written.
        accumulate: Start from the values in `out` instead of zero.
    """
    dtype = float_type("edge_value", edge_value)
    kernels_on("out", out).functions.edge_sum(
        array("indptr", indptr, torch.int64, 1),
        array("edge_value", edge_value, dtype, 2),
        array("out", out, dtype, 2),
        accumulate=accumulate,
    )
