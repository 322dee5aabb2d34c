"""Convolutions over typed edges: R-GCN and R-SAGE."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn

from distgnn import ops
from distgnn.aggregate.traffic import LayerTraffic, Leg
from distgnn.datasets.errors import InputError
from distgnn.graph.local_graph import inverse_in_degree
from distgnn.nn.convolution import Convolution
from distgnn.nn.observe import SeenMap

if TYPE_CHECKING:
    from torch import Tensor

    from distgnn.graph.local_graph import LocalGraph
    from distgnn.nn.linear import Given
    from distgnn.nn.observe import Observer
    from distgnn.ops.rows import Rows
    from distgnn.settings.names import RelationNorm


class RGCNConv(Convolution):
    """R-GCN's convolution, and R-SAGE's, whose own map is one of each type of vertex.

    Per vertex::

        h'_v = W_t h_v + b_t + sum over relations r and in-edges uv of r of (w_uv / c) h_u W_r
        W_r  = sum over bases b of a_rb V_b, or free without bases

    By `norm`, c is the number of v's in-edges of relation r (`relation`, as in the paper), of all
    its in-edges (`all`), or 1 (`none`). Where there are several own maps, t is the type of v. The
    weight of an edge is w_uv, or 1.

    Args:
        in_channels: Columns of the input.
        out_channels: Columns of the output.
        num_relations: At least 1.
        num_bases: Number of V_b; None or 0 for a free W_r of each relation.
        num_own_maps: 1, or as many as there are types of vertices.
        norm: Choice of c.

    Attributes:
        observer: Reader of the factors of the maps' gradients; None for none. The rows of one
            relation are summed in parts, whose outer products do not add up over ranks. So all
            relations share one pair of factors: the rows of sources, and the gradient at roots.

    Shapes:
        input (num_rows, in_channels), output (num_rows, out_channels); bases (num_bases or
        num_relations, in_channels, out_channels), coefficients (num_relations, num_bases), own
        (num_own_maps, in_channels, out_channels), bias (num_own_maps, out_channels).

    References:
        Schlichtkrull et al., "Modeling Relational Data with Graph Convolutional Networks", ESWC
        2018, equations 2 and 3.
        Hamilton, Ying and Leskovec, "Inductive Representation Learning on Large Graphs", NeurIPS
        2017, of which R-SAGE is the mean aggregator, applied to each relation.
    """

    observer: Observer | None = None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        num_relations: int,
        num_bases: int | None = None,
        num_own_maps: int = 1,
        norm: RelationNorm = "relation",
    ) -> None:
        super().__init__()
        self.in_channels, self.out_channels, self.norm = in_channels, out_channels, norm
        self.bases = nn.Parameter(
            torch.empty(num_bases or num_relations, in_channels, out_channels)
        )
        self.coefficients = None
        if num_bases:
            self.coefficients = nn.Parameter(torch.empty(num_relations, num_bases))
        self.own = nn.Parameter(torch.empty(num_own_maps, in_channels, out_channels))
        self.bias = nn.Parameter(torch.zeros(num_own_maps, out_channels))
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw the weights again, each map and the coefficients Glorot-uniform.

        Args:
            generator: Source of random numbers; torch's global one if None.
        """
        for maps in (self.bases, self.own):
            for one in maps:
                nn.init.xavier_uniform_(one, generator=generator)
        if self.coefficients is not None:
            nn.init.xavier_uniform_(self.coefficients, generator=generator)
        nn.init.zeros_(self.bias)

    @property
    def weight(self) -> Tensor:
        """(num_relations, in_channels, out_channels). The map of each relation."""
        if self.coefficients is None:
            return self.bases
        return torch.einsum("rb,bio->rio", self.coefficients, self.bases)

    def traffic(self, given: Given) -> LayerTraffic:
        """Return what a pass moves between ranks: rows of the input, partials of the output."""
        del given
        forward = (
            Leg("read", False, self.in_channels),
            Leg("write", True, self.out_channels),
        )
        backward = tuple(leg.reversed() for leg in reversed(forward))
        return LayerTraffic(max(self.in_channels, self.out_channels), forward, backward)

    def forward(self, graph: LocalGraph, rows: Rows) -> Tensor:
        """Apply the convolution.

        Args:
            graph: A whole graph or a part, with types.
            rows: (num_sources, in_channels).

        Returns:
            (num_rows, out_channels).
        """
        weight = self.weight
        table = rows.to_dense().to(weight.dtype)
        total = graph.aggregate_relations(table, weight, is_mean=self.norm == "relation")
        self._watch(total, SeenMap((self.bases,), table))
        if self.norm == "all":
            total = total * graph.once(inverse_in_degree, weight.dtype)[:, None]
        return total + self._own_rows(graph, graph.own(table))

    def _own_rows(self, graph: LocalGraph, rows: Tensor) -> Tensor:
        if len(self.own) == 1:
            only = torch.addmm(self.bias[0], rows, self.own[0])
            self._watch(only, SeenMap((self.own,), rows, number=0))
            return only
        if len(graph.rows_of_type(len(self.own))):
            raise InputError(
                f"the graph has a type {len(self.own)} of vertices, but the layer was made with "
                f"num_own_maps={len(self.own)}; take Data.num_vertex_types, or 1"
            )
        mapped = rows.new_zeros(len(rows), self.out_channels)
        for kind, (own, bias) in enumerate(zip(self.own, self.bias, strict=True)):
            chosen = graph.rows_of_type(kind)
            picked = ops.pick_rows(rows, chosen)
            made = torch.addmm(bias, picked, own)
            self._watch(made, SeenMap((self.own,), picked, number=kind))
            mapped = mapped.index_copy(0, chosen.long(), made)
        return mapped

    def _watch(self, product: Tensor, seen: SeenMap) -> None:
        """Show an observer the rows of a product once its gradient is there."""
        observer = self.observer
        if observer is not None and product.requires_grad:
            product.register_hook(lambda grad: observer.see(grad, seen))  # type: ignore[no-untyped-call]


