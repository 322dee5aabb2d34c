"""One timed run of a method in a process of its own, whose peak of memory is then the method's."""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from distgnn.datasets.errors import InputError
from distgnn.datasets.graph import Graph
from distgnn.partition import assign
from distgnn.partition.quality import measure


def run(request: dict[str, Any]) -> dict[str, Any]:
    """Assign a graph and measure.

    Args:
        request: graph (its name), edges (path of an .npz file with num_vertices, src and dst),
            method, parts, seed, options, and refine as `assign` takes it.

    Returns:
        Quality, seconds and memory by name.

    Raises:
        InputError: If the method cannot be used so.
    """
    with np.load(request["edges"], allow_pickle=False) as arrays:
        graph = Graph(
            name=request["graph"],
            num_vertices=int(arrays["num_vertices"]),
            src=arrays["src"],
            dst=arrays["dst"],
        )
    method, options = request["method"], {"refine": request["refine"], **request["options"]}
    # Compiles the loops, or loads them.
    tiny = Graph(name="tiny", num_vertices=3, src=np.array([0, 1]), dst=np.array([1, 2]))
    assign(method, tiny, 2, **options)
    before = _memory_bytes("VmRSS")
    start, start_cpu = time.perf_counter(), _cpu_seconds()
    assignment = assign(method, graph, request["parts"], seed=request["seed"], **options)
    seconds, cpu_s = time.perf_counter() - start, _cpu_seconds() - start_cpu
    peak = _memory_bytes("VmHWM")
    quality = measure(graph, assignment)
    return {
        "num_vertices": graph.num_vertices,
        "num_edges": graph.num_edges,
        "halo_rows": quality.halo_rows,
        "replication_factor": quality.replication_factor,
        "edge_balance": quality.edge_balance,
        "vertex_balance": quality.vertex_balance,
        "clone_balance": quality.clone_balance,
        "seconds": seconds,
        "cpu_s": cpu_s,
        "peak_rss_bytes": peak,
        "method_bytes": max(peak - before, 0),
    }


def _cpu_seconds() -> float:
    """Sum up the CPU seconds of this process and of those that it ran, as KaMinPar's."""
    return sum(os.times()[:4])


def _memory_bytes(field: str) -> int:
    """Read VmRSS or VmHWM: resident now, or at most so far."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:  # not Linux, where the usage of a child would begin at that of its parent
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    (line,) = (line for line in status.splitlines() if line.startswith(f"{field}:"))
    return int(line.split()[1]) * 1024


def main() -> int:
    """Run the request of the first argument and write the outcome on standard output."""
    try:
        outcome = run(json.loads(sys.argv[1]))
    except InputError as error:
        outcome = {"error": str(error)}
    sys.stdout.write(json.dumps(outcome))
    return 0


if __name__ == "__main__":
    sys.exit(main())
