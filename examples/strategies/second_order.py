"""Epochs to the accuracy of Adam: Adam, K-FAC, and a head start without the graph.

    python examples/strategies/second_order.py FOLDER [--data DIR] [--sets A B]
        [--methods adam,kfac,mlp] [--trials 8] [--seeds 5] [--epochs 200] [--start 100]
        [--only-table] [--record]

Graphs are DIR/NAME.npz of --data, else of $DISTGNN_DATA; Cora comes along. All methods are tuned
alike: each has as many trials with seed 0, of K-FAC four rates, each with and without older
factors. The goal is half a point below Adam's best validation metric; the trial that reaches it in
the fewest epochs on the graph is taken. The table has the seeds after 0, each compared with Adam's
best of the same seed. Other methods end at their goal, and in tuning where an earlier trial was
faster. Seconds are those of the processor, in set-up, training and evaluation on one thread: other
jobs change them little. Runs are lines of FOLDER/second_order.jsonl; those that are there are not
run again, so that a table goes on. A run that ended at a goal lower than today's is made again.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from distgnn import datasets
from distgnn.api import recipes
from distgnn.api.settings import config_of
from distgnn.bench.lines import read_lines
from distgnn.comm.single import SingleGroup
from distgnn.datasets.errors import InputError
from distgnn.partition.directory.store import whole_part
from distgnn.training.data.info import DataInfo
from distgnn.training.loop.trainer import Trainer

if TYPE_CHECKING:
    from collections.abc import Iterable

HERE = Path(__file__).resolve().parent
FILE = "second_order.jsonl"
SETS = (
    *("facebook-pages", "coauthor-physics", "minesweeper", "amazon-computers", "acmv9-ml"),
    *("aifb", "cora"),
)
TYPED = ("aifb",)
PLAIN = {"hidden": 64, "layers": 2}
"""Flags of a model on a graph that no recipe trains it on."""
NARROW = {"amazon-computers": {"hidden": 128}}
"""Widths below those of a recipe, whose runs would take hours: amazon-computers has 512."""
BELOW = 0.005
"""Metric below Adam's best that is the goal: half a point."""


class Trial(NamedTuple):
    """Settings that are tuned: the rate, and the options of K-FAC."""

    lr: float
    kfac: str = ""

    def __str__(self) -> str:
        return f"{self.lr:g}, {self.kfac}" if self.kfac else f"{self.lr:g}"


ADAM = tuple(Trial(lr) for lr in (0.01, 0.03, 0.003, 0.1, 0.02, 0.005, 0.05, 0.001))
KFAC = tuple(Trial(lr, kfac) for kfac in ("", "decay=0.5") for lr in (0.1, 0.05, 0.3, 0.02))
METHODS = {"adam": ADAM, "kfac": KFAC, "mlp": ADAM}


class Cell(NamedTuple):
    """One run."""

    set: str
    method: str
    lr: float
    seed: int
    epochs: int
    start: int
    kfac: str = ""


class Reached(NamedTuple):
    """Price of the goal: epochs on the graph, and processor seconds of set-up and all epochs."""

    epochs: int
    seconds: float


def cell_of(name: str, method: str, trial: Trial, seed: int, options: argparse.Namespace) -> Cell:
    """Name a run of these options."""
    start = options.start if method == "mlp" else 0
    return Cell(name, method, trial.lr, seed, options.epochs, start, trial.kfac)


def flags_of(cell: Cell, num_splits: int) -> dict[str, Any]:
    """Give the settings of a run: those of its recipe, and those of its method."""
    model = "rgcn" if cell.set in TYPED else "gcn"
    flags: dict[str, Any] = {**PLAIN, "model": model}
    name = f"{cell.set}-{model}"
    if name in recipes.names():
        flags = recipes.read(name).settings(is_cut=True) | NARROW.get(cell.set, {})
    flags |= {"epochs": cell.epochs + cell.start, "patience": 0, "eval_every": 1, "lr": cell.lr}
    flags |= {"seed": cell.seed, "split_index": cell.seed % max(num_splits, 1)}
    flags |= {"optimizer": "kfac" if cell.method == "kfac" else "adam", "lr_schedule": "constant"}
    flags |= {"kfac": cell.kfac} if cell.kfac else {}
    return flags | ({"start": f"mlp({cell.start})"} if cell.start else {})


