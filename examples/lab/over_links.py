"""Seconds to the accuracy of exact training of all presets, over links of several speeds.

    DISTGNN_LAB=DIR python examples/lab/over_links.py FOLDER [--rates 1gbit,100mbit] [--sets A B]
        [--cuts metis,random] [--halos exact,cgx] [--live auto] [--seeds 5] [--epochs 100]
        [--eval-every 5] [--timed 10] [--dry] [--only-table] [--record] [--title T]

FOLDER is that of ../strategies/presets.py, which has trained all of them over several seeds, on
ranks that are threads. Links do not change what is computed. So a preset runs here once at each
rate, with the first seed, to see how long its epochs and their evaluations take. It runs up to its
goal, or for the epochs of --timed where all are alike. Seconds are those of as many epochs as the
median of the seeds took. Strategies of --live follow what they measure: they run once for each
seed, and their own epochs count. Runs are lines of FOLDER/lab.jsonl; those that are there are not
run again.
"""

from __future__ import annotations

import lab  # isort: skip

import argparse
import itertools
import json
import shutil
import statistics
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import strategies
from lab import Lab
from results import record, table

from distgnn.bench.lines import read_lines
from distgnn.training.config.presets import PRESETS
from distgnn.tuning.space import split_words

sys.path.append(str(Path(__file__).resolve().parent.parent / "strategies"))
import accuracy
import presets as accuracies

if TYPE_CHECKING:
    from collections.abc import Iterator

FILE = "lab.jsonl"
MOST_TIMED = 50
"""Epochs after which a run whose epochs differ is long enough to say how long they take."""
MOST_WITH_EXACT_ROWS = 25
"""The same of presets of weights alone, whose epochs come again."""


class Cell(NamedTuple):
    """One run."""

    rate: str
    set: str
    cut: str
    halo: str
    seed: int


class Known(NamedTuple):
    """A preset on a graph and a cut, by its runs on threads.

    Attributes:
        epochs: Epochs to the goal of each seed that reaches it.
        num_seeds: Number of seeds.
        goals: Goal of each seed.
        lost: Points of the test metric below (or, as positive ones, above) exact training.
        sent: Bytes to the goal of each seed that reaches it.
        is_steady: Whether all epochs send the same and wait for the same.
    """

    epochs: dict[int, int]
    num_seeds: int
    goals: dict[int, float]
    lost: list[float]
    sent: list[int]
    is_steady: bool


def known_of(place: Cell, options: argparse.Namespace) -> Known:
    """Read what the runs on threads say of a preset."""
    base = accuracy.Cell(place.set, options.model, options.parts, place.cut, place.halo, 0)
    both = {
        seed: (options.runs.get(base._replace(seed=seed), {}), exact)
        for seed in range(options.seeds)
        if (exact := options.runs.get(base._replace(seed=seed, halo="exact"), {}))
    }
    goals = {
        seed: max(one["val_metric"] for one in exact["curve"]) - accuracies.BELOW
        for seed, (_, exact) in both.items()
    }
    ended = {seed: pair for seed, pair in both.items() if "curve" in pair[0]}
    found = {seed: accuracies.reached(run, goals[seed]) for seed, (run, _) in ended.items()}
    points = {seed: one for seed, one in found.items() if one is not None}
    return Known(
        {seed: one["epochs"] for seed, one in points.items()},
        len(ended),
        goals,
        [100 * (run["test_metric"] - exact["test_metric"]) for run, exact in ended.values()],
        [accuracies.sent(one) for one in points.values()],
        any(is_steady(run["curve"], place.halo) for run, _ in ended.values()),
    )


def is_steady(curve: list[dict[str, Any]], halo: str) -> bool:
    """Return whether all epochs of a run are alike: each sends the same, from the first one on."""
    words = f"{PRESETS[halo].halo} {PRESETS[halo].weights}" if halo in PRESETS else halo
    sent = [(one["halo_bytes"], one["weight_bytes"]) for one in curve]
    steps = {(b - a, d - c) for (a, c), (b, d) in itertools.pairwise([(0, 0), *sent])}
    return len(steps) == 1 and "warmup" not in words


def cells(options: argparse.Namespace) -> Iterator[Cell]:
    """Give the runs in their order."""
    for rate, name, cut in itertools.product(options.rates, options.sets, options.cuts):
        yield Cell(rate, name, cut, "exact", 0)
        for halo, seed in itertools.product(options.live, range(options.live_seeds)):
            yield Cell(rate, name, cut, halo, seed)
        for halo in options.halos:
            if halo != "exact" and known_of(Cell(rate, name, cut, halo, 0), options).epochs:
                yield Cell(rate, name, cut, halo, 0)


