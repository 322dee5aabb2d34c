"""Sums over edges whose features change what each of them carries, across a cut."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.autograd.function import once_differentiable

from distgnn.aggregate.relations import run_pass
from distgnn.aggregate.sums import send_to_leaves
from distgnn.edges.blocks import transposed
from distgnn.edges.chunks import chunks_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from distgnn.edges.blocks import Blocks, Csr, Direction
    from distgnn.edges.chunks import Chunk
    from distgnn.exchange.base import Exchange

# Values of what edges carry that are there at once: a few MiB, which stay in the cache.
_CHUNK_VALUES = 1 << 20


def _chunks(block: Csr, width: int) -> list[Chunk]:
    return chunks_of(block, max(_CHUNK_VALUES // max(width, 1), 1))


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


class SumWithFeatures(torch.autograd.Function):
    """Sum relu(row of the source + map of the features) over in-edges of a graph that is cut.

    total_v = sum over in-edges uv of w_uv relu(h_u + W e_uv + b), where w_uv is the weight of the
    edge, or 1. Rows (num_sources, width), weight (width, num_edge_features) and bias (width,) are
    float32 or float64, all alike; the blocks are planned with features and positions. Features stay
    where their edges are, and what edges carry is made chunk by chunk, in backward again.
    """

    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, weight: Tensor, bias: Tensor, blocks: Blocks, exchange: Exchange
    ) -> Tensor:
        """Return (num_rows, width) totals."""
        rows, forward, maps = rows.contiguous(), blocks.forward, _Maps(weight, bias)

        def work(name: str, read: Tensor, out: Tensor) -> None:
            _add_sums(getattr(forward, name), read, maps, out)

        exchange.start_pass(is_backward=False)
        total = rows.new_zeros(forward.root_from_root.num_rows, rows.shape[1])
        partial = rows.new_zeros(forward.leaf_from_root.num_rows, rows.shape[1])
        leaf_rows = run_pass(forward, exchange, rows, (total, partial), work)
        ctx.save_for_backward(rows, leaf_rows, weight, bias)
        ctx.blocks, ctx.exchange = blocks, exchange
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor, Tensor, None, None]:
        """Run the transposed blocks with the two halves swapped.

        Where nobody reads the gradient of the rows, it is not made, and only that of the totals
        travels: the maps need it where their edges are.
        """
        rows, leaf_rows, weight, bias = ctx.saved_tensors
        maps = _Maps(weight, bias)
        of_maps = _Maps(torch.zeros_like(weight), torch.zeros_like(bias))

        def work(name: str, grad: Tensor, out: Tensor | None) -> None:
            forward_name = transposed(name)
            read = leaf_rows if forward_name.endswith("from_leaf") else rows
            blocks = getattr(backward, name), getattr(ctx.blocks.forward, forward_name)
            _add_gradients(blocks, read, maps, grad, (out, of_maps))

        exchange, backward = ctx.exchange, ctx.blocks.backward
        exchange.start_pass(is_backward=True)
        grad = grads[0].contiguous()
        if not ctx.needs_input_grad[0]:
            _run_half(backward, exchange, grad, work)
            return None, *of_maps, None, None
        of_rows, of_leaves = torch.zeros_like(rows), torch.zeros_like(leaf_rows)
        run_pass(backward, exchange, grad, (of_rows, of_leaves), work)
        return of_rows, *of_maps, None, None


def _run_half(
    direction: Direction,
    exchange: Exchange,
    rows: Tensor,
    work: Callable[[str, Tensor, None], None],
) -> None:
    """Run one direction up to where rows have come to the leaves; none return."""
    arriving, clock = send_to_leaves(direction.send, exchange, rows), exchange.clock
    with clock.timed("aggregate"):
        work("leaf_from_root", rows, None)
        work("root_from_root", rows, None)
    leaf_rows = arriving.wait()
    with clock.timed("aggregate"):
        work("leaf_from_leaf", leaf_rows, None)
        work("root_from_leaf", leaf_rows, None)


def _add_sums(block: Csr, rows: Tensor, maps: _Maps, out: Tensor) -> None:
    """Add what the edges of a forward block carry to (num_rows, width)."""
    for chunk in _chunks(block, rows.shape[1]):
        assert block.edge_features is not None, "the blocks were planned with features"
        features = block.edge_features[chunk.edges].to(rows.dtype)
        carried = maps.sums(rows.index_select(0, chunk.column), features).relu_()
        if block.weight is not None:
            carried *= block.weight[chunk.edges, None].to(rows.dtype)
        chunk.add_to_rows(carried, out)


def _add_gradients(
    blocks: tuple[Csr, Csr],
    rows: Tensor,
    maps: _Maps,
    grad: Tensor,
    out: tuple[Tensor | None, _Maps],
) -> None:
    """Add the gradients of what `_add_sums` was given.

    Args:
        blocks: The edges by source, and the forward block.
        rows: (num_sources, width) As there.
        maps: Likewise.
        grad: (num_targets, width). Of its output.
        out: Those of the rows, if they are asked for, and of the maps.
    """
    block, forward = blocks
    assert forward.edge_features is not None, "the blocks were planned with features"
    assert block.position is not None, "the blocks were planned with positions"
    for chunk in _chunks(block, rows.shape[1]):
        position = block.position[chunk.edges]
        features = forward.edge_features.index_select(0, position).to(rows.dtype)
        read = rows.index_select(0, chunk.row)
        is_passed = maps.sums(read, features) > 0
        carried = grad.index_select(0, chunk.column) * is_passed
        if block.weight is not None:
            carried *= block.weight[chunk.edges, None].to(rows.dtype)
        out[1].weight.addmm_(carried.t(), features)
        out[1].bias.add_(carried.sum(dim=0))
        if out[0] is not None:
            chunk.add_to_rows(carried, out[0])
