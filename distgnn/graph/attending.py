"""Attention on a rank's part of a graph: the share of `LocalGraph` that layers with scores call."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch

from distgnn.aggregate.attention import AttendAcrossCut
from distgnn.aggregate.edge_dropout import EdgeDropout, EdgeKeys
from distgnn.aggregate.edge_map import EdgeMap
from distgnn.aggregate.edge_scores import Additive, AdditiveOfFeatures
from distgnn.aggregate.scores import Leaky
from distgnn.aggregate.self_loops import with_loops
from distgnn.exchange.base import Synchronous
from distgnn.exchange.tags import SETUP_TAG
from distgnn.kernels.devices import PROCESSOR
from distgnn.kernels.tensors import column

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray
    from torch import Tensor

    from distgnn.aggregate.attention import Ending
    from distgnn.aggregate.scores import Scoring
    from distgnn.comm.group import Group
    from distgnn.edges.blocks import Blocks
    from distgnn.exchange.base import Exchange
    from distgnn.kernels.seeds import MaskSeeds
    from distgnn.partition.directory.store import Part


@dataclass
class AttentionMemo:
    """What the graph alone decides, made when a layer first asks."""

    looped_blocks: Blocks | None = None
    edge_keys: EdgeKeys | None = None


class AttendingGraph(ABC):
    """A graph whose vertices can attend to their in-neighbours; see `LocalGraph`."""

    part: Part
    blocks: Blocks
    exchange: Exchange
    group: Group
    mask_seeds: MaskSeeds
    num_rows: int
    row_id: Tensor
    device: torch.device
    _attention_memo: AttentionMemo

    @cached_property
    def self_loops(self) -> Tensor:
        """(num_rows, 1) float32. Edges from each vertex to itself."""
        return column(self.part.self_loops).to(self.device)

    def attend(
        self,
        rows: Tensor,
        *,
        source_score: Tensor,
        target_score: Tensor,
        slope: float,
        edge_map: Tensor | None = None,
        dropout: float = 0.0,
        ending: Callable[[], Ending] | None = None,
    ) -> Tensor:
        """Average the rows of each vertex's in-neighbours, across the cut, as their scores say.

        Head h of the row of u weighs softmax over in-edges uv of v of
        leaky_relu(source_score[u, h] + target_score[v, h]), to which its features times the map are
        added before the ReLU. Each edge counts, whatever its weight; a vertex without an edge to
        itself gets one, with the mean of the features of its in-edges.

        Args:
            rows: (num_sources, heads * width), float32, float64 or bfloat16; heads side by side.
            source_score: (num_sources, heads), float32 for bfloat16.
            target_score: (num_rows, heads).
            slope: Of the leaky ReLU below 0.
            edge_map: (num_edge_features, heads); None where features do not count.
            dropout: Probability of dropping a weight; its mask is a function of the epoch, both
                ends and the head, so that edges with the same ends share it.
            ending: Gives the bias, relu and dropout that follow in the same operation, or None.
                Called after the mask of the edges is drawn: masks are those of separate operations.

        Returns:
            (num_rows, heads * width), differentiable.
        """
        heads, drops = source_score.shape[1], self._edge_dropout(dropout)
        scoring = Leaky(heads, slope, drops, self._map_of(edge_map))
        weights = None, edge_map
        return self._attend(rows, source_score, target_score, weights, scoring, ending)

    def attend_additive(
        self,
        rows: Tensor,
        *,
        target_rows: Tensor,
        vectors: Tensor,
        slope: float,
        edge_map: Tensor | None = None,
        dropout: float = 0.0,
        ending: Callable[[], Ending] | None = None,
    ) -> Tensor:
        """As `attend`, with vectors[h] . leaky_relu(rows[u, h] + target_rows[v, h]) for scores.

        Args:
            rows: (num_sources, heads * width), float32 or float64.
            target_rows: (num_rows, heads * width).
            vectors: (heads, width).
            slope: Of the leaky ReLU below 0.
            edge_map: (num_edge_features, heads * width), added before the ReLU as in `attend`.
            dropout: As in `attend`.
            ending: As in `attend`.

        Returns:
            (num_rows, heads * width), differentiable.
        """
        drops, features = self._edge_dropout(dropout), self._map_of(edge_map)
        scoring: Scoring
        if features is None:
            scoring = Additive(vectors, slope, drops, self.exchange.buffers)
        else:
            scoring = AdditiveOfFeatures(vectors, slope, drops, features)
        no_scores, weights = rows.new_empty((len(rows), 0)), (vectors, edge_map)
        return self._attend(rows, no_scores, target_rows, weights, scoring, ending)

    def _attend(
        self,
        rows: Tensor,
        source_score: Tensor,
        target_score: Tensor,
        weights: tuple[Tensor | None, Tensor | None],
        scoring: Scoring,
        ending: Callable[[], Ending] | None,
    ) -> Tensor:
        last = ending() if ending else None
        bias = last.finish.bias if last else None
        rest = self._looped_blocks(), self.exchange, scoring, last
        result: Tensor = AttendAcrossCut.apply(  # type: ignore[no-untyped-call]
            rows, source_score, target_score, *weights, bias, *rest
        )
        return result

    @abstractmethod
    def add_setup_bytes(self, count: int) -> None:
        """See `LocalGraph`."""

    def _edge_dropout(self, probability: float) -> EdgeDropout | None:
        if probability == 0:
            return None
        if self._attention_memo.edge_keys is None:
            sources = self._ids_of_sources(), self._leaf_ids(self.part.is_reading)
            targets = self.row_id, self._leaf_ids(self.part.is_writing)
            self._attention_memo.edge_keys = EdgeKeys(self._looped_blocks(), sources, targets)
        return EdgeDropout(probability, self.mask_seeds.next_seed(), self._attention_memo.edge_keys)

    def _map_of(self, weight: Tensor | None) -> EdgeMap | None:
        return None if weight is None else EdgeMap(weight, self.exchange.buffers)

    def _looped_blocks(self) -> Blocks:
        """Return the blocks with an edge from each vertex to itself, made at the first call.

        That call is collective where edges have features.
        """
        if self.blocks.forward.has_loops:
            return self.blocks
        if self._attention_memo.looped_blocks is None:
            loops, columns = self.self_loops[:, 0].cpu(), self._columns_of_rows().cpu()
            setup = Synchronous(self.group, first_tag=SETUP_TAG)
            looped = with_loops(self.blocks.to(PROCESSOR), loops, columns, setup)
            self.add_setup_bytes(setup.take_bytes())
            self._attention_memo.looped_blocks = looped.to(self.device)
        return self._attention_memo.looped_blocks

    def _columns_of_rows(self) -> Tensor:
        """(num_rows,) int64. Where each vertex stands among the rows that a layer reads."""
        return torch.arange(self.num_rows, device=self.device)

    def _leaf_ids(self, takes_part: NDArray[np.bool_]) -> Tensor:
        """(num_leaves that take part,) int64. Their global ids."""
        leaves = self.part.global_id[self.part.num_roots :][np.asarray(takes_part)]
        return torch.from_numpy(np.array(leaves, dtype=np.int64)).to(self.device)

    def _ids_of_sources(self) -> Tensor:
        return self.row_id
