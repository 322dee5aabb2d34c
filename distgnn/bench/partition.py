"""Partitioning methods beside each other: rows moved, balance, time and memory."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from distgnn.bench.shapes import make
from distgnn.datasets import Graph, InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

REFINED = "+refine"
"""After the name of a method."""
HEADER = (
    "graph",
    "parts",
    "method",
    "halo/V",
    "clones/V",
    "edges",
    "roots",
    "clones",
    "seconds",
    "B/edge",
)


@dataclass(frozen=True, kw_only=True)
class PartitionRace:
    """Plan of what is run on every graph.

    Attributes:
        methods: Names; with +refine at the end, what the method finds is refined.
        parts: Numbers of parts.
        seed: Seed of the methods.
    """

    methods: Sequence[str]
    parts: Sequence[int]
    seed: int


def check_methods(methods: Sequence[str], ours: Sequence[str]) -> None:
    """Refuse methods that are not there.

    Args:
        methods: Names, with or without `REFINED`.
        ours: Names that are there.

    Raises:
        InputError: If one is unknown.
    """
    for method in methods:
        if method.removesuffix(REFINED) not in ours:
            raise InputError(
                f"--methods must be of {', '.join(ours)}, each with or without {REFINED}, "
                f"got '{method}'"
            )


def twin(name: str, *, scale: float, order: str, seed: int) -> Graph:
    """Build a twin without features.

    Args:
        name: Name of the twin.
        scale: Scale of the twin.
        order: Order of its vertices.
        seed: Seed of the twin.

    Returns:
        The graph.
    """
    shape = make(name, scale=scale, order=order, seed=seed)
    return Graph(
        name=f"{name}-{order}",
        num_vertices=shape.num_vertices,
        src=shape.indices.astype(np.int64),
        dst=np.repeat(np.arange(shape.num_vertices), np.diff(shape.indptr)),
    )


def measure(
    graph: Graph, race: PartitionRace, *, progress: Callable[[str], None]
) -> Iterator[dict[str, Any]]:
    """Run every method with every number of parts, each in a process of its own.

    Args:
        graph: The graph.
        race: Settings of the race.
        progress: Called before each run.

    Yields:
        The result of `distgnn.partition.trial`, with graph, method and parts.

    Raises:
        InputError: If a method refuses the graph, or its process dies.
    """
    with tempfile.TemporaryDirectory(prefix="distgnn-") as folder:
        edges = Path(folder, "edges.npz")
        np.savez(edges, num_vertices=graph.num_vertices, src=graph.src, dst=graph.dst)
        for parts in race.parts:
            for method in race.methods:
                progress(f"{graph.name}: {method}, {parts} parts")
                case = {"graph": graph.name, "method": method, "parts": parts}
                name = method.removesuffix(REFINED)
                refine = True if name != method else None
                request = {"edges": str(edges), "seed": race.seed, "options": {}, "refine": refine}
                yield {**case, **_run({**case, **request, "method": name})}


def _run(request: dict[str, Any]) -> dict[str, Any]:
    command = [sys.executable, "-m", "distgnn.partition.trial", json.dumps(request)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    what = f"method {request['method']!r} on graph {request['graph']!r}"
    if done.returncode != 0:
        last = [line for line in done.stderr.splitlines() if line.strip()][-1:]
        raise InputError(
            f"{what} ended with status {done.returncode} ({' '.join(last)}); take fewer edges or "
            "leave it out of --methods"
        )
    outcome: dict[str, Any] = json.loads(done.stdout)
    if "error" in outcome:
        raise InputError(f"{what} failed: {outcome['error']}")
    return outcome


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
        f"{result['halo_rows'] / result['num_vertices']:.3f}",
        f"{result['replication_factor']:.2f}",
        f"{result['edge_balance']:.3f}",
        f"{result['vertex_balance']:.2f}",
        f"{result['clone_balance']:.2f}",
        f"{result['seconds']:.1f}",
        f"{result['method_bytes'] / max(result['num_edges'], 1):.0f}",
    )
