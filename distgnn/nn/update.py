"""A layer as one operation: aggregation, one or two maps, bias, relu and dropout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from distgnn.kernels import scale_rows
from distgnn.kernels.dense import Factor, Finish, GradientFactor, multiply, multiply_transposed
from distgnn.nn.observe import SeenMap
from distgnn.ops.gradients import differentiable_once

if TYPE_CHECKING:
    from torch import Tensor

    from distgnn.aggregate.sums import Weighting
    from distgnn.graph.local_graph import LocalGraph, Propagation
    from distgnn.nn.activation import Activation
    from distgnn.nn.observe import Observer


class Maps(NamedTuple):
    """The weights of a layer S h W^T [+ h_own W_root^T] + b.

    Attributes:
        root: (out_channels, in_channels) weight of a vertex's own row; None if that does not count.
        neighbour: (out_channels, in_channels) weight of the sum of its in-neighbours' rows.
        bias: (out_channels,).
        root_parts: Parameters whose sum `root` is.
    """

    root: Tensor | None
    neighbour: Tensor
    bias: Tensor
    root_parts: tuple[Tensor, ...] = ()

    def plus(self, weight: Tensor, bias: Tensor | None) -> Maps:
        """Add a map of a vertex's own row.

        Args:
            weight: (out_channels, in_channels).
            bias: (out_channels,), or None.
        """
        root = weight if self.root is None else self.root + weight
        bias = self.bias if bias is None else self.bias + bias
        return Maps(root, self.neighbour, bias, (*self.root_parts, weight))

    def scaled(self, scale: Tensor, shift: Tensor) -> Maps:
        """Scale each column of what comes out, and shift it.

        Args:
            scale: (out_channels,).
            shift: (out_channels,).
        """
        rows = scale[:, None]
        root = None if self.root is None else self.root * rows
        return Maps(root, self.neighbour * rows, self.bias * scale + shift)


class Watch(NamedTuple):
    """An observer of a layer, and the parameters that its maps are made of.

    Attributes:
        observer: Reader of the factors of gradients.
        root: Parameters whose sum is the map of a vertex's own row.
        neighbour: Parameter that is the map of sums.
    """

    observer: Observer
    root: tuple[Tensor, ...]
    neighbour: Tensor


class Layer(NamedTuple):
    """A layer act(S h W^T [+ h_own W_root^T] + b), S a weighted sum, but for its weights.

    Attributes:
        graph: A whole graph or a part.
        propagation: Multiplies by S; called once where the input is static.
        weighting: Factors of S, one for each row.
        maps_first: Whether the neighbours' rows are mapped before they are aggregated.
        activation: Activation behind it; None for none.
        recomputes: Whether backward aggregates again, instead of the sums being kept.
        watch: Reader of the factors of gradients; None for none.
    """

    graph: LocalGraph
    propagation: Propagation
    weighting: Weighting
    maps_first: bool
    activation: Activation | None
    recomputes: bool
    watch: Watch | None = None

    def finish(self, bias: Tensor) -> Finish:
        """Return what is done to each row; draws the seed of the dropout."""
        if self.activation is None:
            return Finish(bias=bias)
        return self.activation.finish(self.graph, bias)

    def empty(self, num_rows: int, width: int, dtype: torch.dtype) -> Tensor:
        """Return a buffer of rows."""
        return self.graph.exchange.buffers.empty(num_rows, width, dtype)

    def out_dtype(self, weight: Tensor) -> torch.dtype:
        """Return what the result is stored as."""
        return (self.activation and self.activation.dtype) or weight.dtype

    def inner_dtype(self, rows: Tensor, weight: Tensor) -> torch.dtype:
        """Return what is aggregated, in either direction, is stored as.

        The narrower of what the layer reads and makes.
        """
        return min(rows.dtype, self.out_dtype(weight), key=lambda dtype: dtype.itemsize)

    def sum_backward(self, grad: Tensor, dtype: torch.dtype) -> Tensor:
        """Pass a gradient of sums back to where the edges come from, stored as a type."""
        row_factor = self.weighting.row_factor
        if grad.dtype == dtype or row_factor is None:
            return self.graph.sum_backward(grad, self.weighting)
        scaled = self.empty(grad.shape[0], grad.shape[1], dtype)
        scale_rows(grad, row_factor, scaled)
        return self.graph.sum_backward(scaled, self.weighting._replace(row_factor=None))

    def rows_gradient(
        self, rows: Tensor, grad: Tensor, back: Tensor, *, weights: tuple[Tensor | None, Tensor]
    ) -> Tensor:
        """Multiply gradients by the weights for the vertex, if any, and for its neighbours.

        Args:
            rows: (num_sources, in_channels) What the layer read.
            grad: (num_rows, out_channels) Of what it made, before the activation.
            back: (num_sources, out_channels) From `sum_backward`; written if it has the shape of
                rows.
            weights: Both (out_channels, in_channels).

        Returns:
            (num_sources, in_channels).
        """
        root, neighbour = weights
        is_here = back.shape == rows.shape and back.dtype == rows.dtype
        out = back if is_here else self.empty(rows.shape[0], rows.shape[1], rows.dtype)
        own_index = self.graph.own_index
        if root is not None and own_index is None:
            multiply([Factor(back, neighbour), Factor(grad, root)], out)
            return out
        multiply([Factor(back, neighbour)], out)
        if root is not None:
            multiply([Factor(grad, root)], out, out_rows=own_index, accumulate=True)
        return out

    @property
    def gradient_scale(self) -> float:
        """Factor that dropout gave the values that it kept."""
        return 1 / (1 - self.activation.probability) if self.activation else 1.0


class _Update(torch.autograd.Function):
    """Keeps its input and its output, and the neighbours' sums only where it has to.

    The gradient of the neighbours' weight is that of the result times the sums. As the sum is
    linear, it is also the gradient passed back along the edges times the input. The latter needs no
    sums, and costs nothing where the gradient is passed back anyway, which it is where the result
    is not wider than the input.

    With an activation backward runs once, and what was kept is freed as soon as it was used. If
    the result has one reader, the gradient is masked in place where it lies in a graph's buffer.
    """

    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, root: Tensor | None, neighbour: Tensor, bias: Tensor, layer: Layer
    ) -> Tensor:
        graph = layer.graph
        ctx.layer, ctx.picked = layer, None
        is_static = graph.is_static(rows)
        rows = rows.contiguous()
        own = [] if root is None else [Factor(rows, root.t(), graph.own_index)]
        width, dtype = neighbour.shape[0], layer.out_dtype(neighbour)
        sums = None
        ctx.is_late = not is_static and width <= rows.shape[1]
        if layer.maps_first and not is_static:
            out = _sum_of_mapped(rows, neighbour, layer)
            multiply(own, out, accumulate=True, finish=layer.finish(bias))
        else:
            if is_static:
                sums, ctx.picked = graph.static_result(layer.propagation, rows)
            else:
                sums = graph.sum_forward(rows, layer.weighting)
            # Sums that are not kept become the result where they lie.
            is_here = ctx.is_late and sums.shape[1] == width and sums.dtype == dtype
            out = sums if is_here else layer.empty(graph.num_rows, width, dtype)
            factors = [*own, Factor(sums, neighbour.t(), ctx.picked)]
            multiply(factors, out, finish=layer.finish(bias))
        ctx.recomputes = layer.recomputes and not is_static and not ctx.is_late
        if ctx.recomputes or ctx.is_late:
            sums = None
        ctx.save_for_backward(rows, root, neighbour)
        # Not saved: what is saved lives until backward has ended. Detached, because the output
        # holds what holds this.
        ctx.held = [sums, out.detach() if layer.activation else None]
        return out

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        layer: Layer = ctx.layer
        rows, root, neighbour = ctx.saved_tensors
        grad = grads[0].contiguous()
        own_index = layer.graph.own_index
        root_grad, factors = None, []
        if root is not None:
            root_grad = torch.empty_like(root)
            factors.append(GradientFactor(rows, root_grad, own_index))
        neighbour_grad, bias_grad = torch.empty_like(neighbour), neighbour.new_empty(grad.shape[1])
        if not ctx.held:
            raise RuntimeError("the backward pass of a layer with an activation runs once only")
        sums, kept = ctx.held
        if ctx.recomputes:
            sums = layer.graph.sum_forward(rows, layer.weighting)
        if sums is not None:
            factors.append(GradientFactor(sums, neighbour_grad, ctx.picked))
        if kept is not None:
            ctx.held = []
            is_own = layer.activation is not None and layer.activation.has_one_reader
            if not (is_own and layer.graph.exchange.buffers.owns(grad)):
                grad = grad.clone()
        scale = layer.gradient_scale
        multiply_transposed(factors, grad, activation=kept, scale=scale, bias_gradient=bias_grad)
        if layer.watch is not None:
            observer, of_root, of_neighbour = layer.watch
            seen = [SeenMap(of_root, rows, own_index)] if of_root else []
            if sums is not None:
                seen.append(SeenMap((of_neighbour,), sums, ctx.picked))
            observer.see(grad, *seen)
            del seen
        del sums, kept, factors
        rows_grad = None
        if ctx.is_late:
            back = layer.sum_backward(grad, layer.inner_dtype(rows, neighbour))
            multiply_transposed([GradientFactor(rows, neighbour_grad)], back)
            if layer.watch is not None:
                # The neighbours' pair of factors is here: what was passed back is total at roots.
                layer.watch.observer.see(back, SeenMap((layer.watch.neighbour,), rows))
            if ctx.needs_input_grad[0]:
                rows_grad = layer.rows_gradient(rows, grad, back, weights=(root, neighbour))
        elif ctx.needs_input_grad[0]:
            inner, weighting = layer.inner_dtype(rows, neighbour), layer.weighting
            sums_grad = layer.empty(grad.shape[0], rows.shape[1], inner)
            finish = Finish(row_factor=weighting.row_factor)
            multiply([Factor(grad, neighbour)], sums_grad, finish=finish)
            rows_grad = layer.graph.sum_backward(sums_grad, weighting._replace(row_factor=None))
            del sums_grad
            if root is not None:
                multiply([Factor(grad, root)], rows_grad, out_rows=own_index, accumulate=True)
        return rows_grad, root_grad, neighbour_grad, bias_grad, None


def _sum_of_mapped(rows: Tensor, neighbour: Tensor, layer: Layer) -> Tensor:
    """Map rows, times their factors on the way out, and sum them; stored as the result."""
    mapped = layer.empty(rows.shape[0], neighbour.shape[0], layer.inner_dtype(rows, neighbour))
    finish = Finish(row_factor=layer.weighting.source_factor)
    multiply([Factor(rows, neighbour.t())], mapped, finish=finish)
    weighting = layer.weighting._replace(source_factor=None)
    return layer.graph.sum_forward(mapped, weighting, dtype=layer.out_dtype(neighbour))


def update(rows: Tensor, maps: Maps, layer: Layer) -> Tensor:
    """Apply a layer.

    Args:
        rows: (num_sources, in_channels), float32, float64, or bfloat16 for weights in float32.
        maps: Its weights.
        layer: The rest.

    Returns:
        (num_rows, out_channels), of the type of the weights or of the activation.
    """
    weights = (maps.root, maps.neighbour, maps.bias)
    result: Tensor = _Update.apply(rows, *weights, layer)  # type: ignore[no-untyped-call]
    return result