def run(cell: Cell, graph: datasets.Graph, goal: float, most: float) -> dict[str, Any]:
    """Make one run, until a metric or a number of epochs on the graph; its line of the file."""
    ends = DataInfo.of(graph)
    begun, spent, metrics, tests = time.process_time(), [], [], []
    try:
        config = config_of(flags_of(cell, graph.num_splits))
        trainer = Trainer(config, ends, whole_part(graph), SingleGroup())
        # A split without validation vertices, as that of aifb, is judged by those of its test.
        split = "val" if trainer.inputs.counts["val"] else "test"
        for record in trainer.epochs():
            metrics.append(record[f"{split}_metric"])
            tests.append(record["test_metric"])
            spent.append(time.process_time() - begun)
            is_there = metrics[-1] is not None and metrics[-1] >= goal
            if is_there or len(metrics) >= cell.start + most:
                break
    except InputError as error:
        # A loss that is no number, and a method that the model does not know, are results, too.
        return {**cell._asdict(), "failed": str(error)}
    known = [number for number, metric in enumerate(metrics) if metric is not None]
    best = max(known, key=metrics.__getitem__)
    figures = {"best": metrics[best], "test_metric": tests[best], "split": split}
    return {**cell._asdict(), **figures, "metric": metrics, "spent_s": spent}


def runs_of(file: Path) -> dict[Cell, dict[str, Any]]:
    """Read the runs that have ended; of those of one name the last."""
    return {
        Cell(**{name: values[name] for name in Cell._fields if name in values}): values
        for values in read_lines(file)
        # Earlier forms of the file have seconds of the clock, which are not those of the table.
        if "failed" in values or "spent_s" in values
    }


def reached(values: dict[str, Any], goal: float) -> Reached | None:
    """Find where a run reached a metric; None if it did not."""
    for number, metric in enumerate(values.get("metric", ())):
        if metric is not None and metric >= goal:
            return Reached(number + 1 - values["start"], values["spent_s"][number])
    return None


def tells(values: dict[str, Any], goal: float, most: float) -> bool:
    """Return whether a run was long enough to tell if it reaches a goal in a number of epochs."""
    if "failed" in values or reached(values, goal) is not None:
        return True
    return len(values["metric"]) - values["start"] >= min(most, values["epochs"])


class Table:
    """Runs of a folder, made where they are missing."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.file = options.folder / FILE
        self.done = runs_of(self.file)
        self._graphs: dict[str, datasets.Graph] = {}

    def line(
        self,
        name: str,
        method: str,
        trial: Trial,
        seed: int,
        goal: float = math.inf,
        most: float = math.inf,
    ) -> dict[str, Any] | None:
        """Return the line of a run, made now if it is missing or too short and runs are made."""
        cell = cell_of(name, method, trial, seed, self.options)
        if method == "adam":
            goal = most = math.inf
        is_there = cell in self.done and tells(self.done[cell], goal, most)
        if not is_there and not self.options.only_table:
            self.done[cell] = run(cell, self._graph(name), goal, most)
            with self.file.open("a") as out:
                out.write(json.dumps(self.done[cell]) + "\n")
            shown = self.done[cell].get("failed") or f"{100 * self.done[cell]['best']:.2f} %"
            print(name, method, trial, seed, shown, file=sys.stderr, flush=True)
        return self.done.get(cell)

    def _graph(self, name: str) -> datasets.Graph:
        if name not in self._graphs:
            data = self.options.data
            is_file = data is not None and (data / f"{name}.npz").is_file()
            # One graph at a time is kept.
            self._graphs = {name: datasets.load(str(data / f"{name}.npz") if is_file else name)}
        return self._graphs[name]

    def tuned(self, name: str, method: str, goal: float) -> Trial | None:
        """Return the trial that reaches the goal in the fewest epochs of seed 0; None if none."""
        prices: dict[Trial, int] = {}
        for trial in METHODS[method][: self.options.trials]:
            most = min(prices.values(), default=math.inf)
            found = self.line(name, method, trial, 0, goal, most)
            price = None if found is None else reached(found, goal)
            if price is not None:
                prices[trial] = price.epochs
        return min(prices, key=prices.__getitem__) if prices else None

    def best_of_adam(
        self, name: str, seed: int, trials: Iterable[Trial]
    ) -> tuple[float, Trial | None]:
        """Return Adam's best metric and its trial; minus infinity if it has none."""
        lines = [(self.line(name, "adam", trial, seed), trial) for trial in trials]
        return max(
            ((one["best"], trial) for one, trial in lines if one and "failed" not in one),
            default=(-math.inf, None),
        )

    def row(self, name: str) -> tuple[list[str], dict[str, list[Reached]]]:
        """Return the cells of a graph, and the prices of each method by seed."""
        best, adams = self.best_of_adam(name, 0, ADAM[: self.options.trials])
        if adams is None:
            return [name, "-"], {}
        seeds = range(1, self.options.seeds + 1)
        bests = {seed: self.best_of_adam(name, seed, [adams])[0] for seed in seeds}
        # Any run is there at once where Adam has no metric: such a seed has no goal.
        goals = {seed: found - BELOW for seed, found in bests.items() if math.isfinite(found)}
        cells = [name, f"{100 * statistics.mean(goals.values()):.2f}" if goals else "-"]
        prices: dict[str, list[Reached]] = {}
        for method in self.options.methods:
            trial = self.tuned(name, method, best - BELOW)
            lines = {}
            if trial is not None:
                lines = {s: self.line(name, method, trial, s, goal) for s, goal in goals.items()}
            found = [reached(one, goals[seed]) for seed, one in lines.items() if one]
            prices[method] = [price for price in found if price is not None]
            cells.append(describe(trial, prices[method], len(goals)))
        return cells, prices


