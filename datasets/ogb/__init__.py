"""Data sets of the Open Graph Benchmark (Hu et al., NeurIPS 2020), read from their raw files."""

from __future__ import annotations

from distgnn.datasets.ogb.catalogue import CATALOGUE
from distgnn.datasets.ogb.prepare import located, prepare

__all__ = ["CATALOGUE", "located", "prepare"]