def words_of(cell: Cell, options: argparse.Namespace) -> tuple[list[str], float | None]:
    """Give the flags of a run, and its goal."""
    known = known_of(cell, options)
    goal = known_of(cell._replace(halo="exact"), options).goals[cell.seed]
    of_weights = cell.halo in PRESETS and PRESETS[cell.halo].halo == "exact"
    most = MOST_WITH_EXACT_ROWS if of_weights else MOST_TIMED
    epochs = min(known.epochs.get(cell.seed, options.timed), most)
    if cell.halo in options.live:
        epochs = options.live_epochs
    elif known.is_steady:
        epochs = options.timed
    name = accuracy.Cell(cell.set, options.model, options.parts, cell.cut, cell.halo, cell.seed)
    folder = accuracy.parts_of(name, options.folder)
    num_splits = accuracy.read_manifest(folder).num_splits
    flags = accuracy.flags_of(name, epochs, options.eval_every, num_splits)
    # Those that decide while they run do so by how long it is, as on threads.
    epochs = flags["epochs"] if cell.halo in options.live else epochs
    first = accuracy.config_of(flags)
    # No run may end while it warms up, or before late rows are used.
    least = max(first.given_halo.warm_up_epochs, first.weight_rule.warm_up_steps)
    epochs = max(epochs, least + first.given_halo.delay + 1)
    flags["epochs"] = epochs
    words = ["train", str(folder), "--checkpoint-every", "0", "--quiet", "--goal", str(goal)]
    for name_, value in flags.items():
        flag = f"--{name_.replace('_', '-')}"
        words += [flag] * value if isinstance(value, bool) else [flag, str(value)]
    return words, goal


def measure(hosts: strategies.Hosts, cell: Cell, options: argparse.Namespace) -> dict[str, Any]:
    """Make one run; its line of the file."""
    run = options.folder / "lab-run"
    shutil.rmtree(run, ignore_errors=True)
    words, goal = words_of(cell, options)
    hosts.run([*words, "--run", str(run)], options.folder / "lab-out")
    epochs, summary = lab.epochs_of(run), json.loads((run / "summary.json").read_text())
    shutil.rmtree(run)
    number = summary["epochs_to_goal"]
    counted = epochs[: number or len(epochs)]
    evaluated = [one["eval_s"] for one in counted if one["val_metric"] is not None]
    # The first epoch has what is done once; few epochs would count it as part of each.
    names = ("epoch_s", "exchange_wait_s")
    seconds, waits = (statistics.mean(one[name] for one in counted[1:]) for name in names)
    every = options.eval_every
    extra = sum(one["eval_s"] for one in counted) / len(counted)
    if cell.halo not in options.live and evaluated:
        extra = statistics.median(evaluated) / every
    return {
        **cell._asdict(),
        "goal": goal,
        "num_epochs": len(epochs),
        "epochs_to_goal": number,
        "epoch_s": seconds,
        "eval_s": extra,
        "wait_s": waits,
        "sent": sum(one["halo_bytes_sent"] + one["weight_bytes_sent"] for one in counted),
        "strategy": summary.get("strategy", cell.halo),
        "weights_strategy": summary.get("weights_strategy", ""),
        "start_strategy": summary.get("start_strategy", ""),
    }


def runs_of(file: Path) -> dict[Cell, dict[str, Any]]:
    """Read the runs that have ended."""
    return {Cell(*(one[name] for name in Cell._fields)): one for one in read_lines(file)}


def make_runs(options: argparse.Namespace, done: dict[Cell, dict[str, Any]]) -> None:
    """Make the runs that are left, the lab once for each rate."""
    for rate in options.rates:
        left = [cell for cell in cells(options) if cell.rate == rate and cell not in done]
        if not left:
            continue
        made = strategies.Here(options.parts) if options.dry else Lab(options.parts, rate)
        with made as hosts:
            for cell in left:
                done[cell] = measure(hosts, cell, options)
                with (options.folder / FILE).open("a") as out:
                    out.write(json.dumps(done[cell]) + "\n")
                seconds = done[cell]["epoch_s"] + done[cell]["eval_s"]
                print(*cell, f"{1e3 * seconds:.0f} ms", file=sys.stderr, flush=True)


