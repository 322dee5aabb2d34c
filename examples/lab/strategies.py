"""Bytes, epochs and seconds to the accuracy of exact training, by what rows are sent as.

    DISTGNN_LAB=DIR python examples/lab/strategies.py [FOLDER] [--hosts 4] [--data DIR]
        [--rates 10gbit,1gbit,100mbit] [--sets A B] [--cuts metis,random]
        [--halos exact,bf16,int8,int4,int2] [--evaluations exact,screened]
        [--weights exact,int8] [--optimizers adam,kfac,mlp+kfac] [--epochs 100] [--eval-every 1]
        [--timed 10] [--dry] [--only-table] [--record] [--title T]

Hosts with one rank each, gloo over TCP; a rate may end in a delay, as 20mbit/50ms does. At each
rate and on each cut, exact training comes first; its best validation metric less half a point is
the goal of the other runs. A halo may also be a preset. Runs are lines of FOLDER/strategies.jsonl;
those that are there are not run again, so that an interrupted table continues. Times need a quiet
machine: the hosts share its cores.

Links do not change what is computed. So a cell that sends as many bytes in each epoch trains to
the end at the first rate alone. At the others it trains for the epochs of --timed, with the same
metrics. Its seconds are as many medians as the goal took epochs. Where not every epoch evaluates
alike, it trains up to the goal, and its seconds are those it took. A cell of other bytes or metrics
trains to the end at each rate.

With --dry, one rank a part trains without hosts or links, to try the script where there is no lab.
With --optimizers a smaller model trains by each of them, and exact training by Adam comes first.
"""

from __future__ import annotations

import lab  # isort: skip

import argparse
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import jobs
import nursery
from lab import DISTGNN, Counters, Lab
from results import record, table

from distgnn.bench.lines import read_lines
from distgnn.training.config.presets import PRESETS
from distgnn.tuning.space import split_words

if TYPE_CHECKING:
    from collections.abc import Iterator

FILE = "strategies.jsonl"
RATES = ("10gbit", "1gbit", "100mbit")
SETS = ("facebook-pages", "amazon-computers", "synthetic:products@1/32", "synthetic:reddit@1/16")
CUTS = ("metis", "random")
HALOS = ("exact", "bf16", "int8", "int4", "int2")
EVALUATIONS = ("exact", "screened")
MODEL = ["--model", "sage", "--layers", "3", "--hidden", "128", "--dropout", "0.5", "--lr", "0.01"]
OWN = {
    "amazon-computers": [
        *("--norm", "layer", "--lr", "0.001", "--dropout", "0.3", "--input-dropout", "0")
    ],
}
"""More flags of a graph, on which the model learns little without them, in plain PyTorch, too."""
SMALL = ["--model", "gcn", "--layers", "2", "--hidden", "64", "--dropout", "0.5"]
"""Model that optimizers are compared on."""
NUM_START = 20
"""Epochs of a head start, beside those on the graph."""
OPTIMIZERS = {
    "adam": ["--lr", "0.03"],
    "kfac": ["--optimizer", "kfac", "--lr", "0.1"],
    "mlp+kfac": ["--optimizer", "kfac", "--lr", "0.1", "--start", f"mlp({NUM_START})"],
}
BELOW = 0.005
"""Share below the best validation metric of exact training at which the goal is."""
WORTH_IT = 1.1
"""Times faster than exact training from which a code is worth it: less is noise here."""
HEADER_BYTES = 66
"""Ethernet 14, IPv4 20, TCP 20 with 12 for timestamps."""


class Cell(NamedTuple):
    """One run."""

    rate: str
    set: str
    cut: str
    halo: str
    evaluation: str
    weights: str = "exact"
    optimizer: str = "-"

    @property
    def exact(self) -> Cell:
        """The run that this one is compared with."""
        first = self.optimizer if self.optimizer == "-" else "adam"
        return self._replace(halo="exact", evaluation="exact", weights="exact", optimizer=first)


