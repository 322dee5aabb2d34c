"""The graph of an `edge_index` as our kernels walk it: built at the first call and found again."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from distgnn.aggregate.edge_dropout import EdgeDropout
from distgnn.aggregate.sums import Weighting
from distgnn.comm.single import SingleGroup
from distgnn.datasets.errors import InputError
from distgnn.datasets.graph import Graph
from distgnn.edges.blocks import plan_blocks
from distgnn.edges.walk_orders import WalkOrders
from distgnn.exchange.base import Synchronous
from distgnn.graph.local_graph import LocalGraph
from distgnn.interop.accelerate.kept import KeptTable
from distgnn.partition.csr import order_by
from distgnn.partition.directory.store import whole_part

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from numpy.typing import NDArray
    from torch import Tensor

    from distgnn.edges.blocks import Blocks
    from distgnn.graph.local_graph import Propagation
    from distgnn.ops.rows import Rows
    from distgnn.partition.directory.store import Part

Loops = Literal["given", "one", "more"]
"""Edges from a vertex to itself that count.

- `given`: those that are given;
- `one`: exactly one in place of these, as in PyG's GCN and GAT;
- `more`: one more beside these, as in DGL's SAGE with the gcn aggregator.
"""

# Number of gradient-free inputs that a graph remembers, to recognize one that comes again.
_NUM_REMEMBERED = 8
# From the second call on, rows that did not change are taken for the input of the model.
_STATIC_FROM = 2


@dataclass(frozen=True)
class SumFactors:
    """Factors of a sum over in-edges, at both ends of an edge.

    Attributes:
        row: Makes the factor of each row, once a graph; None for ones.
        source: The same, where edges start.
    """

    row: Callable[[LocalGraph], Tensor] | None = None
    source: Callable[[LocalGraph], Tensor] | None = None

    def weighting(self, graph: LocalGraph, dtype: torch.dtype) -> Weighting:
        """Return the factors on a graph, as a type."""
        row = None if self.row is None else graph.once(self.row, dtype)
        source = None if self.source is None else graph.once(self.source, dtype)
        return Weighting(row, source, has_loops=True)


def inverse_root_in(graph: LocalGraph) -> Tensor:
    """Return (num_rows,) the in-degree to the power of -1/2, and 0 for none."""
    degree = graph.in_degree[:, 0].double()
    return torch.where(degree > 0, degree.clamp(min=1).rsqrt(), 0)


def inverse_root_in_or_one(graph: LocalGraph) -> Tensor:
    """Return (num_rows,) the in-degree to the power of -1/2, and 1 for none."""
    return graph.in_degree[:, 0].double().clamp(min=1).rsqrt()


def inverse_root_out(graph: LocalGraph) -> Tensor:
    """Return (num_rows,) the out-degree to the power of -1/2, and 0 for none."""
    degree = torch.from_numpy(np.asarray(graph.part.out_degree)).double()
    return torch.where(degree > 0, degree.clamp(min=1).rsqrt(), 0)


def inverse_out(graph: LocalGraph) -> Tensor:
    """Return (num_rows,) 1 / out-degree, and 1 for none."""
    return 1 / torch.from_numpy(np.asarray(graph.part.out_degree)).double().clamp(min=1)


def inverse_in(graph: LocalGraph) -> Tensor:
    """Return (num_rows,) 1 / in-degree, and 1 for none."""
    return 1 / graph.in_degree[:, 0].double().clamp(min=1)


class EdgeGraph(LocalGraph):
    """A whole graph whose edges all count as they are, and which notices its input by itself.

    Rows without a gradient that come again unchanged are the input of the model: what is made of
    them with the graph alone is made once. It is freed with them.

    Args:
        part: The whole graph.
        blocks: Its edges.
        exchange: Gives the memory for rows.
    """

    def __init__(self, part: Part, blocks: Blocks, exchange: Synchronous) -> None:
        # Loops have been added before, or are not wanted: nothing more is to be added.
        forward, backward = (replace(each, has_loops=True) for each in blocks)
        super().__init__(part, type(blocks)(forward, backward), exchange)
        self._inputs = KeptTable(_NUM_REMEMBERED)
        self._edge_number: dict[str, Tensor] = {}

    def note(self, rows: Tensor) -> None:
        """Count a call with these rows, if they may be the input of a model."""
        if not (rows.requires_grad or rows.is_inference()):
            self._inputs.of(rows).num_calls += 1

    def is_static(self, rows: Rows) -> bool:
        """Whether these rows came before as they are now."""
        if not isinstance(rows, torch.Tensor) or rows.requires_grad or rows.is_inference():
            return False
        entry = self._inputs.find(rows)
        return entry is not None and entry.num_calls >= _STATIC_FROM

    def propagate(self, function: Propagation, rows: Any) -> Any:
        """Apply a fixed function of the graph and some rows; on the input only once."""
        if not self.is_static(rows):
            return function(self, rows)
        made = self._inputs.of(rows).made
        if function not in made:
            with torch.inference_mode(False), torch.no_grad():
                made[function] = function(self, rows.contiguous())
        return made[function]

    def _edge_dropout(self, probability: float) -> EdgeDropout | None:
        """Draw a mask by torch's generator, in which each edge has a fate of its own."""
        if probability == 0:
            return None
        if not self._edge_number:
            num_edges = self.blocks.forward.root_from_root.num_edges
            # The other blocks of a whole graph have no edges.
            nothing = torch.zeros(0, dtype=torch.int64)
            names = ("leaf_from_root", "root_from_leaf", "leaf_from_leaf")
            edge_number = dict.fromkeys(names, nothing)
            edge_number["root_from_root"] = torch.arange(num_edges)
            # Only when it is whole: another thread reads it as soon as it is not empty.
            self._edge_number = edge_number
        seed = int(torch.randint(2**63 - 1, ()))
        return EdgeDropout(probability, seed, self._edge_number)  # type: ignore[arg-type]


