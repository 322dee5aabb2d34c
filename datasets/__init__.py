"""Graphs in: readers of files, bundled and synthetic graphs, all returning a `Graph`."""

from __future__ import annotations

from distgnn.datasets.errors import InputError
from distgnn.datasets.graph import Graph
from distgnn.datasets.sources import describe, find, load, names

__all__ = ["Graph", "InputError", "describe", "find", "load", "names"]