class Hosts(Protocol):
    """Ranks with counters of what they sent; a `Lab`, or processes of this host."""

    def run(self, words: list[str], out: Path) -> None:
        """Run `distgnn` on all ranks until it ends well."""

    def counters(self) -> list[Counters]:
        """Count what each host's interface has sent."""


class Here:
    """Ranks that are processes of this host, to try the script; nobody counts their bytes."""

    def __init__(self, num_hosts: int) -> None:
        self._num_hosts = num_hosts

    def __enter__(self) -> Here:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def run(self, words: list[str], out: Path) -> None:
        """Run `distgnn` on all ranks until it ends well."""
        ranks = jobs.start([*words, "--backend", "gloo"], self._num_hosts, out)
        if any(nursery.statuses(ranks, jobs.LIMIT_S)):
            sys.exit(f"distgnn {' '.join(words)}\n{out.read_text()}")

    def counters(self) -> list[Counters]:
        """Return zeros: no interface is counted."""
        return [Counters(0, 0)] * self._num_hosts


def cells(options: argparse.Namespace) -> Iterator[Cell]:
    """Give the runs in their order: exact training before what is compared with it."""
    for rate in options.rates:
        for name in options.sets:
            for cut in options.cuts:
                first = Cell(rate, name, cut, "exact", "exact", optimizer=options.optimizers[0])
                first = first.exact
                yield first
                kinds = itertools.product(
                    *(options.optimizers, options.weights, options.evaluations, options.halos)
                )
                for optimizer, weights, evaluation, halo in kinds:
                    cell = Cell(rate, name, cut, halo, evaluation, weights, optimizer)
                    if cell != first:
                        yield cell


def cut_graph(name: str, cut: str, options: argparse.Namespace) -> Path:
    """Cut a graph, unless that was done before; the partition directory."""
    plain = "".join(letter if letter.isalnum() else "-" for letter in name)
    parts = options.folder / f"{plain}-{cut}-{options.hosts}"
    if not (parts / "manifest.json").exists():
        file = None if options.data is None else Path(options.data) / f"{name}.npz"
        source = str(file) if file is not None and file.is_file() else name
        # Not in this process: what partitions may not be loaded before a fork.
        words = [source, "--parts", str(options.hosts), "--out", str(parts), "--method", cut]
        subprocess.run([DISTGNN, "partition", *words, "--overwrite"], check=True)
    return parts


def num_start(cell: Cell) -> int:
    """Count the epochs of a run before those on the graph."""
    return NUM_START * ("--start" in OPTIMIZERS.get(cell.optimizer, ()))


def words_of(cell: Cell, goal: float | None, epochs: int, options: argparse.Namespace) -> list[str]:
    """Give the flags of a run."""
    model = [*MODEL, *OWN.get(cell.set, [])]
    words = model if cell.optimizer == "-" else [*SMALL, *OPTIMIZERS[cell.optimizer]]
    epochs += num_start(cell)
    words = [*words, "--epochs", str(epochs), "--eval-every", str(options.eval_every)]
    words += ["--seed", "0", "--checkpoint-every", "0", "--quiet"]
    words += ["--preset" if cell.halo in PRESETS else "--halo", cell.halo]
    if cell.evaluation != "exact":
        words += ["--evaluation", cell.evaluation]
    if cell.weights != "exact":
        words += ["--weights", cell.weights]
    return words if goal is None else [*words, "--goal", str(goal)]


