"""The graph as layers see it: one process or one part among many, behind one interface.

Reading order: the constructor, `aggregate` and `attend`, which most layers call; then `propagate`
and `once`, which compute what never changes once; the rest serves special layers.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import torch

from distgnn import ops
from distgnn.aggregate.attention import AttendAcrossCut
from distgnn.aggregate.edge_dropout import EdgeDropout, EdgeKeys
from distgnn.aggregate.edge_features import EdgeMap, SumWithFeatures
from distgnn.aggregate.learned_rows import (
    ColumnIds,
    RelationSources,
    SumLearnedRows,
    learned_blocks,
)
from distgnn.aggregate.maxima import MaxAcrossCut, max_blocks
from distgnn.aggregate.relations import RelateAcrossCut
from distgnn.aggregate.scores import Additive, AdditiveOfFeatures, Leaky
from distgnn.aggregate.sums import PLAIN, SumAcrossCut, Weighting, pass_sum
from distgnn.datasets.errors import InputError
from distgnn.edges.blocks import isolated_part, plan_blocks, without_edges
from distgnn.edges.self_loops import with_loops
from distgnn.exchange.base import Exchange, Synchronous
from distgnn.exchange.tags import SETUP_TAG
from distgnn.graph.column_slices import in_slices, num_bytes_to_agree
from distgnn.kernels.devices import PROCESSOR
from distgnn.kernels.seeds import MaskSeeds
from distgnn.kernels.tensors import column, computed
from distgnn.ops.host_rows import HostRows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray
    from torch import Tensor

    from distgnn.aggregate.attention import Ending
    from distgnn.aggregate.learned_rows import LearnedBlocks
    from distgnn.aggregate.maxima import MaxBlocks
    from distgnn.aggregate.scores import Scoring
    from distgnn.comm.group import Group
    from distgnn.edges.blocks import Blocks
    from distgnn.ops.rows import AnyRows, Rows
    from distgnn.partition.directory.store import Part

Reduce = Literal["sum", "mean", "max"]
Propagation = Callable[["LocalGraph", torch.Tensor], torch.Tensor]


@dataclass
class _Memo:
    """Results that the graph alone decides, computed once and shared by all views of a graph."""

    constants: dict[tuple[Callable[[LocalGraph], Tensor], torch.dtype], Tensor] = field(
        default_factory=dict
    )
    static_rows: Rows | None = None
    static_results: dict[Propagation, Any] = field(default_factory=dict)
    setup_bytes_sent: int = 0
    max_blocks: MaxBlocks | None = None
    looped_blocks: Blocks | None = None
    edge_keys: EdgeKeys | None = None
    relation_sources: RelationSources | None = None
    learned_blocks: dict[bool, LearnedBlocks] = field(default_factory=dict)
    rows_of_type: dict[int, Tensor] = field(default_factory=dict)


def _all_blocks(part: Part, group: Group) -> Blocks:
    """Plan the edges of a part with all of their data; collective."""
    return plan_blocks(part, group, has_types=part.edge_type is not None, has_features=True)


class LocalGraph:
    """A rank's part of a graph, or a whole graph where there is one rank.

    Layers hold rows for `num_rows` vertices, and every aggregation returns as many. These vertices
    are the roots of the part. In an isolated graph (0c) they are all clones of the part, and leaves
    update themselves from the edges of the part alone.

    Args:
        part: This rank's part.
        blocks: Its edges and routes, from `plan_blocks`. If every layer on the graph asks for an
            edge from each vertex to itself, they may come from `with_loops`.
        exchange: Decides when rows travel, and on which device they are.
        num_roots: Number of rows that count in statistics; those of the part if None.
        mask_seeds: Seeds shared with other views of the same run; its own if None.

    Attributes:
        is_setup: Whether what is computed on it is kept: no gradient is asked for, and propagated
            rows keep the type that they are stored in.
    """

    is_setup = False

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
        self.part = without_edges(part)

    @classmethod
    def exact(cls, part: Part, group: Group) -> LocalGraph:
        """Build the graph of a rank with a synchronous exchange and with all data of its edges.

        Collective.

        Args:
            part: This rank's part, or the only one.
            group: The ranks, one per part.

        Returns:
            A graph on which aggregation is exact.
        """
        return cls(part, _all_blocks(part, group), Synchronous(group))

    @classmethod
    def isolated(cls, part: Part, group: Group) -> LocalGraph:
        """Build the graph of 0c: the part alone, all of its clones vertices; nothing travels."""
        alone = isolated_part(part)
        blocks = _all_blocks(alone, group)
        return cls(alone, blocks, Synchronous(group), num_roots=part.num_roots)

    def with_exchange(self, exchange: Exchange) -> LocalGraph:
        """Return the same part with another exchange and its own mask seeds; the rest is shared."""
        view = LocalGraph(self.part, self.blocks, exchange, num_roots=self.num_roots)
        view._memo = self._memo
        return view

    # Facts of the vertices.

    @property
    def setup_bytes_sent(self) -> int:
        """Payload bytes that this rank sent once, not per epoch."""
        return self._memo.setup_bytes_sent

    @cached_property
    def in_degree(self) -> Tensor:
        """(num_rows, 1) float32. In-edges of each vertex that its aggregation can see."""
        with torch.inference_mode(False):  # kept for training, too
            return column(self.part.in_degree[: self.num_rows]).to(self.device)

    @cached_property
    def self_loops(self) -> Tensor:
        """(num_rows, 1) float32. Edges from each vertex to itself."""
        with torch.inference_mode(False):
            return column(self.part.self_loops).to(self.device)

    @property
    def in_weight(self) -> Tensor:
        """(num_rows, 1) float32. Sum of the weights of in-edges; the in-degree without weights.

        Collective at its first use in a weighted graph.
        """
        # Not a cached_property: before Python 3.12 that holds a lock that ranks as threads share.
        return self.once(_sum_of_in_weights, torch.float32)

    @cached_property
    def vertex_type(self) -> Tensor:
        """(num_rows,) int64. The type of each vertex; 0 where they have none."""
        types = self.part.vertex_type
        with torch.inference_mode(False):
            if types is None:
                return self.row_id * 0
            return torch.from_numpy(types[: self.num_rows]).to(self.device)

    def rows_of_type(self, kind: int) -> Tensor:
        """Return (num,) int32: this graph's rows of vertices of a type, found once."""
        found = self._memo.rows_of_type
        if kind not in found:
            with torch.inference_mode(False):
                found[kind] = (self.vertex_type == kind).nonzero()[:, 0].int()
        return found[kind]

    # Sums, means and maxima over in-neighbors.

    def aggregate(
        self, rows: Tensor, reduce: Reduce = "sum", weight: Literal["gcn"] | None = None
    ) -> Tensor:
        """Reduce the rows of each vertex's in-neighbors, across the cut.

        Other weights that depend on both ends of an edge are products at the ends: multiply rows
        before, and the result after, for example by a power of `in_degree`.

        Args:
            rows: (num_rows, width), float32, float64 or bfloat16, which is summed in float32.
            reduce: `sum` adds weight x row over in-edges; the weight is 1 without edge weights.
                `mean` divides that by the number of in-edges. `max` takes the maximum of each
                column over in-edges, whatever their weights. A vertex without in-edges gets 0.
            weight: None for the weights of the graph's edges. "gcn", with `sum`, for those of
                D^-1/2 (A + I) D^-1/2. An edge from each vertex to itself is added where there is
                none. Each edge is divided by the square roots of the degrees of both ends.

        Returns:
            (num_rows, width), differentiable. Sums and means have the dtype of the rows; maxima of
            bfloat16 are float32.

        Raises:
            InputError: If there is not a row of floats for each vertex, or the weight is another.

        References:
            Kipf and Welling, "Semi-Supervised Classification with Graph Convolutional Networks",
            ICLR 2017, for "gcn".
        """
        self._check_rows(rows)
        dtype = computed(rows.dtype)
        if weight is not None or reduce not in get_args(Reduce):
            if (weight, reduce) != ("gcn", "sum"):
                raise InputError(
                    "aggregate takes reduce sum, mean or max, and weight None, or gcn with sum, "
                    f"got reduce {reduce!r} and weight {weight!r}"
                )
            return self.sum_weighted(rows, _gcn_weighting(self, dtype))
        if reduce == "max":
            assert not self.blocks.forward.has_loops, "a maximum takes no loops"
            result: Tensor = MaxAcrossCut.apply(rows.to(dtype), self._max_blocks, self.exchange)  # type: ignore[no-untyped-call]
            return result
        factor = self.once(inverse_in_degree, dtype) if reduce == "mean" else None
        return self.sum_weighted(rows, Weighting(factor))

    def _check_rows(self, rows: Tensor, what: str = "rows") -> None:
        """Refuse what has no row of floats for each vertex; a view of some rows knows its own."""
        if not isinstance(rows, torch.Tensor) or rows.ndim != 2 or not rows.is_floating_point():
            is_tensor = isinstance(rows, torch.Tensor)
            kind = (
                f"shape {tuple(rows.shape)} of {rows.dtype}" if is_tensor else type(rows).__name__
            )
            raise InputError(
                f"{what} must be a (num_rows, width) tensor of floats, got {kind}; convert it, for "
                "example with .float() or [:, None]"
            )
        if self.own_index is None and len(rows) != self.num_rows:
            raise InputError(
                f"{what} must have {self.num_rows} rows, one for each vertex of graph.row_id, got "
                f"{len(rows)}; keep the rows of the model's input"
            )

    def sum_weighted(self, rows: Tensor, weighting: Weighting) -> Tensor:
        """Sum the rows of each vertex's in-neighbors with factors, across the cut.

        Args:
            rows: (num_sources, width).
            weighting: Factors at both ends, float32 for bfloat16 rows.

        Returns:
            (num_rows, width), differentiable, with the dtype of the rows.
        """
        blocks = self._blocks_of(weighting)
        total: Tensor = SumAcrossCut.apply(rows, blocks, self.exchange, weighting)  # type: ignore[no-untyped-call]
        return total

    def sum_forward(
        self, rows: Tensor, weighting: Weighting = PLAIN, *, dtype: torch.dtype | None = None
    ) -> Tensor:
        """Compute `sum_weighted`, unseen by autograd.

        Args:
            rows: (num_sources, width), contiguous.
            weighting: Factors at both ends.
            dtype: Type of the sums: that of the rows if None, or float32 for bfloat16.

        Returns:
            (num_rows, width), in a buffer of this graph.
        """
        return pass_sum(self._blocks_of(weighting), self.exchange, rows, weighting, dtype=dtype)

    def sum_backward(self, grad: Tensor, weighting: Weighting = PLAIN) -> Tensor:
        """Turn the gradient of sums into the gradient of the rows that were summed.

        Args:
            grad: (num_rows, width), contiguous.
            weighting: The weighting of the sums.

        Returns:
            (num_sources, width), in a buffer of this graph.
        """
        blocks = self._blocks_of(weighting)
        return pass_sum(blocks, self.exchange, grad, weighting, is_backward=True)

    def sum_with_features(self, rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """Sum relu(row + map of the edge's features) over in-edges; see `SumWithFeatures`."""
        result: Tensor = SumWithFeatures.apply(rows, weight, bias, self.blocks, self.exchange)  # type: ignore[no-untyped-call]
        return result

    def _blocks_of(self, weighting: Weighting) -> Blocks:
        if weighting.has_loops:
            return self._looped_blocks()
        assert not self.blocks.forward.has_loops, "the edges of the graph alone are not kept"
        return self.blocks

    @property
    def _max_blocks(self) -> MaxBlocks:
        if self._memo.max_blocks is None:
            leaf_id = self._leaf_ids(self.part.is_reading)
            self._memo.max_blocks = max_blocks(self.blocks, self._ids_of_sources(), leaf_id)
        return self._memo.max_blocks

    # Attention.

    def attend(
        self,
        rows: Tensor,
        *,
        source_score: Tensor,
        target_score: Tensor,
        slope: float = 0.2,
        edge_map: Tensor | None = None,
        dropout: float = 0.0,
        ending: Callable[[], Ending] | None = None,
    ) -> Tensor:
        """Average the rows of each vertex's in-neighbors by attention, across the cut.

        For an edge uv and head h:
        score = leaky_relu(source_score[u, h] + target_score[v, h] + (edge features @ edge_map)[h]),
        out[v, h] = sum over u of softmax(score) * rows[u, h].

        Each edge counts once, whatever its weight. A vertex without an edge to itself gets one,
        with the mean of the features of its in-edges.

        Args:
            rows: (num_sources, heads * width), float32, float64 or bfloat16; heads side by side.
            source_score: (num_sources, heads), float32 for bfloat16 rows.
            target_score: (num_rows, heads).
            slope: Slope of the leaky ReLU below 0.
            edge_map: (num_edge_features, heads), or None to ignore edge features.
            dropout: Probability of dropping a weight. The mask depends on the epoch, both ends and
                the head alone, so that edges with the same ends share it.
            ending: Returns the bias, ReLU and dropout that follow in the same operation; None for
                nothing. It is called after the mask of the edges is drawn, so that masks are those
                of separate operations.

        Returns:
            (num_rows, heads * width), differentiable.

        Raises:
            InputError: If there is not a row of floats for each vertex, or the columns of rows are
                no multiple of the heads.

        References:
            Velickovic et al., "Graph Attention Networks", ICLR 2018.
        """
        self._check_attended(rows, source_score, target_score)
        heads, drops = source_score.shape[1], self._edge_dropout(dropout)
        scoring = Leaky(heads, slope, drops, self._map_of(edge_map))
        weights = None, edge_map
        return self._attend(rows, source_score, target_score, weights, scoring, ending)

    def _check_attended(self, rows: Tensor, source_score: Tensor, target_score: Tensor) -> None:
        self._check_rows(rows)
        self._check_rows(source_score, "source_score")
        heads = source_score.shape[1]
        is_alike = target_score.ndim == 2 and target_score.shape[1] == heads > 0
        if not is_alike or rows.shape[1] % heads:
            raise InputError(
                f"attend takes rows of heads * width columns and scores of heads columns each, got "
                f"shapes {tuple(rows.shape)}, {tuple(source_score.shape)} and "
                f"{tuple(target_score.shape)}; make one score a head for each vertex"
            )
        if target_score.shape[0] != self.num_rows:
            raise InputError(
                f"target_score must have {self.num_rows} rows, one for each vertex of "
                f"graph.row_id, got {len(target_score)}; keep the rows of the model's input"
            )

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
        """Average the rows of in-neighbors by the attention of GATv2, across the cut.

        For an edge uv and head h:
        score = vectors[h] . leaky_relu(rows[u, h] + target_rows[v, h] + (features @ edge_map)[h]).

        Args:
            rows: (num_sources, heads * width), float32 or float64.
            target_rows: (num_rows, heads * width).
            vectors: (heads, width).
            slope: Slope of the leaky ReLU below 0.
            edge_map: (num_edge_features, heads * width), or None to ignore edge features.
            dropout: See `attend`.
            ending: See `attend`.

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

    def _edge_dropout(self, probability: float) -> EdgeDropout | None:
        if probability == 0:
            return None
        if self._memo.edge_keys is None:
            sources = self._ids_of_sources(), self._leaf_ids(self.part.is_reading)
            targets = self.row_id, self._leaf_ids(self.part.is_writing)
            self._memo.edge_keys = EdgeKeys(self._looped_blocks(), sources, targets)
        return EdgeDropout(probability, self.mask_seeds.next_seed(), self._memo.edge_keys)

    def _map_of(self, weight: Tensor | None) -> EdgeMap | None:
        return None if weight is None else EdgeMap(weight, self.exchange.buffers)

    def _looped_blocks(self) -> Blocks:
        """Return the blocks with an edge from each vertex to itself, built at the first call.

        That call is collective where edges have features.
        """
        if self.blocks.forward.has_loops:
            return self.blocks
        if self._memo.looped_blocks is None:
            loops, columns = self.self_loops[:, 0].cpu(), self._columns_of_rows().cpu()
            setup = Synchronous(self.group, first_tag=SETUP_TAG)
            setup.checks = self.exchange.checks
            looped = with_loops(self.blocks.to(PROCESSOR), loops, columns, setup)
            self.add_setup_bytes(setup.take_bytes())
            self._memo.looped_blocks = looped.to(self.device)
        return self._memo.looped_blocks

    # Typed edges.

    def aggregate_relations(self, rows: Tensor, weight: Tensor, *, is_mean: bool) -> Tensor:
        """Sum rows over typed in-edges, each mapped by its relation; see `RelateAcrossCut`."""
        result: Tensor = RelateAcrossCut.apply(rows, weight, self.blocks, self.exchange, is_mean)  # type: ignore[no-untyped-call]
        return result

    @property
    def relation_sources(self) -> RelationSources | None:
        """The (vertex, relation) pairs with learned rows; None before they were found or given."""
        return self._memo.relation_sources

    def find_relation_sources(self) -> RelationSources:
        """Number the relation sources, from the edges of all ranks; collective."""
        sources = RelationSources.of(self.blocks, self._column_ids(), self.group)
        self.use_relation_sources(sources)
        return sources

    def use_relation_sources(self, sources: RelationSources) -> None:
        """Use the relation sources that another view found.

        Args:
            sources: The sources of the whole graph that this graph belongs to.
        """
        self._memo.relation_sources = sources

    def read_relation_sources(self) -> Tensor:
        """Return (num_read,) int64: numbers of the relation sources that edges start from here."""
        sources = self.relation_sources
        assert sources is not None, "they are found before they are used"
        return torch.from_numpy(sources.read_by(self.blocks, self._column_ids())).to(self.device)

    def sum_learned(self, table: Tensor, *, is_mean: bool) -> Tensor:
        """Sum the learned rows of relation sources over in-edges; see `SumLearnedRows`."""
        memo = self._memo.learned_blocks
        if is_mean not in memo:
            ids, sources = self._column_ids(), self.relation_sources
            assert sources is not None, "they are found before they are used"
            memo[is_mean] = learned_blocks(self.blocks, ids, sources, is_mean=is_mean)
        result: Tensor = SumLearnedRows.apply(table, memo[is_mean], self.exchange)  # type: ignore[no-untyped-call]
        return result

    # Results that are computed once.

    def at_setup(self, function: Propagation, rows: Tensor) -> Tensor:
        """Apply a function once, synchronously, whatever the exchange of this graph."""
        with self._setup_view() as view:
            return function(view, rows)

    @contextmanager
    def _setup_view(self) -> Iterator[LocalGraph]:
        """Give a view for results that are computed once, and count what it sent."""
        exchange = Synchronous(self.group, first_tag=SETUP_TAG, device=self.device)
        exchange.checks = self.exchange.checks
        view = self.with_exchange(exchange)
        view.is_setup = True
        # Results are kept, and no gradient is computed through tensors of inference mode.
        with torch.inference_mode(False), torch.no_grad():
            yield view
        self.add_setup_bytes(exchange.take_bytes())

    def add_setup_bytes(self, count: int) -> None:
        """Count payload bytes that were sent once, to build something on this graph."""
        self._memo.setup_bytes_sent += count

    def once(self, function: Callable[[LocalGraph], Tensor], dtype: torch.dtype) -> Tensor:
        """Return function(graph), computed at the first call; for what the graph alone decides.

        Args:
            function: Returns a value for each row. It has no state and is the same object in every
                epoch. A view of some rows takes its share of the result.
            dtype: Type of the result.
        """
        constants = self._memo.constants
        if (function, dtype) not in constants:
            with torch.inference_mode(False):
                constants[function, dtype] = function(self).to(dtype)
        return constants[function, dtype]

    def once_at_sources(
        self, function: Callable[[LocalGraph], Tensor], dtype: torch.dtype
    ) -> Tensor:
        """Return `once` for the rows that a layer reads."""
        return self.once(function, dtype)

    def set_static(self, rows: Rows) -> None:
        """Promise that these rows never change, so that their aggregates are computed once.

        Args:
            rows: (num_rows, width) input features. Sparse rows are ignored: layers map them first,
                and the result of that changes with the weights.
        """
        if rows.is_sparse:
            return
        self._memo.static_rows = rows
        self._memo.static_results = {}

    def is_static(self, rows: Rows) -> bool:
        """Whether these are the rows of `set_static`: aggregating them costs nothing per epoch.

        Rows whose gradient is asked for are not.
        """
        wants_gradient = isinstance(rows, torch.Tensor) and rows.requires_grad
        return rows is self._memo.static_rows and not wants_gradient

    def propagate(self, function: Propagation, rows: AnyRows) -> AnyRows:
        """Apply a fixed function of the graph and some rows; on static rows only once.

        The first layer of a model whose input is not dropped out is then a matrix product, with no
        aggregation, traffic or gradient exchange. Under cd-R that one exchange is synchronous, so
        that the first layer is exact.

        Args:
            function: Has no state and is the same object in every epoch. Static rows come some
                columns at a time: each column depends on that column alone.
            rows: (num_rows, width), a tensor if they are not static.

        Returns:
            function(graph, rows), stored in the same way as the rows.
        """
        if not self.is_static(rows):
            return function(self, rows.to_dense())  # type: ignore[return-value]
        results = self._memo.static_results
        if function not in results:
            with self._setup_view() as view:
                once = partial(function, view)
                if isinstance(rows, HostRows):
                    results[function] = rows.by_columns(once)
                else:
                    dense = rows.to_dense()
                    num_edges = int(np.sum(self.part.in_degree[: self.num_rows]))
                    results[function] = in_slices(once, dense, num_edges, self.group)
                    self.add_setup_bytes(num_bytes_to_agree(dense, self.group))
        return results[function]  # type: ignore[no-any-return]

    def static_result(self, function: Propagation, rows: Tensor) -> tuple[Tensor, Tensor | None]:
        """Apply a function to static rows, once.

        Args:
            function: See `propagate`.
            rows: The rows of `set_static`.

        Returns:
            (num_results, width), and the (num_rows,) int32 numbers of the results that the layer
            uses; None for all in order.
        """
        return self.propagate(function, rows), None

    # Rows that a layer reads, beside those that it returns. They differ in a receptive field only.

    def level(self, number: int) -> LocalGraph:
        """Return the graph that a model's layer runs on: this one, whatever the layer.

        Args:
            number: Number of the layer, from 0.
        """
        del number
        return self

    @property
    def own_index(self) -> Tensor | None:
        """(num_rows,) int32. Number of each returned row among those read; None for equal."""
        return None

    def own(self, rows: AnyRows) -> AnyRows:
        """Pick the rows of the vertices that a layer returns, from those that it reads.

        Args:
            rows: (num_sources, width).

        Returns:
            (num_rows, width); here all rows are both.
        """
        return rows

    def _columns_of_rows(self) -> Tensor:
        """(num_rows,) int64. Position of each vertex among the rows that a layer reads."""
        return torch.arange(self.num_rows, device=self.device)

    def _ids_of_sources(self) -> Tensor:
        return self.row_id

    def _leaf_ids(self, takes_part: NDArray[np.bool_]) -> Tensor:
        """(num_leaves that take part,) int64. Their global ids."""
        leaves = self.part.global_id[self.part.num_roots :][np.asarray(takes_part)]
        return torch.from_numpy(np.array(leaves, dtype=np.int64)).to(self.device)

    def _column_ids(self) -> ColumnIds:
        return ColumnIds(self._ids_of_sources(), self._leaf_ids(self.part.is_reading))

    # Dropout and epochs.

    def dropout(self, rows: Rows, probability: float, *, training: bool = True) -> Rows:
        """Drop entries with a mask that is the same for a vertex whatever the partition.

        Args:
            rows: (num_rows, width).
            probability: Probability of dropping an entry, in [0, 1).
            training: Whether to drop at all; a module passes `self.training`.

        Returns:
            Rows of the same kind.
        """
        if not training or not probability:
            return rows
        seed = self.mask_seeds.next_seed()
        return ops.dropout(rows, self.row_id, seed=seed, probability=probability)

    def relu_dropout(
        self, rows: Tensor, probability: float, dtype: torch.dtype | None = None
    ) -> Tensor:
        """Return dropout(relu(rows)), with the mask that `dropout` would draw.

        Args:
            rows: (num_rows, width), float32 or float64.
            probability: In [0, 1).
            dtype: Type of the result; that of the rows if None, or bfloat16 for float32.

        Returns:
            (num_rows, width).
        """
        seed = self.mask_seeds.next_seed() if probability else 0
        ids = self.row_id
        return ops.relu_dropout(rows, ids, seed=seed, probability=probability, dtype=dtype)

    def end_epoch(self) -> None:
        """Start the next epoch: other masks, and delays rotate their bins."""
        self.mask_seeds.end_epoch()
        self.exchange.end_epoch()
        self.exchange.buffers.end_epoch()


def inverse_in_degree(graph: LocalGraph) -> Tensor:
    """Return (num_rows,) factors that turn a sum over in-edges into their mean."""
    return 1 / graph.in_degree[:, 0].double().clamp(min=1)


def _sum_of_in_weights(graph: LocalGraph) -> Tensor:
    """Return (num_rows, 1) The in-degree where edges have no weights; else collective."""
    if graph.part.edge_weight is None:
        return graph.in_degree
    return graph.at_setup(_sum_at_targets, torch.ones(graph.num_rows, 1, device=graph.device))


def _sum_at_targets(graph: LocalGraph, ones: Tensor) -> Tensor:
    return graph.aggregate(ones)


def gcn_scale(graph: LocalGraph) -> Tensor:
    """Return (num_rows,) 1 / sqrt(degree), loops included; collective in a weighted graph."""
    if graph.part.edge_weight is None:
        return inverse_root(graph.in_degree.double() + added_loops(graph))[:, 0]
    ones = torch.ones(graph.num_rows, 1, device=graph.device)
    return inverse_root(graph.at_setup(_sum_with_loops, ones).double())[:, 0]


def added_loops(graph: LocalGraph) -> Tensor:
    """Return (num_rows, 1) float64: 1 where a vertex without an edge to itself gets one."""
    return (graph.self_loops == 0).double()


def inverse_root(degree: Tensor) -> Tensor:
    """Return D^-1/2, and 0 where the degree is not positive.

    Args:
        degree: (num_rows, 1) float64.
    """
    tiny = torch.finfo(torch.float64).tiny
    return torch.where(degree > 0, degree.clamp(min=tiny).rsqrt(), 0)


def _gcn_weighting(graph: LocalGraph, dtype: torch.dtype) -> Weighting:
    source_factor = graph.once_at_sources(gcn_scale, dtype)
    return Weighting(graph.once(gcn_scale, dtype), source_factor, has_loops=True)


def _sum_with_loops(graph: LocalGraph, ones: Tensor) -> Tensor:
    return graph.sum_forward(ones, Weighting(has_loops=True))