@dataclass
class Edges:
    """The edges of a graph, and the graphs that were built of them.

    Attributes:
        src: (num_edges,) int64. Where each edge starts.
        dst: (num_edges,) int64. Where it ends.
        num_vertices: Vertices of the graph.
        weight: (num_edges,) float32, or None.
    """

    src: NDArray[np.int64]
    dst: NDArray[np.int64]
    num_vertices: int
    weight: NDArray[np.float32] | None = None


@dataclass
class EdgeGraphs:
    """The graphs of one `edge_index`, by their loops, with and without what attention asks.

    Attributes:
        num_vertices: Vertices of all of them.
    """

    num_vertices: int
    _exchange: Synchronous = field(default_factory=lambda: Synchronous(SingleGroup()))
    _walk_orders: WalkOrders = field(default_factory=WalkOrders)
    _graphs: dict[Hashable, EdgeGraph] = field(default_factory=dict)
    _weighted: KeptTable = field(default_factory=KeptTable)

    def get(
        self, key: Hashable, edges: Callable[[], Edges], *, has_positions: bool = False
    ) -> EdgeGraph:
        """Return a graph, built at the first call.

        Args:
            key: Tells it from the others.
            edges: Gives its edges.
            has_positions: Whether attention runs on it, which asks where edges of the transpose
                stand.

        Raises:
            InputError: If an edge has an end that is no vertex.
        """
        if key not in self._graphs:
            self._graphs[key] = _build(edges(), self._exchange, self._walk_orders)
        graph = self._graphs[key]
        if has_positions:
            _give_positions(graph)
        return graph

    def weighted(self, edge_weight: Tensor) -> EdgeGraphs:
        """Return the graphs of the same edges with weights, which are freed with these."""
        made = self._weighted.of(edge_weight).made
        if "graphs" not in made:
            made["graphs"] = EdgeGraphs(self.num_vertices)
        graphs: EdgeGraphs = made["graphs"]
        return graphs


def _build(edges: Edges, exchange: Synchronous, walk_orders: WalkOrders) -> EdgeGraph:
    graph = Graph(
        name="edge_index",
        num_vertices=edges.num_vertices,
        src=edges.src,
        dst=edges.dst,
        edge_weight=edges.weight,
    )
    part = whole_part(graph)
    blocks = plan_blocks(part, exchange.group, has_positions=False, walk_orders=walk_orders)
    return EdgeGraph(part, blocks, exchange)


