"""Calls of the KaMinPar library, which is an extra."""

from __future__ import annotations

import importlib.util
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from distgnn.datasets.errors import InputError
from distgnn.partition.arcs import Adjacency
from distgnn.partition.methods.library_process import parts_by

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

    The library reads graphs from files only. It keeps links compressed, in a few bytes each.

    Args:
        adjacency: Undirected.
        num_parts: At least 2.
        vertex_weight: (num_vertices,) int64, positive. What parts balance.
        seed: Seed of KaMinPar.
        preset: One of PRESETS.

    Returns:
        (num_vertices,) int32. Part of each vertex; parts may be empty.

    Raises:
        InputError: If KaMinPar is not installed.
        LibraryFailedError: If its file cannot be written, or its process cannot start or dies.

    References:
        Gottesbueren, Heuer, Sanders, Schulz and Seemaier, "Deep multilevel graph partitioning", ESA
        2021; Salwasser, Seemaier, Gottesbueren and Sanders, "Tera-scale multilevel graph
        partitioning", 2024 (compressed links).
    """
    check_installed()
    return parts_by(
        "KaMinPar",
        "kaminpar_process",
        lambda file: _write(file, adjacency, vertex_weight),
        size=vertex_weight.size,
        without=_WITHOUT,
        request={
            "parts": num_parts,
            "imbalance": IMBALANCE,
            "seed": seed % (2**31 - 1),
            "preset": preset,
        },
    )


def _write(file: IO[bytes], adjacency: Adjacency, vertex_weight: NDArray[np.int64]) -> None:
    """Write a graph in the binary format of ParHIP, whose offsets are places in the file."""
    weight: NDArray[Any] = adjacency.weight
    is_weighted = bool(np.any(weight != weight[:1]))
    version = _NARROW_VERTICES | (_NARROW_EDGE_WEIGHTS if is_weighted else _NO_EDGE_WEIGHTS)
    sizes = vertex_weight.size, adjacency.indices.size
    begin = _HEADER_BYTES + _OFFSET_BYTES * adjacency.indptr.size
    np.array([version, *sizes], np.uint64).tofile(file)
    (adjacency.indptr * _VERTEX_BYTES + begin).tofile(file)
    adjacency.indices.tofile(file)
    vertex_weight.tofile(file)
    if is_weighted:
        weight.astype(np.int32, copy=False).tofile(file)
