"""Weights of layers, to and from the layers of the same name of DGL and PyG.

What `to_dgl` and `to_pyg` return is for `load_state_dict` of a layer that was built with the same
widths, heads and aggregator, and what `from_dgl` and `from_pyg` take is its `state_dict()`. Outputs
and gradients are then equal on graphs in which every vertex has an edge to itself, given to a PyG
layer that adds none. Neither library has to be there.

| layer | PyG | DGL |
|---|---|---|
| `SAGEConv` | mean, max; pool as `aggr="max", project=True` | mean, gcn, pool |
| `GCNConv` | `GCNConv`; divides by in-degrees: `degrees="in"` | `GraphConv`; `degrees="out-in"` |
| `SGConv` | `SGConv`; `degrees="in"` | `SGConv`; `degrees="in"` |
| `APPNPConv` | `Linear`, then `APPNP`; `degrees="in"` | `Linear`, `APPNPConv`; `degrees="out-in"` |
| `GATConv`, `GATv2Conv` | `GATConv`, `GATv2Conv` | the same; averaged by the caller |
| these with `edge_dim` | the same, `edge_dim=...` | none: `EdgeGATConv` adds edges to messages |
| `GINConv` | `GINConv(Sequential(Linear, ReLU, Linear))` | the same |
| `GINEConv` | `GINEConv(Sequential(Linear, ReLU, Linear), edge_dim=...)` | none |
| `RGCNConv` of one own map | `RGCNConv`; `norm="none"` is `aggr="add"` | `RelGraphConv` |

DGL's `GATv2Conv` has no bias of the output: ours goes to the biases of both maps, which changes no
score and gives the same result unless attention drops weights. DGL's `RelGraphConv` adds up, as
ours with `norm="none"`; where ours divides, it takes one over that number, of each edge, as `norm`.
With bases it is the one with `regularizer="basis"`. R-SAGE's own maps of several types of vertices
are several layers in both libraries. DGL's pool multiplies rows by the weights of edges, where it
is given some; ours does not read them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

import torch

from distgnn.datasets.errors import InputError
from distgnn.nn.gat import GATConv
from distgnn.nn.gatv2 import GATv2Conv
from distgnn.nn.gcn import GCNConv
from distgnn.nn.gin import GINConv, GINEConv
from distgnn.nn.propagation import APPNPConv, SGConv
from distgnn.nn.relational import RGCNConv
from distgnn.nn.sage import SAGEConv

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from distgnn.nn.convolution import Convolution

Library = Literal["dgl", "pyg"]
Form = Literal["same", "transposed", "batched", "only", "per head"]


class _Entry(NamedTuple):
    """A tensor of ours, its name in the other library, and how that holds it."""

    ours: str
    theirs: str
    form: Form = "same"


def to_dgl(layer: Convolution) -> dict[str, Tensor]:
    """Return the state of DGL's layer with these weights.

    Args:
        layer: Layer of ours.

    Returns:
        Copies by name, with the types of ours.

    Raises:
        InputError: If DGL has no such layer.
    """
    state = _state_of(layer, "dgl")
    if isinstance(layer, GATv2Conv):
        bias = layer.bias.detach().repeat(1 if layer.concat else layer.heads)
        state["fc_src.bias"] += bias
        state["fc_dst.bias"] -= bias
    return state


def to_pyg(layer: Convolution) -> dict[str, Tensor]:
    """Return the state of PyG's layer with these weights; see `to_dgl`."""
    return _state_of(layer, "pyg")


def from_dgl(layer: Convolution, state: Mapping[str, Tensor]) -> None:
    """Copy the weights of DGL's layer into ours.

    Args:
        layer: Layer of ours, whose weights are written.
        state: State of DGL's layer.

    Raises:
        InputError: If DGL has no such layer, or the state has other names or shapes.
    """
    _load(layer, "dgl", state)


def from_pyg(layer: Convolution, state: Mapping[str, Tensor]) -> None:
    """Copy the weights of PyG's layer into ours; see `from_dgl`."""
    _load(layer, "pyg", state)


