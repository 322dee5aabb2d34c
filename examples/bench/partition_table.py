"""Rows, time and memory of `--quality default` and `best`, graph by graph, for partition/TABLE.md.

    python examples/bench/partition_table.py CELLS.jsonl GRAPH.npz ... [--parts 4,16,64]
        [--caps 1.05,1.5] [--qualities default,best] [--before CHECKOUT]
    python examples/bench/partition_table.py CELLS.jsonl --into partition/TABLE.md

The first form runs each graph, number of parts, cap and quality in a process of its own, small
graphs first, and appends a line to CELLS.jsonl. What is there already is not run again, so that it
may be stopped and started at any time; what failed is tried again. A graph may also be a twin,
SHAPE@SCALE, such as products@0.0625. CHECKOUT holds an older version, installed in its .venv, whose
`metis` is then run in place of the qualities: the rows before.
The second form writes the section of all cells.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from distgnn.bench.origin import commit
from distgnn.bench.partition import twin
from distgnn.datasets import load

if TYPE_CHECKING:
    from collections.abc import Sequence

    from distgnn.datasets import Graph

QUALITIES = ("default", "best")
TITLE = "## `--quality default` and `best`"
KEY = ("graph", "parts", "cap", "quality")
BEFORE = "before"
HEADER = (
    "graph",
    "parts",
    "cap",
    "rows before",
    "default",
    "against before",
    "best",
    "against default",
    "best against before",
    "edges, clones",
    "edges a core-second, default, best",
    "B/edge, default, best",
)


def read(cells: Path) -> list[dict[str, Any]]:
    """Read the cells that are there; a line that a stop cut short is none."""
    found = []
    for line in cells.read_text().splitlines() if cells.exists() else []:
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return found


def graph_of(source: str) -> Graph:
    """Load a graph, or make a twin without features."""
    if "@" not in source:
        return load(source)
    shape, _, scale = source.partition("@")
    return twin(shape, scale=float(scale), order="random", seed=0)


def run(asked: argparse.Namespace, cells: Path) -> None:
    """Run what is missing of every graph, and write a line for each cell."""
    graphs = sorted(((graph_of(source), source) for source in asked.graphs), key=size)
    end = time.monotonic() + 60 * asked.minutes
    done = {tuple(cell[name] for name in KEY) for cell in read(cells) if "error" not in cell}
    caps, parts_of_all = numbers(asked.caps, float), numbers(asked.parts, int)
    qualities = asked.qualities.split(",") if asked.before is None else [BEFORE]
    python, version = Path(sys.executable), commit(Path(__file__))
    if asked.before is not None:
        python = Path(asked.before, ".venv", "bin", "python").absolute()
        version = commit(Path(asked.before, "pyproject.toml"))
    choices = list(product(caps, parts_of_all, qualities))
    with tempfile.TemporaryDirectory(prefix="distgnn-") as folder:
        edges = str(Path(folder, "edges.npz"))
        for graph, source in graphs:
            name = f"{source.partition('@')[0]}'s twin at {source.partition('@')[2]}"
            name = name if "@" in source else graph.name
            np.savez(edges, num_vertices=graph.num_vertices, src=graph.src, dst=graph.dst)
            for cap, parts, quality in choices:
                left = end - time.monotonic()
                if (name, parts, cap, quality) in done or left <= 0:
                    continue
                options = {"edge_balance": cap}
                if quality != BEFORE:
                    options["quality"] = quality
                request = {"graph": name, "edges": edges, "seed": 0, "refine": None}
                request |= {"method": "metis", "parts": parts, "options": options}
                cell = dict(zip(KEY, (name, parts, cap, quality), strict=True))
                cell |= outcome(python, request, min(asked.limit, left))
                if "error" in cell and left < asked.limit and time.monotonic() >= end:
                    return
                cell |= {"commit": version, "at": time.strftime("%Y-%m-%d %H:%M", time.gmtime())}
                with cells.open("a") as file:
                    file.write(json.dumps(cell) + "\n")
                print(json.dumps(cell), flush=True)


def outcome(python: Path, request: dict[str, Any], limit: float) -> dict[str, Any]:
    """Run one cell; what cannot be had in the time says so."""
    command = [str(python), "-m", "distgnn.partition.trial", json.dumps(request)]
    # Elsewhere, since Python finds first what lies in the working directory.
    where = Path(request["edges"]).parent
    try:
        ended = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=limit, cwd=where
        )
    except subprocess.TimeoutExpired:
        return {"error": f"more than {limit:.0f} s"}
    except subprocess.CalledProcessError as error:
        told = error.stderr.strip().splitlines() or [f"status {error.returncode}"]
        return {"error": told[-1]}
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def size(named: tuple[Graph, str]) -> int:
    """Return how many edges a graph has."""
    return named[0].num_edges


def numbers(text: str, kind: type) -> list[Any]:
    """Read numbers with commas between them."""
    return [kind(word) for word in text.split(",")]


def section(cells: Sequence[dict[str, Any]]) -> list[str]:
    """Write all cells, and how many of them are below what they are compared with."""
    at = {tuple(cell[name] for name in KEY): cell for cell in cells if "error" not in cell}
    lines = [f"| {' | '.join(HEADER)} |", f"|{' --- |' * len(HEADER)}"]
    ratios: dict[tuple[str, float], list[float]] = defaultdict(list)
    for graph, parts, cap in sorted({key[:3] for key in at}, key=lambda key: (key[2], *key[:2])):
        old, ours, best = (at.get((graph, parts, cap, each)) for each in (BEFORE, *QUALITIES))
        if ours is None:
            continue
        both = [one for one in (ours, best) if one is not None]
        speeds = (one["num_edges"] / max(one["cpu_s"], 0.01) for one in both)
        cell = [
            graph,
            str(parts),
            f"{cap:g}",
            rows_of(old),
            rows_of(ours),
            change(ours, old, ratios["`default` over before", cap]),
            rows_of(best),
            change(best, ours, ratios["`best` over `default`", cap]),
            change(best, old, ratios["`best` over before", cap]),
            f"{ours['edge_balance']:.3f}, {ours['clone_balance']:.2f}",
            ", ".join(f"{speed / 1e3:,.0f} k" for speed in speeds),
            ", ".join(f"{one['method_bytes'] / one['num_edges']:.0f}" for one in both),
        ]
        lines.append(f"| {' | '.join(cell)} |")
    return [TITLE, *summary(cells, ratios, at), "", *lines, ""]


def rows_of(cell: dict[str, Any] | None) -> str:
    """Show the rows of a cell, if it is there."""
    return "" if cell is None else f"{cell['halo_rows']:,}"


def change(cell: dict[str, Any] | None, other: dict[str, Any] | None, ratios: list[float]) -> str:
    """Show the rows as a change of others in per cent, and note the ratio."""
    if cell is None or other is None or not cell["halo_rows"] or not other["halo_rows"]:
        return ""
    ratios.append(cell["halo_rows"] / other["halo_rows"])
    return f"{100 * (ratios[-1] - 1):+.1f} %"


def summary(
    cells: Sequence[dict[str, Any]],
    ratios: dict[tuple[str, float], list[float]],
    at: dict[tuple[Any, ...], dict[str, Any]],
) -> list[str]:
    """Say when and how the cells were run, and what they come to."""
    ours, old = (
        ", ".join(sorted({c["commit"] for c in at.values() if (c["quality"] == BEFORE) == is_old}))
        for is_old in (False, True)
    )
    times = sorted(cell["at"] for cell in at.values())
    lines = [
        f"Seed 0, {times[0]} to {times[-1]} UTC, commit {ours}; before: {old}.",
        "Other work ran beside.",
        "Rows move per layer and direction. Edges and clones: the largest part over the mean, of",
        "`default`. CPU seconds are of the method with processes of KaMinPar and Mt-KaHyPar, bytes",
        "beyond the graph without these.",
    ]
    for (words, cap), found in sorted(ratios.items(), key=lambda item: (item[0][1], item[0][0])):
        if found:
            mean = math.exp(sum(map(math.log, found)) / len(found))
            few, more = sum(one <= 0.92 for one in found), sum(one > 1.01 for one in found)
            lines.append(
                f"Cap {cap:g}, {words}, {len(found)} cells: geometric mean {mean:.3f}, from "
                f"{min(found):.3f} to {max(found):.3f}; at most 0.92 in {few}, above 1.01 in "
                f"{more}."
            )
    failed = {tuple(cell[name] for name in KEY): cell for cell in cells if "error" in cell}
    if failed := {key: cell for key, cell in failed.items() if key not in at}:
        told = (f"{', '.join(map(str, key))}: {c['error']}" for key, c in failed.items())
        lines.append(f"Not there: {'; '.join(told)}")
    return lines


def put(lines: list[str], page: Path) -> None:
    """Put the section in its place in a page, at first before all others."""
    text = page.read_text()
    begin = text.find(TITLE)
    begin = text.index("\n## ") + 1 if begin < 0 else begin
    end = text.find("\n## ", begin) + 1 if TITLE in text else begin
    page.write_text(text[:begin] + "\n".join(lines) + "\n" + (text[end:] if end else ""))


def main() -> int:
    """Run the cells that are missing, or write the section."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cells", type=Path, help="file with a line of JSON for each cell")
    parser.add_argument("graphs", nargs="*", help="graph files, or twins as SHAPE@SCALE")
    parser.add_argument("--parts", default="4,16,64")
    parser.add_argument("--caps", default="1.05", help="largest part's edges over the mean")
    parser.add_argument("--qualities", default=",".join(QUALITIES))
    parser.add_argument("--limit", type=float, default=600, help="seconds of a cell")
    parser.add_argument("--minutes", type=float, default=math.inf, help="of all cells")
    parser.add_argument("--before", help="folder of an older checkout, run in place of this one")
    parser.add_argument("--into", type=Path, help="page that gets the section")
    asked = parser.parse_args()
    run(asked, asked.cells)
    if asked.into is not None:
        put(section(read(asked.cells)), asked.into)
    return 0


if __name__ == "__main__":
    sys.exit(main())