class GraphSize(NamedTuple):
    """Facts of a graph that shape typed models, and those that read features of edges.

    Attributes:
        num_vertices: Vertices of the whole graph.
        num_relations: Types of edges; 0 for a graph without types.
        num_vertex_types: Types of vertices; 0 for a graph without types.
        num_relation_sources: Learned rows of a first layer without features; see
            `LearnedRelationalConv`.
        relation_digest: Digest of these sources, from `RelationSources.digest`; 0 where it is not
            known.
        num_edge_features: Columns of the features of edges; 0 for a graph without.
    """

    num_vertices: int = 0
    num_relations: int = 0
    num_vertex_types: int = 0
    num_relation_sources: int = 0
    relation_digest: int = 0
    num_edge_features: int = 0


UNTYPED = GraphSize()
"""Size of a graph of which a model need not know anything."""


class LearnedRelationalConv(Convolution):
    """R-GCN's convolution of a graph without features, whose input tells each vertex apart.

    Per vertex, with w and c as in `RGCNConv`::

        h'_v = o_v + sum over relations r and in-edges uv of r of (w_uv / c) e_ur

    Where x_u is the indicator of u, x_u W_r is a row of W_r of its own, e_ur,
    and x_v W + b is o_v. Of W_r only the rows are held that an edge reads: one for each relation
    source, a vertex with a relation of which it has edges out of it. Every rank holds all of them:
    (vertices + relation sources) x width x 4 bytes, as often again for their gradient and for each
    moment of the optimizer. Bases, which would share rows among relations, do not apply.

    Args:
        out_channels: Columns of the output.
        size: Size of the graph.
        norm: Choice of c.

    Shapes:
        input (num_rows, 0), output (num_rows, out_channels); rows (num_relation_sources,
        out_channels), own (num_vertices, out_channels); digest (1,) int64, a buffer that tells the
        relation sources of other graphs apart where there are as many.

    References:
        As of `RGCNConv`; section 4.1 has no features either.
    """

    def __init__(
        self, out_channels: int, size: GraphSize, *, norm: RelationNorm = "relation"
    ) -> None:
        super().__init__()
        self.norm = norm
        self.rows = nn.Parameter(torch.empty(size.num_relation_sources, out_channels))
        self.own = nn.Parameter(torch.empty(size.num_vertices, out_channels))
        self.digest: Tensor
        self.register_buffer("digest", torch.tensor([size.relation_digest]))
        # Its number, once it was read from the device.
        self._digest: int | None = None
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw the rows again, Glorot-uniform as maps of all vertices.

        Wider draws cost 2 points of accuracy on AIFB: what a row starts as is noise.

        Args:
            generator: Source of random numbers; torch's global one if None.
        """
        bound = math.sqrt(6 / max(sum(self.own.shape), 1))
        for rows in (self.rows, self.own):
            nn.init.uniform_(rows, -bound, bound, generator=generator)

    def _load_from_state_dict(
        self, state_dict: dict[str, Tensor], prefix: str, *others: Any
    ) -> None:
        """Load as torch does; a model that was not told how many rows there are takes all."""
        # Of a run that was written before there was one.
        state_dict.setdefault(f"{prefix}digest", torch.zeros_like(self.digest))
        rows = state_dict.get(f"{prefix}rows")
        if rows is not None and not len(self.rows):
            self.rows = nn.Parameter(torch.empty_like(rows))
        self._digest = None
        super()._load_from_state_dict(state_dict, prefix, *others)

    def table_rows(self, graph: LocalGraph) -> list[tuple[nn.Parameter, Tensor]]:
        """Return the relation sources of the graph's edges, and the vertices whose rows it makes.

        Args:
            graph: The graph that the layer runs on in training.
        """
        return [(self.rows, graph.read_relation_sources()), (self.own, graph.row_id)]

    def traffic(self, given: Given) -> LayerTraffic:
        """Return what a pass moves between ranks: partials of the output."""
        del given
        width = self.own.shape[1]
        leg = Leg("write", True, width)
        return LayerTraffic(width, (leg,), (leg.reversed(),))

    def forward(self, graph: LocalGraph, rows: Rows) -> Tensor:
        """Apply the convolution.

        Args:
            graph: A whole graph or a part, with types, whose relation sources were found.
            rows: (num_sources, 0).

        Returns:
            (num_rows, out_channels).

        Raises:
            InputError: If the graph has other relation sources.
        """
        del rows
        sources = graph.relation_sources
        if sources is None or len(sources.keys) != len(self.rows):
            found = 0 if sources is None else len(sources.keys)
            raise InputError(
                f"the model learned rows for {len(self.rows)} vertices as sources of a relation, "
                f"but the graph has {found}; restore the graph or train again"
            )
        if self._digest is None:
            self._digest = int(self.digest)
        # In training the model was built for this graph.
        if not self.training and self._digest not in (0, sources.digest):
            raise InputError(
                f"the model learned rows for {len(self.rows)} vertices as sources of a relation, "
                "and the graph has as many, but others; restore the graph or train again"
            )
        total = graph.sum_learned(self.rows, is_mean=self.norm == "relation")
        if self.norm == "all":
            total = total * graph.once(inverse_in_degree, total.dtype)[:, None]
        return total + nn.functional.embedding(graph.row_id, self.own)
