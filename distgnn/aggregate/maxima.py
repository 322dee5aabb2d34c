"""Maxima across a cut, as an autograd function."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.autograd.function import once_differentiable

from distgnn import kernels
from distgnn.aggregate.sums import add_to_roots, reduce_to_roots, send_to_leaves
from distgnn.kernels.maxima import (
    follows_plan,
    merge_max,
    merge_received_max,
    spmm_extreme,
    spmm_extreme_backward,
)

if TYPE_CHECKING:
    from torch import Tensor

    from distgnn.edges.blocks import Blocks, Csr, Half
    from distgnn.exchange.base import Arrival, Exchange
    from distgnn.ops.buffers import Buffers


class MaxBlocks(NamedTuple):
    """What a maximum needs of a graph.

    Attributes:
        blocks: Both directions of the pass; in the forward blocks, sources ascend by global id
            inside a row, so that the first of equal values is the one with the smallest id.
        source_id: (num_sources,) int64. Global id of each row that edges start from: those of the
            roots, then those of the reading leaves.
    """

    blocks: Blocks
    source_id: Tensor

    @property
    def first_leaf(self) -> int:
        """Number of the first leaf among the sources."""
        return self.blocks.forward.root_from_root.num_columns


def max_blocks(blocks: Blocks, root_id: Tensor, leaf_id: Tensor) -> MaxBlocks:
    """Prepare the blocks of a graph for maxima.

    Args:
        blocks: From `plan_blocks`.
        root_id: (num_root_sources,) int64. Global ids of the roots that edges start from.
        leaf_id: (num_reading_leaves,) int64. Likewise of the leaves.

    Returns:
        The blocks. Out of roots edges ascend by global id as they are; leaves are numbered by
        their owner first, so that the edges out of them may have to be sorted.
    """
    forward = blocks.forward
    forward = replace(
        forward,
        root_from_leaf=_ascending(forward.root_from_leaf, leaf_id),
        leaf_from_leaf=_ascending(forward.leaf_from_leaf, leaf_id),
    )
    return MaxBlocks(blocks._replace(forward=forward), torch.cat([root_id, leaf_id]))


def _ascending(block: Csr, source_id: Tensor) -> Csr:
    """Return the block with the sources of a row by ascending id; itself if they are already."""
    ids = source_id.index_select(0, block.indices)
    device = block.indptr.device
    is_falling = torch.zeros(block.num_edges + 1, dtype=torch.bool, device=device)
    is_falling[1:-1] = ids.diff() < 0
    # From the last source of a row to the first of the next one, ids may fall.
    is_falling[block.indptr] = False
    if not is_falling.any():
        return block
    row = torch.repeat_interleave(torch.arange(block.num_rows, device=device), block.indptr.diff())
    order = ids.argsort(stable=True)
    order = order[row[order].argsort(stable=True)]
    # Weights take no part in a maximum.
    return replace(block, indices=block.indices[order], weight=None)


class MaxAcrossCut(torch.autograd.Function):
    """Maximum over in-edges of a graph that is cut into parts; see `LocalGraph.aggregate`.

    Every entry has exactly one winner: the source with the smallest global id among equals.
    Partials travel with their winner's id, so that the choice does not depend on the partition.
    """

    @staticmethod
    def forward(ctx: Any, rows: Tensor, given: MaxBlocks, exchange: Exchange) -> Tensor:
        """Return (num_roots, width) maxima, 0 where a vertex has no in-edge."""
        ctx.given, ctx.exchange = given, exchange
        total, *winners = _forward(given, exchange, rows.contiguous())
        ctx.winners = tuple(winners)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        """Send each entry's gradient to the one source that won it."""
        grad = _backward(ctx.given, ctx.exchange, grads[0].contiguous(), ctx.winners)
        return grad, None, None


class _Maximum(NamedTuple):
    """A maximum and its winners, (num_rows, width) each.

    A winner is a source of this rank as `MaxBlocks.source_id` numbers them, -1 where there is no
    edge, or -2 - k where row k of a receive buffer won.
    """

    value: Tensor
    source: Tensor

    @classmethod
    def over(cls, block: Csr, rows: Tensor, buffers: Buffers) -> _Maximum:
        """Take the maxima over a block's edges."""
        shape = (block.num_rows, rows.shape[1])
        found = cls(buffers.empty(*shape, rows.dtype), buffers.empty(*shape, torch.int32))
        spmm_extreme(
            block.indptr,
            block.indices,
            rows,
            found.value,
            source=found.source,
            is_max=True,
            plan=block.plan,
        )
        return found

    def merge_leaves(
        self, block: Csr, given: MaxBlocks, leaf_rows: Tensor, buffers: Buffers
    ) -> None:
        """Merge the edges out of leaves."""
        if block.num_edges == 0:
            return
        found = _Maximum.over(block, leaf_rows, buffers)
        merge_max(*self, *found, source_id=given.source_id, first_source=given.first_leaf)