def measure(
    hosts: Hosts, cell: Cell, goal: float | None, num_epochs: int, options: argparse.Namespace
) -> dict[str, Any]:
    """Make one run; its line of the file."""
    parts = cut_graph(cell.set, cell.cut, options)
    run = options.folder / "run"
    shutil.rmtree(run, ignore_errors=True)
    before = hosts.counters()
    words = ["train", str(parts), "--run", str(run), *words_of(cell, goal, num_epochs, options)]
    hosts.run(words, options.folder / "out")
    after = hosts.counters()
    summary = json.loads((run / "summary.json").read_text())
    epochs, start = lab.epochs_of(run), num_start(cell)
    on_graph = epochs[start:]
    payload = sum(
        now.num_bytes - then.num_bytes - HEADER_BYTES * (now.num_packets - then.num_packets)
        for now, then in zip(after, before, strict=True)
    )
    names = ("halo", "weight", "eval_halo")
    counted = {name: sum(epoch[f"{name}_bytes_sent"] for epoch in epochs) for name in names}
    shutil.rmtree(run)
    return {
        **cell._asdict(),
        **{f"{name}_bytes": value for name, value in counted.items()},
        "interface_bytes": payload,
        "num_epochs": len(epochs),
        "start": start,
        # Of the epochs on the graph: the others send no rows and are short.
        "median_epoch_s": statistics.median(epoch["epoch_s"] for epoch in on_graph),
        "median_eval_s": statistics.median(epoch["eval_s"] for epoch in on_graph),
        "is_steady": len({sent_in(epoch) for epoch in epochs}) == 1,
        "metrics": [epoch["val_metric"] for epoch in epochs],
        "total_s": summary["total_s"],
        "wait_s": statistics.median(epoch["exchange_wait_s"] for epoch in on_graph),
        "codec_error": max(epoch.get("codec_error", 0.0) for epoch in epochs),
        "strategy": summary.get("strategy", cell.halo),
        "val_metric": summary["val_metric"],
        "test_metric": summary["test_metric"],
        **reached(epochs, summary, goal),
    }


def sent_in(epoch: dict[str, Any]) -> tuple[int, int]:
    """Return the bytes of rows and of gradients that an epoch sends, less those of evaluation."""
    return epoch["halo_bytes_sent"], epoch["weight_bytes_sent"]


def timed(short: dict[str, Any], full: dict[str, Any]) -> dict[str, Any] | None:
    """Return the line of a full run at another rate, by a short one; None if it is another run."""
    num_epochs = short["num_epochs"]
    both = zip(short["metrics"], full["metrics"], strict=False)
    # Screened evaluation confirms the last epoch, wherever that is.
    if any(mine != theirs for mine, theirs in both if None not in (mine, theirs)):
        return None
    share = full["num_epochs"] / num_epochs
    number, seconds = full["epochs_to_goal"], short["time_to_goal_s"]
    if number is not None and seconds is None:
        seconds = number * (short["median_epoch_s"] + short["median_eval_s"])
    same = ("num_epochs", "metrics", "goal", "epochs_to_goal", "val_metric", "test_metric")
    sent = [name for name in short if name.endswith("_bytes")]
    return {
        **short,
        **{name: full[name] for name in same},
        **{name: short[name] * share for name in sent},
        "timed": num_epochs,
        "time_to_goal_s": seconds,
    }


def reached(epochs: list[dict], summary: dict[str, Any], goal: float | None) -> dict[str, Any]:
    """Say when a run reached the goal; exact training, after which the goal is set, too."""
    if goal is not None:
        names = ("epochs_to_goal", "time_to_goal_s")
        return {"goal": goal, **{name: summary[name] for name in names}}
    goal, seconds = summary["val_metric"] - BELOW, 0.0
    for number, epoch in enumerate(epochs):
        seconds += epoch["epoch_s"] + epoch["eval_s"]
        if epoch["val_metric"] is not None and epoch["val_metric"] >= goal:
            return {"goal": goal, "epochs_to_goal": number + 1, "time_to_goal_s": seconds}
    raise AssertionError("the best epoch is as good as the goal")


def runs_of(file: Path) -> dict[Cell, dict[str, Any]]:
    """Read the runs that have ended."""
    lines = read_lines(file)
    cells = [Cell(**{name: one[name] for name in Cell._fields if name in one}) for one in lines]
    # Earlier lines that do not say how long a start was have medians of its epochs, too.
    return {
        cell: values
        for cell, values in zip(cells, lines, strict=True)
        if "start" in values or not num_start(cell)
    }


