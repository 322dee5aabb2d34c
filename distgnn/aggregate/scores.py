"""How attention scores its edges: what one block of a part computes, in either direction."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import torch

from distgnn.edges.blocks import transposed
from distgnn.kernels import attention

if TYPE_CHECKING:
    from torch import Tensor

    from distgnn.aggregate.edge_dropout import EdgeDropout
    from distgnn.aggregate.edge_map import EdgeMap
    from distgnn.edges.blocks import Blocks, Csr
    from distgnn.ops.buffers import Buffers


class Edges(NamedTuple):
    """One block in both directions.

    Attributes:
        name: Of the block of the forward direction.
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
    """What edges start from: (num_sources, heads * width) rows, and what the scores take of them.

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
    """What forward leaves for backward at the leaves that are targets.

    Attributes:
        score: (num_leaves, columns). Of the targets.
        log_sum: (num_leaves, heads). Logarithm of the sum of exponentials over this part's edges.
    """

    score: Tensor
    log_sum: Tensor


class Targets(NamedTuple):
    """What gradients start from: the scores of targets, and what their softmax made of them.

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

    def __init__(self, heads: int) -> None:
        self.heads = heads

    @abstractmethod
    def take(
        self, edges: Edges, sources: Sources, target: Tensor, state: State, *, accumulate: bool
    ) -> None:
        """Let edges take part in a softmax.

        Args:
            edges: Of one block.
            sources: Where they start.
            target: (num_targets, columns). What scores take of the targets.
            state: Of the targets; written.
            accumulate: Whether the state already there takes part.
        """

    @abstractmethod
    def back(self, edges: Edges, ends: Ends, edge_grad: Tensor, *, accumulate: bool) -> None:
        """Send gradients over the edges to what they start from, and collect those of the scores.

        Args:
            edges: Of one block.
            ends: What is there at both ends.
            edge_grad: (num_edges, heads). Scratch.
            accumulate: Whether the gradients of the sources start from what is there.
        """

    def take_gradients(self) -> tuple[Tensor | None, Tensor | None]:
        """Return the gradients of the vectors and of the map of features, and forget them.

        None for what the scoring does not have.
        """
        return None, None


class Softmax(NamedTuple):
    """What is done with scores, by kernels that walk edges once.

    Weights are computed again in backward.

    Attributes:
        slope: Of the leaky ReLU of the scores below 0.
        dropout: Of the weights, after the softmax; None for none.
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
        """As `Scoring.take`, with (num_edges, heads) scores of the edges' own, or None."""
        block = edges.forward
        attention.attend(
            block.indptr,
            block.indices,
            sources.score,
            target,
            sources.x,
            **state._asdict(),
            slope=self.slope,
            accumulate=accumulate,
            edge_score=own,
            mask=self._mask(edges),
            plan=block.plan,
        )

    def back(
        self, edges: Edges, ends: Ends, edge_grad: Tensor, *, has_own: bool, accumulate: bool
    ) -> None:
        """As `Scoring.back`, for the sources alone.

        The gradients of the edges take the place of scores of their own, if they have any.
        """
        sources, targets, source_grad = ends
        transposed = edges.transposed
        attention.attend_backward(
            transposed.indptr,
            transposed.indices,
            edges.position,
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
            plan=transposed.plan,
        )

    def _mask(self, edges: Edges) -> attention.EdgeMask | None:
        return None if self.dropout is None else self.dropout.mask(edges.name)


class Leaky(Scoring):
    """leaky_relu(source score + target score + map of features).

    An edge keeps its part of the score, if it has one, while its block is walked; in backward the
    gradient takes its place.

    Args:
        heads: How many scores an edge has.
        slope: Of the leaky ReLU below 0.
        dropout: Of the weights, after the softmax; None for none.
        edge_map: What the features of edges add; None if they add nothing.
    """

    reads_narrow: ClassVar[bool] = True

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
