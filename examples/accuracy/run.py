"""Train recipes as they were published, and print our figures beside the published ones.

    python examples/accuracy/run.py [RECIPE ...] [--out DIR] [--data DIR] [--device cuda]
        [--ranks P] [--write]

Graphs are DIR/NAME.npz of --data, else of $DISTGNN_DATA; Cora comes along. By default all recipes
run whose graph is there. Runs that have ended are not run again, so that an interrupted table
continues. With --device cuda they train on a GPU, in folders of their own; with --ranks P on P
ranks, too. --write puts the table into examples/accuracy/RESULTS.md.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from distgnn.api import recipes
from distgnn.cli import main as distgnn
from distgnn.cli.recipes import recipe_words
from distgnn.partition.directory.store import MANIFEST_NAME
from distgnn.training.run.series import FILE

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "RESULTS.md"
MARK = "<!-- The table below is written by examples/accuracy/run.py. -->\n"
OTHERS = "No publication"
"""Beginning of what a recipe is about, if its figure is that of other software."""
NOTE = r"\* No publication: the figure is what a short run with other software reached."
MARGIN = 0.5
"""Points of percent below the published mean that still count as reproduced."""
RUNS, PUBLISHED = 2, 3
HEADER = ("recipe", "graph", "runs", "published", "ours", "difference", "on ranks", "apart")


def source_of(recipe: recipes.Recipe, data: Path | None) -> str | None:
    """Find a graph of the recipe: a file of the folder, or Cora."""
    for name in recipe.data:
        if data is not None and (data / f"{name}.npz").is_file():
            return str(data / f"{name}.npz")
        if name == "cora":
            return name
    return None


def train(
    recipe: recipes.Recipe,
    source: str,
    run: Path,
    launcher: list[str] | None = None,
    device: str = "cpu",
) -> dict | None:
    """Train as the recipe was published, or go on; the figures, or None if it failed."""
    if not (recipe.runs and "mean" in recipe.published):
        print(f"{recipe.name}: failed, it has no runs or no published mean", file=sys.stderr)
        return None
    words = ["train", source, "--run", str(run), "--resume", "--quiet", "--eval-every=1"]
    words += ["--checkpoint-every=0", f"--device={device}"]
    words += recipe_words(recipe, with_runs=True, is_cut=launcher is not None)
    if launcher is None:
        status = distgnn(words)
    else:
        command = [*launcher, sys.executable, "-m", "distgnn", *words]
        status = subprocess.run(command, check=False).returncode
    if status != 0:
        return None
    found = json.loads((run / FILE).read_text()) if (run / FILE).is_file() else {}
    if found.get("test_metric_mean") is None:
        print(f"{recipe.name}: failed, its runs are no series with a test metric", file=sys.stderr)
        return None
    return found


def run_of(name: str, arguments: argparse.Namespace) -> Path:
    """Name the folder of a run: one on a GPU must not go on as one of the CPU, or the reverse."""
    is_plain = arguments.device == "cpu"
    return arguments.out / (name if is_plain else f"{name}-{arguments.device}")


def train_on_ranks(
    recipe: recipes.Recipe, source: str, arguments: argparse.Namespace
) -> dict | None:
    """Cut the graph and train on its parts, a rank each, or go on; None if that failed."""
    parts = arguments.out / f"{recipe.name}-parts-{arguments.ranks}"
    if not (parts / MANIFEST_NAME).is_file():
        words = ["partition", source, f"--parts={arguments.ranks}", f"--out={parts}", "--overwrite"]
        if distgnn([*words, *recipe.source_words()]) != 0:
            return None
    launcher = shlex.split(arguments.launcher.format(ranks=arguments.ranks))
    run = run_of(f"{recipe.name}-ranks-{arguments.ranks}", arguments)
    return train(recipe, str(parts), run, launcher, arguments.device)


def percent(found: dict) -> dict[str, float]:
    """Mean and deviation of the test metric."""
    names = {name: found[f"test_metric_{name}"] for name in ("mean", "std")}
    return {name: 100 * value for name, value in names.items() if value is not None}


def ranks_of(found: dict, on_ranks: dict | None, num_ranks: int) -> list[str]:
    """Write the last two cells: figures on several ranks, and by how many standard errors of one
    rank's mean theirs differs."""
    if on_ranks is None:
        return ["", ""]
    ours, theirs = percent(found), percent(on_ranks)
    difference = theirs["mean"] - ours["mean"]
    error = ours.get("std", 0.0) / math.sqrt(found["num_runs"])
    apart = f"{difference:+.2f}" + (f" ({abs(difference) / error:.1f} s.e.)" if error else "")
    return [f"{num_ranks}: {recipes.describe(theirs)}", apart]


