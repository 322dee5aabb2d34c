"""Convolutions on our kernels, from the weights that another library's layer holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.function import once_differentiable
from torch.nn.parameter import is_lazy

from distgnn import ops
from distgnn.kernels.dense import is_fast
from distgnn.kernels.tensors import FLOATS
from distgnn.nn.gat import with_scores
from distgnn.nn.update import Layer, Maps, update

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from distgnn.aggregate.sums import Weighting
    from distgnn.graph.local_graph import LocalGraph
    from distgnn.interop.accelerate.graphs import EdgeGraph, SumFactors


def is_usual_call() -> bool:
    """Whether torch runs operations one by one, as they are.

    It does not while it compiles, traces, casts by itself, or transforms functions.
    """
    return not (
        torch.compiler.is_compiling()
        or torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
        or torch.is_autocast_enabled("cpu")
        or torch._C._functorch.maybe_current_level() is not None
        or torch.autograd.forward_ad._current_level >= 0
    )


def takes_rows(rows: Any) -> bool:
    """Whether our kernels take these rows: a plain matrix of numbers on the processor."""
    return (
        type(rows) in (torch.Tensor, torch.nn.Parameter)
        and rows.dim() == 2
        and rows.dtype in FLOATS
        and rows.device.type == "cpu"
        and rows.layout == torch.strided
    )


def takes_edges(edge_index: Any) -> bool:
    """Whether it is a plain list of edges, with a counter of its changes."""
    return (
        type(edge_index) is torch.Tensor
        and edge_index.dtype == torch.int64
        and edge_index.dim() == 2
        and edge_index.shape[0] == 2
        and edge_index.device.type == "cpu"
        and edge_index.layout == torch.strided
        and not edge_index.is_inference()
    )


def is_plain(module: Any, *kinds: type) -> bool:
    """Whether a module is just of one of these types: nobody watches or changes what it does."""
    return type(module) in kinds and not (
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
    )


def map_reason(
    layer: Any, bare: Sequence[str], biased: Sequence[str], is_known: Callable[[Any], bool]
) -> str | None:
    """Say which linear map of a layer is not an ordinary one, if any is.

    Args:
        layer: A layer of the other library.
        bare: Names of maps whose weight alone is read.
        biased: Names of those whose bias is read, too.
        is_known: Whether a map is one of those that the library makes.
    """
    for name in (*bare, *biased):
        module = getattr(layer, name)
        if not is_known(module):
            return f"{name} is no plain Linear"
        # The libraries make these without one: it is of a map that was put in place of theirs.
        if name in bare and module.bias is not None:
            return f"{name} has a bias"
    return None


def drops_some(probability: float) -> bool:
    """Whether our kernels drop weights with this probability.

    They divide by that of being kept. Where all are dropped, or it is no probability, the other
    library answers, or names the error.
    """
    return 0 <= probability < 1


@dataclass(frozen=True)
class Propagation:
    """A multiplication by (S)^hops, S a weighted sum; equal ones are one to a graph's memory.

    Attributes:
        factors: Factors of the sum.
        hops: Number of times.
    """

    factors: SumFactors
    hops: int = 1

    def __call__(self, graph: LocalGraph, rows: Tensor) -> Tensor:
        """Multiply rows."""
        return polynomial(graph, rows, self.factors.weighting(graph, rows.dtype), hops=self.hops)


class _Polynomial(torch.autograd.Function):
    """R_0 = X, R_k+1 = S R_k + keep X, result R_hops.

    That is p(S) X with a polynomial p, and the gradient of X is p(S^T) times that of the result:
    the same steps along the transposed edges. Nothing is kept.
    """

    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, graph: LocalGraph, weighting: Weighting, hops: int, keep: float
    ) -> Tensor:
        ctx.given = graph, weighting, hops, keep
        return _steps(rows.contiguous(), *ctx.given, is_backward=False)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None, None]:
        grad = grads[0].contiguous()
        return _steps(grad, *ctx.given, is_backward=True), None, None, None, None


def _steps(
    rows: Tensor,
    graph: LocalGraph,
    weighting: Weighting,
    hops: int,
    keep: float,
    *,
    is_backward: bool,
) -> Tensor:
    step = graph.sum_backward if is_backward else graph.sum_forward
    result = rows
    for _ in range(hops):
        result = step(result, weighting)
        if keep != 0:
            result.add_(rows, alpha=keep)
    return result if hops else rows.clone()


def polynomial(
    graph: LocalGraph, rows: Tensor, weighting: Weighting, *, hops: int = 1, keep: float = 0.0
) -> Tensor:
    """Sum rows over in-edges several times, and add a share of the first rows each time.

    Args:
        graph: Where the edges are.
        rows: (num_rows, width).
        weighting: Factors of the sums.
        hops: How often.
        keep: Share of the rows that is added to each sum.

    Returns:
        (num_rows, width), differentiable.
    """
    result: Tensor = _Polynomial.apply(rows, graph, weighting, hops, keep)  # type: ignore[no-untyped-call]
    return result


def scaled(weighting: Weighting, factor: float, like: Tensor) -> Weighting:
    """Return a weighting whose sums are multiplied by a number.

    Args:
        weighting: Any.
        factor: The number.
        like: (num_rows, width) rows of the type that is computed with.
    """
    row = like.new_ones(len(like)) if weighting.row_factor is None else weighting.row_factor
    return weighting._replace(row_factor=row * factor)


def linear(rows: Tensor, weight: Tensor, bias: Tensor | None, graph: EdgeGraph) -> Tensor:
    """Map rows, by our kernels where they are fast.

    Args:
        rows: (num_rows, in_width).
        weight: (out_width, in_width).
        bias: (out_width,), or None.
        graph: Gives the memory of the result.
    """
    if not is_fast():
        return torch.nn.functional.linear(rows, weight, bias)
    return ops.linear(rows, weight.contiguous(), bias, graph.exchange.buffers)


def mapped_sum(
    graph: EdgeGraph,
    rows: Tensor,
    factors: SumFactors,
    weight: Tensor,
    *,
    root: Tensor | None = None,
    bias: Tensor | None = None,
    hops: int = 1,
) -> Tensor:
    """Return S^hops X W^T [+ X W_root^T] + b, the narrower of X and X W^T being summed.

    Args:
        graph: Where the edges are.
        rows: (num_rows, in_width).
        factors: Factors of the sum S.
        weight: (out_width, in_width) W.
        root: (out_width, in_width) W_root; None if a vertex's own row does not count.
        bias: (out_width,) b, or None.
        hops: How often rows are summed; 1 where there is a W_root.

    Returns:
        (num_rows, out_width), differentiable.
    """
    graph.note(rows)
    propagation = Propagation(factors, hops)
    is_narrower = weight.shape[0] < weight.shape[1] and not graph.is_static(rows)
    if hops == 1 and is_fast():
        layer = Layer(
            graph,
            propagation,
            factors.weighting(graph, rows.dtype),
            maps_first=is_narrower,
            activation=None,
            recomputes=False,
        )
        bias = weight.new_zeros(len(weight)) if bias is None else bias
        maps = Maps(None if root is None else root.contiguous(), weight.contiguous(), bias)
        return update(rows, maps, layer)
    if is_narrower:
        result = propagation(graph, linear(rows, weight, None, graph))
        result = result if bias is None else result + bias
    else:
        result = linear(graph.propagate(propagation, rows), weight, bias, graph)
    return result if root is None else result + linear(rows, root, None, graph)


def attend(
    graph: EdgeGraph,
    rows: Tensor,
    weight: Tensor,
    vectors: tuple[Tensor, Tensor],
    *,
    slope: float,
    dropout: float,
) -> Tensor:
    """Return the means of a graph attention network, before heads are joined.

    Args:
        graph: Where the edges are, with positions.
        rows: (num_rows, in_width).
        weight: (heads * width, in_width).
        vectors: Twice (heads, width): of sources and of targets.
        slope: Slope of the leaky ReLU below 0.
        dropout: Probability of dropping a weight of an edge.

    Returns:
        (num_rows, heads * width), differentiable.
    """
    mapped, source_score, target_score = with_scores(linear(rows, weight, None, graph), *vectors)
    return graph.attend(
        mapped,
        source_score=source_score,
        target_score=target_score,
        slope=slope,
        dropout=dropout,
    )


def joined(
    means: Tensor, heads: int, *, concat: bool, residual: Tensor | None, bias: Tensor | None
) -> Tensor:
    """Concatenate or average heads, and add what follows, to a tensor of its own.

    Args:
        means: (num_rows, heads * width). Kept for backward: the user may write to the result only.
        heads: Attention heads.
        concat: Whether to concatenate.
        residual: Rows of the shape of the result, or None.
        bias: (columns of the result,), or None.
    """
    result = means if concat else means.view(len(means), heads, -1).mean(dim=1)
    if residual is not None:
        result = result + residual
    if bias is not None:
        result = result + bias
    return result.clone() if result is means else result


def isomorphism(
    graph: EdgeGraph,
    rows: Tensor,
    eps: Tensor,
    factors: SumFactors,
    mlp: Callable[[Tensor], Tensor] | None,
    maps: tuple[type, ...],
) -> Tensor:
    """Return mlp((1 + eps) X + S X), mapped before it is summed where that is narrower.

    Args:
        graph: Where the edges are.
        rows: (num_rows, in_width) X.
        eps: A number.
        factors: Factors of the sum S.
        mlp: Any function of rows, or None; its first map is taken apart if it is a plain one.
        maps: Types of linear maps.

    Returns:
        (num_rows, out_width), differentiable.
    """
    if isinstance(mlp, torch.nn.Sequential) and is_plain(mlp, torch.nn.Sequential) and len(mlp):
        first: Any = mlp[0]
        if is_plain(first, *maps) and _narrows(first.weight, rows):
            given = rows, factors, first.weight
            result = mapped_sum(graph, *given, root=(1 + eps) * first.weight, bias=first.bias)
            for module in list(mlp)[1:]:
                result = module(result)
            return result
    graph.note(rows)
    keep = 0.0 if eps.requires_grad else 1 + float(eps)
    if graph.is_static(rows):
        result = graph.propagate(Propagation(factors), rows)
        result = torch.add(result, rows, alpha=keep)
    else:
        result = polynomial(graph, rows, factors.weighting(graph, rows.dtype), keep=keep)
    if eps.requires_grad:
        result = result + (1 + eps) * rows
    return result if mlp is None else mlp(result)


def _narrows(weight: Tensor, rows: Tensor) -> bool:
    return not is_lazy(weight) and weight.dtype == rows.dtype and weight.shape[0] < weight.shape[1]