def _forward(given: MaxBlocks, exchange: Exchange, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return maxima, the winners of the roots' and those of the writing leaves' partials."""
    direction, clock, buffers = given.blocks.forward, exchange.clock, exchange.buffers
    exchange.start_pass(is_backward=False)
    arriving = send_to_leaves(direction.send, exchange, rows)
    channels = exchange.new_channel(), exchange.new_channel()
    with clock.timed("aggregate"):
        partial = _Maximum.over(direction.leaf_from_root, rows, buffers)
    needs_leaves = direction.leaf_from_leaf.num_edges > 0
    if not needs_leaves:
        returning = _send(direction.reduce, exchange, given, partial, channels)
    with clock.timed("aggregate"):
        total = _Maximum.over(direction.root_from_root, rows, buffers)
    leaf_rows = arriving.wait()
    if needs_leaves:
        with clock.timed("aggregate"):
            partial.merge_leaves(direction.leaf_from_leaf, given, leaf_rows, buffers)
        returning = _send(direction.reduce, exchange, given, partial, channels)
    with clock.timed("aggregate"):
        total.merge_leaves(direction.root_from_leaf, given, leaf_rows, buffers)
    values, ids = (arrival.wait() for arrival in returning)
    with clock.timed("pack"):
        merge_received_max(
            *total, direction.reduce.root_rows, values, ids, source_id=given.source_id
        )
    return total.value, total.source, partial.source


def _send(
    half: Half,
    exchange: Exchange,
    given: MaxBlocks,
    partial: _Maximum,
    channels: tuple[int, int],
) -> tuple[Arrival, Arrival]:
    """Send leaves' maxima and their winners' ids to the roots.

    An id travels plus 1, and 0 says "no edge", so that a row that never arrived (cd-r) is none.
    """
    with exchange.clock.timed("pack"):
        ids = torch.nn.functional.pad(given.source_id + 1, (1, 0))
        winner_id = ids.index_select(0, partial.source.flatten() + 1).view(partial.source.shape)
    route = half.route.reversed()
    values = exchange.begin(route, partial.value, channels[0])
    return values, exchange.begin(route, winner_id, channels[1])


def _backward(
    given: MaxBlocks, exchange: Exchange, grad: Tensor, winners: tuple[Tensor, Tensor]
) -> Tensor:
    forward, backward = given.blocks
    total_source, partial_source = winners
    half = forward.reduce
    exchange.start_pass(is_backward=True)
    buffers, width = exchange.buffers, grad.shape[1]
    with exchange.clock.timed("pack"):
        packed = buffers.empty(half.route.num_out, width, grad.dtype)
        kernels.gather_rows(grad, half.root_rows, packed)
        is_own = total_source.index_select(0, half.root_rows) != half.winner_mark
        packed.masked_fill_(is_own, 0)
    arriving = exchange.begin(half.route, packed, exchange.new_channel())
    out = buffers.empty(backward.root_from_root.num_rows, width, grad.dtype)
    leaf_out = buffers.empty(backward.leaf_from_root.num_rows, width, grad.dtype)
    first_leaf = given.first_leaf
    with exchange.clock.timed("aggregate"):
        _route_back(backward.leaf_from_root, total_source, grad, leaf_out, first_source=first_leaf)
        _route_back(backward.root_from_root, total_source, grad, out)
    leaf_grad = arriving.wait()
    with exchange.clock.timed("aggregate"):
        block = backward.leaf_from_leaf
        _add_back(block, partial_source, leaf_grad, leaf_out, first_source=first_leaf)
    returning = reduce_to_roots(forward.send, exchange, leaf_out)
    with exchange.clock.timed("aggregate"):
        _add_back(backward.root_from_leaf, partial_source, leaf_grad, out)
    add_to_roots(forward.send, exchange, returning.wait(), out)
    return out


def _route_back(
    block: Csr,
    source: Tensor,
    grad: Tensor,
    out: Tensor,
    *,
    first_source: int = 0,
    accumulate: bool = False,
) -> None:
    num_rows, width = grad.shape
    is_planned = follows_plan(block.indptr, block.indices, num_rows=num_rows, width=width)
    spmm_extreme_backward(
        block.indptr,
        block.indices,
        source,
        grad,
        out=out,
        accumulate=accumulate,
        first_source=first_source,
        plan=block.plan if is_planned else None,
    )


def _add_back(
    block: Csr, source: Tensor, grad: Tensor, out: Tensor, *, first_source: int = 0
) -> None:
    if block.num_edges:
        _route_back(block, source, grad, out, first_source=first_source, accumulate=True)
