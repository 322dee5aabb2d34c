"""Calls of the KaMinPar library, which is an extra."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from typing import IO, Any

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

# Python puts the working directory first, which may hold a module of any name. Its -P, which
# leaves the directory out, came with 3.11.
_PROGRAM = """
import sys
if sys.path[0] == "":
    del sys.path[0]
from distgnn.partition.methods.kaminpar_process import main
main()
"""


class KaMinParFailedError(InputError):
    """KaMinPar is installed and could not finish; METIS may place the roots all the same."""


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
    from files only. It keeps links compressed, in a few bytes each. The files have no names, so
    that none is left behind whoever is killed, and the process ends with this one.

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
        KaMinParFailedError: If its file cannot be written, or its process cannot start or dies.

    References:
        Gottesbueren, Heuer, Sanders, Schulz and Seemaier, "Deep multilevel graph partitioning", ESA
        2021; Salwasser, Seemaier, Gottesbueren and Sanders, "Tera-scale multilevel graph
        partitioning", 2024 (compressed links).
    """
    check_installed()
    with ExitStack() as files:
        try:
            graph, out = (files.enter_context(tempfile.TemporaryFile()) for _ in range(2))
            _write(graph, adjacency, vertex_weight)
        except OSError as error:
            raise KaMinParFailedError(
                f"cannot write the graph for KaMinPar to '{tempfile.gettempdir()}': "
                f"{error.strerror or error}; name a folder with room by TMPDIR, or {_WITHOUT}"
            ) from error
        request = {
            "parent": os.getpid(),
            "graph": graph.fileno(),
            "out": out.fileno(),
            "parts": num_parts,
            "imbalance": IMBALANCE,
            "seed": seed % (2**31 - 1),
            "preset": preset,
        }
        _run(request)
        out.seek(0)
        found: NDArray[np.int32] = np.fromfile(out, np.int32)
    if found.size != vertex_weight.size:
        raise KaMinParFailedError(
            f"KaMinPar wrote {found.size} parts for {vertex_weight.size} vertices; make room in "
            f"'{tempfile.gettempdir()}', or {_WITHOUT}"
        )
    return found


def _run(request: dict[str, Any]) -> None:
    """Run `kaminpar_process`; its two files are open in it under the same numbers."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM, json.dumps(request)],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            stdin=subprocess.DEVNULL,
            pass_fds=(request["graph"], request["out"]),
        )
    except OSError as error:
        raise KaMinParFailedError(
            f"cannot start a process for KaMinPar: {error.strerror or error}; free memory, or "
            f"{_WITHOUT}"
        ) from error
    if done.returncode == 0:
        return
    end = f"ended with status {done.returncode}"
    if done.returncode < 0:
        end = f"was ended by signal {-done.returncode} ({signal.strsignal(-done.returncode)})"
    last = "".join(f": {line}" for line in done.stderr.splitlines()[-1:] if line.strip())
    raise KaMinParFailedError(f"KaMinPar {end}{last}; free memory, or {_WITHOUT}")


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
    file.flush()
