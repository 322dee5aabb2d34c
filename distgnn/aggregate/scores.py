"""Scores of attention, and softmax over them: what one block of a part computes.

`Leaky` adds numbers of both ends, as GAT does, and keeps nothing per edge. `Additive` scores the
sum of the rows of both ends, as GATv2 does. It keeps a score for every edge of a block while the
block is walked. `AdditiveOfFeatures` also adds a map of the edge's features.

References:
    Velickovic et al., "Graph Attention Networks", ICLR 2018.
    Brody, Alon and Yahav, "How Attentive are Graph Attention Networks?", ICLR 2022, equation 7.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import torch
from torch.nn.functional import leaky_relu

from distgnn.edges.blocks import transposed
from distgnn.edges.chunks import chunks_of
from distgnn.kernels import attention, edge_values

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from distgnn.aggregate.edge_dropout import EdgeDropout
    from distgnn.aggregate.edge_features import EdgeMap
    from distgnn.edges.blocks import Blocks
    from distgnn.edges.chunks import Chunk
    from distgnn.kernels.csr import Csr
    from distgnn.ops.buffers import Buffers

# Values of the rows of both ends that are there at once: a few MiB, which stay in the cache.
_CHUNK_VALUES = 1 << 20


class Edges(NamedTuple):
    """One block in both directions.

    Attributes:
        name: Name of the block of the forward direction.
        forward: Edges by target.
        transposed: The same edges by source.
    """

    name: str
    forward: Csr
    transposed: Csr

    @classmethod
    def of(cls, blocks: Blocks, name: str) -> Edges:
        """Pick a block of the forward direction by its name."""
        return cls(name, getattr(blocks.forward, name), getattr(blocks.backward, transposed(name)))

    @property
    def position(self) -> Tensor:
        """(num_edges,) int64. Where each transposed edge stands in the forward block."""
        assert self.transposed.position is not None, "gradients travel over transposed blocks"
        return self.transposed.position


class Sources(NamedTuple):
    """Sources of edges: (num_sources, heads * width) rows, and what the scores take of them.

    Scores are (num_sources, heads), or (num_sources, 0) if they take the rows alone. Rows may be
    bfloat16, of scores in float32.
    """

    x: Tensor
    score: Tensor

    def like(self, buffers: Buffers, *, is_wide: bool) -> Sources:
        """Return others whose values are not set; rows of bfloat16 are float32 if they are wide."""
        row_dtype = self.score.dtype if is_wide else self.x.dtype
        rows = buffers.empty(self.x.shape[0], self.x.shape[1], row_dtype)
        num_rows, heads = self.score.shape
        return Sources(rows, buffers.empty(num_rows, heads, self.score.dtype))


class State(NamedTuple):
    """A softmax under way: (num_targets, heads * width), and twice (num_targets, heads)."""

    out: Tensor
    maximum: Tensor
    denominator: Tensor

    @classmethod
    def empty(cls, num_rows: int, like: Sources, heads: int, buffers: Buffers) -> State:
        """Return one whose values are not set."""
        widths, dtype = (like.x.shape[1], heads, heads), like.score.dtype
        return cls(*(buffers.empty(num_rows, columns, dtype) for columns in widths))


class LeafSums(NamedTuple):
    """Sums that forward leaves for backward at the leaves that are targets.

    Attributes:
        score: (num_leaves, columns). Scores of the targets.
        log_sum: (num_leaves, heads). Logarithm of the sum of exponentials over this part's edges.
    """

    score: Tensor
    log_sum: Tensor


class Targets(NamedTuple):
    """Start of the gradients: the scores of targets, and what their softmax made of them.

    Attributes:
        score: (num_targets, columns). One a head, or rows as wide as those of the sources.
        log_sum: (num_targets, heads). Logarithm of the sum of exponentials over all in-edges.
        grad: (num_targets, heads * width). Gradient of the result.
        delta: (num_targets, heads). Gradient times result, summed over a head's columns.
        score_grad: (num_targets, columns). Gradient of the scores, from the edges taken so far.
    """

    score: Tensor
    log_sum: Tensor
    grad: Tensor
    delta: Tensor
    score_grad: Tensor

    @classmethod
    def of(cls, score: Tensor, grad: Tensor, delta: Tensor, log_sum: Tensor) -> Targets:
        """Return them before any edge was taken."""
        return cls(score, log_sum, grad, delta, torch.zeros_like(score))


class Ends(NamedTuple):
    """Both ends of the edges of a block in backward; `source_grad` is written."""

    sources: Sources
    targets: Targets
    source_grad: Sources


class Scoring(ABC):
    """Scores the edges of one attention, and sums rows as the softmax of the scores says.

    Args:
        heads: How many scores an edge has.
    """

    reads_narrow: ClassVar[bool] = False
    """Whether gradients of rows may be bfloat16."""
    takes_rows: ClassVar[bool] = True
    """Whether scores take rows of targets, which may be coded; else numbers, which travel exact."""

    def __init__(self, heads: int) -> None:
        self.heads = heads

    def exact_columns(self, target_score: Tensor) -> int:
        """Return how many columns of what is taken of targets no code may round.

        Args:
            target_score: (any, columns). What scores take of targets, or its gradient.
        """
        return 0 if self.takes_rows else target_score.shape[1]

    @abstractmethod
    def take(
        self, edges: Edges, sources: Sources, target: Tensor, state: State, *, accumulate: bool
    ) -> None:
        """Let edges take part in a softmax.

        Args:
            edges: Edges of one block.
            sources: Where they start.
            target: (num_targets, columns). What scores take of the targets.
            state: State of the targets; written.
            accumulate: Whether the state already there takes part.
        """

    @abstractmethod
    def back(self, edges: Edges, ends: Ends, edge_grad: Tensor, *, accumulate: bool) -> None:
        """Send gradients over the edges to what they start from, and collect those of the scores.

        Args:
            edges: Edges of one block.
            ends: Rows, scores and gradients at both ends.
            edge_grad: (num_edges, heads). Scratch.
            accumulate: Whether the gradients of the sources start from what is there.
        """

    def take_gradients(self) -> tuple[Tensor | None, Tensor | None]:
        """Return the gradients of the vectors and of the map of features, and forget them.

        None for what the scoring does not have.
        """
        return None, None


class Softmax(NamedTuple):
    """Softmax of scores and sums of rows, by kernels that walk edges once.

    Weights are computed again in backward.

    Attributes:
        slope: Slope of the leaky ReLU of the scores below 0.
        dropout: Dropout of the weights, after the softmax; None for none.
    """

    slope: float
    dropout: EdgeDropout | None

    def take(
        self,
        edges: Edges,
        sources: Sources,
        target: Tensor,
        state: State,
        own: Tensor | None,
        *,
        accumulate: bool,
    ) -> None:
        """Run `Scoring.take` with (num_edges, heads) scores of the edges' own, or None."""
        attention.attend(
            edges.forward,
            sources.score,
            target,
            sources.x,
            **state._asdict(),
            slope=self.slope,
            accumulate=accumulate,
            edge_score=own,
            mask=self._mask(edges),
        )

    def back(
        self, edges: Edges, ends: Ends, edge_grad: Tensor, *, has_own: bool, accumulate: bool
    ) -> None:
        """Run `Scoring.back` for the sources alone.

        The gradients of the edges take the place of scores of their own, if they have any.
        """
        sources, targets, source_grad = ends
        attention.attend_backward(
            edges.transposed,
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
            edge_score=edge_grad if has_own else None,
            mask=self._mask(edges),
        )

    def _mask(self, edges: Edges) -> attention.EdgeMask | None:
        return None if self.dropout is None else self.dropout.mask(edges.name)


