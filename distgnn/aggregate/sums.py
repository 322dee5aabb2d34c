"""Sums across a cut, as an autograd function: the order of the steps hides the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.autograd.function import once_differentiable

from distgnn import kernels
from distgnn.kernels.tensors import computed

if TYPE_CHECKING:
    from torch import Tensor

    from distgnn.edges.blocks import Blocks, Csr, Half
    from distgnn.exchange.base import Arrival, Exchange


class Weighting(NamedTuple):
    """What a sum over in-edges multiplies: row_factor_v * sum of w_uv source_factor_u h_u.

    Attributes:
        row_factor: (num_rows,), or None for ones.
        source_factor: (num_sources,), or None for ones.
        has_loops: Whether a vertex without an edge to itself gets one, of weight 1.
    """

    row_factor: Tensor | None = None
    source_factor: Tensor | None = None
    has_loops: bool = False

    def transposed(self) -> Weighting:
        """Return that of the gradient."""
        return self._replace(row_factor=self.source_factor, source_factor=self.row_factor)


PLAIN = Weighting()
"""A sum of rows as they are."""


def send_to_leaves(half: Half, exchange: Exchange, rows: Tensor) -> Arrival:
    """Start sending root rows to the leaves that read them.

    Args:
        half: Which roots go to whom.
        exchange: Decides when the rows travel.
        rows: (num_roots, width).

    Returns:
        The arrival of (num_leaves, width): this part's leaves, by owner.
    """
    return exchange.begin(half.route, rows, exchange.new_channel(), half.root_rows)


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


def add_to_roots(half: Half, exchange: Exchange, received: Tensor, total: Tensor) -> None:
    """Add what arrived for roots to their rows.

    Args:
        half: Which root each row of the buffer belongs to.
        exchange: Keeps the time.
        received: (num_out, width).
        total: (num_roots, width). Added to.
    """
    with exchange.clock.timed("pack"):
        kernels.scatter_add_rows(received, half.root_rows, total)


def pass_sum(
    blocks: Blocks,
    exchange: Exchange,
    rows: Tensor,
    weighting: Weighting,
    *,
    is_backward: bool = False,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Run one direction of a (weighted) sum, unseen by autograd.

    The order hides the wire: rows leave, the leaves' partials are made and leave, the roots' own
    edges are summed, and only then does anything wait.

    Rows of bfloat16 are summed in float32. They, and the leaves' partials, travel as bfloat16.

    Args:
        blocks: Edges and routes of both directions.
        exchange: Decides when rows travel.
        rows: (num_sources, width), contiguous.
        weighting: Of the forward direction; the blocks have the loops that it asks for.
        is_backward: Which direction to run: the transposed one takes gradients.
        dtype: Of the totals; that of rows if None, or float32 for bfloat16.

    Returns:
        (num_roots, width).
    """
    direction = blocks.backward if is_backward else blocks.forward
    row_factor, source_factor, _ = weighting.transposed() if is_backward else weighting
    exchange.start_pass(is_backward=is_backward)
    clock, buffers, width = exchange.clock, exchange.buffers, rows.shape[1]
    is_alone = direction.root_from_leaf.num_edges == 0 and direction.reduce.route.num_out == 0
    dtype = dtype or rows.dtype
    # Rows that others get, or partials for them, are made of need their factors before.
    is_here = is_alone and direction.send.route.num_out == direction.leaf_from_root.num_edges == 0
    if source_factor is not None and (not is_here or direction.root_from_root.weight is not None):
        scaled = buffers.empty(rows.shape[0], width, rows.dtype)
        kernels.scale_rows(rows, source_factor, scaled)
        rows, source_factor = scaled, None
    arriving = send_to_leaves(direction.send, exchange, rows)
    partial = buffers.empty(direction.leaf_from_root.num_rows, width, rows.dtype)
    with clock.timed("aggregate"):
        _spmm(direction.leaf_from_root, rows, partial, accumulate=False)
    needs_leaves = direction.leaf_from_leaf.num_edges > 0
    reduce_channel = exchange.new_channel()
    route = direction.reduce.route.reversed()
    if not needs_leaves:
        returning = exchange.begin(route, partial, reduce_channel)
    summed = dtype if is_alone else computed(rows.dtype)
    total = buffers.empty(direction.root_from_root.num_rows, width, summed)
    with clock.timed("aggregate"):
        factors = (row_factor if is_alone else None, source_factor)
        _spmm(direction.root_from_root, rows, total, accumulate=False, factors=factors)
    leaf_rows = arriving.wait()
    if needs_leaves:
        with clock.timed("aggregate"):
            _spmm(direction.leaf_from_leaf, leaf_rows, partial, accumulate=True)
        returning = exchange.begin(route, partial, reduce_channel)
    with clock.timed("aggregate"):
        _spmm(direction.root_from_leaf, leaf_rows, total, accumulate=True)
    received = returning.wait()
    if is_alone:
        return total
    add_to_roots(direction.reduce, exchange, received, total)
    with clock.timed("aggregate"):
        result = total if dtype == summed else buffers.empty(total.shape[0], width, dtype)
        if row_factor is not None:
            kernels.scale_rows(total, row_factor, result)
        elif result is not total:
            result.copy_(total)
    return result


def _spmm(
    block: Csr,
    rows: Tensor,
    out: Tensor,
    *,
    accumulate: bool,
    factors: tuple[Tensor | None, Tensor | None] = (None, None),
) -> None:
    if accumulate and block.num_edges == 0:
        return
    weight = block.weight if block.weight is None else block.weight.to(computed(rows.dtype))
    kernels.spmm_sum(
        block.indptr,
        block.indices,
        weight,
        rows,
        out,
        accumulate=accumulate,
        row_factor=factors[0],
        source_factor=factors[1],
        plan=block.plan,
    )


class SumAcrossCut(torch.autograd.Function):
    """Sum over in-edges of a graph that is cut into parts; see `LocalGraph.aggregate`."""

    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, blocks: Blocks, exchange: Exchange, weighting: Weighting
    ) -> Tensor:
        """Return (num_roots, width) totals of the rows of in-neighbours, times their factors."""
        ctx.blocks, ctx.exchange, ctx.weighting = blocks, exchange, weighting
        return pass_sum(blocks, exchange, rows.contiguous(), weighting)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        """Run the transposed blocks with the two halves swapped."""
        grad = grads[0].contiguous()
        total = pass_sum(ctx.blocks, ctx.exchange, grad, ctx.weighting, is_backward=True)
        return total, None, None, None
