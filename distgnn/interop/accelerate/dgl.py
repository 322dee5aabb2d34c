"""DGL's convolutions on our kernels: the same classes with another `forward`.

A layer becomes one of these by its `__class__`, so that parameters, buffers, hooks, names, copies
and pickles stay what they are. A call that our kernels do not answer goes to DGL's own `forward`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dgl
import numpy as np
import torch
from dgl.nn.pytorch import conv as theirs
from torch.utils.weak import WeakIdKeyDictionary

from distgnn.datasets.errors import InputError
from distgnn.interop.accelerate.graphs import (
    EdgeGraphs,
    Edges,
    SumFactors,
    inverse_in,
    inverse_out,
    inverse_root_in_or_one,
    inverse_root_out,
    with_loops,
)
from distgnn.interop.accelerate.layers import (
    attend,
    drops_some,
    is_plain,
    is_usual_call,
    isomorphism,
    linear,
    map_reason,
    mapped_sum,
    polynomial,
    scaled,
    takes_rows,
)

if TYPE_CHECKING:
    from torch import Tensor

    from distgnn.interop.accelerate.graphs import EdgeGraph, Loops

_SUM = SumFactors()
_MEAN = SumFactors(inverse_in)
_NORMS = {
    "none": _SUM,
    "both": SumFactors(inverse_root_in_or_one, inverse_root_out),
    "right": _MEAN,
    "left": SumFactors(None, inverse_out),
}
_BY_IN_DEGREE = SumFactors(inverse_root_in_or_one, inverse_root_in_or_one)

# By the structure of a DGLGraph, which is another object after every change of its edges.
# They have no hash: they are told apart as objects.
_GRAPHS: Any = WeakIdKeyDictionary()


def num_kept() -> int:
    """Return how many structures of DGLGraphs have graphs now."""
    return len(_GRAPHS)


def _graph_of(graph: Any, rows: Any, loops: Loops = "given", *, is_attended: bool = False) -> Any:
    """Return the graph of a DGLGraph, or None where our kernels do not take it, or the rows."""
    if (
        not isinstance(graph, dgl.DGLGraph)
        or graph.is_block
        or not graph.is_homogeneous
        or graph.device.type != "cpu"
        or not takes_rows(rows)
        or len(rows) != graph.num_nodes()
        or not is_usual_call()
    ):
        return None
    graphs: EdgeGraphs | None = _GRAPHS.get(graph._graph)
    if graphs is None:
        graphs = _GRAPHS[graph._graph] = EdgeGraphs(graph.num_nodes())

    def edges() -> Edges:
        src, dst = (ends.numpy().astype(np.int64, copy=False) for ends in graph.edges())
        return with_loops(Edges(src, dst, graph.num_nodes()), loops)

    try:
        return graphs.get(loops, edges, has_positions=is_attended)
    except InputError:
        return None


def _no_in_edges(graph: EdgeGraph) -> bool:
    """Whether a vertex has no in-edge, which DGL's layers refuse unless told otherwise."""
    return bool(graph.once(_isolated, torch.float32).sum() > 0)


def _isolated(graph: Any) -> Tensor:
    """(num_rows,): 1 where a vertex has no in-edge."""
    found: Tensor = graph.in_degree[:, 0] == 0
    return found.float()


def _is_allowed(layer: Any, graph: EdgeGraph | None) -> bool:
    return graph is not None and (layer._allow_zero_in_degree or not _no_in_edges(graph))


def _linear_reason(layer: Any, *bare: str, biased: tuple[str, ...] = ()) -> str | None:
    return map_reason(layer, bare, biased, lambda module: is_plain(module, torch.nn.Linear))