def row_of(
    recipe: recipes.Recipe, source: str, found: dict, on_ranks: dict | None, num_ranks: int
) -> list[str]:
    """Write a line of the table, in percent."""
    ours = percent(found)
    difference = ours["mean"] - recipe.published["mean"]
    verdict = "" if difference >= -MARGIN else ", below"
    return [
        recipe.name,
        Path(source).stem,
        str(found["num_runs"]),
        recipes.describe(recipe.published) + " *" * recipe.about.startswith(OTHERS),
        recipes.describe(ours),
        f"{difference:+.2f}{verdict}",
        *ranks_of(found, on_ranks, num_ranks),
    ]


def table(rows: list[list[str]]) -> str:
    """Write rows as Markdown."""
    lines = [HEADER, ["---"] * len(HEADER), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def recorded() -> dict[str, list[str]]:
    """Rows of the table that is there, by recipe."""
    text = RESULTS.read_text() if RESULTS.is_file() else ""
    lines = text.partition(MARK)[2].splitlines()[2:]
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return {row[0]: row for row in rows if len(row) == len(HEADER)}


def write(rows: list[list[str]]) -> None:
    """Put rows into the page, beside those of other recipes."""
    before = recorded()
    everything = {**before, **{row[0]: row for row in rows}}
    for name, row in everything.items():
        if name in before and not row[-1]:
            row[-2:] = before[name][-2:]
    head = RESULTS.read_text().partition(MARK)[0]
    RESULTS.write_text(head + MARK + table([everything[name] for name in sorted(everything)]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recipes", nargs="*", metavar="RECIPE")
    parser.add_argument("--data", type=Path, default=os.environ.get("DISTGNN_DATA"))
    parser.add_argument("--out", type=Path, default=HERE / "out")
    parser.add_argument("--device", default="cpu", metavar="cpu|cuda")
    parser.add_argument("--ranks", type=int, default=0, metavar="P")
    parser.add_argument("--launcher", default="mpirun -n {ranks}", metavar="COMMAND")
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    launcher, *_ = shlex.split(arguments.launcher) or [""]
    if arguments.ranks and shutil.which(launcher) is None:
        parser.error(f"--launcher: there is no '{launcher}' on the PATH; name one that there is")
    data = None if arguments.data is None else Path(arguments.data)
    failed, rows = [], []
    for name in arguments.recipes or recipes.names():
        recipe = recipes.read(name)
        source = source_of(recipe, data)
        if source is None:
            print(f"{name}: none of its graphs is here: {', '.join(recipe.data)}", file=sys.stderr)
            continue
        found = train(recipe, source, run_of(name, arguments), device=arguments.device)
        on_ranks = None
        if found is not None and arguments.ranks:
            on_ranks = train_on_ranks(recipe, source, arguments)
        if found is None or (arguments.ranks and on_ranks is None):
            failed.append(name)
            continue
        row = row_of(recipe, source, found, on_ranks, arguments.ranks)
        row[RUNS] += "" if arguments.device == "cpu" else " on a GPU"
        rows.append(row)
        if arguments.write:
            write(rows)
    print(table(rows), end="")
    if any(row[PUBLISHED].endswith("*") for row in rows):
        print(f"\n{NOTE}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
