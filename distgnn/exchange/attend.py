"""Attention across a cut: softmax over in-edges that lie on several parts, merged at the root."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.autograd.function import once_differentiable

from distgnn import attention, kernels
from distgnn.exchange.aggregate import send_to_leaves

if TYPE_CHECKING:
    from torch import Tensor

    from distgnn.exchange.blocks import Blocks, Csr, Half
    from distgnn.exchange.exchange import Arrival, Exchange


class AttendAcrossCut(torch.autograd.Function):
    """Attention over in-edges of a graph that is cut into parts; see `LocalGraph.attend`.

    A part makes the maximum of its scores, the sum of their exponentials and the sum of the rows
    weighted by them; the root merges those of all parts exactly, as in online softmax. Backward
    computes the weights again from the scores and the logarithm of the whole sum, so that nothing
    is kept per edge.

    Under a delay, a source row that never arrived is a row of zeros with score 0, and a partial or
    gradient that never arrived is none. The sum that arrives with a gradient may be older than the
    scores; a leaf takes its own partial sum where that is larger, so that no weight exceeds 1.

    References:
        Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018.
        Mostafa, "Sequential Aggregation and Rematerialization: Distributed Full-batch Training of
        Graph Neural Networks on Large Graphs", MLSys 2022.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        source_score: Tensor,
        target_score: Tensor,
        blocks: Blocks,
        exchange: Exchange,
        slope: float,
    ) -> Tensor:
        """Return (num_targets, heads * width): weighted means of the rows of in-neighbours."""
        attention_pass = _Pass(blocks, exchange, slope)
        roots = _Sources(x.contiguous(), source_score.contiguous())
        target_score = target_score.contiguous()
        total, leaves, leaf_sums = attention_pass.forward(roots, target_score)
        ctx.attention_pass = attention_pass
        ctx.save_for_backward(*roots, *leaves, target_score, total.out, total.maximum, *leaf_sums)
        return total.out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None, None]:
        """Run the transposed blocks; gradients of rows and of both scores travel back."""
        saved = ctx.saved_tensors
        roots, leaves = _Sources(*saved[0:2]), _Sources(*saved[2:4])
        target_score, out, log_sum = saved[4:7]
        grad = grads[0].contiguous()
        heads = log_sum.shape[1]
        shape = len(grad), heads, out.shape[1] // heads
        # Not a product and its sum: that writes a product as large as the result.
        delta = torch.einsum("vhj,vhj->vh", grad.view(shape), out.view(shape))
        targets = _Targets.of(target_score, grad, delta, log_sum)
        leaf_sums = _LeafSums(*saved[7:9])
        root_grad = ctx.attention_pass.backward(roots, leaves, targets, leaf_sums)
        return root_grad.x, root_grad.score, targets.score_grad, None, None, None


class _Sources(NamedTuple):
    """What edges start from: (num_sources, heads * width) rows, (num_sources, heads) scores."""

    x: Tensor
    score: Tensor


class _State(NamedTuple):
    """A softmax under way: (num_targets, heads * width), and twice (num_targets, heads)."""

    out: Tensor
    maximum: Tensor
    denominator: Tensor

    @classmethod
    def empty(cls, num_rows: int, like: _Sources) -> _State:
        width, heads = like.x.shape[1], like.score.shape[1]
        return cls(*(like.x.new_empty((num_rows, columns)) for columns in (width, heads, heads)))


class _LeafSums(NamedTuple):
    """What forward leaves for backward at the leaves that are targets, each (num_leaves, heads).

    Attributes:
        score: Of the targets.
        log_sum: Logarithm of the sum of exponentials over this part's edges.
    """

    score: Tensor
    log_sum: Tensor