class GraphConv(theirs.GraphConv):  # type: ignore[misc]
    """DGL's GraphConv; see there."""

    def reason(self) -> str | None:
        """Say why our kernels do not answer for this layer, if they do not."""
        return "weight=False" if self.weight is None else None

    def forward(self, graph: Any, feat: Any, weight: Any = None, edge_weight: Any = None) -> Any:
        """Apply the layer."""
        if weight is None and edge_weight is None and self.reason() is None:
            found = _graph_of(graph, feat)
            if _is_allowed(self, found) and self.weight.dtype == feat.dtype:
                given = feat, _NORMS[self._norm], self.weight.t()
                result = mapped_sum(found, *given, bias=self.bias)
                return result if self._activation is None else self._activation(result)
        return super().forward(graph, feat, weight, edge_weight)


class SAGEConv(theirs.SAGEConv):  # type: ignore[misc]
    """DGL's SAGEConv; see there."""

    def reason(self) -> str | None:
        """Say why our kernels do not answer for this layer, if they do not."""
        if self._aggre_type not in ("mean", "gcn"):
            return f"aggregator_type={self._aggre_type}"
        biased = ("fc_self",) if self._aggre_type == "mean" else ()
        return _linear_reason(self, "fc_neigh", biased=biased)

    def forward(self, graph: Any, feat: Any, edge_weight: Any = None) -> Any:
        """Apply the layer."""
        if edge_weight is None and self.reason() is None:
            is_mean = self._aggre_type == "mean"
            found = _graph_of(graph, feat, "given" if is_mean else "more")
            if found is not None and self.fc_neigh.weight.dtype == feat.dtype:
                own, bias = (
                    (self.fc_self.weight, self.fc_self.bias) if is_mean else (None, self.bias)
                )
                rows, weight = self.feat_drop(feat), self.fc_neigh.weight
                result = mapped_sum(found, rows, _MEAN, weight, root=own, bias=bias)
                if self.activation is not None:
                    result = self.activation(result)
                return result if self.norm is None else self.norm(result)
        return super().forward(graph, feat, edge_weight)


class GATConv(theirs.GATConv):  # type: ignore[misc]
    """DGL's GATConv; see there."""

    def reason(self) -> str | None:
        """Say why our kernels do not answer for this layer, if they do not."""
        if not hasattr(self, "fc"):
            return "two input widths"
        return _linear_reason(self, "fc")

    def forward(
        self, graph: Any, feat: Any, edge_weight: Any = None, get_attention: bool = False
    ) -> Any:
        """Apply the layer."""
        dropout = _probability(self.attn_drop)
        is_usual = edge_weight is None and not get_attention and drops_some(dropout)
        if is_usual and self.reason() is None:
            found = _graph_of(graph, feat, is_attended=True)
            if _is_allowed(self, found) and self.fc.weight.dtype == feat.dtype:
                rows = self.feat_drop(feat)
                vectors = self.attn_l[0], self.attn_r[0]
                slope = self.leaky_relu.negative_slope
                means = attend(found, rows, self.fc.weight, vectors, slope=slope, dropout=dropout)
                bias = self.bias if self.has_explicit_bias else None
                return _ended(self, means, rows, bias)
        return super().forward(graph, feat, edge_weight, get_attention)


class GATv2Conv(theirs.GATv2Conv):  # type: ignore[misc]
    """DGL's GATv2Conv; see there."""

    def reason(self) -> str | None:
        """Say why our kernels do not answer for this layer, if they do not."""
        return _linear_reason(self, biased=("fc_src", "fc_dst"))

    def forward(self, graph: Any, feat: Any, get_attention: bool = False) -> Any:
        """Apply the layer."""
        dropout = _probability(self.attn_drop)
        if not get_attention and drops_some(dropout) and self.reason() is None:
            found = _graph_of(graph, feat, is_attended=True)
            if _is_allowed(self, found) and self.fc_src.weight.dtype == feat.dtype:
                rows = self.feat_drop(feat)
                mapped = linear(rows, self.fc_src.weight, self.fc_src.bias, found)
                targets = mapped
                if not self.share_weights:
                    targets = linear(rows, self.fc_dst.weight, self.fc_dst.bias, found)
                means = found.attend_additive(
                    mapped,
                    target_rows=targets,
                    vectors=self.attn[0],
                    slope=self.leaky_relu.negative_slope,
                    dropout=dropout,
                )
                return _ended(self, means, rows, None)
        return super().forward(graph, feat, get_attention)


