"""Scores that are kept for every edge of a block while it is walked.

Those of GATv2, of edges with features, and of weights that are dropped.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch.nn.functional import leaky_relu

from distgnn import attention, heads, kernels
from distgnn.exchange.chunks import chunks_of
from distgnn.exchange.scores import Scoring

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from distgnn.exchange.blocks import Blocks, Csr
    from distgnn.exchange.chunks import Chunk
    from distgnn.exchange.edge_map import EdgeMap
    from distgnn.exchange.scores import Edges, Ends, Sources, State

# Values of the rows of both ends that are there at once: a few MiB, which stay in the cache.
_CHUNK_VALUES = 1 << 20
# Odd, so that the keys of two edges with different ends hardly ever meet.
_SOURCE_STEP = -7046029254386353131
_ALL = slice(None)


class EdgeKeys:
    """A number for each edge that only its ends decide, whatever part it lies on.

    Args:
        blocks: Of one layer, with self-loops.
        source_id: (num_root_sources,), (num_reading_leaves,) int64. Global ids of both.
        target_id: (num_rows,), (num_writing_leaves,) int64. Likewise.
    """

    def __init__(
        self,
        blocks: Blocks,
        source_id: tuple[Tensor, Tensor],
        target_id: tuple[Tensor, Tensor],
    ) -> None:
        self._blocks = blocks
        self._source_id = dict(zip(("root", "leaf"), source_id, strict=True))
        self._target_id = dict(zip(("root", "leaf"), target_id, strict=True))
        self._found: dict[str, Tensor] = {}

    def __getitem__(self, name: str) -> Tensor:
        """(num_edges,) int64. Keys of the edges of a block, computed at the first call."""
        if name not in self._found:
            block: Csr = getattr(self._blocks.forward, name)
            target, _, source = name.partition("_from_")
            sources = self._source_id[source][block.indices]
            self._found[name] = sources * _SOURCE_STEP + self._target_id[target][block.row_of_edge]
        return self._found[name]


class EdgeDropout(NamedTuple):
    """Dropout of attention weights, with masks that no partition changes.

    Edges with the same ends share their masks.

    Attributes:
        probability: In (0, 1).
        seed: Differs from call to call and from epoch to epoch.
        keys: Of the edges.
    """

    probability: float
    seed: int
    keys: EdgeKeys

    def apply(self, name: str, values: Tensor) -> Tensor:
        """Return the (num_edges, heads) values of a block with some 0 and the others scaled."""
        out = torch.empty_like(values)
        probability = self.probability
        kernels.dropout(values, self.keys[name], out, seed=self.seed, probability=probability)
        return out


class EdgeScoring(Scoring):
    """Scores edges first, then takes the softmax of the scores.

    Args:
        num_heads: How many scores an edge has.
        slope: Of the leaky ReLU below 0.
        dropout: Of the weights, after the softmax; None for none.
        edge_map: What the features of edges add; None if they add nothing.
    """

    def __init__(
        self,
        num_heads: int,
        slope: float,
        dropout: EdgeDropout | None,
        edge_map: EdgeMap | None = None,
    ) -> None:
        super().__init__(num_heads)
        self._slope = slope
        self._dropout = dropout
        self._edge_map = edge_map

    def take_gradients(self) -> tuple[Tensor | None, Tensor | None]:
        """See `Scoring`."""
        return None, None if self._edge_map is None else self._edge_map.take_gradient()

    @abstractmethod
    def _scores(self, edges: Edges, sources: Sources, target: Tensor) -> Tensor:
        """Return the (num_edges, heads) scores of a block."""

    @abstractmethod
    def _scores_back(self, edges: Edges, ends: Ends, grad: Tensor, *, accumulate: bool) -> None:
        """Add up the gradients of what scores are made of.

        Args:
            edges: Of one block.
            ends: What is there at both ends; the gradient of the sources' rows holds a part.
            grad: (num_edges, heads). Of the scores.
            accumulate: Whether the gradients of the sources' scores start from what is there.
        """

    def take(
        self, edges: Edges, sources: Sources, target: Tensor, state: State, *, accumulate: bool
    ) -> None:
        """See `Scoring`."""
        block = edges.forward
        scores = self._scores(edges, sources, target)
        _rescale(block, scores, state, accumulate=accumulate)
        weight = scores.sub_(state.maximum[block.row_of_edge]).exp_()
        attention.edge_sum(block.indptr, weight, state.denominator, accumulate=True)
        heads.spmm_heads(
            block.indptr,
            block.indices,
            self._dropped(edges.name, weight),
            sources.x,
            state.out,
            accumulate=accumulate,
            plan=block.plan,
        )

    def back(self, edges: Edges, ends: Ends, edge_grad: Tensor, *, accumulate: bool) -> None:
        """See `Scoring`."""
        sources, targets, source_grad = ends
        block, transposed = edges.forward, edges.transposed
        row = block.row_of_edge
        scores = self._scores(edges, sources, targets.score)
        weight = scores.sub_(targets.log_sum[row]).exp_()
        heads.sddmm_dot(
            block.indptr, block.indices, sources.x, targets.grad, edge_grad, plan=block.plan
        )
        heads.spmm_heads(
            transposed.indptr,
            transposed.indices,
            self._dropped(edges.name, weight)[edges.position],
            targets.grad,
            source_grad.x,
            accumulate=accumulate,
            plan=transposed.plan,
        )
        grad = self._dropped(edges.name, edge_grad).sub(targets.delta[row]).mul_(weight)
        self._scores_back(edges, ends, grad, accumulate=accumulate)

    def _dropped(self, name: str, values: Tensor) -> Tensor:
        return values if self._dropout is None else self._dropout.apply(name, values)


class LeakyByEdge(EdgeScoring):
    """leaky_relu(source score + target score + map of features): `Leaky` with what it lacks."""

    def _scores(self, edges: Edges, sources: Sources, target: Tensor) -> Tensor:
        return leaky_relu(self._raw(edges, sources, target), self._slope, inplace=True)

    def _raw(self, edges: Edges, sources: Sources, target: Tensor) -> Tensor:
        block = edges.forward
        raw = sources.score.new_empty((block.num_edges, self.heads))
        heads.sddmm_add(block.indptr, block.indices, sources.score, target, raw, plan=block.plan)
        if self._edge_map is not None:
            self._edge_map.add(block, _ALL, raw)
        return raw

    def _scores_back(self, edges: Edges, ends: Ends, grad: Tensor, *, accumulate: bool) -> None:
        raw = self._raw(edges, ends.sources, ends.targets.score)
        grad = torch.where(raw > 0, grad, grad * self._slope)
        if self._edge_map is not None:
            self._edge_map.add_gradient(edges.forward, _ALL, grad)
        attention.edge_sum(edges.forward.indptr, grad, ends.targets.score_grad, accumulate=True)
        by_source, indptr = grad[edges.position], edges.transposed.indptr
        attention.edge_sum(indptr, by_source, ends.source_grad.score, accumulate=accumulate)


class Additive(EdgeScoring):
    """vector . leaky_relu(row of the source + row of the target + map of features), per head.

    The rows of both ends are added chunk by chunk, so that they are never there for all edges.

    Args:
        vectors: (heads, width). One a head.
        slope: Of the leaky ReLU below 0.
        dropout: Of the weights, after the softmax; None for none.
        edge_map: What the features of edges add; None if they add nothing.
    """

    def __init__(
        self,
        vectors: Tensor,
        slope: float,
        dropout: EdgeDropout | None,
        edge_map: EdgeMap | None = None,
    ) -> None:
        super().__init__(len(vectors), slope, dropout, edge_map)
        self._vectors = vectors.detach()
        self._gradient = torch.zeros_like(self._vectors)

    def take_gradients(self) -> tuple[Tensor | None, Tensor | None]:
        """Return the gradients of the vectors and of the map, from the edges taken so far."""
        found, self._gradient = self._gradient, torch.zeros_like(self._vectors)
        return found, super().take_gradients()[1]

    def _chunks(
        self, edges: Edges, sources: Sources, target: Tensor
    ) -> Iterator[tuple[Chunk, Tensor]]:
        """Yield edges and (num, heads, width) sums of their ends before the ReLU."""
        block = edges.forward
        for chunk in chunks_of(block, max(_CHUNK_VALUES // max(sources.x.shape[1], 1), 1)):
            total = target.index_select(0, chunk.row) + sources.x.index_select(0, chunk.column)
            if self._edge_map is not None:
                self._edge_map.add(block, chunk.edges, total)
            yield chunk, total.view(-1, *self._vectors.shape)

    def _scores(self, edges: Edges, sources: Sources, target: Tensor) -> Tensor:
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
            if self._edge_map is not None:
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
    state.maximum.copy_(torch.where(largest == -torch.inf, 0, largest))
