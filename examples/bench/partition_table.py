"""Rows, time and memory of `--quality default` and `best`, graph by graph, for partition/TABLE.md.

    python examples/bench/partition_table.py CELLS.jsonl GRAPH.npz ... [--parts 4,16,64]
        [--caps 1.05]
    python examples/bench/partition_table.py CELLS.jsonl --beside OLD.md --into partition/TABLE.md

The first form runs each graph, number of parts, cap and quality in a process of its own, small
graphs first, and appends a line to CELLS.jsonl. What is there already is not run again, so that it
may be stopped and started at any time; what failed is tried again. A graph may also be a twin,
SHAPE@SCALE, such as products@0.0625.
The second form writes the section of all cells; OLD.md is a table with the rows of an earlier time.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import subprocess
import sys
import tempfile
import time
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
# Rows a vertex from which on a thousandth more or less matters little.
LEAST_BEFORE = 0.02
HEADER = (
    "graph",
    "parts",
    "cap",
    "rows before",
    "default",
    "against before",
    "best",
    "against default",
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
    choices = list(product(caps, parts_of_all, asked.qualities.split(",")))
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
                options = {"quality": quality, "edge_balance": cap}
                request = {"graph": name, "edges": edges, "seed": 0, "refine": None}
                request |= {"method": "metis", "parts": parts, "options": options}
                cell = dict(zip(KEY, (name, parts, cap, quality), strict=True))
                cell |= outcome(request, min(asked.limit, left))
                cell |= {"commit": commit(Path(__file__)), "at": time.strftime("%Y-%m-%d %H:%M")}
                with cells.open("a") as file:
                    file.write(json.dumps(cell) + "\n")
                print(json.dumps(cell), flush=True)


def outcome(request: dict[str, Any], limit: float) -> dict[str, Any]:
    """Run one cell; what cannot be had in the time says so."""
    command = [sys.executable, "-m", "distgnn.partition.trial", json.dumps(request)]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return {"error": f"more than {limit:.0f} s"}
    except subprocess.CalledProcessError as error:
        return {"error": error.stderr.strip().splitlines()[-1]}
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def size(named: tuple[Graph, str]) -> int:
    """Return how many edges a graph has."""
    return named[0].num_edges


def numbers(text: str, kind: type) -> list[Any]:
    """Read numbers with commas between them."""
    return [kind(word) for word in text.split(",")]


def rows_before(page: Path | None) -> dict[tuple[str, int], float]:
    """Read rows over vertices of `metis` from a table of `distgnn bench report`, where many."""
    lines = re.findall(
        r"^\| (\S+) \| (\d+) \| metis \| (\d+\.\d{3}) \|", page.read_text() if page else "", re.M
    )
    twins = {f"{name}-random": f"{name}'s twin at 0.0625" for name in ("products", "reddit")}
    return {
        (twins.get(name, name), int(parts)): float(rows)
        for name, parts, rows in lines
        if float(rows) >= LEAST_BEFORE
    }


def section(cells: Sequence[dict[str, Any]], before: dict[tuple[str, int], float]) -> list[str]:
    """Write all cells, and how many of them are below what they are compared with."""
    at = {tuple(cell[name] for name in KEY): cell for cell in cells if "error" not in cell}
    lines = [f"| {' | '.join(HEADER)} |", f"|{' --- |' * len(HEADER)}"]
    ratios: dict[str, list[float]] = {"before": [], "best": [], "best before": []}
    for graph, parts, cap in dict.fromkeys((c["graph"], c["parts"], c["cap"]) for c in cells):
        ours, best = (at.get((graph, parts, cap, quality)) for quality in QUALITIES)
        if ours is None:
            continue
        old, cell = before.get((graph, parts)), [graph, str(parts), f"{cap:g}"]
        # The rows of before were counted with a cap of 1.05, to three digits a vertex.
        old = None if old is None or cap != 1.05 else old * ours["num_vertices"]
        cell += ["" if old is None else f"{old:,.0f}", f"{ours['halo_rows']:,}"]
        cell.append(change(ours["halo_rows"], old, ratios["before"]))
        cell.append("" if best is None else f"{best['halo_rows']:,}")
        cell.append(
            "" if best is None else change(best["halo_rows"], ours["halo_rows"], ratios["best"])
        )
        if best is not None:
            change(best["halo_rows"], old, ratios["best before"])
        cell.append(f"{ours['edge_balance']:.3f}, {ours['clone_balance']:.2f}")
        both = [one for one in (ours, best) if one is not None]
        speeds = (one["num_edges"] / max(one["cpu_s"], 0.01) for one in both)
        cell.append(", ".join(f"{speed / 1e3:,.0f} k" for speed in speeds))
        cell.append(", ".join(f"{one['method_bytes'] / one['num_edges']:.0f}" for one in both))
        lines.append(f"| {' | '.join(cell)} |")
    return [TITLE, *summary(cells, ratios, at), "", *lines, ""]


def change(rows: int, other: float | None, ratios: list[float]) -> str:
    """Show the rows as a change of others in per cent, and note the ratio."""
    if not other:
        return ""
    ratios.append(rows / other)
    return f"{100 * (ratios[-1] - 1):+.1f} %"


def summary(
    cells: Sequence[dict[str, Any]],
    ratios: dict[str, list[float]],
    at: dict[tuple[Any, ...], dict[str, Any]],
) -> list[str]:
    """Say when and how the cells were run, and what they come to."""
    commits = sorted({cell["commit"] for cell in cells})
    times = sorted(cell["at"] for cell in cells)
    told = f"Seed 0, {times[0]} to {times[-1]} UTC, commit {', '.join(commits)}, beside other work."
    lines = [
        told,
        "Rows move per layer and direction. Edges and clones: the largest part over the mean, of",
        "`default`. CPU seconds are of the method with processes of KaMinPar and Mt-KaHyPar, bytes",
        "beyond the graph without these. Rows before are known to a thousandth a vertex; few are",
        "not compared.",
    ]
    for name, words in (
        ("before", "`default` over before"),
        ("best", "`best` over `default`"),
        ("best before", "`best` over before"),
    ):
        if found := ratios[name]:
            mean = math.exp(sum(map(math.log, found)) / len(found))
            few, more = sum(one <= 0.92 for one in found), sum(one > 1.01 for one in found)
            lines.append(
                f"{words}, {len(found)} cells: geometric mean {mean:.3f}, from {min(found):.3f} to "
                f"{max(found):.3f}; at most 0.92 in {few}, above 1.01 in {more}."
            )
    if failed := [cell for cell in cells if "error" in cell]:
        lines.append(
            "Not there: " + "; ".join(f"{c['graph']}, {c['parts']}: {c['error']}" for c in failed)
        )
    return lines


def put(lines: list[str], page: Path) -> None:
    """Put the section in its place in a page, at first before all others."""
    text = page.read_text()
    begin = text.find(TITLE)
    begin = text.index("\n## ") + 1 if begin < 0 else begin
    end = text.find("\n## ", begin) + 1 if TITLE in text else begin
    page.write_text(text[:begin] + "\n".join(lines) + "\n" + text[end:])


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
    parser.add_argument("--beside", type=Path, help="page with the rows of an earlier time")
    parser.add_argument("--into", type=Path, help="page that gets the section")
    asked = parser.parse_args()
    run(asked, asked.cells)
    if asked.into is not None:
        put(section(read(asked.cells), rows_before(asked.beside)), asked.into)
    return 0


if __name__ == "__main__":
    sys.exit(main())
