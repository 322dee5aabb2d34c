"""How `--halo auto --weights auto` follows links whose speed changes while a run trains.

    DISTGNN_LAB=DIR python examples/lab/changing_link.py [FOLDER] [--rates 10gbit,100mbit,10gbit]
        [--epochs 25] [--hosts 4] [--record]

Hosts with one rank each, gloo over TCP. Each of --rates holds for so many epochs. Beside the run
that chooses its codes, runs with fixed codes meet the same links. Evaluations are rare, so that
seconds are those of epochs and of looks.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from lab import Lab, cut, epochs_of, wait_for_epoch
from results import record, table

GRAPH = "synthetic:planted,num_vertices=10000,num_features=64,average_degree=20,homophily=0.5"
MODEL = ["--hidden", "256", "--layers", "3", "--dropout", "0"]
RUNS = {
    "auto": ["--halo", "auto(every=5)", "--weights", "auto"],
    "exact": [],
    "bytegrad": ["--preset", "bytegrad"],
    "cgx": ["--preset", "cgx"],
}


class Found(NamedTuple):
    """One run.

    Attributes:
        epochs: Its epochs.
        words: Codes of rows, and of gradients, that it chose; empty for fixed ones.
    """

    epochs: list[dict[str, float]]
    words: list[str]


def train(hosts: Lab, parts: Path, flags: list[str], options: argparse.Namespace) -> Found:
    """Train once while the links change."""
    run = options.folder / "run"
    shutil.rmtree(run, ignore_errors=True)
    set_rate(hosts, options.rates[0])
    epochs = options.epochs * len(options.rates)
    words = ["train", str(parts), "--run", str(run), *MODEL, *flags, "--epochs", str(epochs)]
    words += ["--eval-every", "1000", "--checkpoint-every", "0", "--seed", "0", "--quiet"]
    job = hosts.start(words, options.folder / "out")
    for number, rate in enumerate(options.rates[1:], 1):
        wait_for_epoch(run, number * options.epochs - 1, job)
        set_rate(hosts, rate)
    if job.wait():
        raise SystemExit(job.out.read_text())
    summary = json.loads((run / "summary.json").read_text())
    named = ("strategy", "weights_strategy", "start_strategy")
    return Found(epochs_of(run), [summary.get(name, "") for name in named])


def set_rate(hosts: Lab, rate: str) -> None:
    """Let all links have a rate from now on."""
    with ThreadPoolExecutor(hosts.num_hosts) as pool:
        for done in [
            pool.submit(hosts.do, "fault", f"host{host}", "rate", rate)
            for host in range(hosts.num_hosts)
        ]:
            done.result()


def lines_of(found: dict[str, Found], options: argparse.Namespace) -> list[str]:
    """Write the section of RESULTS.md."""
    rows = []
    for name, one in found.items():
        row = [f"`{name}`"]
        for number in range(len(options.rates)):
            start = number * options.epochs
            # The link changes while the first of these epochs runs, or a little later.
            part = one.epochs[start : start + options.epochs]
            total = sum(epoch["epoch_s"] + epoch["eval_s"] for epoch in part)
            late = statistics.median(epoch["epoch_s"] for epoch in part[options.epochs // 2 :])
            row += [f"{total:.1f}", f"{1e3 * late:.0f}"]
        rows.append([*row, f"{sum(e['epoch_s'] + e['eval_s'] for e in one.epochs):.1f}"])
    header = ["run"]
    for rate in options.rates:
        header += [f"{rate}: seconds", "ms of a late epoch"]
    rows_words, weights_words, start = found["auto"].words
    return [
        f"`{GRAPH}`, `{' '.join(MODEL)}`,",
        f"{options.hosts} hosts, one rank each, gloo. Each rate holds for {options.epochs} epochs;",
        "late epochs are those of the second half, the median. Seconds count looks, too.",
        "",
        *table([*header, "in all (s)"], rows),
        "",
        f"Rows were `{rows_words}`, gradients `{weights_words}`, the start `{start or 'graph'}`.",
    ]


def main() -> None:
    """Run the script."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=Path("lab-changing"))
    parser.add_argument(
        "--rates", type=lambda text: text.split(","), default=["10gbit", "100mbit", "10gbit"]
    )
    parser.add_argument("--epochs", type=int, default=25, help="at each rate")
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    with Lab(options.hosts, options.rates[0]) as hosts:
        options.folder.mkdir(parents=True, exist_ok=True)
        parts = options.folder / "parts"
        cut(GRAPH, parts, hosts.num_hosts)
        found = {name: train(hosts, parts, flags, options) for name, flags in RUNS.items()}
    lines = lines_of(found, options)
    if options.record:
        record("A link that changes", lines)
    else:
        print("\n".join(lines))


if __name__ == "__main__":
    main()
