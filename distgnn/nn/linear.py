"""The dense map of a layer, over dense or sparse input rows."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeGuard

import torch
from torch import nn

from distgnn.aggregate.traffic import ITEM_BYTES, NO_TRAFFIC, LayerTraffic, sum_traffic
from distgnn.kernels.dense import is_fast
from distgnn.kernels.tensors import STORED, computed
from distgnn.nn.observe import SeenMap
from distgnn.ops import linear
from distgnn.ops.rows import is_tensor

if TYPE_CHECKING:
    from torch import Tensor

    from distgnn.graph.local_graph import LocalGraph, Propagation
    from distgnn.nn.observe import Observer
    from distgnn.ops.buffers import Buffers
    from distgnn.ops.rows import Rows, Seen


class Given(NamedTuple):
    """Facts that decide how a layer handles its input.

    Attributes:
        is_sparse: Whether its rows are mapped before they are aggregated, unless they are static.
        is_static: Whether it never changes, so that its aggregate is there already.
        has_gradient: Whether backward needs its gradient.
        item_bytes: Bytes of a value of dense input.
        out_bytes: Bytes of a value of the result, if the layer stores that itself.
    """

    is_sparse: bool
    is_static: bool
    has_gradient: bool
    item_bytes: int = ITEM_BYTES
    out_bytes: int = ITEM_BYTES


class Linear(nn.Module):
    """x W^T + b, with Glorot-uniform weights and a zero bias.

    Args:
        in_channels: Columns of the input.
        out_channels: Columns of the output.
        bias: Whether to add b.

    Attributes:
        observer: Reader of the factors of the weight's gradient; None for none.

    Shapes:
        weight (out_channels, in_channels), bias (out_channels,): the layout of `torch.nn.Linear`.

    References:
        Glorot and Bengio, "Understanding the difficulty of training deep feedforward neural
        networks", AISTATS 2010.
    """

    observer: Observer | None = None

    def __init__(self, in_channels: int, out_channels: int, *, bias: bool = True) -> None:
        super().__init__()
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.weight = nn.Parameter(torch.empty(out_channels, in_channels))
        self.bias = nn.Parameter(torch.empty(out_channels)) if bias else None
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw the weights again.

        Args:
            generator: Source of random numbers; torch's global one if None.
        """
        nn.init.xavier_uniform_(self.weight, generator=generator)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def precedes(self, *, is_sparse: bool, is_static: bool) -> bool:
        """Whether rows are better mapped before they are aggregated; see `maps_first`.

        Args:
            is_sparse: Whether the input is.
            is_static: Whether it never changes.
        """
        return is_sparse or (not is_static and self.in_channels > self.out_channels)

    def traffic(
        self,
        given: Given,
        *,
        item_bytes: int = ITEM_BYTES,
        gradient_bytes: int = ITEM_BYTES,
        mapped_bytes: int = ITEM_BYTES,
    ) -> LayerTraffic:
        """Return what a linear aggregation moves that takes the cheaper order with this map.

        Args:
            given: The layer's input.
            item_bytes: Bytes of a value that is aggregated before it is mapped.
            gradient_bytes: Bytes of a value of its gradient.
            mapped_bytes: Bytes of a value that is aggregated after it was mapped, or of its
                gradient.
        """
        if given.is_static:
            return NO_TRAFFIC
        if self.precedes(is_sparse=given.is_sparse, is_static=False):
            return sum_traffic(self.out_channels, mapped_bytes, mapped_bytes)
        traffic = sum_traffic(self.in_channels, item_bytes, gradient_bytes)
        return traffic if given.has_gradient else traffic.without_gradient()

    def multiply(
        self, rows: Rows, buffers: Buffers | None = None, dtype: torch.dtype | None = None
    ) -> Tensor:
        """Map rows without adding the bias.

        Args:
            rows: (num_rows, in_channels).
            buffers: Memory of the result, see `distgnn.ops.linear`; rows that are no tensor, and
                products by torch, have memory of their own.
            dtype: Type of the result where `is_multiplied_here`; else the weight's.

        Returns:
            (num_rows, out_channels).
        """
        rows = self._observable(rows)
        if is_multiplied_here(rows, self.weight):
            return linear(rows, self.weight, None, buffers, dtype, self._seen)
        if is_tensor(rows):
            return rows.to(self.weight.dtype) @ self.weight.t()
        return self._product(rows)

    def forward(self, rows: Rows, buffers: Buffers | None = None) -> Tensor:
        """Map rows to (num_rows, out_channels); arguments as in `multiply`."""
        rows = self._observable(rows)
        if is_multiplied_here(rows, self.weight):
            return linear(rows, self.weight, self.bias, buffers, None, self._seen)
        if is_tensor(rows):
            return nn.functional.linear(rows.to(self.weight.dtype), self.weight, self.bias)
        product = self._product(rows)
        return product if self.bias is None else product + self.bias

    @property
    def _seen(self) -> Seen | None:
        """Function that shows an observer what backward has; None without one."""
        return None if self.observer is None else self._show

    def _show(self, rows: Rows, grad: Tensor) -> None:
        if self.observer is not None:
            self.observer.see(grad, SeenMap((self.weight,), rows))

    def _observable(self, rows: Rows) -> Rows:
        """Return the rows as the operation takes them that has an observer."""
        if self.observer is None or not is_tensor(rows) or is_multiplied_here(rows, self.weight):
            return rows
        return rows.to(self.weight.dtype)

    def _product(self, rows: Rows) -> Tensor:
        """Map rows that are no tensor; these are constants, which the product keeps anyway."""
        product = rows.matmul(self.weight.t())
        if self.observer is not None and product.requires_grad:
            product.register_hook(partial(self._show, rows))  # type: ignore[no-untyped-call]
        return product


