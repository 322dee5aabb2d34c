"""`distgnn plan` beside measured epochs, at three speeds of the links.

    DISTGNN_LAB=DIR python examples/lab/planned.py [--hosts P] [--rates 10gbit,1gbit,100mbit] \\
        [FOLDER]

Hosts with one rank each, gloo; as many as there are cores unless told. Each rank keeps to a core,
with real-time priority; more ranks than cores take turns, which no cluster's do. The plan is told
the rate of the links, what part of a core each rank has, and the latency that `distgnn doctor`
measured between the hosts.
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
ROUNDS = 5
LAYERS = ["--layers", "2"]
MODEL = [*overlap.MODEL, *LAYERS]


def plan(parts: Path, hosts: int, rate: str, latency_s: float) -> dict[str, float]:
    """Ask `distgnn plan` about a cluster with links of this rate."""
    found = re.fullmatch(r"(\d+)([mg])bit", rate)
    if found is None:
        raise SystemExit(f"a rate of links is like 100mbit or 1gbit, not {rate!r}")
    number, unit = found.groups()
    words = ["--bandwidth", f"{number}{unit.upper()}b/s", "--latency", f"{1e6 * latency_s:.1f}us"]
    words += ["--cores", str(min(1.0, CORES / hosts)), "--threads", "1"]
    as_ranks = ["chrt", "--rr", "1", "taskset", "--cpu-list", str(min(os.sched_getaffinity(0)))]
    command = [*as_ranks, lab.DISTGNN, "plan", str(parts), *words, *MODEL, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


class Round(NamedTuple):
    """Seconds: of a message and an epoch without overlap and with it on the lab, and planned."""

    latency_s: float
    plain_s: float
    hidden_s: float
    planned: dict[str, float]


def measure(num_hosts: int, rate: str, parts: Path, folder: Path) -> Round:
    """Try the links, train without overlap and with it, and plan that, all within a moment."""
    found: list[float] = []
    out = folder / "doctor.out"
    with Lab(num_hosts, rate, is_bound=True, is_steady=True) as hosts:
        hosts.run(["doctor", "--folder", str(folder), "--json"], out)
        said = json.loads(out.read_text().splitlines()[-1])
        found.append(statistics.median(said["links"]["latency_s"][1:]))
        for setting in ("off", "on"):
            words = [*LAYERS, "--overlap", setting, "--epochs", str(EPOCHS)]
            epochs = epochs_of_one(hosts, parts, folder, words)
            found.append(statistics.median(e["epoch_s"] for e in epochs[WARM_UP:]))
    latency_s, plain_s, hidden_s = found
    return Round(latency_s, plain_s, hidden_s, plan(parts, num_hosts, rate, latency_s))


def row_of(rate: str, rounds: list[Round]) -> list[str]:
    """A row of the table: medians over rounds, and all that a plan was off by."""

    def planned(name: str) -> float:
        return 1e3 * statistics.median(one.planned[name] for one in rounds)

    cells = [f"{1e6 * statistics.median(one.latency_s for one in rounds):.0f}"]
    cells += [f"{planned(name):.1f}" for name in ("compute_s", "messages_s", "rows_s", "weights_s")]
    for name, measured in (("epoch_s", "plain_s"), ("hidden_epoch_s", "hidden_s")):
        seconds = statistics.median(getattr(one, measured) for one in rounds)
        off = sorted(one.planned[name] / getattr(one, measured) - 1 for one in rounds)
        cells += [f"{planned(name):.1f}", f"{1e3 * seconds:.1f}"]
        cells.append(f"{statistics.median(off):+.0%} ({off[0]:+.0%} to {off[-1]:+.0%})")
    return [rate, *cells]


def main() -> None:
    """Run the script."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=Path("lab-planned"))
    parser.add_argument("--hosts", type=int, default=CORES, help="how many (default: %(default)s)")
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
        rounds = [measure(hosts, rate, parts, options.folder) for _ in range(ROUNDS)]
        rows.append(row_of(rate, rounds))
        record(title, lines_of(hosts, rows))


def lines_of(hosts: int, rows: list[list[str]]) -> list[str]:
    """The section of RESULTS.md."""
    header = ["links", "latency (us)", "computing", "messages", "rows", "gradients"]
    header += ["planned, nothing hidden", "measured, `--overlap off`", "off by"]
    header += ["planned, all hidden that can be", "measured", "off by"]
    where = "a core of its own" if hosts <= CORES else f"one of {CORES} cores, as `--cores` says"
    return [
        f"`{GRAPH}`, `{' '.join(MODEL)}`,",
        f"{hosts} hosts, gloo; milliseconds, medians of {ROUNDS} rounds; in each an epoch is the",
        f"median of {EPOCHS - WARM_UP}, then it is planned. What plans are off by is the median of",
        "the rounds' own, and the least and most of them. The latency",
        f"is that of `distgnn doctor` on the lab; each rank keeps to {where}, with",
        "real-time priority. Links let through at once what they carry in 50 us, or 16 kB.",
        "",
        *table(header, rows),
    ]


if __name__ == "__main__":
    main()
