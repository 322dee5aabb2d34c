"""Train recipes as they were published, and print our figures beside the published ones.

    examples/accuracy/run.py [RECIPE ...] [--out DIR] [--data DIR] [--write]

Graphs are DIR/NAME.npz of --data, else of $DISTGNN_DATA; Cora comes along. Without recipes: all
whose graph is there. Runs that have ended are not run again, so that an interrupted table goes on.
--write puts the table into examples/accuracy/RESULTS.md.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from distgnn.cli import main as distgnn
from distgnn.cli import recipes
from distgnn.cli.series import FILE

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "RESULTS.md"
MARK = "<!-- The table below is written by examples/accuracy/run.py. -->\n"
MARGIN = 0.5
"""Points of percent below the published mean that still count as reproduced."""
HEADER = ("recipe", "graph", "runs", "published", "ours", "difference")


def source_of(recipe: recipes.Recipe, data: Path | None) -> str | None:
    """Find a graph of the recipe: a file of the folder, or Cora."""
    for name in recipe.data:
        if data is not None and (data / f"{name}.npz").is_file():
            return str(data / f"{name}.npz")
        if name == "cora":
            return name
    return None


def train(recipe: recipes.Recipe, source: str, out: Path) -> dict | None:
    """Train as the recipe was published, or go on; the figures, or None if it failed."""
    if not (recipe.runs and "mean" in recipe.published):
        print(f"{recipe.name}: failed, it has no runs or no published mean", file=sys.stderr)
        return None
    run = out / recipe.name
    words = ["train", source, "--run", str(run), "--resume", "--quiet", "--eval-every=1"]
    words += ["--checkpoint-every=0", *recipe.words(with_runs=True)]
    if distgnn(words) != 0:
        return None
    found = json.loads((run / FILE).read_text()) if (run / FILE).is_file() else {}
    if found.get("test_metric_mean") is None:
        print(f"{recipe.name}: failed, its runs are no series with a test metric", file=sys.stderr)
        return None
    return found


def row_of(recipe: recipes.Recipe, source: str, found: dict) -> list[str]:
    """Write a line of the table, in percent."""
    mean, std = (found[f"test_metric_{what}"] for what in ("mean", "std"))
    ours = {"mean": 100 * mean, **({} if std is None else {"std": 100 * std})}
    difference = ours["mean"] - recipe.published["mean"]
    verdict = "" if difference >= -MARGIN else ", below"
    return [
        recipe.name,
        Path(source).stem,
        str(found["num_runs"]),
        recipes.describe(recipe.published),
        recipes.describe(ours),
        f"{difference:+.2f}{verdict}",
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
    everything = {**recorded(), **{row[0]: row for row in rows}}
    head = RESULTS.read_text().partition(MARK)[0]
    RESULTS.write_text(head + MARK + table([everything[name] for name in sorted(everything)]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recipes", nargs="*", metavar="RECIPE")
    parser.add_argument("--data", type=Path, default=os.environ.get("DISTGNN_DATA"))
    parser.add_argument("--out", type=Path, default=HERE / "out")
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    data = None if arguments.data is None else Path(arguments.data)
    failed, rows = [], []
    for name in arguments.recipes or recipes.names():
        recipe = recipes.read(name)
        source = source_of(recipe, data)
        if source is None:
            print(f"{name}: none of its graphs is here: {', '.join(recipe.data)}", file=sys.stderr)
            continue
        found = train(recipe, source, arguments.out)
        if found is None:
            failed.append(name)
            continue
        rows.append(row_of(recipe, source, found))
        if arguments.write:
            write(rows)
    print(table(rows), end="")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
