"""One call of KaMinPar in a process of its own, which begins with the same state every time."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys

import numpy as np

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Cut the graph of a request, whose fields `kaminpar_library` fills in."""
    request = json.loads(sys.argv[1])
    _end_with(request["parent"])
    import kaminpar

    kaminpar.reseed(request["seed"])
    # Made first: while it lives, the library reads the file on one thread, too.
    partitioner = kaminpar.KaMinPar(1, kaminpar.context_by_name(request["preset"]))
    # The file has no name of its own; this one opens it once more.
    name, file_format = f"/dev/fd/{request['graph']}", kaminpar.GraphFileFormat.PARHIP
    graph = kaminpar.load_graph(name, file_format, compress=True)
    parts = partitioner.compute_partition(graph, request["parts"], request["imbalance"])
    with os.fdopen(request["out"], "wb") as file:
        np.array(parts, np.int32).tofile(file)


def _end_with(parent: int) -> None:
    """Have the system end this process when its parent ends, where it can."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != parent:  # It ended before the request.
            sys.exit(1)
