"""Attention across a cut: softmax over in-edges that lie on several parts, merged at the root."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from distgnn import kernels
from distgnn.aggregate.overlap import overlap, reduce_to_roots, send_to_leaves
from distgnn.aggregate.scores import Edges, Ends, LeafSums, Sources, State, Targets
from distgnn.aggregate.traffic import MEAN_BITS
from distgnn.edges.blocks import transposed
from distgnn.kernels import attention
from distgnn.kernels.dense import multiply_transposed
from distgnn.ops.gradients import differentiable_once

if TYPE_CHECKING:
    from torch import Tensor

    from distgnn.aggregate.overlap import BlockName
    from distgnn.aggregate.scores import Scoring
    from distgnn.edges.blocks import Blocks, Half
    from distgnn.exchange.base import Arrival, Exchange
    from distgnn.exchange.codec import Bits
    from distgnn.kernels.dense import Finish
    from distgnn.ops.buffers import Buffers


class Ending(NamedTuple):
    """Bias, ReLU and dropout of the means of an attention, in the same operation.

    Attributes:
        finish: The bias, ReLU and dropout.
        has_one_reader: Whether one layer alone reads the result, and nothing is added to that
            layer's gradient of it. The gradient may then be overwritten.
        dtype: Type that the result is stored as; None for the type that is computed with.
    """

    finish: Finish
    has_one_reader: bool
    dtype: torch.dtype | None = None

    def result(self, means: Tensor, buffers: Buffers) -> Tensor:
        """Return memory for the result: that of the means, or some of its own type."""
        if self.dtype is None:
            return means
        return buffers.empty(means.shape[0], means.shape[1], self.dtype)

    def back(
        self, grad: Tensor, result: Tensor, heads: int, buffers: Buffers
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the gradient of the means, its products with them by head, and that of the bias.

        The means need not be kept. Where the gradient is not 0, they are what dropout kept of the
        result, less the bias.
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

    Softmax over in-edges is decomposable, as in online softmax. Each part computes three sums
    per vertex and head: the maximum of its scores, the sum of exp(score - maximum), and the sum of
    the rows with these weights. The root scales the states of all parts to their common
    maximum and adds them, which is exact. Backward recomputes the weights from the scores and the
    logarithm of the whole sum, so that nothing is kept per edge.

    Under a delay, a source row that never arrived is a row of zeros with score 0. A partial or
    gradient that never arrived counts as none. The sum that arrives with a gradient may be older
    than the scores. A leaf takes its own partial sum where that is larger, so that no weight
    exceeds 1.

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
        """Return (num_targets, heads * width): weighted means of the rows of in-neighbors.

        The scoring holds the vectors and the map, and the ending holds the bias. Autograd must see
        them as arguments to ask for their gradients.
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
        # Saved tensors live until backward has ended. A result with an ending is held instead, so
        # that backward can drop it; detached, because the result itself refers to ctx.
        ctx.held = [] if ending is None else [result.detach()]
        kept = [result] if ending is None else []
        ctx.save_for_backward(*roots, *leaves, target_score, total.maximum, *leaf_sums, *kept)
        return result

    @staticmethod
    @differentiable_once
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
        root_grad = ctx.attention_pass.backward((roots, leaves), targets, leaf_sums)
        own_grads = ctx.attention_pass.scoring.take_gradients()
        return *root_grad, targets.score_grad, *own_grads, bias_grad, None, None, None, None


class _Pass(NamedTuple):
    """One attention: both directions run over the same blocks."""

    blocks: Blocks
    exchange: Exchange
    scoring: Scoring

    def forward(self, roots: Sources, target_score: Tensor) -> tuple[State, Sources, LeafSums]:
        """Return the state of the roots after all edges, the rows of leaves, and their sums."""
        self.exchange.start_pass(is_backward=False)
        steps = _Forward(self, roots, target_score)
        overlap(self.blocks.forward, self.exchange, steps)
        return steps.total, steps.leaves, steps.leaf_sums

    def backward(
        self, sources: tuple[Sources, Sources], targets: Targets, leaf_sums: LeafSums
    ) -> Sources:
        """Return the gradients of the roots' rows and scores; the targets collect theirs."""
        self.exchange.start_pass(is_backward=True)
        steps = _Backward(self, sources, targets, leaf_sums)
        overlap(self.blocks.backward, self.exchange, steps)
        return steps.root_grad