class Leaky(Scoring):
    """leaky_relu(source score + target score + map of features).

    An edge keeps its part of the score, if it has one, while its block is walked; in backward the
    gradient takes its place.

    Args:
        heads: How many scores an edge has.
        slope: Slope of the leaky ReLU below 0.
        dropout: Dropout of the weights, after the softmax; None for none.
        edge_map: Map of the features of edges; None if they add nothing.
    """

    reads_narrow: ClassVar[bool] = True
    takes_rows: ClassVar[bool] = False

    def __init__(
        self,
        heads: int,
        slope: float,
        dropout: EdgeDropout | None = None,
        edge_map: EdgeMap | None = None,
    ) -> None:
        super().__init__(heads)
        self._softmax = Softmax(slope, dropout)
        self._edge_map = edge_map

    def take(
        self, edges: Edges, sources: Sources, target: Tensor, state: State, *, accumulate: bool
    ) -> None:
        """See `Scoring`."""
        own = None if self._edge_map is None else self._edge_map.mapped(edges.forward)
        self._softmax.take(edges, sources, target, state, own, accumulate=accumulate)

    def back(self, edges: Edges, ends: Ends, edge_grad: Tensor, *, accumulate: bool) -> None:
        """See `Scoring`."""
        forward, has_own = edges.forward, self._edge_map is not None
        if self._edge_map is not None:
            self._edge_map.write(forward, edge_grad)
        self._softmax.back(edges, ends, edge_grad, has_own=has_own, accumulate=accumulate)
        attention.edge_sum(forward.indptr, edge_grad, ends.targets.score_grad, accumulate=True)
        if self._edge_map is not None:
            self._edge_map.add_gradient(forward, slice(None), edge_grad)

    def take_gradients(self) -> tuple[Tensor | None, Tensor | None]:
        """See `Scoring`."""
        return None, None if self._edge_map is None else self._edge_map.take_gradient()


