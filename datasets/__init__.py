"""Graphs in: readers of files, bundled and synthetic graphs, all returning a `Graph`."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from distgnn.datasets.errors import InputError

if TYPE_CHECKING:
    from distgnn.datasets.graph import Graph
    from distgnn.datasets.sources import describe, find, load, names

__all__ = ["Graph", "InputError", "describe", "find", "load", "names"]


def __getattr__(name: str) -> object:
    # Ranks that read their part need the error alone, and scipy and all readers take time to load.
    if name not in __all__:
        raise AttributeError(f"module 'distgnn.datasets' has no attribute {name!r}")
    module = "graph" if name == "Graph" else "sources"
    value = getattr(importlib.import_module(f"distgnn.datasets.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
