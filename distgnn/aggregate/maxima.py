"""Maxima across a cut, as an autograd function."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.autograd.function import once_differentiable

from distgnn import kernels
from distgnn.aggregate.overlap import RowSteps, overlap, reduce_to_roots
from distgnn.kernels.maxima import (
    merge_max,
    merge_received_max,
    spmm_extreme,
    spmm_extreme_backward,
)

if TYPE_CHECKING:
    from torch import Tensor

    from distgnn.aggregate.overlap import BlockName
    from distgnn.edges.blocks import Blocks
    from distgnn.exchange.base import Exchange
    from distgnn.kernels.csr import Csr


class MaxBlocks(NamedTuple):
    """The blocks of a graph, prepared for maxima.

    Attributes:
        blocks: Both directions of the pass. In the forward blocks, sources ascend by global id
            inside a row, so that the first of equal values is the one with the smallest id.
        source_id: (num_sources,) int64. Global id of each row that edges start from: roots, then
            reading leaves.
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
        blocks: Blocks from `plan_blocks`.
        root_id: (num_root_sources,) int64. Global ids of the roots that edges start from.
        leaf_id: (num_reading_leaves,) int64. Global ids of the leaves.

    Returns:
        The blocks. Edges out of roots ascend by global id already. Leaves are numbered by their
        owner first, so that the edges out of them may have to be sorted.
    """
    forward = blocks.forward
    forward = replace(
        forward,
        root_from_leaf=_ascending(forward.root_from_leaf, leaf_id),
        leaf_from_leaf=_ascending(forward.leaf_from_leaf, leaf_id),
    )
    return MaxBlocks(blocks._replace(forward=forward), torch.cat([root_id, leaf_id]))


def _ascending(block: Csr, source_id: Tensor) -> Csr:
    """Return the block with ascending source ids in each row; itself if they ascend already."""
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
        exchange.start_pass(is_backward=False)
        steps = _Forward(given, exchange, rows.contiguous())
        overlap(given.blocks.forward, exchange, steps)
        ctx.given, ctx.exchange = given, exchange
        ctx.winners = steps.total_source, steps.partial_source
        return steps.total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        """Send each entry's gradient to the one source that won it."""
        ctx.exchange.start_pass(is_backward=True)
        steps = _Backward(ctx.given, ctx.exchange, grads[0].contiguous(), ctx.winners)
        overlap(ctx.given.blocks.backward, ctx.exchange, steps)
        return steps.total, None, None


class _Forward(RowSteps):
    """Maxima and their winners.

    A winner is a source of this rank as `MaxBlocks.source_id` numbers them, -1 where there is no
    edge, or -2 - k where row k of a receive buffer won.
    """

    def __init__(self, given: MaxBlocks, exchange: Exchange, rows: Tensor) -> None:
        direction, buffers, width = given.blocks.forward, exchange.buffers, rows.shape[1]
        num_roots, num_leaves = direction.root_from_root.num_rows, direction.leaf_from_root.num_rows
        partial = buffers.empty(num_leaves, width, rows.dtype)
        total = buffers.empty(num_roots, width, rows.dtype)
        super().__init__(direction, exchange, rows, total, partial)
        self.given = given
        self.partial_source = buffers.empty(num_leaves, width, torch.int32)
        self.total_source = buffers.empty(num_roots, width, torch.int32)

    def add(self, name: BlockName, rows: Tensor, out: Tensor) -> None:
        block: Csr = getattr(self.direction, name)
        source = self.total_source if name.startswith("root") else self.partial_source
        if name.endswith("root"):
            spmm_extreme(block, rows, out, source=source, is_max=True)
        elif block.num_edges:
            buffers, width = self.exchange.buffers, rows.shape[1]
            other = buffers.empty(block.num_rows, width, rows.dtype)
            other_source = buffers.empty(block.num_rows, width, torch.int32)
            spmm_extreme(block, rows, other, source=other_source, is_max=True)
            given = self.given
            ids, first = given.source_id, given.first_leaf
            merge_max(out, source, other, other_source, source_id=ids, first_source=first)

    def reduce(self) -> None:
        """Send leaves' maxima, and their winners' ids in a message of another type.

        An id travels plus 1, and 0 says "no edge", so that a row that never arrived (cd-r) is none.
        """
        super().reduce()
        with self.exchange.clock.timed("pack"):
            ids = torch.nn.functional.pad(self.given.source_id + 1, (1, 0))
            picked = self.partial_source.flatten() + 1
            winner_id = ids.index_select(0, picked).view(self.partial_source.shape)
        self._returning_ids = reduce_to_roots(self.direction.reduce, self.exchange, winner_id)

    def finish(self) -> None:
        values, ids = self._returning.wait(), self._returning_ids.wait()
        with self.exchange.clock.timed("pack"):
            rows, source_id = self.direction.reduce.root_rows, self.given.source_id
            merge_received_max(
                self.total, self.total_source, rows, values, ids, source_id=source_id
            )


class _Backward(RowSteps):
    """Gradients of maxima: each goes to its winner, over the wire if that is remote."""

    def __init__(
        self, given: MaxBlocks, exchange: Exchange, grad: Tensor, winners: tuple[Tensor, Tensor]
    ) -> None:
        direction, buffers, width = given.blocks.backward, exchange.buffers, grad.shape[1]
        total = buffers.empty(direction.root_from_root.num_rows, width, grad.dtype)
        partial = buffers.empty(direction.leaf_from_root.num_rows, width, grad.dtype)
        super().__init__(direction, exchange, grad, total, partial)
        self.first_leaf = given.first_leaf
        self.total_source, self.partial_source = winners

    def send(self) -> None:
        """Send each leaf the gradients of the maxima that its partial won, and 0 for the others."""
        half, exchange, grad = self.direction.send, self.exchange, self.rows
        with exchange.clock.timed("pack"):
            packed = exchange.buffers.empty(half.route.num_out, grad.shape[1], grad.dtype)
            kernels.gather_rows(grad, half.root_rows, packed)
            is_own = self.total_source.index_select(0, half.root_rows) != half.winner_mark
            packed.masked_fill_(is_own, 0)
        self._arriving = exchange.begin(half.route, packed, exchange.new_channel())

    def add(self, name: BlockName, rows: Tensor, out: Tensor) -> None:
        block: Csr = getattr(self.direction, name)
        is_first = name.endswith("root")
        if not is_first and block.num_edges == 0:
            return
        spmm_extreme_backward(
            block,
            self.total_source if is_first else self.partial_source,
            rows,
            out=out,
            accumulate=not is_first,
            first_source=0 if name.startswith("root") else self.first_leaf,
        )
