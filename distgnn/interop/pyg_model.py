"""Trained models as plain models of PyG, with the same weights and outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import nn

from distgnn.datasets.errors import InputError
from distgnn.interop.weights import to_pyg
from distgnn.nn.convolution import Dense
from distgnn.nn.gat import GATConv
from distgnn.nn.gatv2 import GATv2Conv
from distgnn.nn.gcn import GCNConv
from distgnn.nn.gin import GINConv, GINEConv
from distgnn.nn.linear import Linear
from distgnn.nn.norm import BatchNorm, LayerNorm
from distgnn.nn.propagation import APPNPConv, SGConv
from distgnn.nn.relational import LearnedRelationalConv, RGCNConv
from distgnn.nn.sage import SAGEConv

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from distgnn.nn.config import ModelConfig
    from distgnn.nn.models import GNN

Layer = TypeVar("Layer", bound=nn.Module)

_READ_WEIGHTS = ("gcn", "sgc", "appnp")
"""Models whose layers multiply by the weights of edges in PyG, too."""


class _Steps:
    """Steps of a model of PyG as they are put together; `h` names the rows between layers.

    Args:
        inputs: Names of the tensors that describe edges, such as "edge_index".
    """

    def __init__(self, inputs: tuple[str, ...]) -> None:
        self.inputs = inputs
        self._found: list[tuple[Callable[..., Any], str]] = []
        self._rows = "x"

    def add(self, step: Callable[..., Any]) -> None:
        """Add a step from rows to rows."""
        self._found.append((step, f"{self._rows} -> h"))
        self._rows = "h"

    def add_named(self, step: Callable[..., Any], description: str) -> None:
        """Add a step whose inputs and outputs have other names."""
        self._found.append((step, description))

    def convolve(self, conv: nn.Module) -> None:
        """Add the layers of PyG that do what one of ours does."""
        linear, propagation = _layers_of(conv)
        if linear is not None:
            self.add(linear)
        if propagation is not None:
            edges = ", ".join(self.inputs)
            self._found.append((propagation, f"{self._rows}, {edges} -> h"))
            self._rows = "h"

    @property
    def rows(self) -> str:
        """Name of the rows that the next step reads."""
        return self._rows

    def model(self) -> Any:
        """Build the model, in evaluation mode."""
        from torch_geometric.nn import Sequential

        return Sequential(", ".join(("x", *self.inputs)), self._found).eval()


def pyg_model(model: GNN, *, feature_norm: str, has_edge_weights: bool) -> Any:
    """Build the model of PyG that computes what a trained model does.

    Args:
        model: The trained model.
        feature_norm: Norm of the features in training; the model of PyG begins with it.
        has_edge_weights: Whether the edges of its graph have weights.

    Returns:
        A `torch_geometric.nn.Sequential` in evaluation mode, called as `model(x, edge_index)`.
        It takes also the `edge_weight`, `edge_attr` or `edge_type` that the layers read, in this
        place. Its result is (num_vertices, num_classes) scores before softmax or sigmoid. Its
        layers add self-loops as ours do where no vertex has several.

    Raises:
        InputError: If layers of PyG compute something else.
    """
    config = model.config
    steps = _Steps(("edge_index", *_edge_inputs(config, has_edge_weights=has_edge_weights)))
    if feature_norm != "none":
        steps.add(_NORMS[feature_norm])
    if model.typed_input is not None:
        steps.add(_linear(model.typed_input))
    if config.input_dropout:
        steps.add(nn.Dropout(config.input_dropout))
    if config.kind.is_attention and config.reads_edge_features:
        # PyG would replace a loop that is there by one with other features.
        inputs = f"{steps.rows}, edge_index, edge_attr -> edge_index, edge_attr"
        steps.add_named(add_loops, inputs)
    outputs = []
    for number, conv in enumerate(model.hidden):
        _add_hidden(steps, model, number, conv)
        if config.jumping in ("cat", "max"):
            outputs.append(f"h{number}")
            steps.add_named(_same, f"h -> h{number}")
    if outputs:
        from torch_geometric.nn import JumpingKnowledge

        steps.add_named(_as_list, f"{', '.join(outputs)} -> h")
        steps.add(JumpingKnowledge(config.jumping))
    if isinstance(model.last, Linear):
        steps.add(_linear(model.last))
    else:
        steps.convolve(model.last)
    return steps.model()


def _edge_inputs(config: ModelConfig, *, has_edge_weights: bool) -> tuple[str, ...]:
    """Return what describes edges besides their ends.

    Raises:
        InputError: If our layers read what those of PyG do not.
    """
    name = config.model
    if "degrees" in config.kind.options and config.degrees != "in":
        raise InputError(
            f"{name} of PyG divides by the in-degrees of both ends of an edge, but the run has "
            f"--degrees {config.degrees}; train with --degrees in"
        )
    if has_edge_weights and not config.kind.why_weightless(config):
        if name not in _READ_WEIGHTS:
            raise InputError(
                f"{name} of PyG reads no weights of edges, but those of the run's graph have some; "
                f"train on the graph without weights, or use {', '.join(_READ_WEIGHTS)}"
            )
        return ("edge_weight",)
    if config.kind.is_typed:
        return ("edge_type",)
    return ("edge_attr",) if config.reads_edge_features else ()


def _add_hidden(steps: _Steps, model: GNN, number: int, conv: nn.Module) -> None:
    """Add a convolution and what follows it: residual, norm, activation and dropout."""
    config = model.config
    if config.residual:
        residual = model.residuals[number]
        mapped = _linear(residual) if isinstance(residual, Linear) else _same
        steps.add_named(mapped, f"{steps.rows} -> r")
    steps.convolve(conv)
    if config.residual:
        steps.add_named(torch.add, "h, r -> h")
    norm = model.norms[number]
    if isinstance(norm, BatchNorm):
        theirs = nn.BatchNorm1d(len(norm.weight), norm.eps, norm.momentum)
        steps.add(_with_weights(theirs, norm.state_dict()))
    elif isinstance(norm, LayerNorm):
        plain = nn.LayerNorm(norm.normalized_shape, norm.eps)
        steps.add(_with_weights(plain, norm.state_dict()))
    steps.add(nn.ELU() if config.activation == "elu" else nn.ReLU())
    if config.dropout:
        steps.add(nn.Dropout(config.dropout))


def _layers_of(conv: nn.Module) -> tuple[nn.Module | None, nn.Module | None]:
    """Return the linear map and the layer of PyG that together are one of ours."""
    from torch_geometric import nn as pyg

    if isinstance(conv, Dense):
        return _linear(conv.linear), None
    if isinstance(conv, APPNPConv):
        return _linear(conv.linear), pyg.APPNP(conv.propagation.K, conv.propagation.alpha)
    if isinstance(conv, LearnedRelationalConv):
        raise InputError(
            "the run learned a row for each vertex and relation, and PyG has no such layer; train "
            "on a graph with features"
        )
    # First, as it refuses options that PyG does not have.
    state = to_pyg(conv)  # type: ignore[arg-type]
    return None, _with_weights(_layer_of(conv, pyg), state)


def _layer_of(conv: nn.Module, pyg: Any) -> Any:
    """Build the layer of PyG, with weights of its own."""
    if isinstance(conv, SAGEConv):
        is_pool = conv.aggr == "pool"
        aggr = "max" if is_pool else conv.aggr
        return pyg.SAGEConv(*_widths(conv.neighbour), aggr=aggr, project=is_pool)
    if isinstance(conv, GCNConv):
        return pyg.GCNConv(*_widths(conv.linear))
    if isinstance(conv, SGConv):
        return pyg.SGConv(*_widths(conv.linear), K=conv.K)
    if isinstance(conv, GINConv):
        inner = nn.Sequential(_linear(conv.first), nn.ReLU(), _linear(conv.second))
        learns = isinstance(conv.eps, nn.Parameter)
        if isinstance(conv, GINEConv):
            edge_dim = conv.edge_linear.in_channels
            return pyg.GINEConv(inner, train_eps=learns, edge_dim=edge_dim)
        return pyg.GINConv(inner, train_eps=learns)
    if isinstance(conv, GATConv | GATv2Conv):
        return _attention_of(conv, pyg)
    assert isinstance(conv, RGCNConv), "others have no weights of PyG"
    return pyg.RGCNConv(
        conv.in_channels,
        conv.out_channels,
        len(conv.weight),
        None if conv.coefficients is None else conv.coefficients.shape[1],
        aggr="add" if conv.norm == "none" else "mean",
    )


def _attention_of(conv: GATConv | GATv2Conv, pyg: Any) -> Any:
    kind, linear = pyg.GATv2Conv, conv.source
    if isinstance(conv, GATConv):
        kind, linear = pyg.GATConv, conv.linear
    assert isinstance(linear, Linear), "it maps the rows of sources"
    edge_dim = None if conv.edge_linear is None else conv.edge_linear.in_channels
    return kind(
        linear.in_channels,
        linear.out_channels // conv.heads,
        heads=conv.heads,
        concat=conv.concat,
        negative_slope=conv.negative_slope,
        dropout=conv.dropout,
        edge_dim=edge_dim,
        add_self_loops=edge_dim is None,
    )


def _widths(linear: Linear) -> tuple[int, int]:
    return linear.in_channels, linear.out_channels


def _linear(ours: Linear) -> nn.Linear:
    theirs = nn.Linear(*_widths(ours), bias=ours.bias is not None)
    return _with_weights(theirs, ours.state_dict())


def _with_weights(layer: Layer, state: dict[str, Tensor]) -> Layer:
    missing, unknown = layer.load_state_dict(state, strict=False)
    # Batch norm of torch counts its batches, which ours has no use for.
    assert not unknown, "the layers are the same"
    assert set(missing) <= {"num_batches_tracked"}, "the layers are the same"
    return layer


def _same(rows: Tensor) -> Tensor:
    return rows


def _as_list(*rows: Tensor) -> list[Tensor]:
    return list(rows)


def divide_rows(x: Tensor) -> Tensor:
    """Divide each row by its sum, as --feature-norm row does; rows that sum to 0 stay.

    Args:
        x: (num_vertices, num_features).
    """
    sums = x.sum(dim=1, keepdim=True)
    return x / torch.where(sums != 0, sums, 1)


def standardize(x: Tensor) -> Tensor:
    """Give each column mean 0 and variance 1 over all vertices, as --feature-norm standard does.

    Args:
        x: (num_vertices, num_features); a constant column becomes 0.
    """
    deviation, mean = torch.std_mean(x.double(), dim=0, correction=0)
    scale = torch.where(deviation > 0, 1 / deviation, 0)
    return ((x - mean) * scale).to(x.dtype)


def add_loops(x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> tuple[Tensor, Tensor]:
    """Give each vertex without a loop one, with the mean of the features of its in-edges.

    Args:
        x: (num_vertices, any).
        edge_index: (2, num_edges) int64.
        edge_attr: (num_edges, columns).

    Returns:
        The edges and their features with those of the loops.
    """
    from torch_geometric.utils import add_remaining_self_loops

    found = add_remaining_self_loops(edge_index, edge_attr, fill_value="mean", num_nodes=len(x))
    return found[0], found[1]


_NORMS: dict[str, Callable[[Tensor], Tensor]] = {"row": divide_rows, "standard": standardize}
"""Norms of features by name."""