class _Forward:
    """Steps of the forward direction: states of a softmax are built and merged.

    The state of a vertex at its root takes the root's own edges. Leaves build states of their own,
    which travel as partials do in a sum.

    Args:
        whole: The attention.
        roots: Rows and scores of the sources.
        target_score: (num_rows, columns) scores, or rows that are scored, of the targets.

    Attributes:
        total: State of the roots.
        leaf_sums: Scores of the leaves that are targets, and the logarithms of their sums.
        leaves: Rows and scores of the leaves that are sources.
    """

    waits_for_rows = True
    total: State
    leaf_sums: LeafSums
    leaves: Sources

    def __init__(self, whole: _Pass, roots: Sources, target_score: Tensor) -> None:
        self._whole = whole
        self._roots = roots
        self._target_score = target_score

    def send(self) -> None:
        """Send the scores of targets to writing leaves, and the sources to reading leaves.

        A leaf cannot score its first edge before it has its score as a target. These scores are
        narrow, so they go first and are waited for at once, while the rows travel.
        """
        (blocks, exchange, scoring), roots = self._whole, self._roots
        direction = blocks.forward
        exact, score = scoring.exact_columns(self._target_score), self._target_score
        arriving_scores = send_to_leaves(direction.reduce, exchange, score, exact_columns=exact)
        self._arriving = _send(direction.send, exchange, *roots)
        self._leaf_score = arriving_scores.wait()
        heads, buffers = scoring.heads, exchange.buffers
        self._partial = State.empty(direction.leaf_from_root.num_rows, roots, heads, buffers)
        self.total = State.empty(direction.root_from_root.num_rows, roots, heads, buffers)

    def walk(self, name: BlockName) -> None:
        blocks, _, scoring = self._whole
        edges, is_first = Edges.of(blocks, name), name.endswith("root")
        if not is_first and edges.forward.num_edges == 0:
            return
        sources = self._roots if is_first else self.leaves
        state, target = self.total, self._target_score
        if name.startswith("leaf"):
            state, target = self._partial, self._leaf_score
        scoring.take(edges, sources, target, state, accumulate=not is_first)

    def reduce(self) -> None:
        """Send the leaves' states to their roots, as means and logarithms of sums.

        A head that looks at all sources alike has sums many times those of a head that looks at
        few. In a code with one unit a row, the smaller ones would be noise.

        Means are rounded to 8 bits at least. In backward, the gradients of the scores of all edges
        into a vertex cancel out, as its result is the mean of what they brought. What a code adds
        to the result is of no edge. It stays in the sum, and as the gradient follows the result,
        it does not average out. Of 4 bits it is enough to turn training around.
        """
        blocks, exchange, _ = self._whole
        with exchange.clock.timed("aggregate"):
            means, log_sum = attention.sendable(*self._partial)
        self.leaf_sums = LeafSums(self._leaf_score, log_sum)
        self._returning = _return(
            blocks.forward.reduce, exchange, means, log_sum, least_bits=MEAN_BITS
        )

    def receive(self) -> None:
        self.leaves = Sources(*_received(self._arriving, self._whole.exchange))

    def finish(self) -> None:
        blocks, exchange, _ = self._whole
        received, rows = self._returning.wait(), blocks.forward.reduce.root_rows
        with exchange.clock.timed("pack"):
            attention.merge_attention(received, rows, **self.total._asdict())


