"""The graphs that come with the package."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from distgnn.datasets.npz import read_npz

if TYPE_CHECKING:
    from distgnn.datasets.graph import Graph

_DATA = Path(__file__).parent / "data"

LICENCES = {"cora": "MIT"}
"""The licence of every bundled graph; data/README.md gives the sources."""


def load_bundled(name: str) -> Graph:
    """Load a bundled graph; `LICENCES` has their names."""
    return replace(read_npz(_DATA / f"{name}.npz"), name=name, source=name)
