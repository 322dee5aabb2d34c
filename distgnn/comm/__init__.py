"""Ranks and the messages between them: launch, transports, failures.

Importing this package does not import torch; the names that need it are loaded when used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from distgnn.comm.binding import ThreadChoice, apply_threads, choose_threads
from distgnn.comm.errors import PeerError
from distgnn.comm.failure import fail
from distgnn.comm.launch import Launch, detect
from distgnn.comm.open import open_group

if TYPE_CHECKING:
    from distgnn.comm.group import Group, ReduceOp, Work
    from distgnn.comm.single import SingleGroup
    from distgnn.comm.threads import ThreadGroup, run_ranks
    from distgnn.comm.transports.gloo import GlooGroup
    from distgnn.comm.transports.mpi import MpiGroup

__all__ = [
    "GlooGroup",
    "Group",
    "Launch",
    "MpiGroup",
    "PeerError",
    "ReduceOp",
    "SingleGroup",
    "ThreadChoice",
    "ThreadGroup",
    "Work",
    "apply_threads",
    "choose_threads",
    "detect",
    "fail",
    "open_group",
    "run_ranks",
]

_MODULES = {
    "GlooGroup": "transports.gloo",
    "Group": "group",
    "MpiGroup": "transports.mpi",
    "ReduceOp": "group",
    "SingleGroup": "single",
    "ThreadGroup": "threads",
    "Work": "group",
    "run_ranks": "threads",
}


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return getattr(importlib.import_module(f"distgnn.comm.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
