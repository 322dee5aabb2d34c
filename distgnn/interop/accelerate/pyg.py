"""PyG's convolutions on our kernels: the same classes with another `forward`.

A layer becomes one of these by its `__class__`, so that parameters, buffers, hooks, names, copies
and pickles stay what they are. A call that our kernels do not answer goes to PyG's own `forward`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn.parameter import is_lazy
from torch_geometric import nn as pyg
from torch_geometric.nn.conv import MessagePassing
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.nn.dense.linear import Linear

from distgnn.interop.accelerate.graphs import (
    SumFactors,
    graph_of,
    inverse_in,
    inverse_root_in,
    weighted_graph_of,
)
from distgnn.interop.accelerate.layers import (
    Propagation,
    attend,
    drops_some,
    is_plain,
    is_usual_call,
    isomorphism,
    joined,
    linear,
    map_reason,
    mapped_sum,
    polynomial,
    scaled,
    takes_edges,
    takes_rows,
)

if TYPE_CHECKING:
    from torch import Tensor

    from distgnn.interop.accelerate.graphs import EdgeGraph

_SUM = SumFactors()
_MEAN = SumFactors(inverse_in)
_NORMALIZED = SumFactors(inverse_root_in, inverse_root_in)
_REDUCES = {"add": _SUM, "sum": _SUM, "mean": _MEAN}
_PROPAGATE_HOOKS = tuple(
    f"_{where}_forward_{when}"
    for where in ("propagate", "message", "aggregate", "message_and_aggregate", "edge_update")
    for when in ("pre_hooks", "hooks")
)


def _message_reason(conv: Any, reduces: tuple[str, ...] = ("add", "sum")) -> str | None:
    """Say why our kernels do not pass the messages of a layer, if they do not."""
    if conv.aggr not in reduces:
        return f"aggr={conv.aggr}"
    if conv.flow != "source_to_target":
        return f"flow={conv.flow}"
    if conv.decomposed_layers != 1:
        return f"decomposed_layers={conv.decomposed_layers}"
    if conv._explain or any(getattr(conv, name, None) for name in _PROPAGATE_HOOKS):
        return "hooks in propagate"
    return None


def _linear_reason(conv: Any, *bare: str, biased: tuple[str, ...] = ()) -> str | None:
    return map_reason(conv, bare, biased, _is_known_map)


def _is_known_map(module: Any) -> bool:
    # One that waits for its first input has a hook for that; PyG answers its first call.
    is_waiting = type(module) is Linear and is_lazy(module.weight)
    return is_waiting or is_plain(module, Linear, torch.nn.Linear)


def _is_ours(x: Any, edge_index: Any, *weights: Tensor | None) -> bool:
    return (
        takes_rows(x)
        and takes_edges(edge_index)
        and all(_matches(weight, x) for weight in weights if weight is not None)
        and is_usual_call()
    )


def _matches(weight: Tensor, x: Tensor) -> bool:
    return not is_lazy(weight) and weight.dtype == x.dtype


def _fits(size: Any, x: Tensor) -> bool:
    return size is None or tuple(size) == (len(x), len(x))


def _normalized(
    conv: Any, x: Tensor, edge_index: Tensor, edge_weight: Any, *, is_improved: bool
) -> tuple[EdgeGraph | None, SumFactors]:
    """Return the graph of a symmetrically normalized sum and its factors."""
    if edge_weight is None and not is_improved:
        loops = "one" if conv.add_self_loops else "given"
        return graph_of(edge_index, len(x), loops), _NORMALIZED  # type: ignore[arg-type]

    def normalize() -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            found: tuple[Tensor, Tensor] = gcn_norm(
                edge_index, edge_weight, len(x), is_improved, conv.add_self_loops, dtype=x.dtype
            )
        return found

    kind = "normalized", is_improved, conv.add_self_loops
    return weighted_graph_of(edge_index, edge_weight, x, kind, normalize), _SUM


def _weighted(
    x: Tensor, edge_index: Tensor, edge_weight: Any
) -> tuple[EdgeGraph | None, SumFactors]:
    """Return the graph of a sum of rows times the weights of edges, and its factors."""
    if edge_weight is None:
        return graph_of(edge_index, len(x), "given"), _SUM
    graph = weighted_graph_of(
        edge_index, edge_weight, x, "weighted", lambda: (edge_index, edge_weight)
    )
    return graph, _SUM


def _takes_weight(edge_weight: Any, edge_index: Any, x: Any) -> bool:
    """Whether these weights are constant and as many as edges."""
    return edge_weight is None or (
        type(edge_weight) is torch.Tensor
        and not (edge_weight.requires_grad or edge_weight.is_inference())
        and edge_weight.dtype == x.dtype
        and edge_weight.device.type == "cpu"
        and edge_weight.shape == edge_index.shape[1:]
    )


def _with_cached_norm(
    conv: Any, x: Tensor, edge_index: Tensor, edge_weight: Any, *, is_improved: bool
) -> tuple[EdgeGraph | None, SumFactors]:
    """Return the graph of a layer that normalizes, or not, and caches what it normalized, or not.

    The cache is PyG's own: a graph in it wins over the one that is given.
    """
    if not conv.normalize:
        return _weighted(x, edge_index, edge_weight)
    if not conv.cached:
        return _normalized(conv, x, edge_index, edge_weight, is_improved=is_improved)
    if conv._cached_edge_index is None:
        conv._cached_edge_index = gcn_norm(
            edge_index, edge_weight, len(x), is_improved, conv.add_self_loops, dtype=x.dtype
        )
    given, weight = conv._cached_edge_index
    if not takes_edges(given) or not _takes_weight(weight, given, x):
        return None, _SUM
    return _weighted(x, given, weight)


class GCNConv(pyg.GCNConv):  # type: ignore[misc]
    """PyG's GCNConv; see there."""

    def reason(self) -> str | None:
        """Say why our kernels do not answer for this layer, if they do not."""
        return _message_reason(self) or _linear_reason(self, "lin")

    def forward(self, x: Any, edge_index: Any, edge_weight: Any = None) -> Any:
        """Apply the layer."""
        if (
            self.reason() is None
            and _is_ours(x, edge_index, self.lin.weight, self.bias)
            and _takes_weight(edge_weight, edge_index, x)
        ):
            graph, factors = _with_cached_norm(
                self, x, edge_index, edge_weight, is_improved=self.improved
            )
            if graph is not None:
                return mapped_sum(graph, x, factors, self.lin.weight, bias=self.bias)
        return super().forward(x, edge_index, edge_weight)