def describe(trial: Trial | None, prices: list[Reached], num_seeds: int) -> str:
    """Write medians of epochs and seconds, the trial, and how many seeds reached the goal."""
    if trial is None or not prices:
        return "-"
    epochs, seconds = (statistics.median(values) for values in zip(*prices, strict=True))
    return f"{epochs:g} / {seconds:.2f} s ({trial}; {len(prices)} of {num_seeds})"


def means(rows: list[dict[str, list[Reached]]], methods: list[str]) -> list[str]:
    """Write how many times fewer epochs and seconds than Adam, as geometric means over graphs."""
    text = []
    for method in methods[1:]:
        ratios: list[tuple[float, float]] = []
        for prices in rows:
            if prices.get(method) and prices.get("adam"):
                ours, adams = (
                    [statistics.median(values) for values in zip(*prices[one], strict=True)]
                    for one in (method, "adam")
                )
                ratios.append((adams[0] / ours[0], adams[1] / ours[1]))
        if ratios:
            epochs, seconds = (statistics.geometric_mean(v) for v in zip(*ratios, strict=True))
            text.append(
                f"- {method}: {epochs:.2f} times fewer epochs on the graph than Adam, "
                f"{seconds:.2f} times fewer seconds, on {len(ratios)} graphs"
            )
    return text


def main() -> int:
    """Make the runs that are left, and print the table."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--data", type=Path, default=os.environ.get("DISTGNN_DATA"))
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--methods", type=lambda text: text.split(","), default=list(METHODS))
    parser.add_argument("--trials", type=int, default=8, help="of each method, at most 8")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=200, help="on the graph")
    parser.add_argument("--start", type=int, default=100, help="epochs of mlp without the graph")
    parser.add_argument("--only-table", action="store_true", help="make no more runs")
    parser.add_argument("--record", action="store_true", help="write SECOND_ORDER.md")
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.data = None if options.data is None else Path(options.data)
    options.folder.mkdir(parents=True, exist_ok=True)
    table = Table(options)
    found = [table.row(name) for name in options.sets]
    header = ["graph", "goal (%)", *options.methods]
    lines = [header, ["---"] * len(header), *(cells for cells, _ in found)]
    text = [f"| {' | '.join(line)} |" for line in lines]
    text += [
        "",
        "Median epochs on the graph / processor seconds with set-up (the trial; seeds that got",
        "there).",
        "",
    ]
    text += means([prices for _, prices in found], options.methods)
    print("\n".join(text))
    if options.record:
        title = (
            "# Epochs to the accuracy of Adam\n"
            "Written by `second_order.py`; [kfac.md](kfac.md) has the commit and the machine.\n"
        )
        flags = (
            f"At most {options.epochs} epochs on the graph; {options.trials} trials of each method "
            f"with seed 0;\na head start of {options.start} epochs, whose seconds count. The goal "
            f"is half a point below Adam's best metric\nof the same seed; seeds 1 to "
            f"{options.seeds}.\n"
        )
        (HERE / "SECOND_ORDER.md").write_text("\n".join([title, flags, *text]) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
