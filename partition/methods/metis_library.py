"""Calls of the METIS library."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pymetis
from numpy.typing import NDArray

from distgnn.datasets.errors import InputError
from distgnn.partition.arcs import Adjacency

# The names of options of glibc, and the bytes from which on a block is mapped. Those that NumPy
# makes again and again are smaller, or large enough to be mapped anyway.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LEAST_MAPPED = 1 << 20
# Where glibc gets by itself, as large blocks are freed; once set, the options stay as they are.
_USUAL_LEAST_MAPPED, _USUAL_LEAST_TRIMMED = 32 << 20, 64 << 20

_OBJECTIVES = {"volume": pymetis.ObjType.VOL, "cut": pymetis.ObjType.CUT}


def check_objective(objective: str) -> None:
    """Check what METIS is to minimise.

    Args:
        objective: "volume" or "cut".

    Raises:
        InputError: If it is something else.
    """
    if objective not in _OBJECTIVES:
        raise InputError(
            f"unknown METIS objective {objective!r}; choose one of {', '.join(_OBJECTIVES)}"
        )


def part_graph(
    adjacency: Adjacency,
    num_parts: int,
    *,
    vertex_weight: NDArray[np.int64],
    seed: int,
    objective: str,
) -> NDArray[np.int32]:
    """Call METIS.

    Args:
        adjacency: Undirected; the volume takes no notice of weights.
        num_parts: At least 2.
        vertex_weight: (num_vertices,) int64, positive. What parts balance.
        seed: Seed of METIS.
        objective: "volume" or "cut".

    Returns:
        (num_vertices,) int32. Part of each vertex; parts may be empty.

    Raises:
        InputError: If SIGTERM ended METIS, and the program goes on.
        MemoryError: If METIS was refused memory.
    """
    options = pymetis.Options()
    # The C library treats the seeds 0 and 1 alike and looks at 32 bits.
    options.seed = seed % (2**31 - 1) + 1
    # The objective is the one option of METIS that pymetis gives no name.
    options._set(int(pymetis.OptionKey.OBJTYPE), int(_OBJECTIVES[objective]))
    # METIS weighs the volume by vertices, not by edges: parallel edges move one row.
    is_weighted = objective == "cut" and np.any(adjacency.weight != adjacency.weight[:1])
    # The library is built for 64 bits; narrower arrays it would copy number by number.
    weights: dict[str, Any] = (
        {"eweights": adjacency.weight.astype(np.int64, copy=False)} if is_weighted else {}
    )
    with _returning_freed_memory(), _silent_stdout(), _passing_signals_on():
        indices = adjacency.indices.astype(np.int64, copy=False)
        _, parts = pymetis.part_graph(
            num_parts,
            adjacency=pymetis.CSRAdjacency(adjacency.indptr, indices),
            vweights=vertex_weight,
            recursive=False,
            options=options,
            **weights,
        )
    return np.asarray(parts).astype(np.int32)


@contextmanager
def _returning_freed_memory() -> Iterator[None]:
    """Have the C library map large blocks one by one, so that it returns each that is freed.

    It stops that for blocks of up to 32 MiB once some were freed. METIS's coarser graphs then stay
    where they are after their end: 12 bytes a directed edge on products' twin at 1/16. Afterwards
    it keeps such blocks again: training would wait for new pages in each step.
    """
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallopt"):
        yield
        return
    library.mallopt(_M_MMAP_THRESHOLD, _LEAST_MAPPED)
    try:
        yield
    finally:
        library.mallopt(_M_MMAP_THRESHOLD, _USUAL_LEAST_MAPPED)
        library.mallopt(_M_TRIM_THRESHOLD, _USUAL_LEAST_TRIMMED)


@contextmanager
def _passing_signals_on() -> Iterator[None]:
    """End as SIGTERM asks, and where memory was refused, which are signals to METIS alike.

    It takes SIGTERM for an error of its own, and raises SIGABRT for want of memory, then SIGTERM.
    It jumps out of what it does, gives up or goes on with parts that it has not found, and leaves
    the signals blocked.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        yield
    finally:
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ()) - before
        is_refused = signal.SIGABRT in blocked
        if is_refused:
            for own in signal.sigpending() & blocked:
                signal.sigwait({own})
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if is_refused:
            raise MemoryError("METIS was refused memory")
        if signal.SIGTERM in blocked:
            os.kill(os.getpid(), signal.SIGTERM)
            # Whoever handles it himself gets no parts that were not found.
            raise InputError("METIS was ended by SIGTERM; cut the graph again")


@contextmanager
def _silent_stdout() -> Iterator[None]:
    """Discard what C code prints on standard output.

    METIS complains there of stars and the like, which it cuts all the same, in the middle of what
    a program may read.
    """
    library = ctypes.CDLL(None)
    library.fflush(None)
    try:
        kept = os.dup(1)
    except OSError:  # standard output is closed
        yield
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    try:
        yield
    finally:
        library.fflush(None)
        os.dup2(kept, 1)
        os.close(kept)
