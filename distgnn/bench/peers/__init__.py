"""Peers: one adapter file for each, imported when a benchmark asks for it."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
from typing import TYPE_CHECKING

from distgnn.datasets import InputError

if TYPE_CHECKING:
    from distgnn.bench.cases import CaseInputs, Runner

NAMES = ("dgl", "torch", "pyg", "torch_sparse", "scipy")
_PACKAGES = {"pyg": "torch_geometric"}


def installed() -> list[str]:
    """Return the names of the peers whose packages are there."""
    return [name for name in NAMES if importlib.util.find_spec(_PACKAGES.get(name, name))]


def versions() -> dict[str, str]:
    """Return the version of each peer that is installed; torch is named elsewhere."""
    return {
        name: importlib.metadata.version(_PACKAGES.get(name, name).replace("_", "-"))
        for name in installed()
        if name != "torch"
    }


def runner(name: str, inputs: CaseInputs) -> Runner:
    """Hand a graph to a peer.

    Args:
        name: One of `NAMES`.
        inputs: The graph.

    Returns:
        The runner of the peer's operations.

    Raises:
        InputError: If there is no such peer, or it is not installed.
    """
    if name not in NAMES:
        raise InputError(f"a peer must be one of {', '.join(NAMES)}, got '{name}'")
    if name not in installed():
        package = _PACKAGES.get(name, name)
        raise InputError(f"peer '{name}' needs the package {package}, which is not installed")
    module = importlib.import_module(f"distgnn.bench.peers.{name}_peer")
    made: Runner = module.make(inputs)
    return made