def row_of(place: Cell, done: dict[Cell, dict[str, Any]], options: argparse.Namespace) -> list[str]:
    """Write a row of the table: a preset on a graph and a cut, at all rates."""
    known = known_of(place, options)
    epochs = [known.epochs[seed] for seed in sorted(known.epochs)]
    lost = accuracy.describe(known.lost, "+") if known.num_seeds else "-"
    if place.halo == "exact":
        lost = "-"
    reached = f"{len(epochs)} of {known.num_seeds}" if known.num_seeds else "-"
    row = [
        f"`{place.halo}`",
        lost,
        reached,
        f"{statistics.median(epochs):g}" if epochs else "-",
        f"{statistics.median(known.sent) / 1e6:.1f}" if epochs else "-",
    ]
    for rate in options.rates:
        runs = [
            done[cell]
            for seed in range(options.live_seeds)
            if (cell := place._replace(rate=rate, seed=seed)) in done
        ]
        row += _times_of(runs, epochs, is_live=place.halo in options.live)
    return row


def _times_of(runs: list[dict[str, Any]], epochs: list[int], *, is_live: bool) -> list[str]:
    """Write how long an epoch takes, how long it waits, and seconds to the goal, at one rate."""
    if not runs:
        return ["-", "-", "never" if not epochs else "-"]
    seconds = [one["epoch_s"] + one["eval_s"] for one in runs]
    number = epochs
    if is_live:
        number = [one["epochs_to_goal"] for one in runs if one["epochs_to_goal"]]
    if is_live and len(number) == len(runs):
        total = statistics.median(a * b for a, b in zip(seconds, number, strict=True))
    else:
        total = statistics.median(seconds) * statistics.median(number) if number else 0.0
    missed = f" in {len(number)} of {len(runs)}" if is_live and len(number) < len(runs) else ""
    return [
        f"{1e3 * statistics.median(seconds):.0f}",
        f"{1e3 * statistics.median(one['wait_s'] for one in runs):.0f}",
        f"{total:.1f}{missed}" if number else "never",
    ]


def lines_of(done: dict[Cell, dict[str, Any]], options: argparse.Namespace) -> list[str]:
    """Write the section of RESULTS.md."""
    header = ["preset", "test (points)", "at the goal", "epochs", "MB to the goal"]
    for rate in options.rates:
        header += [f"{rate}: ms an epoch", "of it waiting", "seconds"]
    lines = [
        f"`--model {options.model}` with the flags of ../strategies/PRESETS.md, at most",
        f"{options.epochs} epochs, evaluated every {options.eval_every}. {options.parts} hosts,",
        "one rank each, gloo; they share the cores of one machine. Points, epochs and bytes are",
        f"those of up to {options.seeds} seeds on threads, as there. Epochs and bytes are medians",
        "up to the best validation metric of exact training less half a point, of the seeds that",
        "reach it. Milliseconds are those of one run at each rate, with their share of",
        "evaluations; seconds are those of as many epochs.",
    ]
    for name, cut in itertools.product(options.sets, options.cuts):
        rows = []
        for halo in [*options.halos, *options.live]:
            place = Cell(options.rates[0], name, cut, halo, 0)
            if known_of(place, options).num_seeds or halo in options.live:
                rows.append(row_of(place, done, options))
        lines += ["", f"{name}, {cut}:", "", *table(header, rows)]
        for halo, rate, seed in itertools.product(
            options.live, options.rates, range(options.live_seeds)
        ):
            one = done.get(Cell(rate, name, cut, halo, seed))
            if one is not None:
                words = f"`{one['strategy']}`, weights `{one['weights_strategy'] or 'as said'}`"
                words += f", start `{one.get('start_strategy') or 'graph'}`"
                lines.append(f"- {halo} at {rate}, seed {seed}: {words}")
    return lines


def main() -> None:
    """Run the script."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", default="gcn")
    parser.add_argument("--parts", type=int, default=8)
    parser.add_argument("--rates", type=split_words, default=["1gbit", "100mbit"])
    parser.add_argument("--sets", nargs="+", default=["facebook-pages", "amazon-computers"])
    parser.add_argument("--cuts", type=split_words, default=["metis", "random"])
    parser.add_argument("--halos", type=split_words, default=["exact", *PRESETS])
    parser.add_argument("--live", type=split_words, default=[])
    parser.add_argument("--live-seeds", type=int, default=3)
    parser.add_argument("--live-epochs", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=100, help="of the runs on threads")
    parser.add_argument("--eval-every", type=int, default=5)
    parser.add_argument("--timed", type=int, default=10)
    parser.add_argument("--dry", action="store_true", help="without hosts and links")
    parser.add_argument("--only-table", action="store_true", help="make no more runs")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--title", default="Presets over links", help="section to write")
    options = parser.parse_args()
    if not (options.dry or options.only_table):
        lab.folder_of_lab()
    options.runs = accuracy.runs_of(options.folder / accuracy.FILE)
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
