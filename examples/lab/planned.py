"""`distgnn plan` beside measured epochs, at three speeds of the links.

    DISTGNN_LAB=DIR python examples/lab/planned.py [--rates 10gbit,1gbit,100mbit] [FOLDER]

Four hosts with one rank each, gloo. The plan is of a cluster whose ranks have a core each; these
share the cores of one machine, so that they compute longer by as much as there are too few cores.
"""

from __future__ import annotations

import lab  # isort: skip

import argparse
import json
import os
import re
import statistics
import subprocess
from pathlib import Path

from lab import Lab
from overlap import GRAPH, MODEL, epochs_of_one
from results import record, table

NUM_HOSTS = 4
EPOCHS, WARM_UP = 16, 4


def plan(parts: Path, rate: str) -> dict[str, float]:
    """What `distgnn plan` says of a cluster with links of this rate."""
    number, unit = re.fullmatch(r"(\d+)([mg])bit", rate).groups()
    speed = f"{number}{unit.upper()}b/s"
    words = ["plan", str(parts), "--bandwidth", speed, "--threads", "1", *MODEL, "--json"]
    done = subprocess.run([lab.DISTGNN, *words], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def measure(rate: str, parts: Path, folder: Path) -> tuple[float, float]:
    """Median seconds of an epoch on the lab, without overlap and with it."""
    found = []
    with Lab(NUM_HOSTS, rate) as hosts:
        for overlap in ("off", "on"):
            words = ["--overlap", overlap, "--epochs", str(EPOCHS)]
            epochs = epochs_of_one(hosts, parts, folder, words)
            found.append(statistics.median(e["epoch_s"] for e in epochs[WARM_UP:]))
    return found[0], found[1]


def row_of(rate: str, planned: dict[str, float], measured: tuple[float, float]) -> list[str]:
    """A row of the table."""
    share = max(1.0, NUM_HOSTS / (os.cpu_count() or 1))
    compute, rows, weights = (planned[name] for name in ("compute_s", "rows_s", "weights_s"))
    compute *= share
    plain, hidden = compute + rows + weights, max(compute, rows) + weights
    numbers = [compute, rows, weights, plain, measured[0], hidden, measured[1]]
    cells = [f"{1e3 * number:.0f}" for number in numbers]
    cells.insert(5, f"{plain / measured[0] - 1:+.0%}")
    return [rate, *cells, f"{hidden / measured[1] - 1:+.0%}"]


def main() -> None:
    """Run the script."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=Path("lab-planned"))
    parser.add_argument("--rates", default="10gbit,1gbit,100mbit")
    options = parser.parse_args()
    lab.folder_of_lab()
    options.folder.mkdir(parents=True, exist_ok=True)
    parts = options.folder / "parts"
    lab.cut(GRAPH, parts, NUM_HOSTS)
    rows = []
    for rate in options.rates.split(","):
        rows.append(row_of(rate, plan(parts, rate), measure(rate, parts, options.folder)))
        record("Planned and measured epochs", lines_of(rows))


def lines_of(rows: list[list[str]]) -> list[str]:
    """The section of RESULTS.md."""
    header = ["links", "computing", "rows", "gradients", "planned, nothing hidden"]
    header += [
        "measured, `--overlap off`",
        "off by",
        "planned, all rows hidden",
        "measured",
        "off by",
    ]
    return [
        f"`{GRAPH}`, `{' '.join(MODEL)}`,",
        f"{NUM_HOSTS} hosts, gloo; milliseconds, medians of {EPOCHS - WARM_UP} epochs. Computing",
        f"is the plan's, times {NUM_HOSTS} ranks over the cores that they share.",
        "",
        *table(header, rows),
    ]


if __name__ == "__main__":
    main()
