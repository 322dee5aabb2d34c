"""Layers for models of one's own, and the models behind --model.

Layers are called as `conv(graph, x)` and have PyG's names for their arguments. The same code runs
on a whole graph and on one part of many. Each name is loaded when it is used first.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distgnn.nn.dropout import Dropout
    from distgnn.nn.gat import GATConv
    from distgnn.nn.gatv2 import GATv2Conv
    from distgnn.nn.gcn import GCNConv
    from distgnn.nn.gin import GINConv
    from distgnn.nn.linear import Linear
    from distgnn.nn.norm import BatchNorm, LayerNorm
    from distgnn.nn.propagation import APPNP, SGConv
    from distgnn.nn.relational import RGCNConv
    from distgnn.nn.sage import SAGEConv

__all__ = [
    "APPNP",
    "BatchNorm",
    "Dropout",
    "GATConv",
    "GATv2Conv",
    "GCNConv",
    "GINConv",
    "LayerNorm",
    "Linear",
    "RGCNConv",
    "SAGEConv",
    "SGConv",
]

_MODULES = {
    "APPNP": "propagation",
    "BatchNorm": "norm",
    "Dropout": "dropout",
    "GATConv": "gat",
    "GATv2Conv": "gatv2",
    "GCNConv": "gcn",
    "GINConv": "gin",
    "LayerNorm": "norm",
    "Linear": "linear",
    "RGCNConv": "relational",
    "SAGEConv": "sage",
    "SGConv": "propagation",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'distgnn.nn' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"distgnn.nn.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
