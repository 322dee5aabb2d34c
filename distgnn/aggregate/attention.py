"""Attention across a cut: softmax over in-edges that lie on several parts, merged at the root."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.autograd.function import once_differentiable

from distgnn import kernels
from distgnn.aggregate.scores import Edges, Ends, LeafSums, Sources, State, Targets
from distgnn.aggregate.sums import send_to_leaves
from distgnn.kernels import attention
from distgnn.kernels.dense import multiply_transposed

if TYPE_CHECKING:
    from torch import Tensor

    from distgnn.aggregate.scores import Scoring
    from distgnn.edges.blocks import Blocks, Half
    from distgnn.exchange.base import Arrival, Exchange
    from distgnn.kernels.dense import Finish
    from distgnn.ops.buffers import Buffers


class Ending(NamedTuple):
    """What is done to the means of an attention before they are left.

    Attributes:
        finish: With a bias and relu.
        has_one_reader: Whether one layer alone reads the result, and nothing adds to that layer's
            gradient of it: then the gradient may be overwritten.
        dtype: That the result is stored as; None for the one that is computed with.
    """

    finish: Finish
    has_one_reader: bool
    dtype: torch.dtype | None = None

    def result(self, means: Tensor, buffers: Buffers) -> Tensor:
        """Return where the result goes: in the place of the means, or of its own type."""
        if self.dtype is None:
            return means
        return buffers.empty(means.shape[0], means.shape[1], self.dtype)

    def back(
        self, grad: Tensor, result: Tensor, heads: int, buffers: Buffers
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the gradient of the means, its products with them by head, and that of the bias.

        Where the gradient is not 0, the means are what dropout kept of the result, less the bias:
        they need not be kept.
        """
        if not (self.has_one_reader and buffers.owns(grad)):
            own = buffers.empty(grad.shape[0], grad.shape[1], grad.dtype)
            grad = own.copy_(grad)
        bias = self.finish.bias
        assert bias is not None, "an ending adds a bias"
        bias_grad, kept = torch.empty_like(bias), 1 - self.finish.probability
        multiply_transposed([], grad, activation=result, scale=1 / kept, bias_gradient=bias_grad)
        delta = bias.new_empty((len(grad), heads))
        attention.attention_delta(grad, result, delta, bias=bias, scale=kept)
        return grad, delta, bias_grad


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
        vectors: Tensor | None,
        edge_map: Tensor | None,
        bias: Tensor | None,
        blocks: Blocks,
        exchange: Exchange,
        scoring: Scoring,
        ending: Ending | None,
    ) -> Tensor:
        """Return (num_targets, heads * width): weighted means of the rows of in-neighbours.

        The vectors and the map are those that the scoring holds, and the bias that of the ending,
        named here for their gradients.
        """
        del vectors, edge_map, bias
        attention_pass = _Pass(blocks, exchange, scoring)
        roots = Sources(x.contiguous(), source_score.contiguous())
        target_score = target_score.contiguous()
        total, leaves, leaf_sums = attention_pass.forward(roots, target_score)
        result, finish = total.out, attention.NO_FINISH
        if ending is not None:
            result, finish = ending.result(result, exchange.buffers), ending.finish
        with exchange.clock.timed("aggregate"):
            attention.finish_attention(*total, result=result, finish=finish)
        ctx.attention_pass, ctx.ending = attention_pass, ending
        # What is saved lives until backward has ended: a result that has an ending is held instead,
        # detached, because it holds what holds this.
        ctx.held = [] if ending is None else [result.detach()]
        kept = [result] if ending is None else []
        ctx.save_for_backward(*roots, *leaves, target_score, total.maximum, *leaf_sums, *kept)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Run the transposed blocks; gradients of rows and of both scores travel back."""
        saved = ctx.saved_tensors
        roots, leaves = Sources(*saved[0:2]), Sources(*saved[2:4])
        target_score, log_sum = saved[4:6]
        leaf_sums = LeafSums(*saved[6:8])
        grad = grads[0].contiguous()
        heads, bias_grad = log_sum.shape[1], None
        if ctx.ending is None:
            delta = torch.empty_like(log_sum)
            attention.attention_delta(grad, saved[8], delta)
        elif not ctx.held:
            raise RuntimeError("the backward pass of attention with an activation runs once only")
        else:
            buffers = ctx.attention_pass.exchange.buffers
            grad, delta, bias_grad = ctx.ending.back(grad, ctx.held.pop(), heads, buffers)
        if not ctx.attention_pass.scoring.reads_narrow:
            grad = grad.to(log_sum.dtype)
        targets = Targets.of(target_score, grad, delta, log_sum)
        root_grad = ctx.attention_pass.backward(roots, leaves, targets, leaf_sums)
        own_grads = ctx.attention_pass.scoring.take_gradients()
        return *root_grad, targets.score_grad, *own_grads, bias_grad, None, None, None, None


class _Tables(NamedTuple):
    """A message with the columns of several tables side by side."""

    arrival: Arrival
    widths: list[int]


class _Pass(NamedTuple):
    """One attention: both directions run over the same blocks."""

    blocks: Blocks
    exchange: Exchange
    scoring: Scoring

    def forward(self, roots: Sources, target_score: Tensor) -> tuple[State, Sources, LeafSums]:
        """Return the state of the roots after all edges, the rows of leaves, and their sums.

        The scores of leaves as targets are few and needed first. Then the order is that of a sum:
        partials leave before the roots' own edges are walked.
        """
        direction, exchange = self.blocks.forward, self.exchange
        exchange.start_pass(is_backward=False)
        arriving_scores = send_to_leaves(direction.reduce, exchange, target_score)
        arriving = self._send(direction.send, *roots)
        channel = exchange.new_channel()
        leaf_score = arriving_scores.wait()
        heads, buffers = self.scoring.heads, exchange.buffers
        partial = State.empty(direction.leaf_from_root.num_rows, roots, heads, buffers)
        total = State.empty(direction.root_from_root.num_rows, roots, heads, buffers)
        self._take("leaf_from_root", partial, roots, leaf_score, accumulate=False)
        needs_leaves = direction.leaf_from_leaf.num_edges > 0
        if not needs_leaves:
            returning = self._return(direction.reduce, channel, *partial)
        self._take("root_from_root", total, roots, target_score, accumulate=False)
        leaves = Sources(*self._received(arriving))
        if needs_leaves:
            self._take("leaf_from_leaf", partial, leaves, leaf_score, accumulate=True)
            returning = self._return(direction.reduce, channel, *partial)
        self._take("root_from_leaf", total, leaves, target_score, accumulate=True)
        received = returning.wait()
        with exchange.clock.timed("pack"):
            attention.merge_attention(received, direction.reduce.root_rows, **total._asdict())
        leaf_log_sum = partial.maximum + partial.denominator.log()
        return total, leaves, LeafSums(leaf_score, leaf_log_sum)

    def backward(
        self, roots: Sources, leaves: Sources, targets: Targets, leaf_sums: LeafSums
    ) -> Sources:
        """Return the gradients of the roots' rows and scores; the targets collect theirs."""
        forward, exchange = self.blocks.forward, self.exchange
        exchange.start_pass(is_backward=True)
        widths = [part.shape[1] for part in roots]
        arriving = self._send(forward.reduce, targets.grad, targets.delta, targets.log_sum)
        channels = exchange.new_channel(), exchange.new_channel()
        # What is added to is as wide as what is computed with.
        is_sum = forward.leaf_from_root.num_edges > 0 or forward.send.route.num_out > 0
        root_grad = roots.like(exchange.buffers, is_wide=is_sum)
        leaf_grad = leaves.like(exchange.buffers, is_wide=True)
        self._back("root_from_leaf", leaves, targets, leaf_grad, accumulate=False)
        needs_leaves = forward.leaf_from_leaf.num_edges > 0
        if not needs_leaves:
            returning = self._return(forward.send, channels[0], *leaf_grad)
        self._back("root_from_root", roots, targets, root_grad, accumulate=False)
        grad, delta, log_sum = self._received(arriving)
        log_sum = torch.maximum(log_sum, leaf_sums.log_sum)
        leaf_targets = Targets.of(leaf_sums.score, grad, delta, log_sum)
        if needs_leaves:
            self._back("leaf_from_leaf", leaves, leaf_targets, leaf_grad, accumulate=True)
            returning = self._return(forward.send, channels[0], *leaf_grad)
        self._back("leaf_from_root", roots, leaf_targets, root_grad, accumulate=True)
        returning_scores = self._return(forward.reduce, channels[1], leaf_targets.score_grad)
        for part, received in zip(root_grad, self._split(returning, widths), strict=True):
            self._add(forward.send, received, part)
        self._add(forward.reduce, returning_scores.wait(), targets.score_grad)
        return root_grad

    def _take(
        self, name: str, state: State, sources: Sources, target: Tensor, *, accumulate: bool
    ) -> None:
        """Let the edges of a block take part in a softmax; without `accumulate`, start one."""
        edges = Edges.of(self.blocks, name)
        if accumulate and edges.forward.num_edges == 0:
            return
        with self.exchange.clock.timed("aggregate"):
            self.scoring.take(edges, sources, target, state, accumulate=accumulate)

    def _back(
        self,
        name: str,
        sources: Sources,
        targets: Targets,
        source_grad: Sources,
        *,
        accumulate: bool,
    ) -> None:
        """Send gradients over the edges of a forward block; without `accumulate`, start them."""
        edges = Edges.of(self.blocks, name)
        num_edges = edges.forward.num_edges
        if accumulate and num_edges == 0:
            return
        dtype = sources.score.dtype
        edge_grad = self.exchange.buffers.empty(num_edges, self.scoring.heads, dtype)
        ends = Ends(sources, targets, source_grad)
        with self.exchange.clock.timed("aggregate"):
            self.scoring.back(edges, ends, edge_grad, accumulate=accumulate)

    def _send(self, half: Half, *tables: Tensor) -> list[_Tables]:
        """Send rows of several tables to the leaves, in one message for each type."""
        sent = []
        for _, group in groupby(tables, key=lambda table: table.dtype):
            with self.exchange.clock.timed("pack"):
                picked = []
                for table in group:
                    picked.append(table.new_empty((half.route.num_out, table.shape[1])))
                    kernels.gather_rows(table, half.root_rows, picked[-1])
                packed = torch.cat(picked, dim=1) if len(picked) > 1 else picked[0]
            arrival = self.exchange.begin(half.route, packed, self.exchange.new_channel())
            sent.append(_Tables(arrival, [part.shape[1] for part in picked]))
        return sent

    def _return(self, half: Half, channel: int, *tables: Tensor) -> Arrival:
        """Send the leaves' rows of several tables to their roots in one message."""
        with self.exchange.clock.timed("pack"):
            packed = torch.cat(tables, dim=1)
        return self.exchange.begin(half.route.reversed(), packed, channel)

    def _received(self, messages: list[_Tables]) -> list[Tensor]:
        """Wait for what was sent together, and take it apart."""
        return [part for sent in messages for part in self._split(sent.arrival, sent.widths)]

    def _split(self, arrival: Arrival, widths: list[int]) -> list[Tensor]:
        rows = arrival.wait()
        with self.exchange.clock.timed("pack"):
            return [part.contiguous() for part in torch.split(rows, widths, dim=1)]

    def _add(self, half: Half, received: Tensor, total: Tensor) -> None:
        if len(received) == 0:
            return
        with self.exchange.clock.timed("pack"):
            kernels.scatter_add_rows(received, half.root_rows, total)
