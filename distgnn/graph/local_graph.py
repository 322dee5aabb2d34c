"""The graph as layers see it: one process or one part among many, behind one interface."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
import torch

from distgnn import ops
from distgnn.aggregate.maxima import MaxAcrossCut, MaxBlocks, max_blocks
from distgnn.aggregate.sums import PLAIN, SumAcrossCut, Weighting, pass_sum
from distgnn.edges.blocks import isolated_part, plan_blocks, without_edges
from distgnn.exchange.base import Exchange, Synchronous
from distgnn.exchange.tags import SETUP_TAG
from distgnn.graph.attending import AttentionMemo
from distgnn.graph.relating import RelatingGraph, RelationMemo
from distgnn.kernels.seeds import MaskSeeds
from distgnn.kernels.tensors import column, computed
from distgnn.ops.host_rows import HostRows

if TYPE_CHECKING:
    from torch import Tensor

    from distgnn.comm.group import Group
    from distgnn.edges.blocks import Blocks
    from distgnn.ops import Rows
    from distgnn.partition.directory.store import Part

Reduce = Literal["sum", "mean", "max"]
Propagation = Callable[["LocalGraph", torch.Tensor], torch.Tensor]
AnyRows = TypeVar("AnyRows", bound="Rows")


@dataclass
class _Memo:
    """What the graph alone decides, computed once and shared by views with other exchanges."""

    constants: dict[tuple[Callable[[LocalGraph], Tensor], torch.dtype], Tensor] = field(
        default_factory=dict
    )
    max_blocks: MaxBlocks | None = None
    static_rows: Tensor | HostRows | None = None
    static_results: dict[Propagation, Any] = field(default_factory=dict)
    setup_bytes_sent: int = 0


class LocalGraph(RelatingGraph):
    """A rank's part of a graph, or a whole graph where there is one rank.

    Layers hold rows for `num_rows` vertices, roots first; every aggregation returns as many. These
    are the roots alone; in an isolated graph (0c) they are all clones of the part, and the leaves
    update themselves from what the part has.

    Args:
        part: This rank's part.
        blocks: Its edges and routes, from `plan_blocks`; from `with_loops` if all that runs on it
            asks for an edge from each vertex to itself.
        exchange: When rows travel, and the device that they are on.
        num_roots: Rows that count in statistics; those of the part if None.
        mask_seeds: Shared with other views of the same run; its own if None.
    """

    def __init__(
        self,
        part: Part,
        blocks: Blocks,
        exchange: Exchange,
        *,
        num_roots: int | None = None,
        mask_seeds: MaskSeeds | None = None,
    ) -> None:
        self.exchange = exchange
        self.device = exchange.device
        self.blocks = blocks.to(self.device)
        self.group = exchange.group
        self.num_roots = part.num_roots if num_roots is None else num_roots
        self.num_rows = part.num_roots
        row_id = torch.from_numpy(np.array(part.global_id[: self.num_rows], dtype=np.int64))
        self.row_id = row_id.to(self.device)
        self.mask_seeds = mask_seeds or MaskSeeds()
        self._memo = _Memo()
        self._attention_memo = AttentionMemo()
        self._relation_memo = RelationMemo()
        self.part = without_edges(part)

    @classmethod
    def exact(cls, part: Part, group: Group) -> LocalGraph:
        """Build the graph of a rank with a synchronous exchange, and what is known of its edges.

        Collective.

        Args:
            part: This rank's part, or the only one.
            group: One rank per part.

        Returns:
            A graph on which aggregation is exact.
        """
        return cls(part, plan_blocks(part, group, has_features=True), Synchronous(group))

    @classmethod
    def isolated(cls, part: Part, group: Group) -> LocalGraph:
        """Build the graph of 0c: the part alone, all of its clones vertices; nothing travels."""
        alone = isolated_part(part)
        blocks = plan_blocks(alone, group, has_features=True)
        return cls(alone, blocks, Synchronous(group), num_roots=part.num_roots)

    def with_exchange(self, exchange: Exchange) -> LocalGraph:
        """Return the same part with another exchange and its own mask seeds; the rest is shared."""
        view = LocalGraph(self.part, self.blocks, exchange, num_roots=self.num_roots)
        view._memo = self._memo
        view._attention_memo = self._attention_memo
        view._relation_memo = self._relation_memo
        return view

    @property
    def setup_bytes_sent(self) -> int:
        """Payload bytes that this rank sent once, not per epoch."""
        return self._memo.setup_bytes_sent

    @cached_property
    def in_degree(self) -> Tensor:
        """(num_rows, 1) float32. In-edges of each vertex that its aggregation can see."""
        return column(self.part.in_degree[: self.num_rows]).to(self.device)

    @cached_property
    def vertex_type(self) -> Tensor:
        """(num_rows,) int64. The type of each vertex; 0 where they have none."""
        types = self.part.vertex_type
        if types is None:
            return self.row_id * 0
        return torch.from_numpy(types[: self.num_rows]).to(self.device)

    def rows_of_type(self, kind: int) -> Tensor:
        """Return (num,) int32: this graph's rows of vertices of a type, found once."""
        found = self._relation_memo.rows_of_type
        if kind not in found:
            found[kind] = (self.vertex_type == kind).nonzero()[:, 0].int()
        return found[kind]

    @property
    def in_weight(self) -> Tensor:
        """(num_rows, 1) float32. Sum of the weights of in-edges; the in-degree without weights.

        Collective at its first use in a weighted graph.
        """
        # Not a cached_property: before Python 3.12 that holds a lock that ranks as threads share.
        return self.once(_sum_of_in_weights, torch.float32)

    def at_setup(self, function: Propagation, rows: Tensor) -> Tensor:
        """Apply a function once, synchronously, whatever the exchange of this graph."""
        exchange = Synchronous(self.group, first_tag=SETUP_TAG, device=self.device)
        with torch.no_grad():
            result = function(self.with_exchange(exchange), rows)
        self.add_setup_bytes(exchange.take_bytes())
        return result

    def add_setup_bytes(self, count: int) -> None:
        """Count payload bytes that were sent once, to build something on this graph."""
        self._memo.setup_bytes_sent += count

    def aggregate(self, rows: Tensor, reduce: Reduce = "sum") -> Tensor:
        """Reduce the rows of each vertex's in-neighbours, across the cut.

        Args:
            rows: (num_rows, width), float32, float64 or bfloat16, which is summed in float32.
            reduce: `sum` adds weight x row over in-edges (weight 1 without edge weights); `mean`
                divides that by the number of in-edges; `max` takes the maximum of each column over
                in-edges, whatever their weights. A vertex without in-edges gets 0.

        Returns:
            (num_rows, width), differentiable, of the type of rows; of `max`, of the one that is
            computed with.
        """
        dtype = computed(rows.dtype)
        if reduce == "max":
            assert not self.blocks.forward.has_loops, "a maximum takes no loops"
            result: Tensor = MaxAcrossCut.apply(rows.to(dtype), self._max_blocks, self.exchange)  # type: ignore[no-untyped-call]
            return result
        factor = self.once(inverse_in_degree, dtype) if reduce == "mean" else None
        return self.sum_weighted(rows, Weighting(factor))

    def sum_weighted(self, rows: Tensor, weighting: Weighting) -> Tensor:
        """Sum the rows of each vertex's in-neighbours with factors, across the cut.

        Args:
            rows: (num_sources, width).
            weighting: Factors at both ends, of the type that is computed with.

        Returns:
            (num_rows, width), differentiable, of the type of rows.
        """
        blocks = self._blocks_of(weighting)
        total: Tensor = SumAcrossCut.apply(rows, blocks, self.exchange, weighting)  # type: ignore[no-untyped-call]
        return total

    def sum_forward(
        self, rows: Tensor, weighting: Weighting = PLAIN, *, dtype: torch.dtype | None = None
    ) -> Tensor:
        """As `sum_weighted`, unseen by autograd.

        Args:
            rows: (num_sources, width), contiguous.
            weighting: Factors at both ends.
            dtype: Of the sums: that of rows if None, or float32 for bfloat16.

        Returns:
            (num_rows, width), in a buffer of this graph.
        """
        return pass_sum(self._blocks_of(weighting), self.exchange, rows, weighting, dtype=dtype)

    def sum_backward(self, grad: Tensor, weighting: Weighting = PLAIN) -> Tensor:
        """Turn the gradient of sums into that of the rows they were made of.

        Args:
            grad: (num_rows, width), contiguous.
            weighting: That of the sums.

        Returns:
            (num_sources, width), in a buffer of this graph.
        """
        blocks = self._blocks_of(weighting)
        return pass_sum(blocks, self.exchange, grad, weighting, is_backward=True)

    def _blocks_of(self, weighting: Weighting) -> Blocks:
        if weighting.has_loops:
            return self._looped_blocks()
        assert not self.blocks.forward.has_loops, "the edges of the graph alone are not kept"
        return self.blocks

    def once(self, function: Callable[[LocalGraph], Tensor], dtype: torch.dtype) -> Tensor:
        """Return function(graph), computed at the first call; for what the graph alone decides.

        Args:
            function: Gives a value for each row, of which a view of some rows takes its share; has
                no state, and is the same object in every epoch.
            dtype: Of the result.
        """
        constants = self._memo.constants
        if (function, dtype) not in constants:
            constants[function, dtype] = function(self).to(dtype)
        return constants[function, dtype]

    def set_static(self, rows: Rows) -> None:
        """Promise that these rows never change, so that what is made of them is made once.

        Args:
            rows: (num_rows, width) input features. Sparse rows are left as they are: layers map
                them first, and the result of that changes with the weights.
        """
        if isinstance(rows, ops.SparseRows):
            return
        self._memo.static_rows = rows
        self._memo.static_results = {}

    def is_static(self, rows: Rows) -> bool:
        """Whether these are the rows of `set_static`: aggregating them costs nothing per epoch."""
        return rows is self._memo.static_rows

    def propagate(self, function: Propagation, rows: AnyRows) -> AnyRows:
        """Apply a fixed function of the graph and some rows; on static rows only once.

        The first layer of a model whose input is not dropped out is then a matrix product, with no
        aggregation, traffic or gradient exchange. Under cd-R that one exchange is synchronous, so
        that the first layer is exact.

        Args:
            function: Has no state; the same object in every epoch. On rows in host memory, which
                are on the device some columns at a time, it makes each column of that column.
            rows: (num_rows, width), a tensor if they are not static.

        Returns:
            function(graph, rows), kept as the rows are.
        """
        if not self.is_static(rows):
            assert isinstance(rows, torch.Tensor), "others are static, or mapped first"
            return function(self, rows)  # type: ignore[return-value]
        results = self._memo.static_results
        if function not in results:
            once = partial(self.at_setup, function)
            if isinstance(rows, torch.Tensor):
                results[function] = once(rows).to(rows.dtype)
            else:
                assert isinstance(rows, HostRows), "sparse rows are mapped first"
                results[function] = rows.by_columns(once)
        return results[function]  # type: ignore[no-any-return]

    def static_result(self, function: Propagation, rows: Tensor) -> tuple[Tensor, Tensor | None]:
        """Apply a function to static rows, once.

        Args:
            function: As in `propagate`.
            rows: Those of `set_static`.

        Returns:
            (num_results, width), and the (num_rows,) int32 numbers of those that the layer makes;
            None for all in order.
        """
        return self.propagate(function, rows), None

    def level(self, number: int) -> LocalGraph:
        """Return the graph that a model's layer runs on: this one, whatever the layer.

        Args:
            number: Of the layer, from 0.
        """
        del number
        return self

    @property
    def own_index(self) -> Tensor | None:
        """(num_rows,) int32. Number of each row that is made among those read; None for equal."""
        return None

    def own(self, rows: AnyRows) -> AnyRows:
        """Pick the rows of the vertices that a layer makes rows of, from those that it reads.

        Args:
            rows: (num_sources, width).

        Returns:
            (num_rows, width); here all rows are both.
        """
        return rows

    def once_at_sources(
        self, function: Callable[[LocalGraph], Tensor], dtype: torch.dtype
    ) -> Tensor:
        """As `once`, for the rows that a layer reads."""
        return self.once(function, dtype)

    def dropout(self, rows: Rows, probability: float) -> Rows:
        """Drop entries with a mask that is the same for a vertex whatever the partition.

        Args:
            rows: (num_rows, width).
            probability: In [0, 1).

        Returns:
            Rows of the same kind.
        """
        seed = self.mask_seeds.next_seed()
        if isinstance(rows, torch.Tensor):
            return ops.dropout(rows, self.row_id, seed=seed, probability=probability)
        return rows.dropout(self.row_id, seed=seed, probability=probability)

    def relu_dropout(
        self, rows: Tensor, probability: float, dtype: torch.dtype | None = None
    ) -> Tensor:
        """Return dropout(relu(rows)), with the mask that `dropout` would draw, as a type."""
        seed = self.mask_seeds.next_seed() if probability else 0
        ids = self.row_id
        return ops.relu_dropout(rows, ids, seed=seed, probability=probability, dtype=dtype)

    def end_epoch(self) -> None:
        """Start the next epoch: other masks, and delays rotate their bins."""
        self.mask_seeds.end_epoch()
        self.exchange.end_epoch()
        self.exchange.buffers.end_epoch()

    @property
    def _max_blocks(self) -> MaxBlocks:
        if self._memo.max_blocks is None:
            leaf_id = self._leaf_ids(self.part.is_reading)
            self._memo.max_blocks = max_blocks(self.blocks, self._ids_of_sources(), leaf_id)
        return self._memo.max_blocks


def inverse_in_degree(graph: LocalGraph) -> Tensor:
    """Return (num_rows,) What a sum over in-edges is multiplied with to be their mean."""
    return 1 / graph.in_degree[:, 0].double().clamp(min=1)


def _sum_of_in_weights(graph: LocalGraph) -> Tensor:
    """Return (num_rows, 1) The in-degree where edges have no weights; else collective."""
    if graph.part.edge_weight is None:
        return graph.in_degree
    return graph.at_setup(_sum_at_targets, torch.ones(graph.num_rows, 1, device=graph.device))


def _sum_at_targets(graph: LocalGraph, ones: Tensor) -> Tensor:
    return graph.aggregate(ones)
