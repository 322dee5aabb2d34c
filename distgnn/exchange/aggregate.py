"""Aggregation across a cut, as autograd functions: the order of the steps hides the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.autograd.function import once_differentiable

from distgnn import kernels

if TYPE_CHECKING:
    from torch import Tensor

    from distgnn.exchange.blocks import Blocks, Csr, Direction, Half
    from distgnn.exchange.exchange import Arrival, Exchange


def send_to_leaves(half: Half, exchange: Exchange, rows: Tensor) -> Arrival:
    """Start sending root rows to the leaves that read them.

    Args:
        half: Which roots go to whom.
        exchange: Decides when the rows travel.
        rows: (num_roots, width).

    Returns:
        The arrival of (num_leaves, width): this part's leaves, by owner.
    """
    with exchange.clock.timed("pack"):
        packed = torch.empty((half.route.num_out, rows.shape[1]), dtype=rows.dtype)
        kernels.gather_rows(rows, half.root_rows, packed)
    return exchange.begin(half.route, packed, exchange.new_channel())


def reduce_to_roots(half: Half, exchange: Exchange, partial: Tensor) -> Arrival:
    """Start sending the leaves' partials to their roots: the adjoint of `send_to_leaves`.

    Args:
        half: Which leaves go to whom.
        exchange: Decides when the rows travel.
        partial: (num_leaves, width).

    Returns:
        The arrival of (num_out, width): add row k to root `half.root_rows[k]`.
    """
    return exchange.begin(half.route.reversed(), partial, exchange.new_channel())


def _add_to_roots(half: Half, exchange: Exchange, received: Tensor, total: Tensor) -> None:
    with exchange.clock.timed("pack"):
        kernels.scatter_add_rows(received, half.root_rows, total)


def _pass_sum(direction: Direction, exchange: Exchange, rows: Tensor) -> Tensor:
    """One direction of a (weighted) sum; rows and result are (num_roots, width).

    The order hides the wire: rows leave, the leaves' partials are made and leave, the roots' own
    edges are summed, and only then does anything wait.
    """
    clock = exchange.clock
    width = rows.shape[1]
    arriving = send_to_leaves(direction.send, exchange, rows)
    partial = torch.empty((direction.leaf_from_root.num_rows, width), dtype=rows.dtype)
    with clock.timed("aggregate"):
        _spmm(direction.leaf_from_root, rows, partial, accumulate=False)
    needs_leaves = direction.leaf_from_leaf.num_edges > 0
    reduce_channel = exchange.new_channel()
    route = direction.reduce.route.reversed()
    if not needs_leaves:
        returning = exchange.begin(route, partial, reduce_channel)
    total = torch.empty((direction.root_from_root.num_rows, width), dtype=rows.dtype)
    with clock.timed("aggregate"):
        _spmm(direction.root_from_root, rows, total, accumulate=False)
    leaf_rows = arriving.wait()
    if needs_leaves:
        with clock.timed("aggregate"):
            _spmm(direction.leaf_from_leaf, leaf_rows, partial, accumulate=True)
        returning = exchange.begin(route, partial, reduce_channel)
    with clock.timed("aggregate"):
        _spmm(direction.root_from_leaf, leaf_rows, total, accumulate=True)
    _add_to_roots(direction.reduce, exchange, returning.wait(), total)
    return total


def _spmm(block: Csr, rows: Tensor, out: Tensor, *, accumulate: bool) -> None:
    if accumulate and block.num_edges == 0:
        return
    weight = block.weight if block.weight is None else block.weight.to(rows.dtype)
    kernels.spmm_sum(
        block.indptr,
        block.indices,
        weight,
        rows,
        out,
        accumulate=accumulate,
        plan=block.plan,
    )


class SumAcrossCut(torch.autograd.Function):
    """Sum over in-edges of a graph that is cut into parts; see `LocalGraph.aggregate`."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, blocks: Blocks, exchange: Exchange) -> Tensor:
        """Return (num_roots, width) totals of the rows of in-neighbours."""
        ctx.blocks, ctx.exchange = blocks, exchange
        return _pass_sum(blocks.forward, exchange, rows.contiguous())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        """Run the transposed blocks with the two halves swapped."""
        grad = _pass_sum(ctx.blocks.backward, ctx.exchange, grads[0].contiguous())
        return grad, None, None


