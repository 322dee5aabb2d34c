"""Accuracy, epochs, bytes and seconds of all presets, beside those of exact training.

    python examples/strategies/presets.py FOLDER [--halos decentralized,llcg] [--sets A B]
        [--models A,B] [--parts 8] [--cuts metis,random] [--beside libra] [--seeds 5]
        [--epochs 60] [--eval-every 5] [--only-table] [--record]

Runs are those of accuracy.py, to which its flags and its file belong; by default all presets that
say something about weights. The goal of a run is the best validation metric of exact training of
the same seed less half a point. With --beside exact training is that on another cut. Seconds are
those that all ranks compute up to it, on one core: nothing is sent over a network. --record writes
PRESETS.md of examples/strategies, with --beside CUTS.md.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from typing import TYPE_CHECKING, Any

from accuracy import (
    Cell,
    cells,
    commits,
    describe,
    make_runs,
    read_options,
    write_page,
)

from distgnn.training.config.presets import PRESETS

if TYPE_CHECKING:
    from collections.abc import Iterable

WEIGHTS = [name for name, preset in PRESETS.items() if preset.weights != "sum"]
"""Presets that say something about weights."""
BELOW = 0.005
"""Share below the best validation metric of exact training at which the goal is."""
HEADER = [
    *("preset", "seeds", "test (points)", "at the goal", "epochs"),
    *("rows (MB)", "weights (MB)", "times fewer", "core (s)"),
]


def reached(values: dict[str, Any], goal: float) -> dict[str, Any] | None:
    """Find the first evaluation that is as good as the goal; None if there is none."""
    return next((one for one in values["curve"] if one["val_metric"] >= goal), None)


def median(points: list[dict[str, Any]], name: str, unit: float = 1) -> str:
    """Write the median of a value of the runs that reached the goal."""
    if not points:
        return "-"
    value = statistics.median(one[name] for one in points) / unit
    return f"{value:.2f}".removesuffix(".00") if name == "epochs" else f"{value:.2f}"


def row(
    done: dict[Cell, dict[str, Any]], cell: Cell, seeds: range, beside: str
) -> list[str] | None:
    """Write the runs of a preset beside exact training on a cut; None without any."""
    runs = {s: done.get(cell._replace(seed=s), {}) for s in seeds}
    exact = {s: done.get(cell._replace(seed=s, halo="exact", cut=beside), {}) for s in seeds}
    known = [s for s in seeds if runs[s] and "curve" in exact[s]]
    if not known:
        return None
    goals = {s: max(one["val_metric"] for one in exact[s]["curve"]) - BELOW for s in known}
    ended = [s for s in known if "curve" in runs[s]]
    found = {s: reached(runs[s], goals[s]) for s in ended}
    points = [one for one in found.values() if one is not None]
    fewer = [sent(reached(exact[s], goals[s])) / sent(one) for s, one in found.items() if sent(one)]
    lost = [100 * (runs[s]["test_metric"] - exact[s]["test_metric"]) for s in ended]
    metric = describe(lost, "+")
    if (cell.halo, cell.cut) == ("exact", beside):
        metric = describe([100 * exact[s]["test_metric"] for s in known]) + " %"
    failed = len(known) - len(ended)
    return [
        f"`{cell.halo}`",
        str(len(known)) + f", {failed} failed" * bool(failed),
        metric,
        f"{len(points)} of {len(known)}",
        median(points, "epochs"),
        median(points, "halo_bytes", 1e6),
        median(points, "weight_bytes", 1e6),
        f"{statistics.median(fewer):.2f}" if fewer else "-",
        median(points, "cpu_s"),
    ]


def sent(point: dict[str, Any] | None) -> int:
    """Give the bytes of rows and weights up to an evaluation."""
    return point["halo_bytes"] + point["weight_bytes"] if point else 0


def tables(done: dict[Cell, dict[str, Any]], options: argparse.Namespace) -> Iterable[str]:
    """Write a table for each graph, model, number of parts and cut."""
    for cell in cells(argparse.Namespace(**{**vars(options), "seeds": 1, "halos": ["exact"]})):
        seeds, beside = range(options.seeds), options.beside or cell.cut
        rows = [row(done, cell._replace(halo=h), seeds, beside) for h in options.halos]
        if any(rows):
            than = f", beside exact training on {beside}" * (beside != cell.cut)
            yield f"\n## {cell.set}, {cell.model}, {cell.parts} parts, {cell.cut}{than}\n"
            yield from (f"| {' | '.join(r)} |" for r in [HEADER, ["---"] * len(HEADER)])
            yield from (f"| {' | '.join(r)} |" for r in rows if r is not None)


def main() -> int:
    """Make the runs that are left, and print the tables."""
    options = read_options(
        str(__doc__).splitlines()[0],
        {"--beside": "cut of exact training that presets are compared with"},
        halos=["exact", *WEIGHTS],
        sets=["cora", "facebook-pages", "amazon-computers", "coauthor-physics"],
        models=["gcn"],
        parts=[8],
        seeds=5,
        epochs=60,
    )
    options.halos = ["exact", *(name for name in options.halos if name != "exact")]
    if options.beside not in (None, *options.cuts):
        sys.exit(f"--beside {options.beside} is none of --cuts {','.join(options.cuts)}; add it")
    done = make_runs(options)
    lines = list(tables(done, options))
    print("\n".join(lines))
    if options.record:
        flags = (
            "Written by `presets.py`.\n\n"
            f"At most {options.epochs} epochs, evaluated every {options.eval_every}. Points are "
            "more or less than exact training of the same\nseed, mean and standard error, at the "
            f"best validation epoch. The goal is {100 * BELOW:g} points below the best validation "
            "metric\nof exact training; epochs, bytes that all ranks send, but for rows of "
            "evaluations, and seconds of one core are\nthose up to it, medians of the runs that "
            "reach it. Bytes in all are so many times fewer than those of exact training.\n"
            f"Commit {commits(done, options)}."
        )
        if options.beside is None:
            write_page("PRESETS.md", "Presets beside exact training", flags, lines)
        else:
            title = f"Presets beside exact training on {options.beside}"
            write_page("CUTS.md", title, flags, lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