def _state_of(layer: Convolution, library: Library) -> dict[str, Tensor]:
    own = _own_state(layer)
    heads = getattr(layer, "heads", 1)
    return {
        entry.theirs: _in_form(own[entry.ours], entry.form, heads)
        for entry in _entries(layer, library)
        if entry.ours in own
    }


def _load(layer: Convolution, library: Library, state: Mapping[str, Tensor]) -> None:
    expected = _state_of(layer, library)
    if state.keys() != expected.keys():
        raise InputError(
            f"the weights of {_NAMES[library]} for a {type(layer).__name__} must be named "
            f"{', '.join(sorted(expected))}, got {', '.join(sorted(state))}; "
            "build both layers with the same options"
        )
    own, shapes = {}, {name: values.shape for name, values in _own_state(layer).items()}
    for entry in _entries(layer, library):
        # A layer without a bias has none in the other library, either.
        if entry.ours not in shapes:
            continue
        given, wanted = state[entry.theirs], expected[entry.theirs]
        if given.shape != wanted.shape:
            raise InputError(
                f"{entry.theirs} of {_NAMES[library]} must have the shape {tuple(wanted.shape)}, "
                f"got {tuple(given.shape)}; build both layers with the same widths"
            )
        own[entry.ours] = _out_of_form(given.detach(), entry.form, shapes[entry.ours])
    if isinstance(layer, GINConv) and not isinstance(layer.eps, torch.nn.Parameter):
        layer.eps = float(own.pop("eps"))
    if isinstance(layer, GATv2Conv) and library == "dgl" and "bias" in shapes:
        own["bias"] = torch.zeros_like(layer.bias)
    layer.load_state_dict(own)


def _own_state(layer: Convolution) -> dict[str, Tensor]:
    state: dict[str, Tensor] = dict(layer.state_dict())
    if isinstance(layer, GINConv) and "eps" not in state:
        state["eps"] = torch.full((1,), float(layer.eps))
    return state


def _in_form(values: Tensor, form: Form, heads: int) -> Tensor:
    if form == "transposed":
        return values.t().contiguous()
    if form == "per head":
        return values.repeat(heads)
    if form == "only":
        return values[0].clone()
    return values[None].clone() if form == "batched" else values.clone()


def _out_of_form(values: Tensor, form: Form, shape: torch.Size) -> Tensor:
    if form == "transposed":
        return values.t()
    # Heads that are averaged have the average of their biases.
    return values.view(-1, *shape).mean(dim=0) if form == "per head" else values.view(shape)


def _entries(layer: Convolution, library: Library) -> list[_Entry]:
    is_dgl = library == "dgl"
    if isinstance(layer, SAGEConv):
        return _sage_entries(layer, library)
    if isinstance(layer, GCNConv):
        names = [("linear.weight", "weight" if is_dgl else "lin.weight")]
        form: Form = "transposed" if is_dgl else "same"
        return [*(_Entry(*pair, form) for pair in names), _Entry("bias", "bias")]
    if isinstance(layer, SGConv):
        prefix = "fc" if is_dgl else "lin"
        return [_Entry("linear.weight", f"{prefix}.weight"), _Entry("bias", f"{prefix}.bias")]
    if isinstance(layer, APPNPConv):
        return [_Entry(f"linear.{name}", name) for name in ("weight", "bias")]
    if isinstance(layer, GINConv):
        return _gin_entries(layer, library)
    if isinstance(layer, GATConv):
        return _gat_entries(layer, library)
    if isinstance(layer, GATv2Conv):
        return _gatv2_entries(layer, library)
    if isinstance(layer, RGCNConv):
        return _relational_entries(layer, library)
    raise InputError(f"{_NAMES[library]} has no layer for the weights of {type(layer).__name__}")


def _gin_entries(layer: GINConv, library: Library) -> list[_Entry]:
    is_dgl, has_features = library == "dgl", isinstance(layer, GINEConv)
    if is_dgl and has_features:
        raise InputError(
            "GINEConv of DGL does not map features of edges, so it has no place for the weights of "
            "ours; use that of PyG"
        )
    prefix = "apply_func" if is_dgl else "nn"
    entries = [_Entry("eps", "eps")]
    entries += [
        _Entry(f"{ours}.{name}", f"{prefix}.{number}.{name}")
        for ours, number in (("first", 0), ("second", 2))
        for name in ("weight", "bias")
    ]
    if has_features:
        entries += [_Entry(f"edge_linear.{name}", f"lin.{name}") for name in ("weight", "bias")]
    return entries


