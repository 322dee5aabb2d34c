"""Features of edges: a map of them for attention, and sums that add them, across a cut."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from distgnn.aggregate.overlap import RowSteps, overlap
from distgnn.datasets.errors import InputError
from distgnn.edges.blocks import transposed
from distgnn.edges.chunks import chunks_of
from distgnn.ops.gradients import differentiable_once

if TYPE_CHECKING:
    from torch import Tensor

    from distgnn.aggregate.overlap import BlockName
    from distgnn.edges.blocks import Blocks
    from distgnn.edges.chunks import Chunk
    from distgnn.exchange.base import Exchange
    from distgnn.kernels.csr import Csr
    from distgnn.ops.buffers import Buffers

# Values of what edges carry that are there at once: a few MiB, which stay in the cache.
_CHUNK_VALUES = 1 << 20


class EdgeMap:
    """A linear map e W of the features of edges, which collects the gradient of W.

    Args:
        weight: (num_edge_features, width).
        buffers: Memory for values of all edges of a block.
    """

    def __init__(self, weight: Tensor, buffers: Buffers) -> None:
        self._weight = weight.detach()
        self._buffers = buffers
        self._gradient = torch.zeros_like(self._weight)

    def mapped(self, block: Csr) -> Tensor:
        """Return (num_edges, width): the mapped features of all edges.

        Args:
            block: See `write`.
        """
        width, dtype = self._weight.shape[1], self._weight.dtype
        values = self._buffers.empty(block.num_edges, width, dtype)
        self.write(block, values)
        return values

    def write(self, block: Csr, values: Tensor) -> None:
        """Map the features of all edges.

        Args:
            block: Block of the forward direction, with features.
            values: (num_edges, width), of the weight's type. Written.
        """
        features = self._features(block).to(self._weight.dtype)
        torch.mm(features, self._weight, out=values)

    def add(self, block: Csr, edges: slice, values: Tensor) -> None:
        """Add the mapped features of some edges.

        Args:
            block: See `write`.
            edges: Edges of the block.
            values: (num, width), of the weight's type. Added to.
        """
        values.addmm_(self._features(block)[edges].to(self._weight.dtype), self._weight)

    def add_gradient(self, block: Csr, edges: slice, grad: Tensor) -> None:
        """Collect the gradient from some edges.

        Args:
            block: See `write`.
            edges: Edges of the block.
            grad: (num, width). Gradient of the values.
        """
        features = self._features(block)[edges].to(self._weight.dtype)
        self._gradient.addmm_(features.t(), grad)

    def take_gradient(self) -> Tensor:
        """Return the gradient of the weight, from the edges so far, and forget it."""
        found, self._gradient = self._gradient, torch.zeros_like(self._weight)
        return found

    def _features(self, block: Csr) -> Tensor:
        if block.edge_features is None:
            raise InputError(
                "a layer reads features of edges, but the graph has none; make it without "
                "(edge_dim=None), or load a graph whose edges have features"
            )
        return block.edge_features


class SumWithFeatures(torch.autograd.Function):
    """Sum relu(row of the source + map of the features) over in-edges of a graph that is cut.

    total_v = sum over in-edges uv of w_uv relu(h_u + W e_uv + b)

    w_uv is the weight of the edge, or 1. Rows (num_sources, width), weight (width,
    num_edge_features) and bias (width,) are float32 or float64, all alike; the blocks are planned
    with features and positions. Features stay where their edges are. The values that edges carry
    are computed chunk by chunk, and recomputed in backward.

    References:
        Hu et al., "Strategies for Pre-training Graph Neural Networks", ICLR 2020 (GINE).
    """

    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, weight: Tensor, bias: Tensor, blocks: Blocks, exchange: Exchange
    ) -> Tensor:
        """Return (num_rows, width) totals."""
        rows, forward = rows.contiguous(), blocks.forward
        exchange.start_pass(is_backward=False)
        total = rows.new_zeros(forward.root_from_root.num_rows, rows.shape[1])
        partial = rows.new_zeros(forward.leaf_from_root.num_rows, rows.shape[1])
        steps = _Forward(forward, exchange, rows, total, partial)
        steps.maps = _Maps(weight, bias)
        overlap(forward, exchange, steps)
        ctx.save_for_backward(rows, steps.leaf_rows, weight, bias)
        ctx.blocks, ctx.exchange = blocks, exchange
        return total

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor, Tensor, None, None]:
        """Run the transposed blocks with the two halves swapped.

        If nobody reads the gradient of the rows, only that of the totals travels: the maps need it
        where their edges are.
        """
        rows, leaf_rows, weight, bias = ctx.saved_tensors
        exchange, backward, grad = ctx.exchange, ctx.blocks.backward, grads[0].contiguous()
        exchange.start_pass(is_backward=True)
        needs_rows = ctx.needs_input_grad[0]
        kind, end = (_Backward, None) if needs_rows else (_MapsBackward, 0)
        of_rows, of_leaves = torch.zeros_like(rows[:end]), torch.zeros_like(leaf_rows[:end])
        steps = kind(backward, exchange, grad, of_rows, of_leaves)
        steps.blocks, steps.read = ctx.blocks, {"root": rows, "leaf": leaf_rows}
        steps.maps = _Maps(weight, bias)
        steps.of_maps = _Maps(torch.zeros_like(weight), torch.zeros_like(bias))
        overlap(backward, exchange, steps)
        return of_rows if needs_rows else None, *steps.of_maps, None, None


class _Maps(NamedTuple):
    """A linear map of the features of edges.

    Attributes:
        weight: (width, num_edge_features).
        bias: (width,).
    """

    weight: Tensor
    bias: Tensor

    def sums(self, rows: Tensor, features: Tensor) -> Tensor:
        """Return (num_edges, width): rows that edges start from, with their mapped features."""
        mapped = torch.addmm(self.bias, features, self.weight.t())
        return mapped.add_(rows)


class _Forward(RowSteps):
    """Sums of the values that edges carry; totals and partials start as zeros."""

    maps: _Maps

    def add(self, name: BlockName, rows: Tensor, out: Tensor) -> None:
        block: Csr = getattr(self.direction, name)
        for chunk in _chunks(block, rows.shape[1]):
            assert block.edge_features is not None, "the blocks were planned with features"
            features = block.edge_features[chunk.edges].to(rows.dtype)
            carried = self.maps.sums(rows.index_select(0, chunk.column), features).relu_()
            if block.weight is not None:
                carried *= block.weight[chunk.edges, None].to(rows.dtype)
            chunk.add_to_rows(carried, out)


class _Backward(RowSteps):
    """Gradients of rows and of the maps, from the rows that forward read."""

    blocks: Blocks
    read: dict[str, Tensor]
    maps: _Maps
    of_maps: _Maps

    def add(self, name: BlockName, rows: Tensor, out: Tensor) -> None:
        self._add(name, rows, out)

    def _add(self, name: BlockName, grad: Tensor, out: Tensor | None) -> None:
        """Add the gradients of the maps, and of the rows if `out` is given."""
        block: Csr = getattr(self.direction, name)
        forward: Csr = getattr(self.blocks.forward, transposed(name))
        rows = self.read[name[:4]]
        assert forward.edge_features is not None, "the blocks were planned with features"
        assert block.position is not None, "the blocks were planned with positions"
        for chunk in _chunks(block, rows.shape[1]):
            position = block.position[chunk.edges]
            features = forward.edge_features.index_select(0, position).to(rows.dtype)
            is_passed = self.maps.sums(rows.index_select(0, chunk.row), features) > 0
            carried = grad.index_select(0, chunk.column) * is_passed
            if block.weight is not None:
                carried *= block.weight[chunk.edges, None].to(rows.dtype)
            self.of_maps.weight.addmm_(carried.t(), features)
            self.of_maps.bias.add_(carried.sum(dim=0))
            if out is not None:
                chunk.add_to_rows(carried, out)


class _MapsBackward(_Backward):
    """Gradients of the maps alone: rows come to the leaves, and none return."""

    def add(self, name: BlockName, rows: Tensor, out: Tensor) -> None:
        del out
        self._add(name, rows, None)

    def reduce(self) -> None:
        pass

    def finish(self) -> None:
        pass


def _chunks(block: Csr, width: int) -> list[Chunk]:
    return chunks_of(block, max(_CHUNK_VALUES // max(width, 1), 1))