def _give_positions(graph: EdgeGraph) -> None:
    """Tell where each edge of the transpose stands, which takes 8 bytes an edge, if not told."""
    forward, backward = graph.blocks
    block = forward.root_from_root
    if backward.root_from_root.position is not None:
        return
    # A stable order by source: inside a source, targets ascend as they do in the transpose.
    order = order_by(block.indices.numpy(), block.num_columns)
    position = torch.from_numpy(order.astype(np.int64, copy=False))
    transposed = replace(backward.root_from_root, position=position)
    nowhere = torch.zeros(0, dtype=torch.int64)
    others = ("leaf_from_root", "root_from_leaf", "leaf_from_leaf")
    empty = {name: replace(getattr(backward, name), position=nowhere) for name in others}
    backward = replace(backward, root_from_root=transposed, **empty)
    graph.blocks = type(graph.blocks)(forward, backward)


def with_loops(edges: Edges, loops: Loops) -> Edges:
    """Return edges with loops as they are wanted; those given have no weights."""
    if loops == "given":
        return edges
    every = np.arange(edges.num_vertices)
    src, dst = edges.src, edges.dst
    if loops == "one":
        is_kept = src != dst
        if not is_kept.all():
            src, dst = src[is_kept], dst[is_kept]
    return Edges(np.concatenate([src, every]), np.concatenate([dst, every]), edges.num_vertices)


_TABLE = KeptTable()


def num_kept() -> int:
    """Return how many tensors of edges have graphs now."""
    return len(_TABLE)


def graph_of(
    edge_index: Tensor, num_vertices: int, loops: Loops, *, has_positions: bool = False
) -> EdgeGraph | None:
    """Return the graph of an `edge_index`.

    Args:
        edge_index: (2, num_edges) int64. Sources and targets.
        num_vertices: Vertices of the graph.
        loops: Which loops count.
        has_positions: Whether attention runs on it; see `EdgeGraphs.get`.

    Returns:
        The graph; None where an edge has an end that is no vertex.
    """
    graphs = _graphs_of(edge_index, num_vertices)

    def edges() -> Edges:
        src, dst = edge_index.detach().numpy()
        return with_loops(Edges(src, dst, num_vertices), loops)

    return _found(graphs, loops, edges, has_positions=has_positions)


def weighted_graph_of(
    edge_index: Tensor,
    edge_weight: Tensor | None,
    rows: Tensor,
    kind: Hashable,
    normalize: Callable[[], tuple[Tensor, Tensor]],
) -> EdgeGraph | None:
    """Return a graph whose edges have weights that nothing learns.

    Args:
        edge_index: (2, num_edges) int64.
        edge_weight: (num_edges,), or None.
        rows: (num_vertices, width). Rows that are to be summed.
        kind: Tells how the weights are made.
        normalize: Makes the edges and their weights.

    Returns:
        The graph; None where an edge has an end that is no vertex, or a weight is not finite. None
        also where rows are float64: weights of our kernels are float32.
    """
    if rows.dtype == torch.float64:
        return None
    num_vertices = len(rows)
    graphs = _graphs_of(edge_index, num_vertices)
    if edge_weight is not None:
        graphs = graphs.weighted(edge_weight)

    def edges() -> Edges:
        given, weight = normalize()
        src, dst = given.detach().numpy()
        values = weight.detach().to(torch.float32).flatten().numpy()
        return Edges(src, dst, num_vertices, values)

    return _found(graphs, kind, edges)


def _graphs_of(edge_index: Tensor, num_vertices: int) -> EdgeGraphs:
    made = _TABLE.of(edge_index).made
    if num_vertices not in made:
        made[num_vertices] = EdgeGraphs(num_vertices)
    graphs: EdgeGraphs = made[num_vertices]
    return graphs


def _found(
    graphs: EdgeGraphs,
    key: Hashable,
    edges: Callable[[], Edges],
    *,
    has_positions: bool = False,
) -> EdgeGraph | None:
    try:
        return graphs.get(key, edges, has_positions=has_positions)
    except InputError:
        return None
