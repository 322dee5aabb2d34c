"""From a graph file to a directory of parts: whole programs beside each other, ours and DGL's."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from distgnn.bench import peers
from distgnn.datasets import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from distgnn.bench.partition import PartitionRace
    from distgnn.datasets import Graph

PEER = "dgl-"
PEERS = ("dgl-metis", "dgl-libra")
HEADER = ("graph", "parts", "program", "seconds", "CPU s", "peak memory, GiB", "directory, GiB")


def check_methods(methods: Sequence[str], ours: Sequence[str]) -> None:
    """Refuse programs that are not there.

    Args:
        methods: Names of our methods, or of PEERS.
        ours: Names of our methods.

    Raises:
        InputError: If one is unknown, or DGL is not installed.
    """
    for method in methods:
        if method not in (*ours, *PEERS):
            raise InputError(f"--methods must be of {', '.join((*ours, *PEERS))}, got '{method}'")
        if method in PEERS and "dgl" not in peers.installed():
            raise InputError(
                f"method '{method}' needs the package dgl, which is not installed; leave it out of "
                "--methods"
            )


def measure(
    graph: Graph, race: PartitionRace, *, progress: Callable[[str], None]
) -> Iterator[dict[str, Any]]:
    """Run every program with every number of parts on the same file, one after another.

    Args:
        graph: The graph, of which vertices and edges are written to the file.
        race: Settings of the race; methods may be of PEERS.
        progress: Called before each run.

    Yields:
        graph, method, parts, num_vertices, num_edges, seconds and cpu_s of the whole process, its
        peak_rss_bytes, and the directory_bytes.

    Raises:
        InputError: If a program fails.
    """
    with tempfile.TemporaryDirectory(prefix="distgnn-") as folder:
        file = Path(folder, "graph.npz")
        edge_index = np.stack([graph.src, graph.dst])
        np.savez(file, edge_index=edge_index, num_vertices=graph.num_vertices)
        sizes = {"num_vertices": graph.num_vertices, "num_edges": graph.num_edges}
        name = graph.name
        del edge_index, graph
        _compile(race, Path(folder), progress)
        for parts in race.parts:
            for method in race.methods:
                progress(f"{name}: {method}, {parts} parts, from the file to a directory")
                with tempfile.TemporaryDirectory(prefix="distgnn-") as place:
                    out = Path(place, "parts")
                    command = _command(method, file, parts, out, race.seed)
                    case = {"graph": name, "method": method, "parts": parts}
                    used = run_program(command, case)
                    yield {**case, **sizes, **used, "directory_bytes": _bytes_below(out)}


def _compile(race: PartitionRace, folder: Path, progress: Callable[[str], None]) -> None:
    """Run our methods once on a path of 4 vertices: what numba compiles is kept on disk."""
    file = folder / "path.npz"
    np.savez(file, edge_index=np.array([[0, 1, 2, 1, 2, 3], [1, 2, 3, 0, 1, 2]]), num_vertices=4)
    for method in (method for method in race.methods if not method.startswith(PEER)):
        progress(f"compiling {method}, unless that was done on this machine")
        with tempfile.TemporaryDirectory(prefix="distgnn-") as place:
            command = _command(method, file, 2, Path(place, "parts"), race.seed)
            run_program(command, {"graph": "path", "method": method})


def _command(method: str, file: Path, parts: int, out: Path, seed: int) -> list[str]:
    if method.startswith(PEER):
        peer = ["-m", "distgnn.bench.peers.dgl_partition", str(file), str(parts), str(out)]
        return [sys.executable, *peer, method.removeprefix(PEER)]
    ours = ["-m", "distgnn", "partition", str(file), "--parts", str(parts), "--out", str(out)]
    return [sys.executable, *ours, "--method", method, "--seed", str(seed)]


# Stands between this process and the program: a program inherits, as its peak, that of the process
# that starts it, and this one has held the graph.
_RUNNER = """
import json, os, subprocess, sys, time
start = time.perf_counter()
child = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
_, status, usage = os.wait4(child.pid, 0)
print(json.dumps({
    "seconds": time.perf_counter() - start,
    "cpu_s": usage.ru_utime + usage.ru_stime,
    "peak_rss_bytes": usage.ru_maxrss * 1024,
}))
child.returncode = os.waitstatus_to_exitcode(status)
sys.exit(child.returncode if child.returncode >= 0 else 128 - child.returncode)
"""


def run_program(command: list[str], case: dict[str, Any]) -> dict[str, Any]:
    """Run a program; tell what the system says that it used.

    Args:
        command: Its words.
        case: method and graph, for messages.

    Returns:
        seconds, cpu_s and peak_rss_bytes.

    Raises:
        InputError: If it fails; its last line is in the message.
    """
    runner = [sys.executable, "-S", "-c", _RUNNER, *command]
    done = subprocess.run(runner, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0:
        last = [line for line in done.stderr.splitlines() if line.strip()][-1:]
        raise InputError(
            f"{case['method']} on graph {case['graph']!r} ended with status {done.returncode} "
            f"({' '.join(last)}); take a smaller graph or leave it out of --methods"
        )
    used: dict[str, Any] = json.loads(done.stdout)
    return used


def _bytes_below(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def row(result: dict[str, Any]) -> tuple[str, ...]:
    """Show a result.

    Args:
        result: From `measure`.

    Returns:
        A cell for each column of HEADER.
    """
    return (
        result["graph"],
        str(result["parts"]),
        result["method"],
        f"{result['seconds']:.1f}",
        f"{result['cpu_s']:.1f}",
        f"{result['peak_rss_bytes'] / 2**30:.2f}",
        f"{result['directory_bytes'] / 2**30:.2f}",
    )
