"""Full-batch training of graph neural networks on clusters of CPU sockets.

    import distgnn as dg

The names below are all that is public; distgnn/api/README.md shows how they go together. Each is
loaded when it is used first, so that importing this package takes no time and no torch.
"""

from __future__ import annotations

import importlib

# Not that of typing: a working directory, which `python -m` searches first, may have that name.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from distgnn import nn, optim
    from distgnn.api.data import Data
    from distgnn.api.directories import inspect, plan
    from distgnn.api.graphs import load
    from distgnn.api.job import rank
    from distgnn.api.partition import Partition
    from distgnn.api.partitioning import partition_graph
    from distgnn.api.reports import report
    from distgnn.api.run import Run, Series
    from distgnn.api.session import Session, init
    from distgnn.api.verbs import embed, evaluate, predict, train
    from distgnn.datasets.errors import InputError
    from distgnn.datasets.graph import Graph
    from distgnn.graph.local_graph import LocalGraph
    from distgnn.interop.accelerate import accelerate
    from distgnn.tuning.verb import Tuned, tune

__version__ = "0.1.0"

__all__ = [
    "Data",
    "Graph",
    "InputError",
    "LocalGraph",
    "Partition",
    "Run",
    "Series",
    "Session",
    "Tuned",
    "accelerate",
    "embed",
    "evaluate",
    "init",
    "inspect",
    "load",
    "nn",
    "optim",
    "partition_graph",
    "plan",
    "predict",
    "rank",
    "report",
    "train",
    "tune",
]

_MODULES = {
    "Data": "api.data",
    "Graph": "datasets.graph",
    "InputError": "datasets.errors",
    "LocalGraph": "graph.local_graph",
    "Partition": "api.partition",
    "Run": "api.run",
    "Series": "api.run",
    "Session": "api.session",
    "Tuned": "tuning.verb",
    "accelerate": "interop.accelerate",
    "embed": "api.verbs",
    "evaluate": "api.verbs",
    "init": "api.session",
    "load": "api.graphs",
    "inspect": "api.directories",
    "partition_graph": "api.partitioning",
    "plan": "api.directories",
    "predict": "api.verbs",
    "report": "api.reports",
    "rank": "api.job",
    "train": "api.verbs",
    "tune": "tuning.verb",
}


def __getattr__(name: str) -> object:
    # Most names load torch, which reads variables of the environment then.
    importlib.import_module("distgnn.api.environment").prepare_environment()
    if name in _MODULES:
        value = getattr(importlib.import_module(f"distgnn.{_MODULES[name]}"), name)
    elif name in __all__:
        value = importlib.import_module(f"distgnn.{name}")
    else:
        raise AttributeError(f"module 'distgnn' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, "__version__"})