def to_goal(number: int | None, start: int) -> str:
    """Write epochs on the graph, and after a plus those of the start."""
    if number is None:
        return "-"
    return f"{number - start} + {start}" if start else str(number)


def row_of(values: dict[str, Any], exact: dict[str, Any]) -> list[str]:
    """Write a row of the table."""
    start = values.get("start", 0)
    # Epochs of a start send gradients, but no rows.
    num_epochs = {"halo": values["num_epochs"] - start, "eval_halo": values["num_epochs"] - start}
    num_epochs["weight"] = values["num_epochs"]
    sent = [values[f"{name}_bytes"] / number for name, number in num_epochs.items()]
    counted = sum(values[f"{name}_bytes"] for name in num_epochs)
    mine, theirs = values["time_to_goal_s"], exact["time_to_goal_s"]
    beyond = values["interface_bytes"] / counted - 1 if counted else 0.0
    given = {**Cell._field_defaults, **values}
    return [
        *(given[name] for name in Cell._fields),
        *(f"{number / 1e6:.2f}" for number in sent),
        "-" if values["interface_bytes"] <= 0 else f"{beyond:+.1%}",
        f"{1e3 * values['median_epoch_s']:.0f}",
        f"{1e3 * values['wait_s']:.0f}",
        to_goal(values["epochs_to_goal"], start),
        "never" if mine is None else f"{mine:.1f}",
        "-" if mine is None else f"{theirs / mine:.2f}",
        f"{100 * values['test_metric']:.2f}",
    ]


BEST = [
    *("links", "graph", "cut", "exact training (s)", "fastest rows", "evaluation"),
    *("gradients", "optimizer", "times faster", "test metric (points)"),
]
HEADER = [
    *("links", "graph", "cut", "rows as", "evaluation", "gradients as", "optimizer"),
    *(
        "rows (MB an epoch)",
        "of evaluations",
        "gradients (MB an epoch)",
        "interfaces beyond counted",
        "epoch (ms)",
    ),
    *("of it waiting", "epochs to the goal", "seconds", "times faster", "test (%)"),
]


def best_rows(done: dict[Cell, dict[str, Any]], options: argparse.Namespace) -> list[list[str]]:
    """Write where a code is worth it: the fastest run to the goal for each link, graph and cut."""
    rows = []
    for place, found in itertools.groupby(cells(options), key=lambda cell: cell[:3]):
        known = [cell for cell in found if cell in done and cell.exact in done]
        ended = [cell for cell in known if done[cell]["time_to_goal_s"] is not None]
        if not ended:
            continue
        best, exact = min(ended, key=lambda cell: done[cell]["time_to_goal_s"]), known[0].exact
        seconds, shortest = (done[cell]["time_to_goal_s"] for cell in (exact, best))
        more = 100 * (done[best]["test_metric"] - done[exact]["test_metric"])
        gain = [f"{seconds / shortest:.2f}", f"{more:+.2f}"]
        if seconds / shortest < WORTH_IT:
            best, gain = exact, ["-", "-"]
        sent = [best.halo, best.evaluation, best.weights, best.optimizer]
        rows.append([*place, f"{seconds:.1f}", *sent, *gain])
    return rows


def lines_of(done: dict[Cell, dict[str, Any]], options: argparse.Namespace) -> list[str]:
    """Write the section of RESULTS.md."""
    rows = []
    for cell in cells(options):
        exact = done.get(cell.exact)
        if cell in done and exact is not None:
            rows.append(row_of(done[cell], exact))
    is_plain = options.optimizers == ["-"]
    model = MODEL if is_plain else SMALL
    often = f" evaluated every {options.eval_every}," * (options.eval_every > 1)
    own = {name: words for name, words in OWN.items() if is_plain and name in options.sets}
    return [
        f"`{' '.join(model)}`, {options.epochs} epochs,{often}",
        *(f"on {name} `{' '.join(words)}`, too," for name, words in own.items()),
        f"{options.hosts} hosts, one rank each, gloo; medians of epochs, of the slowest rank; all",
        "ranks share the cores of one machine. At other rates than the first, the median of",
        f"{options.timed} epochs counts for all where each is evaluated. The goal is the best",
        f"validation metric of exact training less {100 * BELOW:g} points; seconds are those of",
        "epochs and evaluations up to it. Interfaces are eth0 of all hosts by /proc/net/dev, less",
        "headers, of the whole run, so that short runs show what start and end cost. Epochs of a",
        "head start stand after a plus: their seconds count, but medians and rows are those of the",
        "epochs on the graph.",
        "",
        f"Where it is worth it, if that is to be {WORTH_IT:g} times faster to the goal:",
        "",
        *table(BEST, best_rows(done, options)),
        "",
        "All runs:",
        "",
        *table(HEADER, rows),
    ]