class Additive(Scoring):
    """vector . leaky_relu(row of the source + row of the target), per head, by kernels.

    They score the edges of a block, which then have scores of their own and no others.

    Args:
        vectors: (heads, width). One a head.
        slope: Slope of the leaky ReLU below 0.
        dropout: Dropout of the weights, after the softmax; None for none.
        buffers: Memory for what is kept while a block is walked.
    """

    def __init__(
        self, vectors: Tensor, slope: float, dropout: EdgeDropout | None, buffers: Buffers
    ) -> None:
        super().__init__(len(vectors))
        self._slope = slope
        # The scores have gone through the leaky ReLU already.
        self._softmax = Softmax(1.0, dropout)
        self._buffers = buffers
        self._factor = vectors.detach().flatten()
        self._gradient = torch.zeros_like(self._factor)

    def take_gradients(self) -> tuple[Tensor | None, Tensor | None]:
        """Return the gradient of the vectors, from the edges taken so far."""
        found, self._gradient = self._gradient, torch.zeros_like(self._factor)
        return found.view(self.heads, -1), None

    def take(
        self, edges: Edges, sources: Sources, target: Tensor, state: State, *, accumulate: bool
    ) -> None:
        """See `Scoring`."""
        own = self._empty(edges.forward.num_edges, self.heads)
        self._score(edges.forward, sources.x, target, own)
        sources = sources._replace(score=self._zeros(sources.x))
        self._softmax.take(edges, sources, self._zeros(target), state, own, accumulate=accumulate)

    def back(self, edges: Edges, ends: Ends, edge_grad: Tensor, *, accumulate: bool) -> None:
        """See `Scoring`."""
        (x, _), targets, (x_grad, _) = ends
        y = targets.score
        self._score(edges.forward, x, y, edge_grad)
        unscored = Ends(
            Sources(x, self._zeros(x)),
            targets._replace(score=self._zeros(y)),
            Sources(x_grad, self._zeros(x)),
        )
        self._softmax.back(edges, unscored, edge_grad, has_own=True, accumulate=accumulate)
        self._add_gradient(edges.forward, edge_grad, (x, y), targets.score_grad)
        self._add_gradient(edges.transposed, edge_grad, (y, x), x_grad)

    def _score(self, block: Csr, x: Tensor, y: Tensor, scores: Tensor) -> None:
        edge_values.sddmm_leaky(block, x, y, self._factor, scores, slope=self._slope)

    def _add_gradient(
        self,
        block: Csr,
        edge_grad: Tensor,
        rows: tuple[Tensor, Tensor],
        grad: Tensor,
    ) -> None:
        """Add the gradient of the second rows, those of the block, and of the vectors with it."""
        sums = self._empty(*rows[1].shape)
        edge_values.sddmm_leaky_backward(block, edge_grad, *rows, sums, slope=self._slope)
        grad.addcmul_(sums, self._factor)
        self._gradient += sums.mul_(rows[1]).sum(0)

    def _empty(self, num_rows: int, width: int) -> Tensor:
        return self._buffers.empty(num_rows, width, self._factor.dtype)

    def _zeros(self, rows: Tensor) -> Tensor:
        return self._empty(len(rows), self.heads).zero_()


