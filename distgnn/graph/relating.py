"""What a graph does with typed edges, and with features of edges in sums."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from distgnn.aggregate.edge_sums import SumWithFeatures
from distgnn.aggregate.learned_rows import (
    ColumnIds,
    RelationSources,
    SumLearnedRows,
    learned_blocks,
)
from distgnn.aggregate.relations import RelateAcrossCut
from distgnn.graph.attending import AttendingGraph

if TYPE_CHECKING:
    from torch import Tensor

    from distgnn.aggregate.learned_rows import LearnedBlocks


@dataclass
class RelationMemo:
    """What the graph alone decides, computed once and shared by views with other exchanges."""

    sources: RelationSources | None = None
    learned_blocks: dict[bool, LearnedBlocks] = field(default_factory=dict)
    rows_of_type: dict[int, Tensor] = field(default_factory=dict)


class RelatingGraph(AttendingGraph):
    """The share of `LocalGraph` in typed models, and in sums that read features of edges."""

    _relation_memo: RelationMemo

    def aggregate_relations(self, rows: Tensor, weight: Tensor, *, is_mean: bool) -> Tensor:
        """Sum rows over typed in-edges, each by the map of its relation; see `RelateAcrossCut`."""
        result: Tensor = RelateAcrossCut.apply(rows, weight, self.blocks, self.exchange, is_mean)  # type: ignore[no-untyped-call]
        return result

    def sum_with_features(self, rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """Sum rows over in-edges with mapped features between; see `SumWithFeatures`."""
        result: Tensor = SumWithFeatures.apply(rows, weight, bias, self.blocks, self.exchange)  # type: ignore[no-untyped-call]
        return result

    @property
    def relation_sources(self) -> RelationSources | None:
        """Whose rows are learned; None before they were found or given."""
        return self._relation_memo.sources

    def find_relation_sources(self) -> RelationSources:
        """Number them, from the edges of all ranks; collective."""
        sources = RelationSources.of(self.blocks, self._column_ids(), self.group)
        self.use_relation_sources(sources)
        return sources

    def use_relation_sources(self, sources: RelationSources) -> None:
        """Take those that another graph found.

        Args:
            sources: Of the whole graph that this one is of.
        """
        self._relation_memo.sources = sources

    def sum_learned(self, table: Tensor, *, is_mean: bool) -> Tensor:
        """Sum the learned rows of relation sources over in-edges; see `SumLearnedRows`."""
        memo = self._relation_memo.learned_blocks
        if is_mean not in memo:
            ids, sources = self._column_ids(), self.relation_sources
            assert sources is not None, "they are found before they are used"
            memo[is_mean] = learned_blocks(self.blocks, ids, sources, is_mean=is_mean)
        result: Tensor = SumLearnedRows.apply(table, memo[is_mean], self.exchange)  # type: ignore[no-untyped-call]
        return result

    def _column_ids(self) -> ColumnIds:
        return ColumnIds(self._ids_of_sources(), self._leaf_ids(self.part.is_reading))