def set_bias(layer: nn.Module, width: int, *, is_learned: bool) -> None:
    """Give a layer its (width,) `bias` of zeros.

    Args:
        layer: Layer without one.
        width: Columns of its output.
        is_learned: Whether it is a weight. Else it stays 0 and is not saved, so that the kernels
            that add a bias need no second form.
    """
    zeros = torch.zeros(width)
    if is_learned:
        layer.bias = nn.Parameter(zeros)
    else:
        layer.register_buffer("bias", zeros, persistent=False)


class OuterLinear(Linear):
    """A map beside or after the convolutions: all weights start within 1 / sqrt(in_channels).

    That is the start of `torch.nn.Linear`, which published models have in these places. Glorot's
    is up to 1.7 times as wide. That gave residual maps too much weight beside the convolutions: 12
    layers of GCN on minesweeper's first split then ended at 97.0 instead of 97.3 of ROC-AUC.
    """

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw the weights again; see `Linear.reset_parameters`."""
        bound = max(self.in_channels, 1) ** -0.5
        nn.init.uniform_(self.weight, -bound, bound, generator=generator)
        if self.bias is not None:
            nn.init.uniform_(self.bias, -bound, bound, generator=generator)


def is_multiplied_here(rows: Rows, weight: Tensor) -> TypeGuard[Tensor]:
    """Whether `distgnn.kernels.dense` multiplies these rows: dense ones, of the weight's type.

    Or stored as bfloat16 and computed with as the weight's. A processor without fused
    multiply-adds is left to torch.
    """
    return (
        is_tensor(rows)
        and rows.dtype in STORED
        and computed(rows.dtype) == weight.dtype
        and (rows.device.type != "cpu" or is_fast())
    )


def maps_first(graph: LocalGraph, rows: Rows, linear: Linear) -> bool:
    """Whether a layer should map its rows before it aggregates them.

    A linear aggregation commutes with the map, so the cheaper order is taken. Static rows are
    aggregated first, because that is done once. Others that are no tensor are mapped first, because
    they have no aggregate. Of tensors, the narrower of input and output is aggregated.

    Args:
        graph: A whole graph or a part.
        rows: (num_rows, in_channels) input of the layer.
        linear: Its map.
    """
    is_static = graph.is_static(rows)
    is_mapped = not (is_static or is_tensor(rows))
    return linear.precedes(is_sparse=is_mapped, is_static=is_static)


def propagate_mapped(
    graph: LocalGraph, rows: Rows, linear: Linear, propagation: Propagation
) -> Tensor:
    """Propagate and map the input of a layer, in the cheaper order; see `maps_first`.

    Args:
        graph: A whole graph or a part.
        rows: (num_rows, in_channels) input of the layer.
        linear: Map of the layer. A propagation commutes with it, but not with its bias.
        propagation: Linear function of the graph and some rows, see `LocalGraph.propagate`.

    Returns:
        (num_rows, out_channels).
    """
    if not maps_first(graph, rows, linear):
        return linear(graph.propagate(propagation, rows))  # type: ignore[no-any-return]
    result: Tensor = graph.propagate(propagation, linear.multiply(rows))
    return result if linear.bias is None else result + linear.bias


def map_own(graph: LocalGraph, rows: Rows, linear: nn.Module) -> Tensor:
    """Map the rows of the vertices that a layer makes rows of.

    Args:
        graph: A whole graph or a part.
        rows: (num_sources, in_channels) input of the layer.
        linear: A linear map, or the identity.

    Returns:
        (num_rows, out_channels). Rows that are no tensor are mapped before they are picked, as
        picking costs more; but static ones are picked once.
    """
    options = {"buffers": graph.exchange.buffers} if isinstance(linear, Linear) else {}
    if is_tensor(rows) or graph.is_static(rows):
        return linear(graph.own(rows), **options).to_dense()  # type: ignore[no-any-return]
    return graph.own(linear(rows, **options).to_dense())  # type: ignore[no-any-return]
