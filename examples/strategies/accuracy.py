"""Accuracy of training with coded rows, beside that of exact training.

    python examples/strategies/accuracy.py FOLDER [--data DIR] [--sets A B] [--models A,B]
        [--parts 4,8] [--cuts metis,random] [--halos exact,int8] [--seeds 10] [--epochs 200]
        [--eval-every 5] [--only-table] [--record]

Graphs are DIR/NAME.npz of --data, else of $DISTGNN_DATA; Cora comes along. Every run trains ranks
as threads of this process, with the flags of the recipe NAME-MODEL where there is one, unless OWN
below has a smaller model. Among the halos may be presets, 0c, and words of both channels, as in
int4/int8. A graph with several splits takes the one of the seed. Runs are lines of the file
FOLDER/accuracy.jsonl; those that are there are not run again, so that an interrupted table goes on.
Seeds are the outermost loop: the table has all rows after the first. --record puts it into
examples/strategies/ACCURACY.md.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import time
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

import distgnn as dg
from distgnn.api import recipes
from distgnn.api.settings import config_of
from distgnn.bench.lines import read_lines
from distgnn.bench.origin import commit
from distgnn.cli import main as distgnn
from distgnn.comm.threads import run_ranks
from distgnn.datasets.errors import InputError
from distgnn.partition.directory.store import MANIFEST_NAME, read_manifest, read_part
from distgnn.training.config.presets import PRESETS
from distgnn.training.data.info import DataInfo
from distgnn.training.loop.metrics import summarise
from distgnn.training.loop.trainer import Trainer
from distgnn.tuning.space import split_words

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from distgnn.comm.group import Group
    from distgnn.training.config.settings import TrainConfig

HERE = Path(__file__).resolve().parent
FILE = "accuracy.jsonl"
SETS = ("cora", "facebook-pages", "minesweeper", "amazon-computers", "coauthor-physics")
MODELS = ("gcn", "sage", "gat")
HALOS = ("exact", "int8", "int4", "int2", "int1")
PLAIN = {"hidden": 64, "layers": 2, "lr": 0.01}
"""Flags of a model on a graph that no recipe trains it on."""
_DEEP: dict[str, Any] = PLAIN | {
    "layers": 5,
    "norm": "batch",
    "jumping": "last",
    "residual": True,
    "residual_map": True,
    "dropout": 0.2,
    "input_dropout": 0,
    "epochs": 60,
}
OWN: dict[str, dict[str, Any]] = {
    "amazon-computers": {**PLAIN, "norm": "batch", "epochs": 50},
    "amazon-computers-gat": {**PLAIN, "norm": "batch", "epochs": 40},
    "coauthor-physics": {**PLAIN, "epochs": 40},
    "coauthor-physics-gat": {**PLAIN, "heads": 1, "epochs": 40},
    "facebook-pages-gat": {**PLAIN, "heads": 1, "epochs": 60},
    "minesweeper": _DEEP,
    "minesweeper-gat": {**_DEEP, "heads": 1},
    "synthetic:products": {**PLAIN, "layers": 3, "hidden": 256, "dropout": 0.5, "epochs": 60},
    "synthetic:reddit": {**PLAIN, "hidden": 256, "dropout": 0.5, "epochs": 60},
}
"""Flags of graphs, and of models on them, whose recipes train for hours on one core."""
WITHIN = 0.2
"""Points of percent below exact training that int8 and int4 may lose."""
_LIMIT_S = 86400.0


class Cell(NamedTuple):
    """One run."""

    set: str
    model: str
    parts: int
    cut: str
    halo: str
    seed: int


def cells(options: argparse.Namespace) -> Iterator[Cell]:
    """Give the runs in their order: all graphs with a seed before the next seed."""
    for seed in range(options.seeds):
        for name in options.sets:
            for parts in options.parts:
                for cut in options.cuts:
                    for model in options.models:
                        for halo in options.halos:
                            yield Cell(name, model, parts, cut, halo, seed)


def source_of(name: str, data: Path | None) -> str:
    """Find a graph: a file of the folder, or Cora; the name as it is for any other source."""
    if data is not None and (data / f"{name}.npz").is_file():
        return str(data / f"{name}.npz")
    return name


def parts_of(cell: Cell, folder: Path) -> Path:
    """Name the partition directory of a run."""
    name = cell.set.replace("/", "-").replace(":", "-")
    return folder / f"{name}-{cell.cut}-{cell.parts}"


def cut_graph(cell: Cell, folder: Path, data: Path | None) -> Path:
    """Cut the graph of a run, unless that was done before; the partition directory."""
    parts = parts_of(cell, folder)
    if not (parts / MANIFEST_NAME).is_file():
        words = ["partition", source_of(cell.set, data), f"--parts={cell.parts}", f"--out={parts}"]
        if distgnn([*words, f"--method={cell.cut}", "--overwrite"]) != 0:
            sys.exit(f"{cell.set} could not be cut")
    return parts


def flags_of(cell: Cell, epochs: int, eval_every: int, num_splits: int) -> dict[str, Any]:
    """Give the settings of a run: those of its recipe, and what this table asks for."""
    flags: dict[str, Any] = {**PLAIN, "model": cell.model}
    name = f"{cell.set}-{cell.model}"
    if own := OWN.get(name, OWN.get(cell.set.partition("@")[0])):
        flags |= own
    elif name in recipes.names():
        flags = recipes.read(name).settings(is_cut=True)
    flags |= {"seed": cell.seed, "eval_every": eval_every}
    if cell.halo == "0c":
        flags["algorithm"] = cell.halo
    elif cell.halo in PRESETS:
        flags["preset"] = cell.halo
    else:
        flags["halo"], _, weights = cell.halo.partition("/")
        flags |= {"weights": weights} if weights else {}
    # No end before the others: runs are compared at the same number of epochs.
    flags |= {"epochs": min(epochs, flags.get("epochs", epochs)), "patience": 0}
    return flags | {"split_index": cell.seed % max(num_splits, 1)}


def train(parts: Path, config: TrainConfig) -> dict[str, Any]:
    """Train on ranks that are threads; the summary of the run."""
    manifest = read_manifest(parts)
    ends = DataInfo.of(manifest)

    def on_rank(group: Group) -> dict[str, Any]:
        part = read_part(parts, group.rank, verify=False, manifest=manifest)
        trainer = Trainer(config, ends, part, group)
        # Of all ranks: they are threads of one process, and begin an epoch together.
        begin_s, records, cpu_s = time.process_time(), [], []
        for record in trainer.epochs():
            records.append(record)
            cpu_s.append(time.process_time() - begin_s)
        figures = summarise(records, trainer.best.epoch, num_epochs=trainer.num_epochs)
        return {**figures, "curve": curve(records, cpu_s)}

    return run_ranks(manifest.num_parts, on_rank, timeout_s=_LIMIT_S)[0]


def curve(records: list[dict[str, Any]], cpu_s: list[float]) -> list[dict[str, Any]]:
    """Give each evaluation with what the run has sent and computed up to it."""
    points = []
    rows = weights = 0
    for number, (record, seconds) in enumerate(zip(records, cpu_s, strict=True), 1):
        rows += record["halo_bytes_sent"]
        weights += record["weight_bytes_sent"]
        if (metric := record["val_metric"]) is not None:
            sent = {"halo_bytes": rows, "weight_bytes": weights}
            points.append({"epochs": number, "val_metric": metric, **sent, "cpu_s": seconds})
    return points


KEPT = (
    *("test_metric", "val_metric", "best_epoch", "num_epochs", "final_loss", "codec_error"),
    *("halo_bytes_per_epoch", "eval_halo_bytes_per_epoch", "weight_bytes_per_epoch", "curve"),
)


def run(cell: Cell, options: argparse.Namespace) -> dict[str, Any]:
    """Make one run; its line of the file."""
    parts = cut_graph(cell, options.folder, options.data)
    num_splits = read_manifest(parts).num_splits
    flags = flags_of(cell, options.epochs, options.eval_every, num_splits)
    try:
        config = config_of(flags)
    except InputError as error:
        if not any(is_taken(cell._replace(model=model), options) for model in options.models):
            sys.exit(f"{cell.halo} with {cell.model}: {error}")
        # One model may refuse what another takes.
        return {**cell._asdict(), "failed": str(error), "commit": options.commit}
    start = time.perf_counter()
    try:
        figures = train(parts, config)
    except InputError as error:
        # A loss that is no number is a result, too.
        return {**cell._asdict(), "failed": str(error), "commit": options.commit}
    kept = {name: figures[name] for name in KEPT}
    seconds = time.perf_counter() - start
    return {**cell._asdict(), **kept, "wall_s": seconds, "commit": options.commit}


def is_taken(cell: Cell, options: argparse.Namespace) -> bool:
    """Return whether the settings of a run are no mistake; its graph is cut."""
    num_splits = read_manifest(parts_of(cell, options.folder)).num_splits
    try:
        config_of(flags_of(cell, options.epochs, options.eval_every, num_splits))
    except InputError:
        return False
    return True


def runs_of(file: Path) -> dict[Cell, dict[str, Any]]:
    """Read the runs that have ended."""
    return {Cell(*(values[name] for name in Cell._fields)): values for values in read_lines(file)}


def differences(
    done: dict[Cell, dict[str, Any]], cell: Cell, halo: str, seeds: range
) -> list[float]:
    """Give test metric less that of exact rows, in points, of each seed that has both."""
    pairs = (
        (done.get(cell._replace(halo=halo, seed=s)), done.get(cell._replace(halo="exact", seed=s)))
        for s in seeds
    )
    return [
        100 * (coded["test_metric"] - exact["test_metric"])
        for coded, exact in pairs
        if coded and exact and "failed" not in coded and "failed" not in exact
    ]


def error(values: list[float]) -> float:
    """Give the standard error of a mean; infinite for one value."""
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.inf


def describe(values: list[float], sign: str = "") -> str:
    """Write a mean and its standard error."""
    if not values:
        return "-"
    mean = f"{statistics.mean(values):{sign}.2f}"
    return mean if len(values) < 2 else f"{mean} ± {error(values):.2f}"


def table(done: dict[Cell, dict[str, Any]], options: argparse.Namespace) -> list[str]:
    """Write the runs as Markdown: exact metric, and what each code differs from it."""
    seeds = range(options.seeds)
    halos = [halo for halo in options.halos if halo != "exact"]
    header = ["graph", "model", "parts", "cut", "epochs", "seeds", "exact (%)", *halos]
    lines = [header, ["---"] * len(header)]
    all_lost: dict[str, list[list[float]]] = {halo: [] for halo in halos}
    for cell in cells(argparse.Namespace(**{**vars(options), "seeds": 1, "halos": ["exact"]})):
        exact = [done.get(cell._replace(seed=seed), {}) for seed in seeds]
        known = [100 * run["test_metric"] for run in exact if "test_metric" in run]
        epochs = max((run["num_epochs"] for run in exact if "num_epochs" in run), default="-")
        row = [*map(str, cell[:4]), str(epochs), str(len(known)), describe(known)]
        for halo in halos:
            lost = differences(done, cell, halo, seeds)
            row.append(describe(lost, "+"))
            all_lost[halo] += [lost] * bool(lost)
        lines.append(row)
    text = [f"| {' | '.join(line)} |" for line in lines]
    text += [
        "",
        f"Rows whose mean is more than {WITHIN} points below exact training, in parentheses those",
        "that are so by two standard errors, and all runs:",
    ]
    for halo, found in all_lost.items():
        below = sum(statistics.mean(lost) < -WITHIN for lost in found)
        clearly = sum(statistics.mean(lost) + 2 * error(lost) < -WITHIN for lost in found)
        mean = describe(list(chain(*found)), "+")
        text.append(f"- {halo}: {below} of {len(found)} ({clearly}), {mean} points")
    return text


def _numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


def read_options(
    purpose: str, own: Mapping[str, str] | None = None, **defaults: Any
) -> argparse.Namespace:
    """Read the command line.

    Args:
        purpose: A sentence about the script.
        own: Help of each flag that only this script has.
        **defaults: Values of flags that are not given, where they are others than here.
    """
    parser = argparse.ArgumentParser(description=purpose)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--data", type=Path, default=os.environ.get("DISTGNN_DATA"))
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--models", type=split_words, default=list(MODELS))
    parser.add_argument("--parts", type=_numbers, default=[4, 8])
    parser.add_argument("--cuts", type=split_words, default=["metis", "random"])
    parser.add_argument("--halos", type=split_words, default=list(HALOS))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=200, help="at most; a recipe may have fewer")
    parser.add_argument("--eval-every", type=int, default=5)
    parser.add_argument("--only-table", action="store_true", help="make no more runs")
    parser.add_argument("--record", action="store_true")
    for name, help_text in (own or {}).items():
        parser.add_argument(name, help=help_text)
    parser.set_defaults(**defaults)
    options = parser.parse_args()
    options.data = None if options.data is None else Path(options.data)
    options.commit = commit(Path(dg.__file__))
    return options


def make_runs(options: argparse.Namespace) -> dict[Cell, dict[str, Any]]:
    """Make the runs that are left; all that have ended."""
    # Ranks are threads: one thread of the kernels each.
    torch.set_num_threads(1)
    options.folder.mkdir(parents=True, exist_ok=True)
    file = options.folder / FILE
    done = runs_of(file)
    for cell in () if options.only_table else cells(options):
        if cell not in done:
            done[cell] = run(cell, options)
            with file.open("a") as out:
                out.write(json.dumps(done[cell]) + "\n")
            shown = done[cell].get("failed") or f"{100 * done[cell]['test_metric']:.2f} %"
            print(*cell, shown, file=sys.stderr, flush=True)
    return done


def commits(done: dict[Cell, dict[str, Any]], options: argparse.Namespace) -> str:
    """Name the commits of the runs."""
    made = {done[cell].get("commit", "unknown") for cell in cells(options) if cell in done}
    return " and ".join(sorted(made))


def write_page(name: str, title: str, flags: str, lines: list[str]) -> None:
    """Write a page of this folder that a script has made."""
    body = "\n".join(lines).lstrip("\n")
    (HERE / name).write_text(f"# {title}\n{flags}\n\n{body}\n")


def main() -> int:
    """Make the runs that are left, and print the table."""
    options = read_options(str(__doc__).splitlines()[0])
    done = make_runs(options)
    lines = table(done, options)
    print("\n".join(lines))
    if options.record:
        flags = (
            "Written by `accuracy.py`.\n\n"
            f"At most {options.epochs} epochs, evaluated every {options.eval_every}. Test metric "
            "of the best validation epoch,\nmean and standard error over seeds; codes as points "
            "more or less than exact training of the same seed.\n"
            f"Commit {commits(done, options)}."
        )
        write_page("ACCURACY.md", "Accuracy with coded rows", flags, lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
