"""The receptive field: layers that run on the rows that the loss will read, and no others."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import numpy as np
import torch

from distgnn import ops
from distgnn.edges.subgraph import keep_edges_into, restricted_blocks, sources_of
from distgnn.exchange.base import Synchronous
from distgnn.exchange.tags import SETUP_TAG
from distgnn.graph.local_graph import LocalGraph, Propagation

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray
    from torch import Tensor

    from distgnn.aggregate.learned_rows import RelationSources
    from distgnn.edges.blocks import Blocks
    from distgnn.ops.rows import AnyRows, Rows
    from distgnn.partition.directory.store import Part

# A layer that would keep more of its edges than this runs on all of them: a second copy of the
# edges is not worth so small a saving.
_MAX_KEPT_FRACTION = 0.9

Kept = TypeVar("Kept")
KeptByWalk = TypeVar("KeptByWalk", covariant=True)


@dataclass(frozen=True)
class Restricted(Generic[Kept]):
    """One restricted layer.

    Attributes:
        kept: Edges that the walk keeps of the layer; None for a first layer on static input,
            which aggregates nothing in an epoch.
        targets: (num_rows,) bool. Rows that the layer makes.
        edge_fraction: Share of the graph's edges that it runs over.
    """

    kept: Kept | None
    targets: NDArray[np.bool_]
    edge_fraction: float


class _SomeRows(LocalGraph):
    """A view of a graph whose layers hold rows for some of its roots.

    Args:
        whole: The graph; its exchange and mask seeds are used.
        part: Its part.
        blocks: Edges and routes of the view.
        rows: (num_rows,) int64. The roots, ascending.
    """

    def __init__(self, whole: LocalGraph, part: Part, blocks: Blocks, rows: Tensor) -> None:
        num_roots = min(whole.num_roots, len(rows))
        super().__init__(
            part, blocks, whole.exchange, num_roots=num_roots, mask_seeds=whole.mask_seeds
        )
        self._whole = whole
        self._rows = rows = rows.to(self.device)
        self.num_rows = len(rows)
        self.row_id = whole.row_id[rows]

    @cached_property
    def in_degree(self) -> Tensor:
        """(num_rows, 1) float32. In-edges in the whole graph."""
        return self._whole.in_degree[self._rows]

    @cached_property
    def self_loops(self) -> Tensor:
        """(num_rows, 1) float32. Edges from each vertex to itself."""
        return self._whole.self_loops[self._rows]

    @cached_property
    def vertex_type(self) -> Tensor:
        """(num_rows,) int64. The type of each vertex; 0 where they have none."""
        return self._whole.vertex_type[self._rows]

    @property
    def relation_sources(self) -> RelationSources | None:
        """Those of the whole graph."""
        return self._whole.relation_sources

    def once(self, function: Callable[[LocalGraph], Tensor], dtype: torch.dtype) -> Tensor:
        """Return the rows' share of what the whole graph gives, picked once."""
        constants = self._memo.constants
        if (function, dtype) not in constants:
            with torch.inference_mode(False):
                constants[function, dtype] = self._whole.once(function, dtype)[self._rows]
        return constants[function, dtype]


class ReceptiveField(_SomeRows):
    """A graph of which only some rows of the last layer are read.

    The loss reads the training vertices, so the last layer is needed at their rows only. The layer
    before is needed at these rows and their in-neighbors, and so on. Forward, backward and exchange
    run on those. A layer that needs nearly all edges runs on the whole graph, and so do those
    before it.
    Scores come out for the wanted rows, in ascending order. Building one is collective.

    Args:
        whole: The graph; its exchange is used.
        part: The part that it was made of.
        wanted: (num_roots,) bool. Roots whose scores are read.
        num_layers: Layers of the model, each of which reads the one before it only.
        is_input_static: Whether the first layer's input was given to `whole.set_static`.

    Attributes:
        edge_fractions: Share of the graph's edges that each layer runs over in an epoch.
    """

    def __init__(
        self,
        whole: LocalGraph,
        part: Part,
        wanted: NDArray[np.bool_],
        *,
        num_layers: int,
        is_input_static: bool,
    ) -> None:
        exchange = Synchronous(whole.group, first_tag=SETUP_TAG)
        exchange.checks = whole.exchange.checks
        walk = _PartWalk(part, exchange)
        plans = plan_layers(walk, wanted, num_layers, is_input_static=is_input_static)
        whole.add_setup_bytes(exchange.take_bytes())
        num_whole = num_layers - len(plans)
        sources = np.ones(part.num_roots, dtype=bool)
        if num_whole == 0 and plans[0].kept is not None:
            sources = plans[0].targets | sources_of(plans[0].kept)
        super().__init__(whole, part, whole.blocks, torch.from_numpy(np.flatnonzero(sources)))
        self._levels = [whole] * num_whole
        for plan in plans:
            self._levels.append(_Level(whole, part, plan, sources))
            sources = plan.targets
        first = 0.0 if is_input_static else 1.0
        whole_fractions = [first, *[1.0] * (num_whole - 1)] if num_whole else []
        self.edge_fractions = [*whole_fractions, *(plan.edge_fraction for plan in plans)]

    def level(self, number: int) -> LocalGraph:
        """Return the graph that a layer runs on."""
        return self._levels[number]

    def inputs(self, features: Rows) -> Rows:
        """Pick the input rows that the first layer reads.

        Args:
            features: (num_roots, width).

        Returns:
            (num_rows, width); the same object if all rows are read.
        """
        if self.num_rows == self._whole.num_rows:
            return features
        picked: Rows = features[self._rows]
        return picked