def make_runs(options: argparse.Namespace, done: dict[Cell, dict[str, Any]]) -> None:
    """Make the runs that are left, the lab once for each rate."""
    for rate in options.rates:
        left = [cell for cell in cells(options) if cell.rate == rate and cell not in done]
        for cell in left:
            cut_graph(cell.set, cell.cut, options)
        if not left:
            continue
        made = Here(options.hosts) if options.dry else Lab(options.hosts, rate)
        with made as hosts:
            for cell in left:
                done[cell] = line_of(hosts, cell, done, options)
                with (options.folder / FILE).open("a") as out:
                    out.write(json.dumps(done[cell]) + "\n")
                print(*cell, f"{done[cell]['time_to_goal_s']} s", file=sys.stderr, flush=True)


def line_of(
    hosts: Hosts, cell: Cell, done: dict[Cell, dict[str, Any]], options: argparse.Namespace
) -> dict[str, Any]:
    """Make a run, a short one where a full one at the first rate says the rest."""
    full = done.get(cell._replace(rate=options.rates[0]))
    exact = done.get(cell.exact)
    goal = None if exact is None else exact["goal"]
    # Lines of before short runs do not say whether they are steady.
    if full is not None and full.get("is_steady") and options.timed < options.epochs:
        num_epochs = options.timed
        if None in full["metrics"]:
            num_epochs = full["epochs_to_goal"] or num_epochs
        line = timed(measure(hosts, cell, full["goal"], num_epochs, options), full)
        if line is not None:
            return line
    return measure(hosts, cell, goal, options.epochs, options)


def _optimizers(text: str) -> list[str]:
    names = split_words(text)
    wrong = [name for name in names if name not in OPTIMIZERS]
    if wrong and names != ["-"]:
        known = ", ".join(OPTIMIZERS)
        message = f"{wrong[0]!r} is none of {known}; give some of them, or '-' alone"
        raise argparse.ArgumentTypeError(message)
    return names


def main() -> None:
    """Run the script."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=Path("lab-strategies"))
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--data", type=Path, default=os.environ.get("DISTGNN_DATA"))
    parser.add_argument("--rates", type=split_words, default=list(RATES))
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--cuts", type=split_words, default=list(CUTS))
    parser.add_argument("--halos", type=split_words, default=list(HALOS))
    parser.add_argument("--evaluations", type=split_words, default=list(EVALUATIONS))
    parser.add_argument("--weights", type=split_words, default=["exact"])
    parser.add_argument("--optimizers", type=_optimizers, default=["-"])
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--eval-every", type=int, default=1)
    parser.add_argument(
        "--timed", type=int, default=10, help="epochs at other rates than the first"
    )
    parser.add_argument("--dry", action="store_true", help="without hosts and links")
    parser.add_argument("--only-table", action="store_true", help="make no more runs")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--title", default="What rows are sent as", help="section to write")
    options = parser.parse_args()
    if not (options.dry or options.only_table):
        lab.folder_of_lab()
    options.folder.mkdir(parents=True, exist_ok=True)
    done = runs_of(options.folder / FILE)
    if not options.only_table:
        make_runs(options, done)
    lines = lines_of(done, options)
    if options.record:
        record(options.title, lines)
    else:
        print("\n".join(lines))


if __name__ == "__main__":
    main()
