"""Calls of the KaMinPar library, which is an extra."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distgnn.datasets.errors import InputError
from distgnn.partition.arcs import Adjacency

# Sets of options: "default", and "eco", which takes twice the time and more.
PRESETS = ("default", "eco")
# Largest part's vertex weight over the mean, less 1; that of METIS.
IMBALANCE = 0.03
# Bits of the ParHIP format: what is absent, and what is 32 bits wide.
_NO_EDGE_WEIGHTS, _NARROW_VERTICES, _NARROW_EDGE_WEIGHTS = 1, 8, 32
_HEADER_BYTES, _OFFSET_BYTES, _VERTEX_BYTES = 24, 8, 4
# The method auto and the best quality call KaMinPar by themselves, so that leaving out is no cure.
_WITHOUT = "cut with --method metis --option roots=metis"


def is_installed() -> bool:
    """Return whether KaMinPar can be imported."""
    return importlib.util.find_spec("kaminpar") is not None


def is_preset(name: str) -> bool:
    """Return whether a name is that of a set of KaMinPar's options, one of PRESETS."""
    return name in PRESETS


def check_installed() -> None:
    """Check that KaMinPar can be imported.

    Raises:
        InputError: If not.
    """
    if not is_installed():
        raise InputError(
            "roots by KaMinPar need the package kaminpar, which is not installed; install it "
            "(pip install 'distgnn[kaminpar]') or leave out the option roots"
        )


def part_graph(
    adjacency: Adjacency,
    num_parts: int,
    *,
    vertex_weight: NDArray[np.int64],
    seed: int,
    preset: str,
) -> NDArray[np.int32]:
    """Call KaMinPar on one thread of a process of its own, where the seed fixes what it does.

    In one process a call depends on those before it, whatever the seed. The library reads graphs
    from files only. It keeps links compressed, in a few bytes each.

    Args:
        adjacency: Undirected.
        num_parts: At least 2.
        vertex_weight: (num_vertices,) int64, positive. What parts balance.
        seed: Seed of KaMinPar.
        preset: One of PRESETS.

    Returns:
        (num_vertices,) int32. Part of each vertex; parts may be empty.

    Raises:
        InputError: If KaMinPar is not installed, its file cannot be written, or its process dies.

    References:
        Gottesbueren, Heuer, Sanders, Schulz and Seemaier, "Deep multilevel graph partitioning", ESA
        2021; Salwasser, Seemaier, Gottesbueren and Sanders, "Tera-scale multilevel graph
        partitioning", 2024 (compressed links).
    """
    check_installed()
    with tempfile.TemporaryDirectory(prefix="distgnn-") as folder:
        graph, parts = Path(folder, "graph.parhip"), Path(folder, "parts.npy")
        try:
            _write(graph, adjacency, vertex_weight)
        except OSError as error:
            raise InputError(
                f"cannot write the graph for KaMinPar to '{folder}': {error.strerror or error}; "
                f"name a folder with room by TMPDIR, or {_WITHOUT}"
            ) from error
        request = {
            "graph": str(graph),
            "out": str(parts),
            "parts": num_parts,
            "imbalance": IMBALANCE,
            "seed": seed % (2**31 - 1),
            "preset": preset,
        }
        command = [sys.executable, "-m", "distgnn.partition.methods.kaminpar_process"]
        done = subprocess.run(
            [*command, json.dumps(request)], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            last = [line for line in done.stderr.splitlines() if line.strip()][-1:]
            raise InputError(
                f"KaMinPar ended with status {done.returncode} ({' '.join(last)}); free memory, or "
                f"{_WITHOUT}"
            )
        found: NDArray[np.int32] = np.load(parts, allow_pickle=False)
    return found


def _write(path: Path, adjacency: Adjacency, vertex_weight: NDArray[np.int64]) -> None:
    """Write a graph in the binary format of ParHIP, whose offsets are places in the file."""
    weight: NDArray[Any] = adjacency.weight
    is_weighted = bool(np.any(weight != weight[:1]))
    version = _NARROW_VERTICES | (_NARROW_EDGE_WEIGHTS if is_weighted else _NO_EDGE_WEIGHTS)
    sizes = vertex_weight.size, adjacency.indices.size
    begin = _HEADER_BYTES + _OFFSET_BYTES * adjacency.indptr.size
    with path.open("wb") as file:
        np.array([version, *sizes], np.uint64).tofile(file)
        (adjacency.indptr * _VERTEX_BYTES + begin).tofile(file)
        adjacency.indices.tofile(file)
        vertex_weight.tofile(file)
        if is_weighted:
            weight.astype(np.int32, copy=False).tofile(file)