class Walk(Protocol[KeptByWalk]):
    """Goes from rows to the rows they are made of, a layer at a time; `_PartWalk` on a rank."""

    def edge_fraction(self, targets: NDArray[np.bool_]) -> float:
        """Return the share of the graph's edges that end at some rows."""

    def keep(self, targets: NDArray[np.bool_]) -> tuple[KeptByWalk, NDArray[np.bool_]]:
        """Keep the edges into some rows; also return the rows that they start from, bool."""


def plan_layers(
    walk: Walk[Kept], wanted: NDArray[np.bool_], num_layers: int, *, is_input_static: bool
) -> list[Restricted[Kept]]:
    """Plan from the last layer backward, until a layer needs nearly all edges.

    Args:
        walk: Over a rank's roots, or over all vertices.
        wanted: (num_rows,) bool. Rows whose scores are read.
        num_layers: Layers of the model.
        is_input_static: Whether the first layer aggregates nothing in an epoch.

    Returns:
        The last layers, in order; those before them run on all rows.
    """
    targets = wanted
    plans: list[Restricted[Kept]] = []
    for number in reversed(range(num_layers)):
        if number == 0 and is_input_static:
            plans.append(Restricted(None, targets, 0.0))
            break
        fraction = walk.edge_fraction(targets)
        if fraction > _MAX_KEPT_FRACTION:
            break
        kept, sources = walk.keep(targets)
        plans.append(Restricted(kept, targets, fraction))
        targets = targets | sources
    return plans[::-1]


class _PartWalk:
    """The walk over the roots of a rank; all of it is collective."""

    def __init__(self, part: Part, exchange: Synchronous) -> None:
        self._part = part
        self._exchange = exchange
        self._degree = np.asarray(part.in_degree[: part.num_roots])

    def edge_fraction(self, targets: NDArray[np.bool_]) -> float:
        edges = torch.tensor([int(self._degree[targets].sum()), int(self._degree.sum())])
        self._exchange.group.all_reduce(edges)
        return int(edges[0]) / max(int(edges[1]), 1)

    def keep(self, targets: NDArray[np.bool_]) -> tuple[Part, NDArray[np.bool_]]:
        kept = keep_edges_into(self._part, self._exchange, targets)
        return kept, sources_of(kept)


class _Level(_SomeRows):
    """Graph of one restricted layer, which reads rows of its sources and returns its targets'.

    Args:
        whole: The graph.
        part: Its part.
        plan: The layer.
        sources: (num_roots,) bool. Rows that the layer is given.
    """

    def __init__(
        self, whole: LocalGraph, part: Part, plan: Restricted[Part], sources: NDArray[np.bool_]
    ) -> None:
        kept = plan.kept
        blocks = whole.blocks
        if kept is not None:
            exchange = Synchronous(whole.group, first_tag=SETUP_TAG)
            exchange.checks = whole.exchange.checks
            blocks = restricted_blocks(
                kept, exchange, sources=sources, targets=plan.targets, like=whole.blocks
            )
            whole.add_setup_bytes(exchange.take_bytes())
            # The edges are in the blocks now; what remains of the part is who reads and writes.
            part = replace(part, is_reading=kept.is_reading, is_writing=kept.is_writing)
        super().__init__(whole, part, blocks, torch.from_numpy(np.flatnonzero(plan.targets)))
        self._sources = torch.from_numpy(np.flatnonzero(sources)).to(self.device)
        own = torch.from_numpy((np.cumsum(sources) - 1)[plan.targets].astype(np.int32))
        self._own = own.to(self.device)
        self._static_own: Any = None
        self._targets: Tensor | None = None
        self._at_sources: dict[tuple[Callable[[LocalGraph], Tensor], torch.dtype], Tensor] = {}

    @property
    def own_index(self) -> Tensor | None:
        """(num_rows,) int32. Number of each row that is made among those read."""
        return self._own

    def static_result(self, function: Propagation, rows: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the whole graph's results, and which of them are the targets'."""
        if self._targets is None:
            self._targets = self._rows.int()
        return self._whole.propagate(function, rows), self._targets

    def own(self, rows: AnyRows) -> AnyRows:
        """Pick the targets' rows; those of static input only once."""
        if not self.is_static(rows):
            return ops.pick_rows(rows.to_dense(), self._own)  # type: ignore[return-value]
        if self._static_own is None:
            self._static_own = rows[self._rows]
        return self._static_own  # type: ignore[no-any-return]

    def once_at_sources(
        self, function: Callable[[LocalGraph], Tensor], dtype: torch.dtype
    ) -> Tensor:
        """Return the sources' rows of what the whole graph gives, picked once."""
        if (function, dtype) not in self._at_sources:
            picked = self._whole.once(function, dtype)[self._sources]
            self._at_sources[function, dtype] = picked
        return self._at_sources[function, dtype]

    def is_static(self, rows: Rows) -> bool:
        """Whether these are the static rows of the whole graph."""
        return self._whole.is_static(rows)

    def propagate(self, function: Propagation, rows: AnyRows) -> AnyRows:
        """Apply a function as on the whole graph, for the targets."""
        if not self.is_static(rows):
            return function(self, rows.to_dense())  # type: ignore[return-value]
        results = self._memo.static_results
        if function not in results:
            results[function] = self._whole.propagate(function, rows)[self._rows]
        return results[function]  # type: ignore[no-any-return]

    def _ids_of_sources(self) -> Tensor:
        return self._whole.row_id[self._sources]

    def _columns_of_rows(self) -> Tensor:
        return self._own.long()