class _Winners(NamedTuple):
    """Who won each entry of a maximum.

    Attributes:
        total_arg: (num_roots, width) int64. Winning edge among this part's edges into roots; -2 - k
            where row k of the receive buffer won; -1 where there is no edge at all.
        partial_arg: (num_writing_leaves, width) int64. Winning edge into leaves, or -1.
    """

    total_arg: Tensor
    partial_arg: Tensor


class MaxAcrossCut(torch.autograd.Function):
    """Maximum over in-edges of a graph that is cut into parts; see `LocalGraph.aggregate`.

    Every entry has exactly one winner: the source with the smallest global id among equals.
    Partials travel with their winner's id, so that the choice does not depend on the partition.
    """

    @staticmethod
    def forward(
        ctx: Any,
        rows: Tensor,
        blocks: Blocks,
        exchange: Exchange,
        source_ids: tuple[Tensor, Tensor],
    ) -> Tensor:
        """Return (num_roots, width) maxima, 0 where a vertex has no in-edge."""
        ctx.blocks, ctx.exchange = blocks, exchange
        total, ctx.winners = _forward_max(blocks.forward, exchange, rows.contiguous(), source_ids)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        """Send each entry's gradient to the one edge that won it."""
        grad = _backward_max(ctx.blocks, ctx.exchange, grads[0].contiguous(), ctx.winners)
        return grad, None, None, None


class _Maximum(NamedTuple):
    """A running maximum: value, winning edge (-1: none yet) and the winner's global id."""

    value: Tensor
    arg: Tensor
    key: Tensor

    @classmethod
    def empty(cls, num_rows: int, like: Tensor) -> _Maximum:
        shape = (num_rows, like.shape[1])
        ids = [torch.empty(shape, dtype=torch.int64) for _ in range(2)]
        return cls(torch.empty(shape, dtype=like.dtype), *ids)

    def take(self, block: Csr, keys: Tensor, rows: Tensor, *, offset: int | None = None) -> None:
        """Merge the edges of a block; without an offset, start afresh."""
        kernels.spmm_max(
            block.indptr,
            block.indices,
            keys,
            rows,
            self.value,
            arg=self.arg,
            arg_key=self.key,
            edge_offset=offset or 0,
            accumulate=offset is not None,
        )


def _forward_max(
    direction: Direction, exchange: Exchange, rows: Tensor, source_ids: tuple[Tensor, Tensor]
) -> tuple[Tensor, _Winners]:
    clock = exchange.clock
    root_ids, leaf_ids = source_ids
    arriving = send_to_leaves(direction.send, exchange, rows)
    channels = exchange.new_channel(), exchange.new_channel()
    partial = _Maximum.empty(direction.leaf_from_root.num_rows, rows)
    total = _Maximum.empty(direction.root_from_root.num_rows, rows)
    with clock.timed("aggregate"):
        partial.take(direction.leaf_from_root, root_ids, rows)
    needs_leaves = direction.leaf_from_leaf.num_edges > 0
    if not needs_leaves:
        returning = _send_maximum(direction.reduce, exchange, partial, channels)
    with clock.timed("aggregate"):
        total.take(direction.root_from_root, root_ids, rows)
    leaf_rows = arriving.wait()
    if needs_leaves:
        offset = direction.leaf_from_root.num_edges
        with clock.timed("aggregate"):
            partial.take(direction.leaf_from_leaf, leaf_ids, leaf_rows, offset=offset)
        returning = _send_maximum(direction.reduce, exchange, partial, channels)
    with clock.timed("aggregate"):
        offset = direction.root_from_root.num_edges
        total.take(direction.root_from_leaf, leaf_ids, leaf_rows, offset=offset)
    values, ids = (arrival.wait() for arrival in returning)
    _merge_received(direction.reduce, total, values, ids)
    return total.value, _Winners(total.arg, partial.arg)