class _Targets(NamedTuple):
    """What gradients start from: the scores of targets, and what their softmax made of them.

    Attributes:
        score: (num_targets, heads).
        log_sum: (num_targets, heads). Logarithm of the sum of exponentials over all in-edges.
        grad: (num_targets, heads * width). Gradient of the result.
        delta: (num_targets, heads). Gradient times result, summed over a head's columns.
        score_grad: (num_targets, heads). Gradient of the scores, from the edges taken so far.
    """

    score: Tensor
    log_sum: Tensor
    grad: Tensor
    delta: Tensor
    score_grad: Tensor

    @classmethod
    def of(cls, score: Tensor, grad: Tensor, delta: Tensor, log_sum: Tensor) -> _Targets:
        return cls(score, log_sum, grad, delta, torch.zeros_like(score))


class _Pass(NamedTuple):
    """One attention: both directions run over the same blocks."""

    blocks: Blocks
    exchange: Exchange
    slope: float

    def forward(self, roots: _Sources, target_score: Tensor) -> tuple[_State, _Sources, _LeafSums]:
        """Return the finished state of the roots, the rows of leaves, and their sums.

        The scores of leaves as targets are few and needed first. Then the order is that of a sum:
        partials leave before the roots' own edges are walked. A finished state has the logarithms
        of the whole sums in place of maxima.
        """
        direction, exchange = self.blocks.forward, self.exchange
        exchange.start_pass(is_backward=False)
        arriving_scores = send_to_leaves(direction.reduce, exchange, target_score)
        arriving = self._send(direction.send, *roots)
        channel = exchange.new_channel()
        leaf_score = arriving_scores.wait()
        partial = _State.empty(direction.leaf_from_root.num_rows, roots)
        total = _State.empty(direction.root_from_root.num_rows, roots)
        self._take(partial, direction.leaf_from_root, roots, leaf_score, accumulate=False)
        needs_leaves = direction.leaf_from_leaf.num_edges > 0
        if not needs_leaves:
            returning = self._return(direction.reduce, channel, *partial)
        self._take(total, direction.root_from_root, roots, target_score, accumulate=False)
        leaves = _Sources(*self._received(arriving, *(part.shape[1] for part in roots)))
        if needs_leaves:
            self._take(partial, direction.leaf_from_leaf, leaves, leaf_score, accumulate=True)
            returning = self._return(direction.reduce, channel, *partial)
        self._take(total, direction.root_from_leaf, leaves, target_score, accumulate=True)
        received = returning.wait()
        with exchange.clock.timed("pack"):
            attention.merge_attention(received, direction.reduce.root_rows, **total._asdict())
        with exchange.clock.timed("aggregate"):
            attention.finish_attention(*total)
        leaf_log_sum = partial.maximum + partial.denominator.log()
        return total, leaves, _LeafSums(leaf_score, leaf_log_sum)

    def backward(
        self, roots: _Sources, leaves: _Sources, targets: _Targets, leaf_sums: _LeafSums
    ) -> _Sources:
        """Return the gradients of the roots' rows and scores; the targets collect theirs."""
        forward, exchange = self.blocks.forward, self.exchange
        exchange.start_pass(is_backward=True)
        widths = [part.shape[1] for part in roots]
        arriving = self._send(forward.reduce, targets.grad, targets.delta, targets.log_sum)
        channels = exchange.new_channel(), exchange.new_channel()
        root_grad, leaf_grad = (
            _Sources(*(torch.empty_like(part) for part in ends)) for ends in (roots, leaves)
        )
        self._back("root_from_leaf", leaves, targets, leaf_grad, accumulate=False)
        needs_leaves = forward.leaf_from_leaf.num_edges > 0
        if not needs_leaves:
            returning = self._return(forward.send, channels[0], *leaf_grad)
        self._back("root_from_root", roots, targets, root_grad, accumulate=False)
        grad, delta, log_sum = self._received(arriving, *widths, widths[1])
        log_sum = torch.maximum(log_sum, leaf_sums.log_sum)
        leaf_targets = _Targets.of(leaf_sums.score, grad, delta, log_sum)
        if needs_leaves:
            self._back("leaf_from_leaf", leaves, leaf_targets, leaf_grad, accumulate=True)
            returning = self._return(forward.send, channels[0], *leaf_grad)
        self._back("leaf_from_root", roots, leaf_targets, root_grad, accumulate=True)
        returning_scores = self._return(forward.reduce, channels[1], leaf_targets.score_grad)
        for part, received in zip(root_grad, self._received(returning, *widths), strict=True):
            self._add(forward.send, received, part)
        self._add(forward.reduce, returning_scores.wait(), targets.score_grad)
        return root_grad

    def _take(
        self,
        state: _State,
        block: Csr,
        sources: _Sources,
        target_score: Tensor,
        *,
        accumulate: bool,
    ) -> None:
        """Let the edges of a block take part in a softmax; without `accumulate`, start one."""
        if accumulate and block.num_edges == 0:
            return
        with self.exchange.clock.timed("aggregate"):
            attention.attend(
                block.indptr,
                block.indices,
                sources.score,
                target_score,
                sources.x,
                **state._asdict(),
                slope=self.slope,
                accumulate=accumulate,
                plan=block.plan,
            )

    def _back(
        self,
        name: str,
        sources: _Sources,
        targets: _Targets,
        source_grad: _Sources,
        *,
        accumulate: bool,
    ) -> None:
        """Send gradients over the edges of a forward block; without `accumulate`, start them."""
        block: Csr = getattr(self.blocks.forward, name)
        transposed: Csr = getattr(self.blocks.backward, _TRANSPOSED[name])
        if accumulate and block.num_edges == 0:
            return
        assert transposed.position is not None, "gradients travel over transposed blocks"
        heads, dtype = targets.score.shape[1], targets.score.dtype
        edge_grad = self.exchange.buffers.empty(block.num_edges, heads, dtype)
        with self.exchange.clock.timed("aggregate"):
            attention.attend_backward(
                transposed.indptr,
                transposed.indices,
                transposed.position,
                sources.score,
                targets.score,
                log_sum=targets.log_sum,
                x=sources.x,
                grad=targets.grad,
                delta=targets.delta,
                grad_x=source_grad.x,
                grad_source=source_grad.score,
                edge_grad=edge_grad,
                slope=self.slope,
                accumulate=accumulate,
                plan=transposed.plan,
            )
            attention.edge_sum(block.indptr, edge_grad, targets.score_grad, accumulate=True)

    def _send(self, half: Half, *tables: Tensor) -> Arrival:
        """Send rows of several tables to the leaves in one message."""
        with self.exchange.clock.timed("pack"):
            picked = [table.new_empty((half.route.num_out, table.shape[1])) for table in tables]
            for table, rows in zip(tables, picked, strict=True):
                kernels.gather_rows(table, half.root_rows, rows)
            packed = torch.cat(picked, dim=1)
        return self.exchange.begin(half.route, packed, self.exchange.new_channel())

    def _return(self, half: Half, channel: int, *tables: Tensor) -> Arrival:
        """Send the leaves' rows of several tables to their roots in one message."""
        with self.exchange.clock.timed("pack"):
            packed = torch.cat(tables, dim=1)
        return self.exchange.begin(half.route.reversed(), packed, channel)

    def _received(self, arrival: Arrival, *widths: int) -> list[Tensor]:
        """Wait for a message and take it apart."""
        rows = arrival.wait()
        with self.exchange.clock.timed("pack"):
            return [part.contiguous() for part in torch.split(rows, list(widths), dim=1)]

    def _add(self, half: Half, received: Tensor, total: Tensor) -> None:
        with self.exchange.clock.timed("pack"):
            kernels.scatter_add_rows(received, half.root_rows, total)


_TRANSPOSED = {
    "root_from_root": "root_from_root",
    "leaf_from_root": "root_from_leaf",
    "root_from_leaf": "leaf_from_root",
    "leaf_from_leaf": "leaf_from_leaf",
}
