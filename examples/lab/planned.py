"""`distgnn plan` beside measured epochs, at three speeds of the links.

    DISTGNN_LAB=DIR python examples/lab/planned.py [--hosts 2] [--rates 10gbit,1gbit,100mbit] \\
        [FOLDER]

Hosts with one rank each, gloo. Where there are as many cores as hosts, each rank keeps to one, with
real-time priority; else they share them, which no cluster's do. The plan is told the rate of the
links, what part of a core each rank has, and the latency that `distgnn doctor` measured between the
hosts.
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
from typing import NamedTuple

import overlap
from lab import Lab
from overlap import GRAPH, epochs_of_one
from results import record, table

CORES = len(os.sched_getaffinity(0))
EPOCHS, WARM_UP = 80, 20
LAYERS = ["--layers", "2"]
MODEL = [*overlap.MODEL, *LAYERS]


def plan(parts: Path, hosts: int, rate: str, latency_s: float) -> dict[str, float]:
    """What `distgnn plan` says of a cluster with links of this rate."""
    number, unit = re.fullmatch(r"(\d+)([mg])bit", rate).groups()
    words = ["--bandwidth", f"{number}{unit.upper()}b/s", "--latency", f"{1e6 * latency_s:.1f}us"]
    words += ["--cores", str(min(1.0, CORES / hosts)), "--threads", "1"]
    command = [lab.DISTGNN, "plan", str(parts), *words, *MODEL, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


class Measured(NamedTuple):
    """Seconds on the lab: of a message, and of an epoch without overlap and with it."""

    latency_s: float
    plain_s: float
    hidden_s: float


def measure(num_hosts: int, rate: str, parts: Path, folder: Path) -> Measured:
    """Try the links, then train without overlap and with it."""
    found, out = [], folder / "doctor.out"
    with Lab(num_hosts, rate, is_bound=num_hosts <= CORES, is_steady=True) as hosts:
        hosts.run(["doctor", "--folder", str(folder), "--json"], out)
        said = json.loads(out.read_text().splitlines()[-1])
        found.append(statistics.median(said["links"]["latency_s"][1:]))
        for setting in ("off", "on"):
            words = [*LAYERS, "--overlap", setting, "--epochs", str(EPOCHS)]
            epochs = epochs_of_one(hosts, parts, folder, words)
            found.append(statistics.median(e["epoch_s"] for e in epochs[WARM_UP:]))
    return Measured(*found)


def row_of(rate: str, planned: dict[str, float], measured: Measured) -> list[str]:
    """A row of the table."""
    names = ("compute_s", "messages_s", "rows_s", "weights_s")
    pairs = [("epoch_s", measured.plain_s), ("hidden_epoch_s", measured.hidden_s)]
    cells = [f"{1e6 * measured.latency_s:.0f}"]
    cells += [f"{1e3 * planned[name]:.1f}" for name in names]
    for name, seconds in pairs:
        cells += [f"{1e3 * planned[name]:.0f}", f"{1e3 * seconds:.0f}"]
        cells.append(f"{planned[name] / seconds - 1:+.0%}")
    return [rate, *cells]


def main() -> None:
    """Run the script."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=Path("lab-planned"))
    parser.add_argument("--hosts", type=int, default=4, help="how many (default: %(default)s)")
    parser.add_argument("--rates", default="10gbit,1gbit,100mbit")
    options = parser.parse_args()
    hosts = options.hosts
    lab.folder_of_lab()
    options.folder.mkdir(parents=True, exist_ok=True)
    parts = options.folder / f"parts-{hosts}"
    lab.cut(GRAPH, parts, hosts)
    title = f"Planned and measured epochs{', a core for each rank' if hosts <= CORES else ''}"
    rows = []
    for rate in options.rates.split(","):
        measured = measure(hosts, rate, parts, options.folder)
        rows.append(row_of(rate, plan(parts, hosts, rate, measured.latency_s), measured))
        record(title, lines_of(hosts, rows))


def lines_of(hosts: int, rows: list[list[str]]) -> list[str]:
    """The section of RESULTS.md."""
    header = ["links", "latency (us)", "computing", "messages", "rows", "gradients"]
    header += ["planned, nothing hidden", "measured, `--overlap off`", "off by"]
    header += ["planned, all hidden that can be", "measured", "off by"]
    how = "each rank keeps to a core of its own, with real-time priority"
    if hosts > CORES:
        how = f"the ranks share {CORES} cores, and `--cores` says so"
    return [
        f"`{GRAPH}`, `{' '.join(MODEL)}`,",
        f"{hosts} hosts, gloo; milliseconds, medians of {EPOCHS - WARM_UP} epochs. The latency",
        f"is that of `distgnn doctor` on the lab; {how}. Links let through",
        "at once what they carry in 50 us, or 16 kB.",
        "",
        *table(header, rows),
    ]


if __name__ == "__main__":
    main()