class AdditiveOfFeatures(Scoring):
    """Additive scores of the rows of both ends and a map of the edge's features.

    All three are added chunk by chunk, so that they are never there for all edges.

    Args:
        vectors: (heads, width). One a head.
        slope: Slope of the leaky ReLU below 0.
        dropout: Dropout of the weights, after the softmax; None for none.
        edge_map: Map of the features of edges.
    """

    def __init__(
        self,
        vectors: Tensor,
        slope: float,
        dropout: EdgeDropout | None,
        edge_map: EdgeMap,
    ) -> None:
        super().__init__(len(vectors))
        self._slope = slope
        self._dropout = dropout
        self._edge_map = edge_map
        self._vectors = vectors.detach()
        self._gradient = torch.zeros_like(self._vectors)

    def take_gradients(self) -> tuple[Tensor | None, Tensor | None]:
        """Return the gradients of the vectors and of the map, from the edges taken so far."""
        found, self._gradient = self._gradient, torch.zeros_like(self._vectors)
        return found, self._edge_map.take_gradient()

    def take(
        self, edges: Edges, sources: Sources, target: Tensor, state: State, *, accumulate: bool
    ) -> None:
        """See `Scoring`."""
        block = edges.forward
        scores = self._scores(edges, sources, target)
        _rescale(block, scores, state, accumulate=accumulate)
        weight = scores.sub_(state.maximum[block.row_of_edge]).exp_()
        attention.edge_sum(block.indptr, weight, state.denominator, accumulate=True)
        edge_values.spmm_heads(
            block,
            self._dropped(edges.name, weight),
            sources.x,
            state.out,
            accumulate=accumulate,
        )

    def back(self, edges: Edges, ends: Ends, edge_grad: Tensor, *, accumulate: bool) -> None:
        """See `Scoring`."""
        sources, targets, source_grad = ends
        block = edges.forward
        row = block.row_of_edge
        scores = self._scores(edges, sources, targets.score)
        weight = scores.sub_(targets.log_sum[row]).exp_()
        edge_values.sddmm_dot(block, sources.x, targets.grad, edge_grad)
        edge_values.spmm_heads(
            edges.transposed,
            self._dropped(edges.name, weight)[edges.position],
            targets.grad,
            source_grad.x,
            accumulate=accumulate,
        )
        grad = self._dropped(edges.name, edge_grad).sub(targets.delta[row]).mul_(weight)
        self._scores_back(edges, ends, grad, accumulate=accumulate)

    def _dropped(self, name: str, values: Tensor) -> Tensor:
        return values if self._dropout is None else self._dropout.apply(name, values)

    def _chunks(
        self, edges: Edges, sources: Sources, target: Tensor
    ) -> Iterator[tuple[Chunk, Tensor]]:
        """Yield edges and (num, heads, width) sums of their ends before the ReLU."""
        block = edges.forward
        for chunk in chunks_of(block, max(_CHUNK_VALUES // max(sources.x.shape[1], 1), 1)):
            total = target.index_select(0, chunk.row) + sources.x.index_select(0, chunk.column)
            self._edge_map.add(block, chunk.edges, total)
            yield chunk, total.view(-1, *self._vectors.shape)

    def _scores(self, edges: Edges, sources: Sources, target: Tensor) -> Tensor:
        """Return the (num_edges, heads) scores of a block."""
        scores = sources.x.new_empty((edges.forward.num_edges, self.heads))
        for chunk, total in self._chunks(edges, sources, target):
            passed = leaky_relu(total, self._slope, inplace=True)
            scores[chunk.edges] = torch.einsum("ehw,hw->eh", passed, self._vectors)
        return scores

    def _scores_back(self, edges: Edges, ends: Ends, grad: Tensor, *, accumulate: bool) -> None:
        sources, targets, source_grad = ends
        for chunk, total in self._chunks(edges, sources, targets.score):
            some, passed = chunk.edges, leaky_relu(total, self._slope)
            self._gradient += torch.einsum("eh,ehw->hw", grad[some], passed)
            gate = torch.where(total > 0, 1, self._slope).to(grad.dtype)
            back = gate.mul_(self._vectors).mul_(grad[some, :, None]).flatten(1)
            self._edge_map.add_gradient(edges.forward, some, back)
            chunk.add_to_rows(back, targets.score_grad)
            chunk.add_to_columns(back, source_grad.x)


def _rescale(block: Csr, scores: Tensor, state: State, *, accumulate: bool) -> None:
    """Start the state of rows, or bring it to the maximum that the edges of a block have, too."""
    largest = torch.segment_reduce(
        scores, "max", offsets=block.indptr, axis=0, initial=-torch.inf, unsafe=True
    )
    if accumulate:
        has_state = state.denominator != 0
        largest = torch.where(has_state, torch.maximum(largest, state.maximum), largest)
        scale = torch.where(has_state, (state.maximum - largest).exp(), 0)
        state.denominator.copy_(torch.where(has_state, state.denominator * scale, 0))
        width = state.out.shape[1] // scale.shape[1]
        wide = scale.repeat_interleave(width, dim=1)
        state.out.copy_(torch.where(wide > 0, state.out * wide, 0))
    else:
        state.denominator.zero_()
    # Of edges whose scores are all -inf nothing is left: NaN, as where scores need no features.
    is_empty = (block.indptr.diff() == 0)[:, None]
    state.maximum.copy_(torch.where(is_empty & (largest == -torch.inf), 0, largest))
