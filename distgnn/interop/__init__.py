"""Graphs from memory and back: numpy, scipy, networkx, DGL and PyG, an adapter file each.

Importing this package loads none of them but numpy and scipy; an adapter imports its library when
it is called.
"""

from __future__ import annotations

from distgnn.interop.arrays import from_numpy
from distgnn.interop.dgl import from_dgl, to_dgl
from distgnn.interop.import_dgl import import_dgl
from distgnn.interop.networkx import from_networkx, to_networkx
from distgnn.interop.pyg import from_pyg, to_pyg
from distgnn.interop.sparse import from_scipy, to_scipy

__all__ = [
    "from_dgl",
    "from_networkx",
    "from_numpy",
    "from_pyg",
    "from_scipy",
    "import_dgl",
    "to_dgl",
    "to_networkx",
    "to_pyg",
    "to_scipy",
]
