"""The same partition for any number of threads, any order of the edges, and after any kill."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from distgnn.bench.partition import twin
from distgnn.partition import assign
from distgnn.partition.quality import measure

KILLS = 50
# As on a machine with so many cores, and as if the graph had so many edges that threads pay.
PROGRAM = """
import os, sys
cores = int(sys.argv.pop(1))
os.sched_getaffinity = lambda _: set(range(cores))
from distgnn.partition import threads
threads.MANY_ITEMS = 1
from distgnn.cli import main
sys.exit(main(sys.argv[1:]))
"""


def words_of(graph: Path, out: Path) -> list[str]:
    return ["partition", str(graph), "--parts", "4", "--out", str(out)]


def save(path: Path, *, scale: float) -> Path:
    graph = twin("products", scale=scale, order="random", seed=0)
    features = np.random.default_rng(0).standard_normal((graph.num_vertices, 8), np.float32)
    ends = np.stack([graph.src, graph.dst])
    np.savez(path, edge_index=ends, num_vertices=graph.num_vertices, x=features)
    return path


def files_of(out: Path) -> dict[str, object]:
    manifest = json.loads((out / "manifest.json").read_text())
    for name, record in manifest["files"].items():
        assert (out / name).stat().st_size == record["bytes"]
    return dict(manifest["files"])


@pytest.mark.slow
def test_the_files_are_the_same_for_any_number_of_threads(tmp_path: Path) -> None:
    graph = save(tmp_path / "graph.npz", scale=0.004)
    found = []
    for threads in (1, 2, 4):
        out = tmp_path / f"parts-{threads}"
        env = os.environ | {"OMP_NUM_THREADS": str(threads)}
        command = [sys.executable, "-c", PROGRAM, str(threads), *words_of(graph, out)]
        subprocess.run(command, check=True, env=env)
        found.append(files_of(out))
    assert found[0] == found[1] == found[2]


@pytest.mark.slow
def test_the_order_of_the_edges_changes_the_rows_by_a_tenth_at_most() -> None:
    graph = twin("products", scale=0.004, order="random", seed=0)
    by_source = np.lexsort((graph.dst, graph.src))
    orders = by_source, by_source[::-1], np.random.default_rng(0).permutation(graph.num_edges)
    rows = []
    for order in orders:
        moved = type(graph)(
            name="g", num_vertices=graph.num_vertices, src=graph.src[order], dst=graph.dst[order]
        )
        rows.append(measure(moved, assign("metis", moved, 16)).halo_rows)
    assert max(rows) <= 1.1 * min(rows)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_cut_that_is_killed_at_random_moments_comes_to_the_same_files(tmp_path: Path) -> None:
    graph, out = save(tmp_path / "graph.npz", scale=0.001), tmp_path / "work" / "parts"
    command = [sys.executable, "-m", "distgnn", *words_of(graph, out), "--overwrite"]
    begun = time.monotonic()
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    usual_s = time.monotonic() - begun
    straight = files_of(out)
    moments = random.Random(0)
    num_killed = 0
    for _ in range(KILLS):
        with subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as cut:
            try:
                cut.wait(timeout=moments.uniform(0.0, usual_s))
            except subprocess.TimeoutExpired:
                cut.kill()
                num_killed += 1
        # The one before or the new one, but whole.
        assert files_of(out) == straight
    assert num_killed > KILLS // 4
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    assert files_of(out) == straight