class SAGEConv(pyg.SAGEConv):  # type: ignore[misc]
    """PyG's SAGEConv; see there."""

    def reason(self) -> str | None:
        """Say why our kernels do not answer for this layer, if they do not."""
        bare = ["lin_r"] if self.root_weight else []
        maps_reason = _linear_reason(self, *bare, biased=("lin_l",))
        return _message_reason(self, tuple(_REDUCES)) or maps_reason

    def forward(self, x: Any, edge_index: Any, size: Any = None) -> Any:
        """Apply the layer."""
        if self.reason() is None and _is_ours(x, edge_index, self.lin_l.weight) and _fits(size, x):
            graph = graph_of(edge_index, len(x), "given")
            if graph is not None:
                return self._on(graph, x)
        return super().forward(x, edge_index, size)

    def _on(self, graph: EdgeGraph, x: Tensor) -> Tensor:
        own, neighbours, root = None, x, self.lin_r.weight if self.root_weight else None
        if self.project and hasattr(self, "lin"):
            neighbours = self.lin(x).relu()
            own, root = root, None
        given = neighbours, _REDUCES[self.aggr], self.lin_l.weight
        result = mapped_sum(graph, *given, root=root, bias=self.lin_l.bias)
        if own is not None:
            result = result + linear(x, own, None, graph)
        return torch.nn.functional.normalize(result, dim=-1) if self.normalize else result


class GATConv(pyg.GATConv):  # type: ignore[misc]
    """PyG's GATConv; see there."""

    def reason(self) -> str | None:
        """Say why our kernels do not answer for this layer, if they do not."""
        if self.edge_dim is not None:
            return f"edge_dim={self.edge_dim}"
        if self.lin is None:
            return "two input widths"
        return _message_reason(self) or _linear_reason(self, "lin")

    def forward(
        self,
        x: Any,
        edge_index: Any,
        edge_attr: Any = None,
        size: Any = None,
        return_attention_weights: Any = None,
    ) -> Any:
        """Apply the layer."""
        dropout = self.dropout if self.training else 0.0
        if (
            edge_attr is None
            and return_attention_weights is None
            and self.reason() is None
            and _is_ours(x, edge_index, self.lin.weight, self.att_src)
            and _fits(size, x)
            and drops_some(dropout)
        ):
            loops = "one" if self.add_self_loops else "given"
            graph = graph_of(edge_index, len(x), loops, has_positions=True)  # type: ignore[arg-type]
            if graph is not None:
                residual = None if self.res is None else self.res(x)
                means = attend(
                    graph,
                    x,
                    self.lin.weight,
                    (self.att_src[0], self.att_dst[0]),
                    slope=self.negative_slope,
                    dropout=dropout,
                )
                return joined(
                    means, self.heads, concat=self.concat, residual=residual, bias=self.bias
                )
        return super().forward(x, edge_index, edge_attr, size, return_attention_weights)