def _gat_entries(layer: GATConv, library: Library) -> list[_Entry]:
    is_dgl = library == "dgl"
    names = [("linear.weight", "fc.weight"), ("source", "attn_l"), ("target", "attn_r")]
    if not is_dgl:
        names = [("linear.weight", "lin.weight"), ("source", "att_src"), ("target", "att_dst")]
    entries = [_Entry(*names[0]), *(_Entry(*pair, "batched") for pair in names[1:])]
    if layer.edge_linear is not None:
        if is_dgl:
            raise InputError(
                "EdgeGATConv of DGL adds features of edges to what they pass on, which ours does "
                "not, so it has no place for its weights; use GATConv of PyG"
            )
        entries.append(_Entry("edge_linear.weight", "lin_edge.weight"))
        entries.append(_Entry("edge", "att_edge", "batched"))
    is_repeated = is_dgl and not layer.concat
    return [*entries, _Entry("bias", "bias", "per head" if is_repeated else "same")]


def _sage_entries(layer: SAGEConv, library: Library) -> list[_Entry]:
    missing = {"dgl": "max", "pyg": "gcn"}[library]
    if layer.aggr == missing:
        raise InputError(
            f"SAGEConv of {_NAMES[library]} has no aggregator {missing}; use another aggregator"
        )
    if library == "pyg":
        entries = [_Entry(f"neighbour.{name}", f"lin_l.{name}") for name in ("weight", "bias")]
        entries.append(_Entry("root.weight", "lin_r.weight"))
        pool = "lin"
    else:
        is_gcn = layer.aggr == "gcn"
        entries = [_Entry("neighbour.weight", "fc_neigh.weight")]
        entries.append(_Entry("neighbour.bias", "bias" if is_gcn else "fc_self.bias"))
        entries += [] if is_gcn else [_Entry("root.weight", "fc_self.weight")]
        pool = "fc_pool"
    if layer.aggr == "pool":
        entries += [_Entry(f"pool.{name}", f"{pool}.{name}") for name in ("weight", "bias")]
    return entries


def _gatv2_entries(layer: GATv2Conv, library: Library) -> list[_Entry]:
    is_dgl = library == "dgl"
    if is_dgl and layer.edge_linear is not None:
        raise InputError(
            "GATv2Conv of DGL reads no features of edges, so it has no place for their map; use "
            "that of PyG"
        )
    source, target = ("fc_src", "fc_dst") if is_dgl else ("lin_l", "lin_r")
    entries = [
        _Entry(f"{ours}.{name}", f"{theirs}.{name}")
        for ours, theirs in (("source", source), ("target", target))
        for name in ("weight", "bias")
    ]
    entries.append(_Entry("vectors", "attn" if is_dgl else "att", "batched"))
    if layer.edge_linear is not None:
        entries.append(_Entry("edge_linear.weight", "lin_edge.weight"))
    return entries if is_dgl else [*entries, _Entry("bias", "bias")]


def _relational_entries(layer: RGCNConv, library: Library) -> list[_Entry]:
    theirs = {"dgl": "RelGraphConv", "pyg": "RGCNConv"}[library]
    if len(layer.own) > 1:
        raise InputError(
            f"{theirs} of {_NAMES[library]} maps all vertices alike, but this layer has "
            f"{len(layer.own)} own maps, one for each type; use one own map"
        )
    if library == "pyg" and layer.norm == "all":
        raise InputError(
            'RGCNConv of PyG cannot divide by all in-edges; use norm "relation" or "none"'
        )
    names = ("weight", "root", "bias", "comp")
    if library == "dgl":
        names = ("linear_r.W", "loop_weight", "h_bias", "linear_r.coeff")
    entries = [_Entry("bases", names[0])]
    entries += [_Entry("own", names[1], "only"), _Entry("bias", names[2], "only")]
    return entries if layer.coefficients is None else [*entries, _Entry("coefficients", names[3])]


_NAMES: dict[Library, str] = {"dgl": "DGL", "pyg": "PyG"}