def _probability(dropout: torch.nn.Dropout) -> float:
    return float(dropout.p) if dropout.training else 0.0


def _ended(layer: Any, means: Tensor, rows: Tensor, bias: Tensor | None) -> Tensor:
    """Return (num_rows, heads, width) means with what follows, in a tensor of its own."""
    result = means
    if layer.res_fc is not None:
        result = result + layer.res_fc(rows).view(len(rows), -1)
    if bias is not None:
        result = result + bias
    # What attention made is kept for backward: the user may write to the result only.
    result = (result.clone() if result is means else result).view(
        len(rows), layer._num_heads, layer._out_feats
    )
    return layer.activation(result) if layer.activation else result


class GINConv(theirs.GINConv):  # type: ignore[misc]
    """DGL's GINConv; see there."""

    def reason(self) -> str | None:
        """Say why our kernels do not answer for this layer, if they do not."""
        kind = self._aggregator_type
        return None if kind in ("sum", "mean") else f"aggregator_type={kind}"

    def forward(self, graph: Any, feat: Any, edge_weight: Any = None) -> Any:
        """Apply the layer."""
        if edge_weight is None and self.reason() is None:
            found = _graph_of(graph, feat)
            if found is not None and self.eps.dtype == feat.dtype:
                factors = _SUM if self._aggregator_type == "sum" else _MEAN
                result = isomorphism(
                    found, feat, self.eps, factors, self.apply_func, (torch.nn.Linear,)
                )
                return result if self.activation is None else self.activation(result)
        return super().forward(graph, feat, edge_weight)


class SGConv(theirs.SGConv):  # type: ignore[misc]
    """DGL's SGConv; see there."""

    def reason(self) -> str | None:
        """Say why our kernels do not answer for this layer, if they do not."""
        return _linear_reason(self, biased=("fc",))

    def forward(self, graph: Any, feat: Any, edge_weight: Any = None) -> Any:
        """Apply the layer."""
        if edge_weight is None and self._cached_h is None and self.reason() is None:
            found = _graph_of(graph, feat)
            if _is_allowed(self, found) and self.fc.weight.dtype == feat.dtype:
                if not self._cached and self.norm is None:
                    weight, bias = self.fc.weight, self.fc.bias
                    return mapped_sum(found, feat, _BY_IN_DEGREE, weight, bias=bias, hops=self._k)
                weighting = _BY_IN_DEGREE.weighting(found, feat.dtype)
                rows = polynomial(found, feat, weighting, hops=self._k)
                if self.norm is not None:
                    rows = self.norm(rows)
                if self._cached:
                    self._cached_h: Any = rows
                return self.fc(rows)
        return super().forward(graph, feat, edge_weight)


class APPNPConv(theirs.APPNPConv):  # type: ignore[misc]
    """DGL's APPNPConv; see there."""

    def reason(self) -> str | None:
        """Say why our kernels do not answer for this layer, if they do not."""
        return None

    def forward(self, graph: Any, feat: Any, edge_weight: Any = None) -> Any:
        """Apply the layer."""
        if edge_weight is None and _probability(self.edge_drop) == 0:
            found = _graph_of(graph, feat)
            if found is not None:
                weighting = _NORMS["both"].weighting(found, feat.dtype)
                weighting = scaled(weighting, 1 - self._alpha, feat)
                return polynomial(found, feat, weighting, hops=self._k, keep=self._alpha)
        return super().forward(graph, feat, edge_weight)


ACCELERATED = (GraphConv, SAGEConv, GATConv, GATv2Conv, GINConv, SGConv, APPNPConv)
"""Classes that take the place of the first of their bases."""


def is_convolution(module: Any) -> bool:
    """Whether a module is a convolution of DGL, ours or not."""
    return type(module).__module__.startswith("dgl.nn.pytorch.conv") or type(module) in ACCELERATED