def _send_maximum(
    half: Half, exchange: Exchange, partial: _Maximum, channels: tuple[int, int]
) -> tuple[Arrival, Arrival]:
    """Send leaves' maxima and their winners' ids to the roots.

    An id travels plus 1, and 0 says "no edge", so that a row that never arrived (cd-r) is none.
    """
    ids = torch.where(partial.arg >= 0, partial.key + 1, 0)
    route = half.route.reversed()
    values = exchange.begin(route, partial.value, channels[0])
    return values, exchange.begin(route, ids, channels[1])


def _merge_received(half: Half, total: _Maximum, values: Tensor, ids: Tensor) -> None:
    """Merge the partials of other parts into a maximum.

    Where row k of the buffer wins, the argument becomes -2 - k: no edge of this part, so that its
    edges get no gradient. A NaN beats any number, as in the kernel, so that divergence shows
    whatever the partition.
    """
    # A root appears at most once per peer, so that each segment may be merged at once.
    for segment in half.route.outgoing:
        span = slice(segment.start, segment.stop)
        targets, mark = half.long_root_rows[span], half.winner_mark[span]
        value, key = values[span], ids[span] - 1
        own, own_key, arg = (table[targets] for table in (total.value, total.key, total.arg))
        is_equal = (value == own) | (value.isnan() & own.isnan())
        is_ahead = (value > own) | (value.isnan() & ~own.isnan()) | (is_equal & (key < own_key))
        wins = (key >= 0) & (is_ahead | (arg == -1))
        total.value[targets] = torch.where(wins, value, own)
        total.key[targets] = torch.where(wins, key, own_key)
        total.arg[targets] = torch.where(wins, mark, arg)


def _backward_max(blocks: Blocks, exchange: Exchange, grad: Tensor, winners: _Winners) -> Tensor:
    forward, backward = blocks
    half = forward.reduce
    with exchange.clock.timed("pack"):
        targets = half.long_root_rows
        lost = torch.where(winners.total_arg[targets] == half.winner_mark, grad[targets], 0)
    arriving = exchange.begin(half.route, lost.contiguous(), exchange.new_channel())
    out = torch.empty((backward.root_from_root.num_rows, grad.shape[1]), dtype=grad.dtype)
    leaf_out = torch.empty((backward.leaf_from_root.num_rows, grad.shape[1]), dtype=grad.dtype)
    with exchange.clock.timed("aggregate"):
        offset = forward.root_from_root.num_edges
        _route_back(backward.leaf_from_root, winners.total_arg, grad, leaf_out, offset=offset)
        _route_back(backward.root_from_root, winners.total_arg, grad, out)
    leaf_grad = arriving.wait()
    with exchange.clock.timed("aggregate"):
        offset = forward.leaf_from_root.num_edges
        block = backward.leaf_from_leaf
        _route_back(block, winners.partial_arg, leaf_grad, leaf_out, offset=offset, accumulate=True)
    returning = reduce_to_roots(forward.send, exchange, leaf_out)
    with exchange.clock.timed("aggregate"):
        block = backward.root_from_leaf
        _route_back(block, winners.partial_arg, leaf_grad, out, accumulate=True)
    _add_to_roots(forward.send, exchange, returning.wait(), out)
    return out


def _route_back(
    block: Csr, arg: Tensor, grad: Tensor, out: Tensor, *, offset: int = 0, accumulate: bool = False
) -> None:
    assert block.position is not None, "gradients travel over transposed blocks"
    kernels.spmm_max_backward(
        block.indptr,
        block.indices,
        block.position,
        arg,
        grad,
        out=out,
        edge_offset=offset,
        accumulate=accumulate,
    )