class GATv2Conv(pyg.GATv2Conv):  # type: ignore[misc]
    """PyG's GATv2Conv; see there."""

    def reason(self) -> str | None:
        """Say why our kernels do not answer for this layer, if they do not."""
        if self.edge_dim is not None:
            return f"edge_dim={self.edge_dim}"
        return _message_reason(self) or _linear_reason(self, biased=("lin_l", "lin_r"))

    def forward(
        self, x: Any, edge_index: Any, edge_attr: Any = None, return_attention_weights: Any = None
    ) -> Any:
        """Apply the layer."""
        dropout = self.dropout if self.training else 0.0
        # Whatever its value, PyG's forward returns weights where it is true.
        if (
            edge_attr is None
            and not return_attention_weights
            and self.reason() is None
            and _is_ours(x, edge_index, self.lin_l.weight, self.lin_r.weight, self.att)
            and drops_some(dropout)
        ):
            loops = "one" if self.add_self_loops else "given"
            graph = graph_of(edge_index, len(x), loops, has_positions=True)  # type: ignore[arg-type]
            if graph is not None:
                residual = None if self.res is None else self.res(x)
                rows = linear(x, self.lin_l.weight, self.lin_l.bias, graph)
                targets = rows
                if not self.share_weights:
                    targets = linear(x, self.lin_r.weight, self.lin_r.bias, graph)
                means = graph.attend_additive(
                    rows,
                    target_rows=targets,
                    vectors=self.att[0],
                    slope=self.negative_slope,
                    dropout=dropout,
                )
                return joined(
                    means, self.heads, concat=self.concat, residual=residual, bias=self.bias
                )
        return super().forward(x, edge_index, edge_attr, return_attention_weights)


class GINConv(pyg.GINConv):  # type: ignore[misc]
    """PyG's GINConv; see there."""

    def reason(self) -> str | None:
        """Say why our kernels do not answer for this layer, if they do not."""
        return _message_reason(self)

    def forward(self, x: Any, edge_index: Any, size: Any = None) -> Any:
        """Apply the layer."""
        if self.reason() is None and _is_ours(x, edge_index, self.eps) and _fits(size, x):
            graph = graph_of(edge_index, len(x), "given")
            if graph is not None:
                return isomorphism(graph, x, self.eps, _SUM, self.nn, (Linear, torch.nn.Linear))
        return super().forward(x, edge_index, size)


class SGConv(pyg.SGConv):  # type: ignore[misc]
    """PyG's SGConv; see there."""

    def reason(self) -> str | None:
        """Say why our kernels do not answer for this layer, if they do not."""
        return _message_reason(self) or _linear_reason(self, biased=("lin",))

    def forward(self, x: Any, edge_index: Any, edge_weight: Any = None) -> Any:
        """Apply the layer."""
        if (
            self._cached_x is None
            and self.reason() is None
            and _is_ours(x, edge_index, self.lin.weight)
            and _takes_weight(edge_weight, edge_index, x)
        ):
            graph, factors = _normalized(self, x, edge_index, edge_weight, is_improved=False)
            if graph is not None:
                if self.cached:
                    self._cached_x: Any = Propagation(factors, self.K)(graph, x)
                    return self.lin(self._cached_x)
                given = self.lin.weight, self.lin.bias
                return mapped_sum(graph, x, factors, given[0], bias=given[1], hops=self.K)
        return super().forward(x, edge_index, edge_weight)


class APPNP(pyg.APPNP):  # type: ignore[misc]
    """PyG's APPNP; see there."""

    def reason(self) -> str | None:
        """Say why our kernels do not answer for this layer, if they do not."""
        return _message_reason(self)

    def forward(self, x: Any, edge_index: Any, edge_weight: Any = None) -> Any:
        """Apply the layer."""
        if (
            not (self.dropout > 0 and self.training)
            and self.reason() is None
            and _is_ours(x, edge_index)
            and _takes_weight(edge_weight, edge_index, x)
        ):
            graph, factors = _with_cached_norm(self, x, edge_index, edge_weight, is_improved=False)
            if graph is not None:
                weighting = scaled(factors.weighting(graph, x.dtype), 1 - self.alpha, x)
                return polynomial(graph, x, weighting, hops=self.K, keep=self.alpha)
        return super().forward(x, edge_index, edge_weight)


ACCELERATED = (GCNConv, SAGEConv, GATConv, GATv2Conv, GINConv, SGConv, APPNP)
"""Classes that take the place of the first of their bases."""


def is_convolution(module: Any) -> bool:
    """Whether a module is a convolution of PyG, ours or not."""
    return isinstance(module, MessagePassing)