class _Backward:
    """Steps of the backward direction: each edge sends gradients from its target to its source.

    Leaves that are targets need the gradient of their vertex, and what its softmax was made of.
    Leaves that are sources collect gradients of rows and scores, which return to their roots.
    Gradients of target scores are collected at the targets of edges, so at leaves as well: these
    return last, after the final walk.

    Args:
        whole: The attention.
        sources: Rows and scores of roots and of leaves.
        targets: Start of the gradients; it collects the gradients of its scores.
        leaf_sums: Sums that forward left at the leaves that are targets.

    Attributes:
        root_grad: Gradients of the rows and scores of the roots.
    """

    waits_for_rows = True

    def __init__(
        self, whole: _Pass, sources: tuple[Sources, Sources], targets: Targets, leaf_sums: LeafSums
    ) -> None:
        self._whole = whole
        self._sources = dict(zip(("root", "leaf"), sources, strict=True))
        self._targets = {"root": targets}
        self._leaf_sums = leaf_sums
        (roots, leaves), direction = sources, whole.blocks.backward
        buffers = whole.exchange.buffers
        # Sums that more than one walk, or a message, adds to are as wide as what is computed with.
        is_sum = direction.root_from_leaf.num_edges > 0 or direction.reduce.route.num_out > 0
        self.root_grad = roots.like(buffers, is_wide=is_sum)
        self._leaf_grad = leaves.like(buffers, is_wide=True)
        self._grads = {"root": self.root_grad, "leaf": self._leaf_grad}

    def send(self) -> None:
        blocks, exchange, _ = self._whole
        targets = self._targets["root"]
        rows = targets.grad, targets.delta, targets.log_sum
        self._arriving = _send(blocks.backward.send, exchange, *rows)

    def walk(self, name: BlockName) -> None:
        """Send gradients over the edges of a block, from targets to sources."""
        blocks, exchange, scoring = self._whole
        edges, is_first = Edges.of(blocks, transposed(name)), name.endswith("root")
        num_edges = edges.forward.num_edges
        if not is_first and num_edges == 0:
            return
        source, target = name[:4], name[-4:]
        sources = self._sources[source]
        edge_grad = exchange.buffers.empty(num_edges, scoring.heads, sources.score.dtype)
        ends = Ends(sources, self._targets[target], self._grads[source])
        scoring.back(edges, ends, edge_grad, accumulate=not is_first)

    def reduce(self) -> None:
        blocks, exchange, _ = self._whole
        self._returning = _return(blocks.backward.reduce, exchange, *self._leaf_grad)

    def receive(self) -> None:
        grad, delta, log_sum = _received(self._arriving, self._whole.exchange)
        # Under a delay, what arrived may be older than the leaf's own sum; see the class above.
        log_sum = torch.maximum(log_sum, self._leaf_sums.log_sum)
        self._targets["leaf"] = Targets.of(self._leaf_sums.score, grad, delta, log_sum)

    def finish(self) -> None:
        blocks, exchange, scoring = self._whole
        direction, score_grad = blocks.backward, self._targets["leaf"].score_grad
        exact = scoring.exact_columns(score_grad)
        half = direction.send
        returning_scores = reduce_to_roots(half, exchange, score_grad, exact_columns=exact)
        widths = [part.shape[1] for part in self.root_grad]
        returned = _split(self._returning, widths, exchange)
        for part, received in zip(self.root_grad, returned, strict=True):
            _add(direction.reduce, exchange, received, part)
        returning_scores.add_to(self._targets["root"].score_grad, half.root_rows)


class _Tables(NamedTuple):
    """A message with the columns of several tables side by side."""

    arrival: Arrival
    widths: list[int]


def _send(half: Half, exchange: Exchange, *tables: Tensor) -> list[_Tables]:
    """Send rows of several tables to the leaves, in one message for each type.

    The first holds rows, which may be coded. A softmax cannot take the others rounded.
    """
    sent, num_rounded = [], tables[0].shape[1]
    for _, group in groupby(tables, key=lambda table: table.dtype):
        with exchange.clock.timed("pack"):
            picked = []
            for table in group:
                picked.append(table.new_empty((half.route.num_out, table.shape[1])))
                kernels.gather_rows(table, half.root_rows, picked[-1])
            packed = torch.cat(picked, dim=1) if len(picked) > 1 else picked[0]
        exact, num_rounded = packed.shape[1] - num_rounded, 0
        channel = exchange.new_channel()
        arrival = exchange.begin(half.route, packed, channel, exact_columns=exact)
        sent.append(_Tables(arrival, [part.shape[1] for part in picked]))
    return sent


def _return(half: Half, exchange: Exchange, *tables: Tensor, least_bits: Bits = 1) -> Arrival:
    """Send the leaves' rows of several tables to their roots in one message.

    The first may be coded, as in `_send`, with so many bits at least.
    """
    with exchange.clock.timed("pack"):
        packed = torch.cat(tables, dim=1)
    exact = packed.shape[1] - tables[0].shape[1]
    channel = exchange.new_channel()
    return exchange.begin(
        half.route.reversed(), packed, channel, exact_columns=exact, least_bits=least_bits
    )


def _received(messages: list[_Tables], exchange: Exchange) -> list[Tensor]:
    """Wait for what was sent together, and take it apart."""
    return [part for sent in messages for part in _split(sent.arrival, sent.widths, exchange)]


def _split(arrival: Arrival, widths: list[int], exchange: Exchange) -> list[Tensor]:
    rows = arrival.wait()
    with exchange.clock.timed("pack"):
        return [part.contiguous() for part in torch.split(rows, widths, dim=1)]


def _add(half: Half, exchange: Exchange, received: Tensor, total: Tensor) -> None:
    if len(received):
        with exchange.clock.timed("pack"):
            kernels.scatter_add_rows(received, half.root_rows, total)
